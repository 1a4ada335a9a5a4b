import { h, frame, ladder, choice, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { verticals } from "../shared/axes.js";
import { plain, whole } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
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
    "Drag the mark up or down to the rung that the operand is fetched from. Then drag the edge of the lower bar: use " +
      "each word more often until arithmetic is the larger part.",
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
  const rungsBox = h("div", {}),
    ratio = h("div", {});
  let row = 24;
  const chosen = () => {
    const [, arithmetic, bits] = computed.find(([name]) => name === model.get("operation")),
      [, joules, wide] = places.find(([name]) => name === model.get("place"));
    return { arithmetic, bits, move: word(joules, wide, bits) };
  };
  const part = () => {
    const { arithmetic, move } = chosen(),
      parts = operation(arithmetic, move, model.get("uses"));
    return `${Math.round((100 * parts.movement) / (parts.arithmetic + parts.movement))} % of the energy is movement`;
  };
  const source = handle("Rung to fetch from", {
    axis: "y",
    range: () => [[0, places.length - 1]],
    now: () => [places.length - 1 - places.findIndex(([name]) => name === model.get("place"))],
    at: (x, y) => [places.length - (y - row / 2) / row],
    move: (step) => set({ place: places[places.length - 1 - step][0] }),
    say: () => `${model.get("place")}: ${part()}`,
  });
  const edge = handle("Edge between arithmetic and movement", {
    range: () => [[0, uses.length - 1]],
    now: () => [uses.indexOf(nearest(model.get("uses")))],
    at: (x) => {
      const { arithmetic, move } = chosen(),
        share = Math.min(0.9999, Math.max(1e-4, x / ratio.clientWidth));
      return [uses.indexOf(nearest((move * share) / (arithmetic * (1 - share))))];
    },
    move: (step) => set({ uses: uses[step] }),
    say: () => `each word used ${whole(model.get("uses"))} times: ${part()}`,
  });
  const board = h("div", {}, held(rungsBox, source), held(ratio, edge));
  ui.stage.append(board);
  const pj = (v) => (v >= 1e-9 ? `${plain(v * 1e9)} nJ` : `${plain(v * 1e12)} pJ`);
  function paint(width) {
    const { arithmetic, bits, move } = chosen(),
      list = [["the operation", arithmetic], ...places.map(([name, e, b]) => [name, word(e, b, bits)])];
    const low = Math.floor(Math.log10(Math.min(...list.map(([, v]) => v)))),
      high = Math.ceil(Math.log10(Math.max(...list.map(([, v]) => v)))),
      above = width < 480, // no room for the names beside the bars
      name = above ? 4 : 210,
      top = above ? 20 : 4;
    row = above ? 40 : 24;
    const tall = list.length * row + 34;
    const at = (v) => name + ((Math.log10(v) - low) / (high - low)) * (width - name - 88),
      decades = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i));
    const parts = operation(arithmetic, move, model.get("uses")),
      all = parts.arithmetic + parts.movement,
      even = balance(arithmetic, move),
      share = (v) => (v / all) * width;
    const said =
      `${model.get("operation")} on a word from ${model.get("place")}, used ` +
      (model.get("uses") === 1 ? "once" : `${whole(model.get("uses"))} times`) +
      `: ${Math.round((100 * parts.movement) / all)} % of ${pj(all)} is movement; both are equal ` +
      `at ${plain(even)} uses.`;
    fill(
      rungsBox,
      picture(
        {
          width,
          height: tall,
          "aria-label":
            `Energy of a word of ${bits} bits, logarithmic: ` + `${list.map(([n, v]) => `${n} ${pj(v)}`).join(", ")}`,
        },
        verticals(decades, at, 0, tall - 28, pj),
        list.map(([n, v], i) =>
          s(
            "g",
            {},
            s(
              "text",
              above
                ? { class: "halo", x: name, y: i * row + 14 }
                : { x: name - 8, y: i * row + 17, "text-anchor": "end" },
              n,
            ),
            s("rect", {
              class: i === 0 ? "sum" : n === model.get("place") ? "fetch on" : "fetch",
              x: name,
              y: i * row + top,
              width: Math.max(2, at(v) - name),
              height: 16,
              rx: 2,
            }),
            s(
              "text",
              { class: "soft halo", x: at(v) + (n === model.get("place") ? 19 : 5), y: i * row + top + 13 },
              pj(v),
            ),
          ),
        ),
      ),
    );
    fill(
      ratio,
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
    source.put(at(move), list.findIndex(([n]) => n === model.get("place")) * row + top + 8);
    edge.put(Math.min(width - 10, Math.max(10, share(parts.arithmetic))), 33);
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
