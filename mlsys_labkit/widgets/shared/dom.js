/** Elements and controls of a widget's view. No global state: one page may load this module many times. */
import { flat, make, perFrame, s, set, sketch } from "./redraw.js";

/** @typedef {import("./redraw.js").Child} Child */
/** @typedef {import("./redraw.js").Attributes} Attributes */

/**
 * An HTML element with attributes, listeners and children; empty ones are left out.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {Child[]} children
 */
export function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const name in attributes) set(node, name, attributes[name]);
  node.append(...flat(children).map(make));
  return node;
}

/**
 * Sketch a picture at its own size, of the elements in it; "aria-label" tells those who cannot see it.
 * @param {Record<string, any> & { width: number, height: number }} attributes
 * @param {Child[]} children
 */
export const picture = (attributes, ...children) =>
  s("svg", { viewBox: `0 0 ${attributes.width} ${attributes.height}`, role: "img", ...attributes }, ...children);

/** JupyterLab takes arrows, space and letters before the page sees them, unless the element in focus has this. */
export const KEYS = { "data-lm-suppress-shortcuts": "true" };

let made = 0;
/** @param {string} stem */
export const unique = (stem) => `${stem}-${Date.now().toString(36)}-${(made += 1)}`;

/**
 * A part that a reader unfolds; without content it is not shown.
 * @param {string} name
 * @param {HTMLElement} content
 */
const fold = (name, content) => h("details", { class: "lk-fold" }, h("summary", { ...KEYS }, name), content);

/**
 * The frame of every widget: a title, the picture, the conclusion in words beside it, spoken when it changes, at most
 * four controls, and folded the other controls and the numbers. `numbers` draws what is folded: now for the first time
 * or where it is unfolded, otherwise when a reader unfolds it.
 * @param {HTMLElement} el
 * @param {string} name
 * @param {string} title
 * @param {string} [lead]
 */
export function frame(el, name, title, lead) {
  const heading = unique("lk-title");
  const parts = {
    stage: h("div", { class: "lk-stage" }),
    says: h("p", { class: "lk-says", "aria-live": "polite" }),
    controls: h("div", { class: "lk-controls" }),
    more: h("div", { class: "lk-controls" }),
    rest: h("div", { class: "lk-rest" }),
  };
  const folded = fold("Numbers", parts.rest);
  const root = h(
    "section",
    { class: `lk lk-${name}`, "aria-labelledby": heading },
    h("h3", { class: "lk-title", id: heading }, title),
    lead && h("p", { class: "lk-lead" }, lead),
    parts.stage,
    parts.says,
    parts.controls,
    h("div", { class: "lk-folds" }, fold("More settings", parts.more), folded),
  );
  el.replaceChildren(root);
  const numbers = (/** @type {() => void} */ draw) => {
    if (folded.open || !folded.ontoggle) draw();
    folded.ontoggle = draw;
  };
  return { root, numbers, ...parts };
}

/**
 * A labelled slider with its value as text. `put` moves it without a call of `input`.
 * @param {string} label
 * @param {{
 *   min: number, max: number, step?: number, value: number,
 *   show?: (value: number) => string, input: (value: number) => void,
 * }} options
 */
export function slider(label, { min, max, step = 1, value, show = String, input }) {
  const output = h("output", {}, show(value));
  const ranged = { ...KEYS, type: "range", min, max, step, value, "aria-label": label, "aria-valuetext": show(value) };
  const range = h("input", ranged);
  const put = (/** @type {number} */ next) => {
    range.value = String(next);
    output.textContent = show(next);
    range.setAttribute("aria-valuetext", show(next));
  };
  const moved = (/** @type {number} */ next) => {
    put(next);
    input(next);
  };
  const { later, flush } = perFrame(moved);
  range.addEventListener("input", () => (range.matches(":active") ? later : moved)(Number(range.value)));
  range.addEventListener("change", flush);
  return { el: h("label", { class: "lk-field" }, h("span", {}, label), output, range), put, range, output };
}

