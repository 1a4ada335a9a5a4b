() => {
  // Finds of a page what axe's rules of colour have to see: of texts that look alike, with all around them, a few.
  const LOOKS =
    "color -webkit-text-fill-color background-color background-image opacity filter mix-blend-mode text-shadow " +
    "font-size font-weight font-style text-decoration-line text-decoration-style border-style border-width " +
    "outline-style visibility display position clip clip-path";
  const FEW = 3; // one may be too short for axe, or scrolled out of sight
  const looks = new Map();
  const all = () => [...document.body.querySelectorAll("*")];
  const judged = (node) => [...node.childNodes].some((one) => one.nodeType === 3 && /\S\S/.test(one.data));
  const off = (node) =>
    node.matches(":disabled, [aria-disabled]") ||
    (node.tagName === "LABEL" && node.querySelector(":disabled") !== null);

  // Notes how each element looks now; to be called in each scheme.
  const look = () => {
    for (const node of all()) {
      const style = getComputedStyle(node);
      const now = LOOKS.split(" ").map((name) => style.getPropertyValue(name));
      looks.set(node, [looks.get(node), node.tagName, node.getClientRects().length > 0, off(node), ...now].join());
    }
  };

  // Hides the texts of which there are enough, and the insides of pictures, of which axe judges nothing. What lies over
  // or under a part with a place of its own stays, but both may move when other texts go.
  const thin = () => {
    const kinds = new Map(),
      kindOf = new Map(),
      counts = new Map(),
      kept = new Set();
    const boxes = new Map(all().map((node) => [node, node.getBoundingClientRect()]));
    const meet = (one, other) => {
      const [a, b] = [boxes.get(one), boxes.get(other)];
      return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    };
    const keep = (node) => {
      for (let one = node; one && !kept.has(one); one = one.parentElement) kept.add(one);
    };
    for (const node of all()) {
      const key = [kindOf.get(node.parentElement), looks.get(node), judged(node)].join();
      const kind = kinds.get(key) ?? kinds.size;
      kinds.set(key, kind);
      kindOf.set(node, kind);
      counts.set(kind, (counts.get(kind) ?? 0) + 1);
      if (node.ownerSVGElement) continue;
      if (counts.get(kind) <= FEW) keep(node);
      const { position, transform } = getComputedStyle(node);
      if (position === "static" && transform === "none") continue;
      for (const beside of node.parentElement.querySelectorAll("*"))
        if (meet(node, beside) && (position === "absolute" || !node.contains(beside))) keep(beside);
    }
    const hidden = all().filter((node) => !kept.has(node) && kept.has(node.parentElement));
    for (const node of hidden) {
      if (node.parentElement.closest("pre, math")) {
        node.remove();
        continue;
      }
      node.replaceChildren();
      node.style.setProperty("display", "none", "important"); // in its place, for the stripes of a table
    }
    return hidden.length;
  };
  window.colours = { look, thin };
};
