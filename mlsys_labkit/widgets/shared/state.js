/** The synced fields of a widget: listening to them and setting them. */

/**
 * @typedef {object} Model
 * @property {(name: string) => any} get
 * @property {(name: string, value: unknown) => void} set
 * @property {(event: string, call: () => void) => void} on
 * @property {(event: string, call: () => void) => void} off
 * @property {() => void} save_changes
 */

/** @typedef {{ model: Model, el: HTMLElement }} View the argument of every widget's render, as anywidget passes it */

/** @type {Set<() => void> | null} */
let pending = null;

/**
 * Draw now, and again whenever one of the fields changes. Returns a function that stops this and calls `stops`.
 * @param {Model} model
 * @param {string[]} names
 * @param {() => void} redraw
 * @param {(() => void)[]} stops
 */
export function follow(model, names, redraw, ...stops) {
  const heard = () => {
    if (pending) pending.add(redraw);
    else redraw();
  };
  names.forEach((name) => model.on(`change:${name}`, heard));
  redraw();
  return () => {
    stops.forEach((stop) => stop());
    names.forEach((name) => model.off(`change:${name}`, heard));
  };
}

/**
 * Set fields together: `redraw` and everyone who follows one of them is called once, after the last is set.
 * @param {Model} model
 * @param {Record<string, unknown>} values
 * @param {() => void} [redraw]
 */
export function put(model, values, redraw) {
  /** @type {Set<() => void>} */
  const waiting = new Set(redraw ? [redraw] : []);
  pending = waiting;
  Object.entries(values).forEach(([name, value]) => model.set(name, value));
  pending = null;
  model.save_changes();
  waiting.forEach((one) => one());
}
