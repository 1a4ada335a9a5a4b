// Type and figures at the size at which a slide fits the screen.

// A figure is drawn at a width that suits it, then scaled to the room beside the text. Inside a scaled figure places are
// those that it would have unscaled, for elements and pointers alike: a figure counts in its own pixels.
const MOST = 1.6,
  LEAST = 0.5;
const outer = Element.prototype.getBoundingClientRect;
const scaleOf = (/** @type {HTMLElement | null} */ sized) => Number(sized?.dataset.scale ?? 1);
Element.prototype.getBoundingClientRect = function () {
  const box = outer.call(this),
    sized = /** @type {HTMLElement | null} */ (this.parentElement?.closest(".sized")),
    scale = scaleOf(sized);
  if (!sized || scale === 1) return box;
  const { left, top } = outer.call(sized);
  return new DOMRect(
    left + (box.left - left) / scale,
    top + (box.top - top) / scale,
    box.width / scale,
    box.height / scale,
  );
};
for (const [name, side] of [
  ["clientX", "left"],
  ["clientY", "top"],
]) {
  const place = Object.getOwnPropertyDescriptor(MouseEvent.prototype, name)?.get;
  Object.defineProperty(MouseEvent.prototype, name, {
    configurable: true,
    get() {
      const sized = this.target instanceof Element ? this.target.closest(".sized") : null,
        at = place?.call(this);
      return sized ? outer.call(sized)[side] + (at - outer.call(sized)[side]) / scaleOf(sized) : at;
    },
  });
}

/** Give a figure its width, and make its scale smaller until its height fits; the figure redraws itself at each step. */
const size = (/** @type {HTMLElement} */ sized) => {
  const { clientWidth, clientHeight } = /** @type {HTMLElement} */ (sized.parentElement);
  let scale = scaleOf(sized);
  if (sized.offsetHeight * scale > clientHeight)
    scale = Math.max(LEAST, clientHeight / sized.offsetHeight, scale * 0.93);
  sized.dataset.scale = String(scale);
  sized.style.width = `${clientWidth / scale}px`;
  sized.style.transform = `scale(${scale})`;
};
const watch = new ResizeObserver((seen) => {
  requestAnimationFrame(() => seen.forEach(({ target }) => size(/** @type {HTMLElement} */ (target))));
});

/** Make the type of text smaller until it fits the room that it has. */
const fit = (/** @type {HTMLElement} */ text) => {
  // The row of a formula is as high as the formula.
  const high = text.matches(".formula") ? Infinity : text.clientHeight + 1;
  const over = () => text.scrollHeight > high || text.scrollWidth > text.clientWidth + 1;
  const least = text.matches(".code .shown") ? 0.84 : 0.6; // a listing scrolls
  for (let type = 1; type >= least; type -= 0.04) {
    text.style.setProperty("--type", type.toFixed(2));
    if (!over()) return;
  }
};
const all = (/** @type {string} */ which) => /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(which));
const fitAll = () => {
  all(".formula, .said, .body:is(.list, .table, .code) .shown").forEach(fit);
  all(".sized").forEach((sized) => {
    sized.dataset.scale = String(MOST);
    size(sized);
    watch.observe(sized);
  });
};

Reveal.on("ready", async () => {
  await document.fonts.ready;
  fitAll();
  addEventListener("resize", fitAll);
});
