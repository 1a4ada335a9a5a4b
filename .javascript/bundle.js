/**
 * Bundles each widget's view into mlsys_labkit/widgets/bundles, which is committed: the kit runs where no node is.
 *
 * `node .javascript/bundle.js` writes the bundles, with `--check` it fails where one is not what its sources give.
 */
import { build, transform } from "esbuild";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const WIDGETS = fileURLToPath(new URL("../mlsys_labkit/widgets", import.meta.url));
const BUNDLES = join(WIDGETS, "bundles");
const TARGET = "es2023";

/** A script that sets `widget`, a variable that whoever embeds the script declares. */
const entry = (/** @type {string} */ name) => `
  import { render } from "./${name}/view.js";
  import { mount } from "./shared/mount.js";
  widget = { render, mount: (home, state) => mount(render, home, state, widget.css) };`;

async function bundles() {
  /** @type {Record<string, string>} */
  const made = {};
  const sources = readdirSync(join(WIDGETS, "shared")).map((file) => `shared/${file}`);
  for (const name of readdirSync(WIDGETS)
    .filter((each) => existsSync(join(WIDGETS, each, "view.js")))
    .sort()) {
    const files = readdirSync(join(WIDGETS, name)).filter((file) => /\.(js|css)$/.test(file));
    sources.push(...files.map((file) => `${name}/${file}`));
    const { outputFiles } = await build({
      stdin: { contents: entry(name), resolveDir: WIDGETS, sourcefile: "entry.js" },
      bundle: true,
      minify: true,
      charset: "utf8",
      format: "esm",
      target: TARGET,
      write: false,
    });
    made[`${name}.js`] = outputFiles[0].text;
    made[`${name}.css`] = await minified(join(name, "style.css"));
  }
  for (const file of ["style.css", "parts.css", "unpack.js", "unpack_mount.js"]) {
    made[`shared_${file}`] = await minified(join("shared", file));
  }
  made["sources.sha256"] = sources
    .sort()
    .map((path) => `${digest(path)}  ${path}\n`)
    .join("");
  return made;
}

/** SHA-256 of a source, so that a test notices a stale bundle where no node is. */
const digest = (/** @type {string} */ path) =>
  createHash("sha256")
    .update(readFileSync(join(WIDGETS, path)))
    .digest("hex");

async function minified(/** @type {string} */ path) {
  const loader = path.endsWith(".css") ? "css" : "js";
  const source = readFileSync(join(WIDGETS, path), "utf8");
  return (await transform(source, { loader, minify: true, charset: "utf8", target: TARGET, format: "esm" })).code;
}

const made = await bundles();
const there = existsSync(BUNDLES) ? readdirSync(BUNDLES) : [];
const text = (/** @type {string} */ name) => (there.includes(name) ? readFileSync(join(BUNDLES, name), "utf8") : null);
const stale = Object.keys(made).filter((name) => text(name) !== made[name]);
const left = there.filter((name) => !(name in made));
if (!process.argv.includes("--check")) {
  stale.forEach((name) => writeFileSync(join(BUNDLES, name), made[name]));
  left.forEach((name) => rmSync(join(BUNDLES, name)));
} else if (stale.length || left.length) {
  console.error(
    `${[...stale, ...left].join(", ")}: not what the sources give; run npm run bundle and commit the result`,
  );
  process.exit(1);
}
