/** Redraws that a hand in motion causes: one per frame, of what changed. */

/** @typedef {string | number | Node | Sketch | null | undefined | false | Child[]} Child */
/** @typedef {Record<string, any> | null | undefined} Attributes */

/** A description of an element. It costs little to make, and `fill` compares it with the one drawn before it. */
export class Sketch {
  /**
   * @param {string} tag
   * @param {boolean} svg
   * @param {Record<string, any>} attributes
   * @param {(string | Node | Sketch)[]} children
   */
  constructor(tag, svg, attributes, children) {
    this.tag = tag;
    this.svg = svg;
    this.attributes = attributes;
    this.children = children;
  }
}

/** The sketch that an element was last drawn from. @type {WeakMap<Node, Sketch>} */
const drawn = new WeakMap();

const none = (/** @type {unknown} */ value) => value === null || value === undefined || value === false;

/** Leave out empty children, and open lists of them. @param {Child[]} children */
export const flat = (children) =>
  /** @type {(string | Node | Sketch)[]} */ (
    children
      .flat(3)
      .filter((child) => !none(child))
      .map((child) => (typeof child === "number" ? String(child) : child))
  );

/**
 * Sketch an HTML element.
 * @param {string} tag
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
export const sketch = (tag, attributes, ...children) => new Sketch(tag, false, attributes || {}, flat(children));

/**
 * Sketch an SVG element.
 * @param {string} tag
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
export const s = (tag, attributes, ...children) => new Sketch(tag, true, attributes || {}, flat(children));

/**
 * Set an attribute, or the listener of an event where its name begins with "on"; an empty value takes it away.
 * @param {Element} node
 * @param {string} name
 * @param {any} value
 * @param {any} [was] the value that it has
 */
export function set(node, name, value, was) {
  if (value === was) return;
  if (name.startsWith("on")) {
    if (!none(was)) node.removeEventListener(name.slice(2), was);
    if (!none(value)) node.addEventListener(name.slice(2), value);
  } else if (!none(value)) node.setAttribute(name, value === true ? "" : value);
  else if (!none(was)) node.removeAttribute(name);
}

/** Make what a sketch describes. @param {string | Node | Sketch} child */
export function make(child) {
  if (!(child instanceof Sketch)) return typeof child === "string" ? document.createTextNode(child) : child;
  const { tag, svg, attributes, children } = child;
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const name in attributes) set(node, name, attributes[name]);
  for (const inner of children) node.append(make(inner));
  drawn.set(node, child);
  return node;
}

/**
 * Show these children in `box`. An element that was drawn from a sketch of the same kind stays, and only what differs
 * in it is set, so that the browser lays out and paints nothing else.
 * @param {Element} box
 * @param {Child[]} children
 */
export function fill(box, ...children) {
  let old = box.firstChild;
  for (const child of flat(children)) {
    const next = old && old.nextSibling;
    if (!old) box.append(make(child));
    else if (!become(old, child)) old.replaceWith(make(child));
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

/**
 * Change `old` into what `child` describes; return false where they are of different kinds.
 * @param {ChildNode} old
 * @param {string | Node | Sketch} child
 */
function become(old, child) {
  if (typeof child === "string") {
    if (!(old instanceof Text)) return false;
    if (old.data !== child) old.data = child;
    return true;
  }
  const was = drawn.get(old);
  if (!was || !(child instanceof Sketch) || !(old instanceof Element)) return old === child;
  if (was.tag !== child.tag || was.svg !== child.svg) return false;
  for (const name in child.attributes) set(old, name, child.attributes[name], was.attributes[name]);
  for (const name in was.attributes) if (!(name in child.attributes)) set(old, name, null, was.attributes[name]);
  if (child.children.length || was.children.length) fill(old, ...child.children);
  drawn.set(old, child);
  return true;
}

/**
 * Put off calls of `act` to the next frame, which makes only the last of them: a mouse reports more moves than the
 * screen shows. `flush` makes a call that waits at once.
 * @template {unknown[]} T
 * @param {(...values: T) => void} act
 */
export function perFrame(act) {
  let waiting = 0;
  /** @type {T} */
  let last;
  const flush = () => {
    if (!waiting) return;
    cancelAnimationFrame(waiting);
    waiting = 0;
    act(...last);
  };
  const later = (/** @type {T} */ ...values) => {
    last = values;
    waiting ||= requestAnimationFrame(flush);
  };
  return { later, flush };
}
