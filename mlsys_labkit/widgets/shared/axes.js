/** Axes of a plot: rules across it, and numbers beside them. */
import { s } from "./dom.js";

/**
 * Vertical rules at `values`, with the numbers below.
 * @param {number[]} values
 * @param {(value: number) => number} x
 * @param {number} top
 * @param {number} bottom
 * @param {(value: number) => string} text
 */
export const verticals = (values, x, top, bottom, text) =>
  values.map((v) =>
    s(
      "g",
      {},
      s("line", { class: "rule", x1: x(v), x2: x(v), y1: top, y2: bottom }),
      s("text", { class: "soft", x: x(v), y: bottom + 16, "text-anchor": "middle" }, text(v)),
    ),
  );

/**
 * Horizontal rules at `values`, with the numbers on the left.
 * @param {number[]} values
 * @param {(value: number) => number} y
 * @param {number} left
 * @param {number} right
 * @param {(value: number) => string} text
 */
export const horizontals = (values, y, left, right, text, gap = 6) =>
  values.map((v) =>
    s(
      "g",
      {},
      s("line", { class: "rule", x1: left, x2: right, y1: y(v), y2: y(v) }),
      s("text", { class: "soft", x: left - gap, y: y(v) + 4, "text-anchor": "end" }, text(v)),
    ),
  );

/** The numbers `digits` times a power of ten between 10 ** low and 10 ** high, of every `stride`-th power. */
export function roundNumbers(/** @type {number} */ low, /** @type {number} */ high, digits = [1, 2, 5], stride = 1) {
  const found = [];
  for (let power = Math.floor(low); power <= high; power += stride)
    found.push(...digits.map((digit) => digit * 10 ** power));
  return found.filter((v) => Math.log10(v) >= low && Math.log10(v) <= high);
}
