/** Axes of a plot: rules across it, and numbers beside them. */
import { s } from "./redraw.js";

const WIDE = 6.8; // pixels of a character
/** Keep the texts that a row has room for: each is `text(value)` around `x(value)`. */
const roomy = (
  /** @type {number[]} */ values,
  /** @type {(value: number) => number} */ x,
  /** @type {(value: number) => string} */ text,
) => {
  let end = -Infinity;
  return values.map((v) => {
    const half = (WIDE * text(v).length) / 2;
    if (x(v) - half < end) return "";
    end = x(v) + half + 2;
    return text(v);
  });
};

/**
 * Vertical rules at `values`, with the numbers below; a number that would touch the one before it is left out.
 * @param {number[]} values
 * @param {(value: number) => number} x
 * @param {number} top
 * @param {number} bottom
 * @param {(value: number) => string} text
 */
export const verticals = (values, x, top, bottom, text) => {
  const shown = roomy(values, x, text);
  return values.map((v, i) =>
    s(
      "g",
      {},
      s("line", { class: "rule", x1: x(v), x2: x(v), y1: top, y2: bottom }),
      shown[i] && s("text", { class: "soft", x: x(v), y: bottom + 16, "text-anchor": "middle" }, shown[i]),
    ),
  );
};

/**
 * Return a function that takes the first of several places of a label's middle where it touches no label before it, and
 * if possible no mark.
 * @param {[number, number, number][]} [marks] middle and radius of each
 */
export function labeller(marks = []) {
  /** @type {[number, number, number][]} */
  const taken = [];
  const touches = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ half) =>
    taken.some(([u, v, other]) => Math.abs(u - x) < half + other && Math.abs(v - y) < 14);
  const covers = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ half) =>
    marks.some(([u, v, radius]) => Math.abs(u - x) < half + radius && Math.abs(v - y + 4) < 6 + radius);
  return (/** @type {string} */ text, /** @type {[number, number][]} */ places) => {
    const half = (text.length * (WIDE + 0.5)) / 2 + 2,
      free = places.filter((place) => !touches(...place, half)),
      [x, y] = free.find((place) => !covers(...place, half)) || free[0] || places[0];
    taken.push([x, y, half]);
    return { x, y, "text-anchor": "middle" };
  };
}

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
