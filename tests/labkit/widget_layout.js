(section, walk) => {
  const seen = (node) => node.checkVisibility({ visibilityProperty: true }) && node.getBoundingClientRect().width > 0;
  const all = (selector) => [...section.querySelectorAll(selector)].filter(seen);
  const box = (node) => node.getBoundingClientRect();
  const stage = section.querySelector(".lk-stage"),
    says = section.querySelector(".lk-says");
  const controls = all("input, select, textarea, button").filter(
    (node) => !node.closest(".lk-stage") || node.matches("input[type=range], select"),
  );
  const groups = new Set(controls.map((node) => (node.type === "radio" ? node.name : node)));
  const figure = box(stage),
    ends = [...groups].map((node) => box(node.nodeType ? node : stage));
  const texts = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT),
      found = [];
    while (walker.nextNode()) {
      const node = walker.currentNode,
        parent = node.parentElement;
      if (node.data.trim() && parent && !parent.closest("defs, title, option, style") && seen(parent))
        found.push(parent);
    }
    return [...new Set(found)];
  };
  const size = (node) => {
    const scale = node.getScreenCTM ? Math.hypot(node.getScreenCTM().a, node.getScreenCTM().b) : 1;
    return parseFloat(getComputedStyle(node).fontSize) * scale;
  };
  const sizes = texts(section).map((node) => [size(node), node.textContent.trim().slice(0, 24)]);
  const smallest = sizes.reduce((a, b) => (b[0] < a[0] ? b : a), [99, ""]);
  // The corners of a label, turned as it is.
  const corners = (node) => {
    const { x, y, width, height } = node.getBBox(),
      matrix = node.getScreenCTM(),
      inset = 1.5;
    return [
      [x + inset, y + inset],
      [x + width - inset, y + inset],
      [x + width - inset, y + height - inset],
      [x + inset, y + height - inset],
    ].map(([u, v]) => [matrix.a * u + matrix.c * v + matrix.e, matrix.b * u + matrix.d * v + matrix.f]);
  };
  const apart = (one, two) =>
    [one, two].some((shape) =>
      shape.some((a, i) => {
        const b = shape[(i + 1) % 4],
          normal = [b[1] - a[1], a[0] - b[0]];
        const spread = (points) => points.map(([x, y]) => x * normal[0] + y * normal[1]);
        const [p, q] = [spread(one), spread(two)];
        return Math.max(...p) <= Math.min(...q) || Math.max(...q) <= Math.min(...p);
      }),
    );
  const overlaps = () => {
    document.getAnimations().forEach((one) => one.finish()); // where the labels come to rest
    const found = [];
    for (const svg of all(".lk-stage svg, .lk-rest svg")) {
      const labels = [...svg.querySelectorAll("text")].filter((node) => node.textContent.trim() && seen(node));
      const shapes = labels.map(corners),
        clip = box(section);
      labels.forEach((label, i) => {
        const edge = box(label),
          bar = svg.closest(".lk-scroll");
        if (!bar && (edge.left < clip.left - 1 || edge.right > clip.right + 1)) found.push(`cut: ${label.textContent}`);
        for (let j = 0; j < i; j += 1)
          if (!apart(shapes[i], shapes[j])) found.push(`${labels[j].textContent} | ${label.textContent}`);
      });
    }
    return found;
  };
  const readHandles = () =>
    all(".lk-stage [role=slider]:not(input)").map((node) => {
      const { width, height } = box(node),
        press = (key) => node.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
      const tell = () => node.getAttribute("aria-valuetext"),
        before = tell();
      const moves = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"].some((key) => {
        press(key);
        return tell() !== before;
      });
      return {
        label: node.getAttribute("aria-label"),
        moves,
        large: Math.min(width, height) >= 24,
        told: Boolean(before),
        focus: node.tabIndex === 0,
        kept: node.isConnected,
      };
    });
  const still = overlaps(),
    worst = { count: still.length, state: "first", labels: still };
  const note = (state) => {
    const found = overlaps();
    if (found.length > worst.count) Object.assign(worst, { count: found.length, state, labels: found });
  };
  const result = {
    height: figure.height && box(section).height,
    controls: groups.size,
    smallest,
    first: !ends.length || figure.top <= Math.min(...ends.map((end) => end.top)),
    span:
      Math.max(figure.bottom, ...ends.map((end) => end.bottom)) - Math.min(figure.top, ...ends.map((end) => end.top)),
    verdict:
      seen(says) &&
      says.textContent.trim().length > 0 &&
      Math.min(Math.abs(box(says).top - figure.bottom), Math.abs(figure.top - box(says).bottom)) <= 24,
    sentences: (says.textContent.match(/[.!?](\s|$)/g) || []).length,
    said: says.textContent,
  };
  result.handles = readHandles();
  walk(section, note, ["Home", "End"]);
  return { ...result, overlaps: worst };
};
