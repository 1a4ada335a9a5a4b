/** Handles: marks on a picture that a pointer drags and that the keys move. */
import { h, KEYS } from "./dom.js";
import { perFrame, s } from "./redraw.js";

const STEPS = {
  ArrowRight: [1, 0],
  ArrowLeft: [1, 0, -1],
  ArrowUp: [1, 1],
  ArrowDown: [1, 1, -1],
  PageUp: [10, 0],
  PageDown: [10, 0, -1],
  Home: [Infinity, 0, -1],
  End: [Infinity, 0],
};
const ARROWS = { x: "M10 10l-4 4 4 4M18 10l4 4-4 4", y: "M10 10l4-4 4 4M10 18l4 4 4-4" };

/**
 * A handle that moves by whole steps along one axis of a picture, or along two.
 *
 * `now` and `at` return one number for each axis, `range` the least and the greatest; `at` takes a point of the picture
 * and may return parts of a step. `move` is called when the steps change. `put` places the handle; each drawing calls
 * it. `say` tells what the handle stands for, with what follows from it. With `nudge`, arrow keys call it, where a step
 * of the keys is no step of the pointer.
 * @param {string} label
 * @param {{
 *   axis?: "x" | "y" | "xy",
 *   range: () => [number, number][],
 *   now: () => number[],
 *   at: (x: number, y: number) => number[],
 *   move: (...steps: number[]) => void,
 *   say: () => string,
 *   nudge?: (sign: number, event: KeyboardEvent) => void,
 * }} options
 */
export function handle(label, { axis = "x", range, now, at, move, say, nudge }) {
  const arrows = axis === "xy" ? ARROWS.x + ARROWS.y : ARROWS[axis];
  const drawing = { width: 28, height: 28, "aria-hidden": "true" };
  const el = h(
    "div",
    { ...KEYS, class: "lk-grip", "data-axis": axis, role: "slider", tabindex: 0, "aria-label": label },
    s("svg", drawing, s("circle", { cx: 14, cy: 14, r: 13 }), s("path", { d: arrows })),
  );
  const go = (/** @type {number[]} */ to) => {
    const next = range().map(([low, high], i) => Math.round(Math.min(high, Math.max(low, to[i]))));
    if (next.some((step, i) => step !== now()[i])) move(...next);
  };
  el.addEventListener("keydown", (event) => {
    const [size, which, sign = 1] = STEPS[event.key] || [];
    if (!size) return undefined;
    event.preventDefault();
    if (nudge && size === 1) return nudge(sign, event);
    const along = Math.min(which, range().length - 1);
    return go(now().map((step, i) => (i === along ? step + sign * size : step)));
  });
  // The pointer keeps its distance from the middle of the handle, so that a press alone moves nothing.
  /** @type {number[] | null} */
  let grip = null;
  el.addEventListener("pointerdown", (event) => {
    const box = el.getBoundingClientRect();
    grip = [event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2];
    el.setPointerCapture(event.pointerId);
    el.focus();
    event.preventDefault();
    event.stopPropagation();
  });
  const { later, flush } = perFrame((/** @type {PointerEvent} */ event) => {
    if (!grip) return;
    const box = /** @type {HTMLElement} */ (el.parentElement).getBoundingClientRect();
    go(at(event.clientX - grip[0] - box.left, event.clientY - grip[1] - box.top));
  });
  el.addEventListener("pointermove", (event) => {
    if (grip) later(event);
  });
  const release = () => {
    flush();
    grip = null;
  };
  el.addEventListener("pointerup", release);
  el.addEventListener("pointercancel", release);
  const put = (/** @type {number} */ x, /** @type {number} */ y) => {
    const [low, high] = range()[0];
    el.style.left = `${x}px`;
    el.style.top = `${y}px`;
    for (const [name, value] of Object.entries({ min: low, max: high, now: now()[0], text: say() }))
      el.setAttribute(`aria-value${name}`, String(value));
  };
  return { el, put };
}

/**
 * A picture's box with the handles above it; their places are counted from its top left corner.
 * @param {HTMLElement} plot
 * @param {{ el: HTMLElement }[]} handles
 */
export const held = (plot, ...handles) =>
  h(
    "div",
    { class: "lk-held" },
    plot,
    handles.map((one) => one.el),
  );
