// reveal.js takes a section within a section for a slide below a slide. A figure's root is a section: make it a region.
const create = document.createElement.bind(document);
document.createElement = (name, options) => {
  if (name !== "section") return create(name, options);
  const region = create("div", options);
  region.setAttribute("role", "region");
  return region;
};
// Its styles have to know the region.
new MutationObserver((seen) => {
  for (const { addedNodes } of seen)
    for (const node of addedNodes)
      if (node instanceof HTMLStyleElement && node.textContent?.includes("section.lk"))
        node.textContent = node.textContent.replaceAll("section.lk", "div.lk");
}).observe(document, { childList: true, subtree: true });

// Arrow keys act on a figure while it has the focus; Escape gives them back to the slides. Page keys, which presenters'
// remote controls send, always turn slides.
const inFigure = () => Boolean(document.activeElement?.closest(".lk"));
const leaves = { Escape: () => {}, PageDown: () => Reveal.next(), PageUp: () => Reveal.prev() };
addEventListener(
  "keydown",
  (event) => {
    if (!inFigure() || !leaves[event.key]) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    /** @type {HTMLElement} */ (document.activeElement).blur();
    leaves[event.key]();
  },
  true,
);
Reveal.initialize({
  disableLayout: true, // the browser lays a slide out at the size of the screen
  display: "grid",
  viewDistance: 1000, // a figure that is not displayed cannot measure itself
  mobileViewDistance: 1000,
  controlsTutorial: false,
  hash: true,
  slideNumber: "c/t",
  transition: "none",
  keyboardCondition: () => !inFigure(),
  plugins: [RevealNotes],
});