/**
 * A slider over powers of ten, whose bounds and step are exponents.
 * @param {string} label
 * @param {{
 *   min: number, max: number, step: number, value: number,
 *   show: (value: number) => string, input: (value: number) => void,
 * }} options
 */
export function logSlider(label, { value, show, input, ...bounds }) {
  const field = slider(label, {
    ...bounds,
    value: Math.log10(value),
    show: (exponent) => show(10 ** exponent),
    input: (exponent) => input(10 ** exponent),
  });
  return { ...field, put: (/** @type {number} */ next) => field.put(Math.log10(next)) };
}

/**
 * A slider over the values of a list, for steps that are not even.
 * @template T
 * @param {string} label
 * @param {T[]} list
 * @param {T} value
 * @param {(value: T) => string} show
 * @param {(value: T) => void} input
 */
export function ladder(label, list, value, show, input) {
  const field = slider(label, {
    min: 0,
    max: list.length - 1,
    value: list.indexOf(value),
    show: (i) => show(list[i]),
    input: (i) => input(list[i]),
  });
  return { ...field, put: (/** @type {T} */ next) => field.put(list.indexOf(next)) };
}

/**
 * A labelled list to choose from; the options are pairs of key and text.
 * @param {string} label
 * @param {string[][]} options
 * @param {string} value
 * @param {(value: string) => void} change
 */
export function choice(label, options, value, change) {
  const select = h(
    "select",
    { ...KEYS, onchange: () => change(select.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
  );
  return { el: h("label", { class: "lk-field" }, h("span", {}, label), select), select };
}

/**
 * @param {string} label
 * @param {(event: MouseEvent) => void} onclick
 * @param {Attributes} [extra]
 */
export const button = (label, onclick, extra) => h("button", { ...KEYS, type: "button", onclick, ...extra }, label);

/**
 * What the colours mean; the widget's style gives each class, "part0" and so on, its colour `--c`.
 * @param {string[]} names
 * @param {string} kind
 */
export const colourKeys = (names, kind) =>
  h(
    "p",
    { class: "lk-keys", "aria-hidden": "true" },
    names.map((name, i) => h("span", {}, h("i", { class: `${kind}${i}` }), name)),
  );

/**
 * Sketch a table with a caption, a header row and row headers.
 * @param {string} caption
 * @param {Child[]} head
 * @param {Child[][]} rows
 */
export const grid = (caption, head, rows) =>
  sketch(
    "table",
    {},
    sketch("caption", {}, caption),
    sketch(
      "thead",
      {},
      sketch(
        "tr",
        {},
        head.map((name) => sketch("th", { scope: "col" }, name)),
      ),
    ),
    sketch(
      "tbody",
      {},
      rows.map(([first, ...others]) =>
        sketch(
          "tr",
          {},
          sketch("th", { scope: "row" }, first),
          others.map((cell) => sketch("td", {}, cell)),
        ),
      ),
    ),
  );

/**
 * Paint a box at the width it has, again whenever that changes, so that text is never scaled.
 * @param {HTMLElement} box
 * @param {(width: number) => void} paint
 */
export function fit(box, paint) {
  let width = 0;
  const draw = () => paint(Math.max(300, Math.floor(width || box.clientWidth || 640)));
  const watch = new ResizeObserver(([entry]) => {
    const next = Math.floor(entry.contentRect.width);
    if (next && next !== width) {
      width = next;
      draw();
    }
  });
  watch.observe(box);
  return { draw, stop: () => watch.disconnect() };
}

/**
 * Call `drag` when a pointer is pressed on `node`, and until it is let go with its moves, one per frame.
 * @param {HTMLElement} node
 * @param {(event: PointerEvent) => void} drag
 */
export function whileHeld(node, drag) {
  const { later, flush } = perFrame(drag);
  let held = false;
  const release = () => {
    held = false;
    flush();
  };
  node.addEventListener("pointerdown", (event) => {
    held = true;
    node.setPointerCapture(event.pointerId);
    drag(event);
  });
  node.addEventListener("pointermove", (event) => {
    if (held) later(event);
  });
  node.addEventListener("pointerup", release);
  node.addEventListener("pointercancel", release);
}
