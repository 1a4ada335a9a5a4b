import { h, s, frame, ladder, choice, picture, fit } from "../shared/dom.js";
import { verticals } from "../shared/axes.js";
import { plain, whole } from "../shared/numbers.js";
import { follow, put } from "../shared/state.js";
import { word, operation, balance } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const rungs = model.get("rungs"),
    computed = rungs.filter(([, , , kind]) => kind === "arithmetic"),
    places = rungs.filter(([, , , kind]) => kind !== "arithmetic").sort((a, b) => a[1] / a[2] - b[1] / b[2]);
  const ui = frame(
    el,
    "energy",
    "Where does the energy go?",
    "Choose an operation and a rung to fetch its operand from. Then use each word more often, " +
      "and see when arithmetic becomes the larger part.",
  );
  const set = (pairs) => {
    put(model, pairs);
    draw();
  };
  const names = (list) => list.map(([name]) => [name, name]),
    uses = Array.from({ length: 27 }, (_, i) => Math.round(10 ** (i / 6.5))).filter(
      (v, i, all) => all.indexOf(v) === i,
    );
  const nearest = (v) => uses.reduce((a, b) => (Math.abs(Math.log(b / v)) < Math.abs(Math.log(a / v)) ? b : a));
  const fields = {
    operation: choice("Operation", names(computed), model.get("operation"), (v) => set({ operation: v })),
    place: choice("Fetched from", names(places), model.get("place"), (v) => set({ place: v })),
  };
  const often = ladder("Uses of each word", uses, nearest(model.get("uses")), whole, (v) => set({ uses: v }));
  ui.controls.append(fields.operation.el, fields.place.el, often.el);
  const board = h("div", {});
  ui.stage.append(board);
  const pj = (v) => (v >= 1e-9 ? `${plain(v * 1e9)} nJ` : `${plain(v * 1e12)} pJ`);
  function paint(width) {
    const [, arithmetic, bits] = computed.find(([name]) => name === model.get("operation")),
      list = [["the operation", arithmetic], ...places.map(([name, e, b]) => [name, word(e, b, bits)])];
    const low = Math.floor(Math.log10(Math.min(...list.map(([, v]) => v)))),
      high = Math.ceil(Math.log10(Math.max(...list.map(([, v]) => v)))),
      name = Math.min(210, width * 0.38),
      row = 26,
      tall = list.length * row + 26;
    const at = (v) => name + ((Math.log10(v) - low) / (high - low)) * (width - name - 74),
      decades = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i));
    const move = word(
        places.find(([n]) => n === model.get("place"))[1],
        places.find(([n]) => n === model.get("place"))[2],
        bits,
      ),
      parts = operation(arithmetic, move, model.get("uses")),
      all = parts.arithmetic + parts.movement,
      even = balance(arithmetic, move),
      share = (v) => (v / all) * width;
    const said =
      `${model.get("operation")} on a word from ${model.get("place")}, used ` +
      (model.get("uses") === 1 ? "once" : `${whole(model.get("uses"))} times`) +
      `: ${Math.round((100 * parts.movement) / all)} % of ${pj(all)} is movement. Both are equal ` +
      `at ${plain(even)} uses.`;
    board.replaceChildren(
      picture(
        {
          width,
          height: tall,
          "aria-label":
            `Energy of a word of ${bits} bits, logarithmic: ` + `${list.map(([n, v]) => `${n} ${pj(v)}`).join(", ")}`,
        },
        verticals(decades, at, 0, tall - 20, pj),
        list.map(([n, v], i) =>
          s(
            "g",
            {},
            s(
              "text",
              { x: name - 8, y: i * row + 17, "text-anchor": "end" },
              n.length * 6.6 > name ? `${n.slice(0, Math.floor(name / 6.6) - 1)}…` : n,
              s("title", {}, n),
            ),
            s("rect", {
              class: i === 0 ? "sum" : n === model.get("place") ? "fetch on" : "fetch",
              x: name,
              y: i * row + 4,
              width: Math.max(2, at(v) - name),
              height: row - 8,
              rx: 2,
            }),
            s("text", { class: "soft halo", x: at(v) + 5, y: i * row + 17 }, pj(v)),
          ),
        ),
      ),
      picture(
        { width, height: 54, "aria-label": said },
        s("text", { x: 0, y: 12 }, "one operation"),
        s("rect", { class: "sum", x: 0, y: 20, width: Math.max(0, share(parts.arithmetic) - 1), height: 26 }),
        s("rect", { class: "fetch on", x: share(parts.arithmetic), y: 20, width: share(parts.movement), height: 26 }),
        share(parts.arithmetic) > 80 && s("text", { class: "lk-on-bar", x: 6, y: 37 }, "arithmetic"),
        share(parts.movement) > 80 &&
          s("text", { class: "lk-on-bar", x: width - 6, y: 37, "text-anchor": "end" }, "movement"),
      ),
    );
    ui.says.textContent = said;
  }
  const view = fit(board, paint);
  function draw() {
    Object.entries(fields).forEach(([name, field]) => {
      field.select.value = model.get(name);
    });
    often.put(nearest(model.get("uses")));
    view.draw();
  }
  return follow(model, ["operation", "place", "uses"], draw, view.stop);
}
