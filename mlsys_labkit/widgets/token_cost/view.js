import { h, s, frame, slider, grid, picture, fit } from "../shared/dom.js";
import { verticals, horizontals, roundNumbers } from "../shared/axes.js";
import { plain, whole } from "../shared/numbers.js";
import { follow, put } from "../shared/state.js";
import { hour, million, energy, carbon } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const knobs = model.get("knobs"),
    names = knobs.map(([name]) => name);
  const ui = frame(
    el,
    "cost",
    "What does a token cost?",
    "The bar is an hour that was sold, by what it pays for. Empty hours have to be paid by full " +
      "ones: move that slider first.",
  );
  const set = (pairs) => {
    put(model, pairs, draw);
  };
  const show = { interest: (v) => `${Math.round(100 * v)} %`, utilisation: (v) => `${Math.round(100 * v)} %` };
  const fields = Object.fromEntries(
    knobs.map(([name, label, min, max, step]) => [
      name,
      slider(label, {
        min,
        max,
        step,
        value: model.get(name),
        show: show[name] || ((v) => (v >= 1e4 ? whole(v) : plain(v))),
        input: (v) => set({ [name]: v }),
      }),
    ]),
  );
  const rent = slider("Asked for an hour, USD", {
    min: 0.2,
    max: 12,
    step: 0.1,
    value: model.get("rent"),
    show: plain,
    input: (v) => set({ rent: v }),
  });
  ui.controls.append(...names.map((name) => fields[name].el), rent.el);
  const board = h("div", { class: "lk-stack" }),
    bar = h("div", {}),
    curve = h("div", {}),
    sums = h("div", {});
  board.append(bar, curve);
  ui.stage.append(board);
  ui.rest.append(sums);
  const business = (more) => ({ ...Object.fromEntries(names.map((name) => [name, model.get(name)])), ...more });
  function paint(width) {
    const b = business(),
      paid = hour(b),
      total = Object.values(paid).reduce((sum, v) => sum + v, 0),
      asked = model.get("rent"),
      top = Math.max(total, asked) * 1.04,
      at = (v) => (v / top) * width;
    let x = 0;
    bar.replaceChildren(
      picture(
        {
          width,
          height: 76,
          "aria-label": `An hour costs ${plain(total)} USD: ${Object.entries(paid)
            .map(([name, v]) => `${name} ${plain(v)}`)
            .join(", ")}; asked ${plain(asked)}`,
        },
        Object.entries(paid).map(([name, usd]) => {
          const from = at(x);
          x += usd;
          return s(
            "g",
            {},
            s(
              "rect",
              { class: name, x: from, y: 18, width: Math.max(0, at(x) - from - 1), height: 30 },
              s("title", {}, `${name}: ${plain(usd)} USD`),
            ),
            at(x) - from > 7 * (name.length + 8) &&
              s("text", { class: "lk-on-bar", x: from + 6, y: 37 }, `${name} ${plain(usd)}`),
          );
        }),
        s("line", { class: "lk-limit", x1: at(asked), x2: at(asked), y1: 10, y2: 58 }),
        s(
          "text",
          {
            class: "soft",
            x: Math.min(width, Math.max(0, at(asked))),
            y: 72,
            "text-anchor": at(asked) > width / 2 ? "end" : "start",
          },
          `asked ${plain(asked)} USD`,
        ),
        s("text", { x: 0, y: 11 }, `cost ${plain(total)} USD an hour`),
      ),
    );
    const tall = 210,
      pad = { l: 66, r: 12, t: 10, b: 34 },
      many = Array.from({ length: 20 }, (_, i) => {
        const utilisation = 0.05 * (i + 1);
        return { utilisation, usd: million(business({ utilisation })) };
      });
    const y0 = Math.log10(Math.min(...many.map((p) => p.usd))) - 0.1,
      y1 = Math.log10(Math.max(...many.map((p) => p.usd))) + 0.05;
    const px = (v) => pad.l + v * (width - pad.l - pad.r),
      py = (v) => tall - pad.b - ((Math.log10(v) - y0) / (y1 - y0)) * (tall - pad.t - pad.b);
    curve.replaceChildren(
      picture(
        {
          width,
          height: tall,
          "aria-label": "Price of a million tokens over the share of hours that are sold",
        },
        verticals([0, 0.25, 0.5, 0.75, 1], px, pad.t, tall - pad.b, (v) => `${100 * v} %`),
        horizontals(roundNumbers(y0, y1), py, pad.l, width - pad.r, (v) => `${plain(v)} $`),
        s("polyline", {
          class: "way",
          points: many.map((p) => `${px(p.utilisation).toFixed(1)},${py(p.usd).toFixed(1)}`).join(" "),
        }),
        s("circle", { class: "lk-spot", cx: px(b.utilisation), cy: py(million(b)), r: 7 }),
        s(
          "text",
          { class: "soft halo", x: width - pad.r, y: pad.t + 12, "text-anchor": "end" },
          "USD a million tokens, over hours sold",
        ),
      ),
    );
    sums.replaceChildren(
      grid(
        "In numbers",
        ["what", "how much"],
        [
          ...Object.entries(paid).map(([name, usd]) => [`an hour: ${name}`, `${plain(usd)} USD`]),
          ["a million tokens cost their owner", `${plain(million(b))} USD`],
          ["a million tokens at the rent asked", `${plain((asked / 3600 / b.tokens_per_second) * 1e6)} USD`],
          ["energy of a million tokens", `${plain(energy(b))} kWh`],
          ["CO2e of a million tokens, use alone", `${plain(carbon(b))} g`],
        ],
      ),
    );
    const margin = (asked - total) / asked,
      years =
        asked > total - paid.machine - paid.interest
          ? b.price / ((asked - paid.power - paid.people) * 8766 * b.utilisation)
          : null;
    ui.says.textContent =
      `An hour costs ${plain(total)} USD and is rented for ${plain(asked)}: ` +
      (margin >= 0 ? `a margin of ${Math.round(100 * margin)} %` : `a loss of ${plain(total - asked)} USD`) +
      ". " +
      (years && years > 0 && years < 50
        ? `Without interest the machine is paid for after ${plain(years)} years.`
        : "At this rent the machine is never paid for.");
  }
  const view = fit(board, paint);
  function draw() {
    names.forEach((name) => fields[name].put(model.get(name)));
    rent.put(model.get("rent"));
    view.draw();
  }
  return follow(model, [...names, "rent"], draw, view.stop);
}
