import { h, frame, slider, grid, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { verticals, horizontals, roundNumbers } from "../shared/axes.js";
import { plain, whole } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
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
      "ones: drag the dot on the curve to the left.",
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
  const SEEN = ["price", "years", "tokens_per_second", "usd_per_kwh"];
  ui.controls.append(...SEEN.map((name) => fields[name].el));
  ui.more.append(...names.filter((name) => !SEEN.includes(name)).map((name) => fields[name].el), rent.el);
  const board = h("div", { class: "lk-stack" }),
    bar = h("div", {}),
    curve = h("div", {}),
    sums = h("div", {});
  const [, sold, soldLeast, soldMost, soldStep] = knobs.find(([name]) => name === "utilisation");
  const cost = () => Object.values(hour(business())).reduce((sum, v) => sum + v, 0);
  const result = () => {
    const over = model.get("rent") - cost();
    return (
      `${plain(million(business()))} USD a million tokens, ` +
      `${over >= 0 ? "a margin" : "a loss"} of ${plain(Math.abs(over))} USD an hour`
    );
  };
  // What a picture's width stands for; set by each drawing.
  let dollars = 1,
    plotted = [0, 1];
  const spot = handle(sold, {
    range: () => [[Math.round(soldLeast / soldStep), Math.round(soldMost / soldStep)]],
    now: () => [Math.round(model.get("utilisation") / soldStep)],
    at: (x) => [(x - plotted[0]) / plotted[1] / soldStep],
    move: (step) => set({ utilisation: Number((step * soldStep).toFixed(4)) }),
    say: () => `${show.utilisation(model.get("utilisation"))} of the hours sold: ${result()}`,
  });
  const asking = handle("Asked for an hour, USD", {
    range: () => [[2, Math.floor(Math.min(12, dollars) * 10)]],
    now: () => [Math.round(model.get("rent") * 10)],
    at: (x) => [(x / bar.clientWidth) * dollars * 10],
    move: (step) => set({ rent: step / 10 }),
    say: () => `${plain(model.get("rent"))} USD an hour: ${result()}`,
  });
  const machine = handle("Price of the machine", {
    range: () => [[5, 80]],
    now: () => [Math.round(model.get("price") / 1000)],
    at: (x) => [((x / bar.clientWidth) * dollars * model.get("price")) / hour(business()).machine / 1000],
    move: (step) => set({ price: 1000 * step }),
    say: () => `${whole(model.get("price"))} USD a GPU: ${result()}`,
  });
  board.append(held(bar, machine, asking), held(curve, spot));
  ui.stage.append(board);
  ui.rest.append(sums);
  const business = (more) => ({ ...Object.fromEntries(names.map((name) => [name, model.get(name)])), ...more });
  function paint(width) {
    const b = business(),
      paid = hour(b),
      total = Object.values(paid).reduce((sum, v) => sum + v, 0),
      asked = model.get("rent"),
      at = (v) => Math.min(1, v / dollars) * width;
    // A round scale, which stays while the rent is dragged and jumps as rarely as it can while costs are.
    dollars = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].find((v) => v >= 1.3 * total) || 1.3 * total;
    let x = 0;
    fill(
      bar,
      picture(
        {
          width,
          height: 92,
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
              { class: name, x: from, y: 28, width: Math.max(0, at(x) - from - 1), height: 34 },
              s("title", {}, `${name}: ${plain(usd)} USD`),
            ),
            at(x) - from > 7 * (name.length + 8) + 14 &&
              s("text", { class: "lk-on-bar", x: from + 6, y: 49 }, `${name} ${plain(usd)}`),
          );
        }),
        s("line", { class: "lk-limit", x1: at(asked), x2: at(asked), y1: 20, y2: 76 }),
        s(
          "text",
          {
            class: "soft",
            x: at(asked) + (at(asked) > width / 2 ? -18 : 18),
            y: 82,
            "text-anchor": at(asked) > width / 2 ? "end" : "start",
          },
          `asked ${plain(asked)} USD`,
        ),
        s("text", { x: 0, y: 14 }, `cost ${plain(total)} USD an hour`),
      ),
    );
    machine.put(at(paid.machine), 45);
    asking.put(at(asked), 77);
    const tall = 200,
      pad = { l: 66, r: 12, t: 10, b: 34 },
      many = Array.from({ length: 20 }, (_, i) => {
        const utilisation = 0.05 * (i + 1);
        return { utilisation, usd: million(business({ utilisation })) };
      });
    const y0 = Math.log10(Math.min(...many.map((p) => p.usd))) - 0.1,
      y1 = Math.log10(Math.max(...many.map((p) => p.usd))) + 0.05;
    const px = (v) => pad.l + v * (width - pad.l - pad.r),
      py = (v) => tall - pad.b - ((Math.log10(v) - y0) / (y1 - y0)) * (tall - pad.t - pad.b);
    fill(
      curve,
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
        s(
          "text",
          { class: "soft halo", x: width - pad.r, y: pad.t + 12, "text-anchor": "end" },
          "USD a million tokens, over hours sold",
        ),
      ),
    );
    plotted = [pad.l, width - pad.l - pad.r];
    spot.put(px(b.utilisation), py(million(b)));
    ui.numbers(() =>
      fill(
        sums,
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
      (years && years > 0 && years < 50
        ? `; without interest the machine is paid for after ${plain(years)} years.`
        : `; at this rent the machine is ${years && years > 0 ? "not paid for within 50 years" : "never paid for"}.`);
  }
  const view = fit(board, paint);
  function draw() {
    names.forEach((name) => fields[name].put(model.get(name)));
    rent.put(model.get("rent"));
    view.draw();
  }
  return follow(model, [...names, "rent"], draw, view.stop);
}
