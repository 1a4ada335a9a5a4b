import { h, KEYS, frame, slider, choice, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { fill, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { ways } from "./model.js";

/** The same two operations, a product and a maximum, as each kind of translator holds them. */
const CODE = {
  framework: "y = relu(x @ w)",
  capture: "a graph of two nodes: matmul, then relu",
  "graph compiler": "one fused operation: matmul with relu at its end",
  kernels: "acc += a_tile * b_tile; then store(max(acc, 0))",
  "machine code": "multiply-add and max instructions on registers",
  machine: "multipliers and adders, each cycle",
  eager: "two calls, one after the other: matmul, relu",
};

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
    "Drag the token along a way from framework to machine and read what the code is at each stop. " +
      "Press a translator to keep only the ways through it.",
  );
  let through = "",
    way = 0, // of those shown
    hop = 0;
  const set = (pairs) => {
    through = "";
    way = 0;
    hop = 0;
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
  const shownWays = () => {
    const all = ways(edges, model.get("start"), model.get("end"));
    return through ? all.filter((each) => each.includes(through)) : all;
  };
  const which = slider("Way", {
    min: 0,
    max: 1,
    value: 0,
    show: (i) => `${i + 1} of ${shownWays().length}`,
    input: (i) => {
      way = i;
      view.draw();
    },
  });
  ui.controls.append(from.el, to.el, which.el);
  const box = h("div", {}),
    stop = h("p", { class: "lk-note" });
  const route = () => shownWays()[way] || [];
  const kind = (name) => columns.find(([, names]) => names.includes(name))[0];
  const told = () => {
    const name = route()[hop];
    return name ? `${name} (${kind(name)}): ${CODE[name] || CODE[kind(name)]}` : "no way";
  };
  /** @type {[number, number][]} */
  let stops = [];
  const token = handle("Token on its way", {
    axis: "xy",
    range: () => [[0, Math.max(0, route().length - 1)]],
    now: () => [hop],
    at: (x, y) => {
      const far = ([u, v]) => Math.hypot(u - x, v - y);
      return [stops.reduce((best, spot, i) => (far(spot) < far(stops[best]) ? i : best), 0)];
    },
    move: (to) => {
      hop = to;
      view.draw();
    },
    say: told,
  });
  ui.stage.append(held(box, token), stop);
  const list = h("div", {});
  ui.rest.append(list);
  function paint(width) {
    const chain = width < 560,
      own = route(),
      rowsMost = Math.max(...columns.map(([, names]) => names.length)),
      tall = chain ? own.length * 46 + 4 : 34 + rowsMost * 48,
      each = width / columns.length,
      wide = chain ? Math.min(190, width - 60) : Math.min(110, each - 8);
    const at = {};
    if (chain)
      own.forEach((name, i) => {
        at[name] = [44, 6 + i * 46];
      });
    else
      columns.forEach(([, names], i) =>
        names.forEach((name, j) => {
          at[name] = [i * each + (each - wide) / 2, 34 + ((j + 0.5) * (tall - 34)) / names.length - 19];
        }),
      );
    stops = own.map((name) => (chain ? [20, at[name][1] + 15] : [at[name][0] + wide / 2, at[name][1] + 34]));
    const all = ways(edges, model.get("start"), model.get("end")),
      shown = through ? all.filter((each) => each.includes(through)) : all;
    const lit = new Set(shown.flat()),
      mine = new Set(own),
      pairs = new Set(shown.flatMap((each) => each.slice(1).map((name, i) => `${each[i]}>${name}`)));
    fill(
      box,
      picture(
        {
          width,
          height: tall,
          role: "group",
          "aria-label": `Map of compilers: ${shown.length} ways from ${model.get("start")} to ${model.get("end")}`,
        },
        (chain ? [] : columns).map(([title], i) =>
          s("text", { class: "soft", x: i * each + each / 2, y: 14, "text-anchor": "middle" }, title),
        ),
        // Only the ways in question: all edges at once would be a hairball.
        edges
          .filter(([a, b]) => at[a] && at[b] && pairs.has(`${a}>${b}`))
          .map(([a, b]) => {
            const [x1, y1] = at[a],
              [x2, y2] = at[b],
              gap = (x2 - x1 - wide) * 0.6,
              same = Math.abs(x1 - x2) < 1;
            const d = chain
              ? `M${x1 + wide / 2},${y1 + 30} V${y2}`
              : same
                ? `M${x1},${y1 + 15} C${x1 - 30},${y1 + 15} ${x2 - 30},${y2 + 15} ${x2},${y2 + 15}`
                : `M${x1 + wide},${y1 + 15} C${x1 + wide + gap},${y1 + 15} ${x2 - gap},${y2 + 15} ${x2},${y2 + 15}`;
            return s("path", { class: mine.has(a) && own[own.indexOf(a) + 1] === b ? "edge mine" : "edge", d });
          }),
        Object.entries(at).map(([name, [x, y]]) => {
          const inner = lit.has(name) && name !== model.get("start") && name !== model.get("end"),
            toggle = () => {
              through = through === name ? "" : name;
              way = 0;
              hop = Math.max(0, route().indexOf(through));
              view.draw();
            };
          return s(
            "g",
            inner
              ? {
                  ...KEYS,
                  class: `node lit can${through === name ? " chosen" : ""}${mine.has(name) ? " mine" : ""}`,
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
              : { class: lit.has(name) ? "node lit end mine" : "node" },
            s("rect", { x, y, width: wide, height: 30, rx: 5 }),
            s("text", { x: x + wide / 2, y: y + 19, "text-anchor": "middle" }, name),
          );
        }),
      ),
    );
    token.el.hidden = !own.length;
    if (own.length) token.put(stops[hop][0], stops[hop][1]);
    stop.textContent = told();
    which.range.max = String(Math.max(0, shown.length - 1));
    which.put(way);
    list.replaceChildren(
      h(
        "ol",
        { class: "lk-ways" },
        shown.slice(0, 12).map((each) => h("li", {}, each.join(" → "))),
      ),
    );
    const stopsLeast = Math.min(...shown.map((each) => each.length)) - 2;
    ui.says.textContent = all.length
      ? `${all.length} way${all.length > 1 ? "s" : ""} from ${model.get("start")} to ${model.get("end")}` +
        (through ? `, ${shown.length} of them through ${through}` : "") +
        `; the shortest has ${stopsLeast} stop${stopsLeast === 1 ? "" : "s"}.`
      : `No way from ${model.get("start")} to ${model.get("end")} on this map: it would have to be written.`;
  }
  const view = fit(box, paint);
  function draw() {
    from.select.value = model.get("start");
    to.select.value = model.get("end");
    view.draw();
  }
  return follow(model, ["start", "end"], draw, view.stop);
}
