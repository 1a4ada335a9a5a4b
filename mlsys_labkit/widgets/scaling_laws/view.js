import { h, unique, frame, slider, logSlider, button, grid, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { verticals, horizontals, roundNumbers } from "../shared/axes.js";
import { si, plain } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { loss, bestParameters, lifetime, tokensFor } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const law = model.get("law");
  const ui = frame(
    el,
    "scaling",
    "How large, on how many tokens?",
    "Each curve is one budget of arithmetic, spent on small models and many tokens (left) or " +
      "large ones and few (right). Drag the dot along yours; then let the model be used.",
  );
  const set = (pairs) => {
    put(model, pairs, draw);
  };
  const exp = (v) => {
    const e = Math.floor(Math.log10(v) + 1e-9);
    return `${(v / 10 ** e).toFixed(1)}e${e}`;
  };
  const flops = logSlider("Training, FLOPs", {
    min: 18,
    max: 27,
    step: 0.1,
    value: model.get("flops"),
    show: exp,
    input: (v) => set({ flops: v }),
  });
  const size = logSlider("Parameters", {
    min: 7,
    max: 13,
    step: 0.02,
    value: model.get("parameters"),
    show: si,
    input: (v) => set({ parameters: v }),
  });
  const servedStep = () => (model.get("served") ? Math.round((Math.log10(model.get("served")) - 10) * 10) : 0);
  const served = slider("Tokens served in its life", {
    min: 0,
    max: 60,
    step: 1,
    value: servedStep(),
    show: (v) => (v ? si(10 ** (10 + v / 10)) : "none"),
    input: (v) => set({ served: v ? 10 ** (10 + v / 10) : 0 }),
  });
  ui.controls.append(
    flops.el,
    served.el,
    button("Best for this training budget", () => set({ parameters: bestParameters(law, model.get("flops")) })),
  );
  ui.more.append(size.el);
  const board = h("div", {}),
    sums = h("div", { class: "lk-scroll" });
  let across = [0, 1];
  const spot = handle("Parameters", {
    range: () => [[350, 650]],
    now: () => [Math.round(50 * Math.log10(model.get("parameters")))],
    at: (x) => [50 * (7 + (6 * (x - across[0])) / across[1])],
    move: (step) => set({ parameters: 10 ** (step / 50) }),
    say: () => {
      const n = model.get("parameters"),
        d = model.get("flops") / 6 / n;
      return `${si(n)} parameters on ${si(d)} tokens: loss ${loss(law, n, d).toFixed(3)}`;
    },
  });
  ui.stage.append(held(board, spot));
  const clip = unique("lk-clip");
  ui.rest.append(sums);
  // The size with the least arithmetic over a life, at the loss of the dot.
  function thrifty(target) {
    let best = { n: 0, d: 0, flops: Infinity };
    for (let e = 7; e <= 13; e += 0.01) {
      const n = 10 ** e,
        d = tokensFor(law, n, target);
      if (d === null) continue;
      const flops = lifetime(n, d, model.get("served"));
      if (flops < best.flops) best = { n, d, flops };
    }
    return best;
  }
  function paint(width) {
    const tall = 300,
      pad = { l: 46, r: 12, t: 10, b: 34 },
      C = model.get("flops"),
      N = model.get("parameters"),
      D = C / 6 / N,
      L = loss(law, N, D),
      best = bestParameters(law, C),
      low = 1.6,
      high = 3.6;
    const px = (n) => pad.l + ((Math.log10(n) - 7) / 6) * (width - pad.l - pad.r),
      py = (v) => tall - pad.b - ((Math.min(v, high + 0.2) - low) / (high - low)) * (tall - pad.t - pad.b);
    const curve = (flops) =>
      Array.from({ length: 121 }, (_, i) => {
        const n = 10 ** (7 + i / 20);
        return `${px(n).toFixed(1)},${py(loss(law, n, flops / 6 / n)).toFixed(1)}`;
      }).join(" ");
    const budgets = [1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26],
      said =
        `Loss ${L.toFixed(3)} with ${si(N)} parameters and ${si(D)} tokens, ${plain(D / N)} a ` +
        `parameter; the best size for this training is ${si(best)}, with loss ` +
        `${loss(law, best, C / 6 / best).toFixed(3)}.`;
    fill(
      board,
      picture(
        {
          width,
          height: tall,
          "aria-label": `Loss over parameters for budgets of 1e19 to 1e26 FLOPs. ${said}`,
        },
        s(
          "defs",
          {},
          s(
            "clipPath",
            { id: clip },
            s("rect", { x: pad.l, y: pad.t, width: width - pad.l - pad.r, height: tall - pad.t - pad.b }),
          ),
        ),
        verticals(roundNumbers(7, 13, [1]), px, pad.t, tall - pad.b, si),
        horizontals([2, 2.5, 3, 3.5], py, pad.l, width - pad.r, (v) => v.toFixed(1)),
        s("line", { class: "floor", x1: pad.l, x2: width - pad.r, y1: py(law.floor), y2: py(law.floor) }),
        s(
          "text",
          { class: "soft halo", x: pad.l + 6, y: py(law.floor) - 5 },
          width < 520 ? `least: ${law.floor}` : `${law.floor}: what no model of this family gets below`,
        ),
        s(
          "g",
          { "clip-path": `url(#${clip})` },
          budgets.map((flops) => s("polyline", { class: "iso", points: curve(flops) })),
          s("polyline", {
            class: "bottom",
            points: Array.from({ length: 91 }, (_, i) => {
              const c = 10 ** (18 + i / 10),
                n = bestParameters(law, c);
              return `${px(n).toFixed(1)},${py(loss(law, n, c / 6 / n)).toFixed(1)}`;
            }).join(" "),
          }),
          s("polyline", { class: "mine", points: curve(C) }),
          budgets.map((flops, i) => {
            if (width < 520 && i % 2) return null;
            const n = bestParameters(law, flops);
            return s(
              "text",
              { class: "soft halo", x: px(n), y: py(loss(law, n, flops / 6 / n)) + 15, "text-anchor": "middle" },
              exp(flops).replace(".0", ""),
            );
          }),
        ),
        s("text", { class: "soft", x: width - pad.r, y: tall - 4, "text-anchor": "end" }, "parameters"),
        s("text", { class: "soft halo", x: pad.l + 6, y: pad.t + 12 }, "loss"),
      ),
    );
    across = [pad.l, width - pad.l - pad.r];
    spot.put(px(N), Math.max(pad.t, py(L)));
    ui.says.textContent = said;
    ui.numbers(() => report(N, D, L));
  }
  function report(N, D, L) {
    const rows = [["this model", si(N), si(D), plain(D / N), exp(lifetime(N, D, model.get("served")))]],
      thrift = thrifty(L);
    if (thrift.n)
      rows.push([
        "same loss, least arithmetic over its life",
        si(thrift.n),
        si(thrift.d),
        plain(thrift.d / thrift.n),
        exp(thrift.flops),
      ]);
    fill(
      sums,
      grid(
        "Training and serving together",
        ["model", "parameters", "tokens", "tokens a parameter", "FLOPs in its life"],
        rows,
      ),
    );
  }
  const view = fit(board, paint);
  function draw() {
    flops.put(model.get("flops"));
    size.put(model.get("parameters"));
    served.put(servedStep());
    view.draw();
  }
  return follow(model, ["flops", "parameters", "served"], draw, view.stop);
}
