async ([esm, css, states, still]) => {
  // The states of a widget that one control reaches alone, with what the view says in each. The last `still` of the
  // states are not moved.
  const view = (await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })))).default;
  const style = document.createElement("style");
  style.textContent = css;
  document.head.replaceChildren(style);
  const found = [];
  const mount = async (first) => {
    const state = { ...first },
      heard = {},
      el = document.createElement("div");
    document.querySelector("main").replaceChildren(el);
    const model = {
      get: (name) => state[name],
      set: (name, value) => {
        if (state[name] === value) return;
        state[name] = value;
        (heard[name] || []).forEach((call) => call());
      },
      save_changes() {},
      on: (event, call) => (heard[event.slice(7)] ||= []).push(call),
      off() {},
    };
    await view.render({ model, el });
    el.querySelectorAll("details").forEach((fold) => {
      fold.open = true;
    });
    const reset = () => Object.entries(first).forEach(([name, value]) => model.set(name, value));
    return [state, el.querySelector("section.lk"), reset];
  };
  const text = (nodes) => [...nodes].map((node) => node.textContent);
  const seen = (node) => node.checkVisibility({ visibilityProperty: true });
  for (const [at, first] of states.entries()) {
    let [state, section, reset] = await mount(first);
    const told = new Set();
    const note = (control) => {
      const changed = Object.fromEntries(Object.entries(state).filter(([name, value]) => value !== first[name])),
        key = JSON.stringify([changed, text(section.querySelectorAll(".lk-says"))]);
      if (told.has(key)) return;
      told.add(key);
      found.push({
        at,
        control,
        changed,
        says: text(section.querySelectorAll(".lk-says")),
        labels: text(section.querySelectorAll(".lk-stage svg text")),
        notes: text(section.querySelectorAll(".lk-note")),
        handles: [...section.querySelectorAll(".lk-stage [role=slider]:not(input)")]
          .filter(seen)
          .map((node) => [
            node.getAttribute("aria-label"),
            node.getAttribute("aria-valuetext"),
            Number(node.getAttribute("aria-valuenow")),
          ]),
        tables: [...section.querySelectorAll(".lk-rest table")].map((table) => [
          table.caption?.textContent || "",
          [...table.rows].slice(0, 40).map((row) => text(row.cells)),
        ]),
      });
    };
    note("first");
    if (at >= states.length - still) continue;
    const put = (node, value) => {
      node.value = value;
      ["input", "change"].forEach((kind) => node.dispatchEvent(new Event(kind, { bubbles: true })));
    };
    const name = (node) => node.closest("label")?.querySelector("span")?.textContent || node.textContent;
    for (const node of section.querySelectorAll("select")) {
      const was = node.value;
      for (const { value } of [...node.options]) {
        put(node, value);
        note(`${name(node)}: ${value}`);
      }
      put(node, was);
      reset();
    }
    for (const node of section.querySelectorAll("input[type=range]")) {
      if (!seen(node)) continue;
      const was = node.value,
        [low, high] = [Number(node.min), Number(node.max)];
      for (const value of [low, (low + high) / 2, high]) {
        put(node, value);
        note(`${name(node)}: ${value}`);
      }
      put(node, was);
      reset();
    }
    for (const node of section.querySelectorAll(".lk-stage [role=slider]:not(input)")) {
      for (const key of ["Home", "ArrowUp", "ArrowRight", "End", "ArrowLeft", "ArrowDown"]) {
        node.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
        note(`${node.getAttribute("aria-label")}: ${key}`);
      }
      reset();
    }
    const radios = section.querySelectorAll("input[type=radio]").length;
    for (let i = 0; i < radios; i += 1) {
      [state, section, reset] = await mount({ ...first, choice: null });
      section.querySelectorAll("input[type=radio]")[i].click();
      section.querySelector("button").click();
      note(`option ${i}`);
    }
    for (const node of [...section.querySelectorAll("button, [role=button], input[type=checkbox]")].slice(0, 60))
      if (!/Play|Walk|Commit/.test(node.textContent) && !node.disabled && node.isConnected && seen(node)) {
        node.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
        note(name(node) || node.getAttribute("aria-label"));
        if (!radios) reset();
      }
  }
  return found;
};
