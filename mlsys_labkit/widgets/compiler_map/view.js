import { h, s, KEYS, frame, choice, picture, fit } from "../shared/dom.js";
import { follow, put } from "../shared/state.js";
import { ways } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const columns = model.get("columns"),
    edges = model.get("edges"),
    starts = columns[0][1],
    ends = columns[columns.length - 1][1];
  const ui = frame(
    el,
    "compilers",
    "From a framework to a machine",
    "Choose both ends. Each lit way is a chain of translators that somebody maintains; click one " +
      "between them to keep only the ways through it.",
  );
  let through = "";
  const set = (pairs) => {
    through = "";
    put(model, pairs, draw);
  };
  const from = choice(
      "Framework",
      starts.map((name) => [name, name]),
      model.get("start"),
      (v) => set({ start: v }),
    ),
    to = choice(
      "Machine",
      ends.map((name) => [name, name]),
      model.get("end"),
      (v) => set({ end: v }),
    );
  ui.controls.append(from.el, to.el);
  const box = h("div", { class: "lk-scroll" });
  ui.stage.append(box);
  const list = h("div", {});
  ui.rest.append(list);
  function paint(width) {
    const w = Math.max(width, 620),
      rowsMost = Math.max(...columns.map(([, names]) => names.length)),
      tall = 34 + rowsMost * 42,
      each = w / columns.length,
      wide = Math.min(104, each - 18);
    const at = {};
    columns.forEach(([, names], i) =>
      names.forEach((name, j) => {
        at[name] = [i * each + (each - wide) / 2, 34 + ((j + 0.5) * (tall - 34)) / names.length - 15];
      }),
    );
    const all = ways(edges, model.get("start"), model.get("end")),
      shown = through ? all.filter((way) => way.includes(through)) : all;
    const lit = new Set(shown.flat()),
      pairs = new Set(shown.flatMap((way) => way.slice(1).map((name, i) => `${way[i]}>${name}`)));
    box.replaceChildren(
      picture(
        {
          width: w,
          height: tall,
          role: "group",
          "aria-label": `Map of compilers: ${shown.length} ways from ${model.get("start")} to ${model.get("end")}`,
        },
        columns.map(([title], i) =>
          s("text", { class: "soft", x: i * each + each / 2, y: 14, "text-anchor": "middle" }, title),
        ),
        [false, true].map((on) =>
          edges
            .filter(([a, b]) => pairs.has(`${a}>${b}`) === on)
            .map(([a, b]) => {
              const [x1, y1] = at[a],
                [x2, y2] = at[b],
                same = Math.abs(x1 - x2) < 1;
              const d = same
                ? `M${x1},${y1 + 15} C${x1 - 30},${y1 + 15} ${x2 - 30},${y2 + 15} ${x2},${y2 + 15}`
                : `M${x1 + wide},${y1 + 15} C${x1 + wide + 24},${y1 + 15} ${x2 - 24},${y2 + 15} ${x2},${y2 + 15}`;
              return s("path", { class: on ? "edge on" : "edge", d });
            }),
        ),
        Object.entries(at).map(([name, [x, y]]) => {
          const inner = lit.has(name) && name !== model.get("start") && name !== model.get("end"),
            toggle = () => {
              through = through === name ? "" : name;
              view.draw();
            };
          return s(
            "g",
            inner
              ? {
                  ...KEYS,
                  class: `node lit can${through === name ? " chosen" : ""}`,
                  tabindex: 0,
                  role: "button",
                  "aria-pressed": String(through === name),
                  "aria-label": `only ways through ${name}`,
                  onclick: toggle,
                  onkeydown: (event) => {
                    if (event.key === "Enter" || event.key === " ") {
                      event.preventDefault();
                      toggle();
                    }
                  },
                }
              : { class: lit.has(name) ? "node lit end" : "node" },
            s("rect", { x, y, width: wide, height: 30, rx: 5 }),
            s("text", { x: x + wide / 2, y: y + 19, "text-anchor": "middle" }, name),
          );
        }),
      ),
    );
    list.replaceChildren(
      h(
        "ol",
        { class: "lk-ways" },
        shown.slice(0, 12).map((way) => h("li", {}, way.join(" → "))),
      ),
    );
    ui.says.textContent = all.length
      ? `${all.length} ways from ${model.get("start")} to ${model.get("end")}` +
        (through ? `, ${shown.length} of them through ${through}` : "") +
        `; the shortest has ${Math.min(...shown.map((way) => way.length)) - 2} stops.`
      : `No way from ${model.get("start")} to ${model.get("end")} on this map: somebody would have to write one.`;
  }
  const view = fit(box, paint);
  function draw() {
    from.select.value = model.get("start");
    to.select.value = model.get("end");
    view.draw();
  }
  return follow(model, ["start", "end"], draw, view.stop);
}
