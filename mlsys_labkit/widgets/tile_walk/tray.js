/** The tray: shared memory of one block, with the two tiles that a step puts there and the bytes loaded so far. */
import { si } from "../shared/numbers.js";
import { s } from "../shared/redraw.js";

const SLIDE = 350; // milliseconds from a tile's place in its matrix to the tray

/**
 * @typedef {{ x: number, y: number, width: number, height: number }} Box
 * @param {Box} at
 * @param {{ a: Box, b: Box, held: number, loaded: number, all: number }} now `a` and `b` are where the tiles
 *   are in their matrices; bytes held, loaded by this block up to this step, and loaded when it has ended
 * @returns the drawing, and a call that slides the tiles from their matrices once the drawing is in the page
 */
export function tray(at, { a, b, held, loaded, all }) {
  const side = Math.min(96, at.height - 44, (at.width - 36) / 2),
    top = at.y + 12,
    bottom = at.y + at.height;
  /** @type {[Box, number, string][]} */
  const tiles = [
    [a, at.x + 12, "a"],
    [b, at.x + 24 + side, "b"],
  ];
  const slide = (/** @type {Element} */ plot) => {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    tiles.forEach(([from, x, name]) => {
      const rect = plot.querySelector(`.lk-tray .lk-now.${name}`);
      const start = `translate(${from.x - x}px, ${from.y - top}px) scale(${from.width / side}, ${from.height / side})`;
      rect?.getAnimations().forEach((one) => one.cancel());
      rect?.animate([{ transform: start }, { transform: "none" }], { duration: SLIDE, easing: "ease-out" });
    });
  };
  const drawn = s(
    "g",
    { class: "lk-tray" },
    s("text", { class: "soft", x: at.x, y: at.y - 6 }, `shared memory: ${si(held, "B")}`),
    s("rect", { class: "axis", x: at.x, y: at.y, width: at.width, height: at.height }),
    s(
      "text",
      { class: "soft", x: at.x + 12, y: bottom - 18 },
      `this block loaded ${si(loaded, "B")} of ${si(all, "B")}`,
    ),
    s("rect", { class: "lk-band", x: at.x, y: bottom - 8, width: at.width, height: 8 }),
    s("rect", { class: "lk-loaded", x: at.x, y: bottom - 8, width: (at.width * loaded) / all, height: 8 }),
    tiles.map(([, x, name]) => s("rect", { class: `lk-now ${name}`, x, y: top, width: side, height: side })),
    tiles.map(([, x, name]) =>
      s(
        "text",
        { class: "lk-on-bar", x: x + side / 2, y: top + side / 2 + 4, "text-anchor": "middle" },
        name.toUpperCase(),
      ),
    ),
  );
  return { drawn, slide };
}
