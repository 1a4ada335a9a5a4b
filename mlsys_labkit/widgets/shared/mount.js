/** A widget in a page without a kernel: its state comes from the page. */
/** @typedef {import("./state.js").View} View */

/**
 * Draw a widget in place of its static table, over a model with the calls of anywidget's.
 * @param {(view: View) => unknown} render
 * @param {string} home the id of the element that holds the table
 * @param {Record<string, unknown>} state
 * @param {string} [css] the styles that the page does not have yet
 */
export function mount(render, home, state, css = "") {
  /** @type {Record<string, (() => void)[]>} */
  const heard = {};
  const model = {
    get: (/** @type {string} */ name) => /** @type {any} */ (state[name]),
    set(/** @type {string} */ name, /** @type {unknown} */ value) {
      if (state[name] === value) return;
      state[name] = value;
      (heard[`change:${name}`] || []).forEach((call) => call());
    },
    on(/** @type {string} */ event, /** @type {() => void} */ call) {
      (heard[event] ||= []).push(call);
    },
    off(/** @type {string} */ event, /** @type {() => void} */ call) {
      heard[event] = (heard[event] || []).filter((other) => other !== call);
    },
    save_changes() {},
  };
  const root = document.getElementById(home);
  if (!root || root.dataset.alive) return;
  root.dataset.alive = "yes";
  const fallback = root.querySelector(".lk-static");
  const el = document.createElement("div");
  const style = document.createElement("style");
  style.textContent = css;
  root.append(style, el);
  try {
    render({ model, el });
    fallback?.remove();
  } catch (error) {
    el.remove();
    throw error;
  }
}
