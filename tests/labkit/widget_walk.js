(section, note, keys, reset = () => {}) => {
  // Moves each control of a widget alone, and calls `note` with its name and value in each state. `reset`, if there is
  // one, then leads back to the first state. Handles are moved by `keys`.
  const put = (node, value) => {
    node.value = value;
    ["input", "change"].forEach((kind) => node.dispatchEvent(new Event(kind, { bubbles: true })));
  };
  const name = (node) => node.closest("label")?.querySelector("span")?.textContent || node.textContent;
  const seen = (node) => node.isConnected && node.checkVisibility({ visibilityProperty: true });
  const all = (selector) => [...section.querySelectorAll(selector)];
  const range = ({ min, max }) => [Number(min), (Number(min) + Number(max)) / 2, Number(max)];
  all("details").forEach((fold) => {
    fold.open = true;
  });
  for (const node of all("select, input[type=range]").filter(seen)) {
    const was = node.value;
    for (const value of node.options ? [...node.options].map((option) => option.value) : range(node)) {
      put(node, value);
      note(`${name(node)}: ${value}`);
    }
    put(node, was);
    reset();
  }
  for (const node of all(".lk-stage [role=slider]:not(input)")) {
    for (const key of keys) {
      node.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
      note(`${node.getAttribute("aria-label")}: ${key}`);
    }
    reset();
  }
  for (const node of all("button, [role=button], input[type=checkbox]").slice(0, 60))
    if (!/Play|Walk|Commit/.test(node.textContent) && !node.disabled && seen(node)) {
      node.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
      note(name(node) || node.getAttribute("aria-label"));
      reset();
    }
};
