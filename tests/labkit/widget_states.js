async ([esm, css, states, still], walk) => {
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
    const radios = section.querySelectorAll("input[type=radio]").length;
    for (let i = 0; i < radios; i += 1) {
      [state, section, reset] = await mount({ ...first, choice: null });
      section.querySelectorAll("input[type=radio]")[i].click();
      section.querySelector("button").click();
      note(`option ${i}`);
    }
    const keys = ["Home", "ArrowUp", "ArrowRight", "End", "ArrowLeft", "ArrowDown"];
    walk(section, note, keys, radios ? undefined : reset);
  }
  return found;
};
