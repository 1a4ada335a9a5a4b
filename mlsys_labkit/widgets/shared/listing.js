import { h, KEYS, unique } from "./dom.js";

const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };

/**
 * Lines of source to choose from with the mouse or the keyboard: one stop for Tab, the arrow keys do the rest.
 * @param {{ cells: import("./dom.js").Child[], class?: string, "aria-label"?: string }[]} lines
 * @param {() => number} chosen the place of the chosen line
 * @param {(place: number) => void} choose called with a place that there is
 */
export function listing(lines, chosen, choose) {
  const name = unique("lk-row");
  const rows = lines.map(({ cells, ...attributes }, i) => {
    const own = { ...KEYS, class: "lk-row", role: "option", id: `${name}-${i}`, onclick: () => choose(i) };
    return h("div", { ...own, ...attributes }, ...cells);
  });
  const onkeydown = (/** @type {KeyboardEvent} */ event) => {
    const step = STEPS[event.key];
    if (step === undefined) return;
    event.preventDefault();
    choose(Math.min(rows.length - 1, Math.max(0, chosen() + step)));
  };
  const el = h("div", { class: "lk-code", role: "listbox", "aria-label": "Source lines", onkeydown }, rows);
  const mark = () =>
    rows.forEach((row, i) => {
      row.tabIndex = i === chosen() ? 0 : -1;
      row.setAttribute("aria-selected", String(i === chosen()));
    });
  /** Call `then` once the list has a height. Returns a function that stops the waiting. */
  const whenLaid = (/** @type {() => void} */ then) => {
    const watch = new ResizeObserver(() => {
      if (!el.clientHeight) return;
      then();
      watch.disconnect();
    });
    watch.observe(el);
    return () => watch.disconnect();
  };
  return { el, rows, mark, whenLaid };
}
