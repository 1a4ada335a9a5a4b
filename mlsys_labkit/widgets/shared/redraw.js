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

const none = (/** @type {unknown} */ value) => (value ?? false) === false;

/** Leave out empty children, and open lists of them. @param {Child[]} children */
export const flat = (children) =>
  /** @type {(string | Node | Sketch)[]} */ (children.flat(3).filter((child) => !none(child)));

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
    node.removeEventListener(name.slice(2), was);
    node.addEventListener(name.slice(2), value || null);
  } else if (!none(value)) node.setAttribute(name, value === true ? "" : value);
  else if (!none(was)) node.removeAttribute(name);
}

/** Make what a sketch describes. @param {string | Node | Sketch} child */
export function make(child) {
  if (!(child instanceof Sketch)) return child;
  const { tag, svg, attributes, children } = child;
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const name in attributes) set(node, name, attributes[name]);
  node.append(...children.map(make));
  drawn.set(node, child);
  return node;
}

/**
 * Show these children in `box`. An element that was drawn from a sketch of the same kind stays, and only what differs
 * in it is set, so that the browser lays out and paints nothing else. A node among them may not change its place.
 * @param {Element} box
 * @param {Child[]} children
 */
export function fill(box, ...children) {
  let old = box.firstChild,
    next;
  for (const child of flat(children)) {
    next = old && old.nextSibling;
    if (!old) box.append(make(child));
    else if (!become(old, child)) old.replaceWith(make(child));
    old = next;
  }
  while (old) {
    next = old.nextSibling;
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
  const was = drawn.get(old);
  if (old instanceof Text && typeof child !== "object") {
    if (old.data !== `${child}`) old.data = child;
    return true;
  }
  if (!was || !(child instanceof Sketch) || was.tag !== child.tag) return old === child;
  const element = /** @type {Element} */ (old);
  for (const name in { ...was.attributes, ...child.attributes })
    set(element, name, child.attributes[name], was.attributes[name]);
  fill(element, ...child.children);
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
    waiting = 0;
    act(...last);
  };
  const later = (/** @type {T} */ ...values) => {
    last = values;
    waiting ||= requestAnimationFrame(flush);
  };
  return { later, flush };
}
