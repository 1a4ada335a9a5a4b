/** Redraws that a hand in motion causes: one per frame, of what changed. */

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

/** The listeners that `h` and `s` gave an element, which `fill` hands over. @type {WeakMap<Node, [string, any][]>} */
const heard = new WeakMap();

/** @param {Element} node @param {[string, any][]} listeners */
export function listen(node, listeners) {
  heard.get(node)?.forEach(([event, call]) => node.removeEventListener(event, call));
  listeners.forEach(([event, call]) => node.addEventListener(event, call));
  if (listeners.length) heard.set(node, listeners);
  else heard.delete(node);
}

/**
 * Make the children of `box` look like these. Elements that are there stay, and only what differs in them is set, so
 * that the browser lays out and paints nothing else. The caller keeps no element among the children: it may not be the
 * one in the page.
 * @param {Element} box
 * @param {(string | Node)[]} children
 */
export function fill(box, ...children) {
  const there = [...box.childNodes];
  children.forEach((child, i) => {
    if (i >= there.length) box.append(child);
    else if (!become(there[i], child)) there[i].replaceWith(child);
  });
  there.slice(children.length).forEach((extra) => extra.remove());
}

/**
 * Give `old` what `next` has; return false where they are of different kinds.
 * @param {ChildNode} old
 * @param {string | Node} next
 */
function become(old, next) {
  if (old instanceof Text && (typeof next === "string" || next instanceof Text)) {
    const text = typeof next === "string" ? next : next.data;
    if (old.data !== text) old.data = text;
    return true;
  }
  if (!(old instanceof Element && next instanceof Element) || old.tagName !== next.tagName) return false;
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.attributes.length > next.attributes.length)
    for (const name of old.getAttributeNames()) if (!next.hasAttribute(name)) old.removeAttribute(name);
  if (heard.has(old) || heard.has(next)) listen(old, heard.get(next) || []);
  if (next.firstChild || old.firstChild) fill(old, ...next.childNodes);
  return true;
}
