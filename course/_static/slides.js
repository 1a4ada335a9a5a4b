// reveal.js takes a section within a section for a slide below a slide. A figure's root is a section: make it a region.
const create = document.createElement.bind(document);
document.createElement = (name, options) => {
  if (name !== "section") return create(name, options);
  const region = create("div", options);
  region.setAttribute("role", "region");
  return region;
};

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
  disableLayout: true, // scaling would put a figure's pointer beside its picture
  viewDistance: 1000, // a figure that is not displayed cannot measure itself
  mobileViewDistance: 1000,
  controlsTutorial: false,
  hash: true,
  slideNumber: "c/t",
  transition: "none",
  keyboardCondition: () => !inFigure(),
  plugins: [RevealNotes],
});
