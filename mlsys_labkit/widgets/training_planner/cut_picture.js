import { picture } from "../shared/dom.js";
import { plain, whole } from "../shared/numbers.js";
import { s } from "../shared/redraw.js";

const TALL = 148,
  TOP = 20,
  FOOT = 26,
  MOST = 1024; // copies

/** @typedef {{ middle: [number, number], step: (at: number) => number }} Place of a handle; `step` is a power of two */
/** @typedef {{ pipeline: Place, tensor: Place, data: Place }} Places */

/**
 * A model as a block of layers, cut across into stages and along into the parts of tensor parallelism: a cell is a GPU,
 * filled as its memory is. Beside it, the copies of the block, on a logarithmic scale.
 * @param {{ data: number, tensor: number, pipeline: number, layers: number }} p
 * @param {number} width
 * @param {number} fill part of the usable memory that is in use
 * @param {number} gpus
 */
export function cutPicture(p, width, fill, gpus) {
  const wide = Math.round(width * 0.56),
    high = TALL - TOP - FOOT,
    left = 16,
    each = [(wide - left) / p.tensor, high / p.pipeline],
    over = fill > 1,
    stages = `${p.pipeline} stage${p.pipeline > 1 ? "s" : ""}`,
    perLayer = `each layer on ${p.tensor} GPU${p.tensor > 1 ? "s" : ""}`,
    roomy = each[0] > 7 * perLayer.length + 20,
    crossed = each[0] < 7 * stages.length + 24 || each[1] < 23; // by the edge of a cell
  const cells = Array.from({ length: p.tensor * p.pipeline }, (_, i) => {
    const x = left + (i % p.tensor) * each[0],
      y = TOP + Math.floor(i / p.tensor) * each[1],
      full = Math.min(1, fill) * each[1];
    return s(
      "g",
      { class: over ? "over" : "fits" },
      s("rect", { class: "ground", x, y, width: each[0], height: each[1] }),
      s("rect", { class: "full", x, y: y + each[1] - full, width: each[0], height: full }),
      s("rect", { class: "edge", x, y, width: each[0], height: each[1] }),
    );
  });
  const from = wide + 44,
    span = width - from - 16,
    at = (/** @type {number} */ n) => from + (Math.log2(n) / Math.log2(MOST)) * span;
  const svg = picture(
    {
      width,
      height: TALL,
      class: "lk-cuts",
      "aria-label":
        `${p.layers} layers in ${p.pipeline} stages of ${p.tensor} GPUs each, ${p.data} times: ${gpus} GPUs, whose ` +
        `fullest holds ${plain(100 * fill)} % of the usable memory`,
    },
    s("text", { class: "soft", x: left + 20, y: 12 }, `${p.layers} layers, a cell is a GPU`),
    cells,
    s("text", { class: crossed && "halo", x: left + 20, y: TOP + Math.max(18, each[1] - 5) }, stages),
    s(
      "text",
      { x: left + each[0] + (roomy ? -20 : 20), y: TOP + high + 15, "text-anchor": roomy ? "end" : "start" },
      perLayer,
    ),
    s("text", { class: "soft", x: from, y: 12 }, "copies"),
    s("line", { class: "axis", x1: from, x2: from + span, y1: TOP + high / 2, y2: TOP + high / 2 }),
    [1, 4, 16, 64, 256, 1024].map((n) =>
      s("g", {}, [
        s("line", { class: "axis", x1: at(n), x2: at(n), y1: TOP + high / 2 - 4, y2: TOP + high / 2 + 4 }),
        (span > 150 || n === 1 || n === 16 || n === 256) &&
          s("text", { class: "soft", x: at(n), y: TOP + high / 2 + 32, "text-anchor": "middle" }, whole(n)),
      ]),
    ),
  );
  return {
    svg,
    pipeline: {
      middle: /** @type {[number, number]} */ ([left, TOP + each[1]]),
      step: (/** @type {number} */ y) => Math.log2(high / Math.max(1, y - TOP)),
    },
    tensor: {
      middle: /** @type {[number, number]} */ ([left + each[0], TOP + high + 10]),
      step: (/** @type {number} */ x) => Math.log2((wide - left) / Math.max(1, x - left)),
    },
    data: {
      middle: /** @type {[number, number]} */ ([at(p.data), TOP + high / 2]),
      step: (/** @type {number} */ x) => ((x - from) / span) * Math.log2(MOST),
    },
  };
}
