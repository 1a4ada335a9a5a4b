// Keep the proxy's connections to Unix sockets open, as configurable-http-proxy does with its TCP connections.
//
// Without an agent the proxy asks each server to close the connection after its answer. A server that answers between
// the two writes of a request with a body then turns the second write into EPIPE. The proxy takes that for a server
// which is away: the browser gets status 503, although the server did what it was asked to do.

import { realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const library = join(dirname(realpathSync(process.argv[1])), "../lib/configproxy.js");
const { ConfigurableProxy } = await import(pathToFileURL(library).href);
const optionsFor = ConfigurableProxy.prototype.proxyOptsForTarget;

/** @this {{httpAgent: import("node:http").Agent}} @param {URL} target */
ConfigurableProxy.prototype.proxyOptsForTarget = function (target) {
  const options = optionsFor.call(this, target);
  if (options.target.socketPath) options.agent = this.httpAgent;
  return options;
};
