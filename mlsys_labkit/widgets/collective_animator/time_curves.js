import { picture } from "../shared/dom.js";
import { si } from "../shared/numbers.js";
import { s } from "../shared/redraw.js";
import { range, ways, seconds } from "./model.js";

/**
 * Seconds of each algorithm by tensor size on a cluster, and a sentence about one size.
 * @param {{collective: string, algorithm: string}
 *   & {cluster: number, latency: number, bandwidth: number, size: number}} state
 * @returns {{svg: import("../shared/redraw.js").Sketch, text: string}}
 */
export function timeCurves({ collective, algorithm, cluster: n, latency, bandwidth, size }, width) {
  const names = ways(collective);
  const time = (way, bytes) => seconds(collective, way, n, bytes, latency, bandwidth),
    height = 250,
    left = 58,
    right = width - (width < 520 ? 70 : 86),
    top = 12,
    low = height - 34;
  const x0 = 3,
    x1 = 10,
    every = range(57).map((k) => x0 + k / 8),
    values = names.flatMap((way) => [time(way, 10 ** x0), time(way, 10 ** x1)]);
  const y0 = Math.floor(Math.log10(Math.min(...values))),
    y1 = Math.ceil(Math.log10(Math.max(...values)));
  const X = (power) => left + ((power - x0) / (x1 - x0)) * (right - left),
    Y = (t) => low - ((Math.log10(t) - y0) / (y1 - y0)) * (low - top);
  const marks = range(y1 - y0 + 1).map((k) => [
    s("line", { class: "rule", x1: left, x2: right, y1: Y(10 ** (y0 + k)), y2: Y(10 ** (y0 + k)) }),
    s("text", { class: "soft", x: left - 8, y: Y(10 ** (y0 + k)) + 4, "text-anchor": "end" }, si(10 ** (y0 + k), "s")),
  ]);
  const ticks = range(x1 - x0 + 1)
    .filter((k) => width > 520 || k % 2 === 0)
    .map((k) =>
      s("text", { class: "soft", x: X(x0 + k), y: low + 18, "text-anchor": "middle" }, si(10 ** (x0 + k), "B")),
    );
  const ends = names.map((way, i) => [Y(time(way, 10 ** x1)), i]).sort((one, two) => one[0] - two[0]);
  ends.forEach((end, i) => {
    if (i) end[0] = Math.max(end[0], ends[i - 1][0] + 14);
  });
  const lines = names.map((way, i) =>
    s(
      "g",
      { class: `r${i}` },
      s("path", {
        class: `lk-curve${way === algorithm ? " on" : ""}`,
        "stroke-dasharray": [null, "7 4", "2 3", "10 3 2 3", "1 5"][i],
        d: every.map((power, k) => `${k ? "L" : "M"}${X(power)},${Y(time(way, 10 ** power))}`).join(""),
      }),
      s("text", { class: "lk-end", x: right + 8, y: ends.find((end) => end[1] === i)[0] + 4 }, way),
    ),
  );
  const here = Math.min(x1, Math.max(x0, Math.log10(size))),
    best = Math.min(...names.map((way) => time(way, size)));
  const winners = names.filter((way) => time(way, size) <= best * 1.001),
    told = names.map((way) => `${way} ${si(time(way, size), "s")}`).join(", ");
  const fastest = winners.join(" and ");
  const text = `${si(size, "B")} on ${n} ranks: ${told}. Fastest: ${fastest}. ${crossing(collective, time)}`;
  const svg = picture(
    {
      width,
      height,
      "aria-label": `Time by tensor size, both on logarithmic axes. ${text}`,
    },
    marks,
    ticks,
    s("line", { class: "axis", x1: left, x2: right, y1: low, y2: low }),
    lines,
    s("line", { class: "lk-cut", x1: X(here), x2: X(here), y1: top, y2: low }),
    names.map((way, i) =>
      s("circle", { class: `lk-tip r${i}`, cx: X(here), cy: Y(time(way, 10 ** here)), r: way === algorithm ? 5 : 3.5 }),
    ),
  );
  return { svg, text };
}

// Where two straight lines in n meet: latency times messages against bytes over bandwidth.
function crossing(collective, time) {
  const [ring, tree] = ["ring", "tree"].map((by) => [time(by, 0), (time(by, 1e9) - time(by, 0)) / 1e9]),
    n = (ring[0] - tree[0]) / (tree[1] - ring[1]);
  return n > 1 && ways(collective).includes("tree")
    ? `The tree beats the ring below ${si(n, "B")}: fewer messages, more bytes.`
    : "";
}
