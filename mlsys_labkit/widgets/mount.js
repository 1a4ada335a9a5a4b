// Stands in for the widget's model where no kernel is: same calls, over the state that the page carries.
function mount(home, state) {
  const heard = {};
  const model = {
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      (heard[`change:${name}`] || []).forEach((call) => call());
    },
    on: (event, call) => { (heard[event] ||= []).push(call); },
    off: (event, call) => { heard[event] = (heard[event] || []).filter((other) => other !== call); },
    save_changes() {},
  };
  const root = document.getElementById(home);
  if (!root || root.dataset.alive) return;
  root.dataset.alive = "yes";
  const fallback = root.querySelector(".lk-static");
  const el = document.createElement("div");
  root.append(el);
  try {
    render({ model, el });
    fallback.remove();
  } catch (error) {
    el.remove();
    throw error;
  }
}
