import { h, KEYS, colourKeys, frame, logSlider, ladder, choice, grid, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { cutPicture } from "./cut_picture.js";
import { si, plain, whole } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { memory, seconds, utilisation, tokensPerSecond } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const models = model.get("models"),
    gpu = model.get("gpu"),
    words = model.get("words");
  const ui = frame(
    el,
    "training",
    "Plan a training run",
    `Drag the cuts until the model fits, then until no GPU waits. GPUs: ${gpu.name}.`,
  );
  const set = (pairs) => {
    put(model, pairs, draw);
  };
  const powers = Array.from({ length: 11 }, (_, i) => 2 ** i),
    lists = {
      data: powers,
      tensor: powers.slice(0, 6),
      pipeline: powers.slice(0, 7),
      micro_batches: powers,
      micro_batch: [1, 2, 4, 8],
      sequence: [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072],
      zero: [0, 1, 2, 3],
    };
  const nearest = (list, v) => list.reduce((a, b) => (Math.abs(b - v) < Math.abs(a - v) ? b : a));
  const step = (label, name, show) =>
    ladder(label, lists[name], nearest(lists[name], model.get(name)), show, (v) => set({ [name]: v }));
  const steps = {
    data: step("Data parallel", "data", whole),
    tensor: step("Tensor parallel", "tensor", whole),
    pipeline: step("Pipeline stages", "pipeline", whole),
    zero: step("ZeRO stage", "zero", String),
    micro_batch: step("Sequences a micro-batch", "micro_batch", String),
    micro_batches: step("Micro-batches a step", "micro_batches", whole),
    sequence: step("Tokens a sequence", "sequence", whole),
  };
  const pick = choice(
    "Model",
    models.map((each) => [each.name, each.name]),
    model.get("model"),
    (v) => set({ model: v }),
  );
  const tokens = logSlider("Tokens to train on", {
    min: 9,
    max: 15,
    step: 0.1,
    value: model.get("tokens"),
    show: si,
    input: (v) => set({ tokens: v }),
  });
  const tick = h("input", { ...KEYS, type: "checkbox", onchange: () => set({ recompute: Number(tick.checked) }) });
  ui.controls.append(
    pick.el,
    steps.zero.el,
    steps.micro_batches.el,
    h("label", { class: "lk-check" }, tick, "Recompute activations"),
  );
  ui.more.append(...["data", "tensor", "pipeline", "micro_batch", "sequence"].map((name) => steps[name].el), tokens.el);
  const cuts = h("div", {}),
    bars = h("div", { class: "lk-stack" }),
    sums = h("div", {});
  const verdict = () => {
    const { free } = memory(plan());
    return free >= 0 ? `it fits, ${si(free, "B")} free` : `it does not fit, ${si(-free, "B")} too much`;
  };
  /** @type {import("./cut_picture.js").Places} */
  let places;
  const cut = (label, name, axis, say) => {
    const list = lists[name];
    return handle(label, {
      axis,
      range: () => [[0, list.length - 1]],
      now: () => [list.indexOf(nearest(list, model.get(name)))],
      at: (x, y) => [places[name].step(axis === "y" ? y : x)],
      move: (step) => set({ [name]: list[step] }),
      say: () => `${say(model.get(name))}: ${verdict()}`,
    });
  };
  const grips = {
    pipeline: cut("Cut between layers", "pipeline", "y", (n) => `${n} pipeline stage${n > 1 ? "s" : ""}`),
    tensor: cut("Cut through layers", "tensor", "x", (n) => `each layer on ${n} GPU${n > 1 ? "s" : ""}`),
    data: cut("Copies of the model", "data", "x", (n) => `${whole(n)} cop${n > 1 ? "ies" : "y"}`),
  };
  const board = h("div", { class: "lk-stack" }, held(cuts, ...Object.values(grips)), bars);
  ui.stage.append(board);
  ui.rest.append(sums);
  const plan = () => {
    const sizes = models.find((each) => each.name === model.get("model"));
    return {
      ...sizes,
      ...gpu,
      ...Object.fromEntries(
        ["data", "tensor", "pipeline", "zero", "micro_batch", "micro_batches", "sequence", "recompute"].map((name) => [
          name,
          model.get(name),
        ]),
      ),
      flops: sizes.flops_base + sizes.flops_slope * model.get("sequence"),
    };
  };
  function bar(width, title, parts, top, show, limit) {
    let x = 0;
    const at = (v) => (v / top) * width;
    return picture(
      {
        width,
        height: limit ? 66 : 50,
        "aria-label": `${title}: ${parts.map(([name, v]) => `${name} ${show(v)}`).join(", ")}`,
      },
      s("text", { x: 0, y: 12 }, title),
      parts.map(([name, v], i) => {
        const from = at(x);
        x += v;
        const wide = at(x) - from,
          text = `${name} ${show(v)}`;
        return s(
          "g",
          {},
          s(
            "rect",
            { class: `part${i}`, x: from, y: 20, width: Math.max(0, wide - 1), height: 28 },
            s("title", {}, text),
          ),
          [text, name]
            .filter((t) => wide > 7.2 * t.length + 12)
            .slice(0, 1)
            .map((t) => s("text", { class: "lk-on-bar", x: from + 6, y: 38 }, t)),
        );
      }),
      limit && s("line", { class: "lk-limit", x1: at(limit), x2: at(limit), y1: 14, y2: 56 }),
      limit &&
        s(
          "text",
          { class: "soft", x: at(limit), y: 62, "text-anchor": at(limit) > width / 2 ? "end" : "start" },
          `usable ${show(limit)}`,
        ),
    );
  }
  const namesOf = (parts) => parts.map(([name]) => name);
  function paint(width) {
    const p = plan(),
      shares = memory(p),
      times = seconds(p),
      parts = Object.entries(shares).filter(([name]) => name !== "free"),
      used = parts.reduce((sum, [, v]) => sum + v, 0),
      gpus = p.data * p.tensor * p.pipeline,
      mfu = utilisation(p),
      rate = tokensPerSecond(p);
    const spent = Object.entries(times).map(/** @returns {[string, number]} */ ([name, v]) => [words[name] ?? name, v]),
      whole_step = spent.reduce((sum, [, v]) => sum + v, 0);
    const { svg, ...drawn } = cutPicture(p, width, used / (0.92 * p.memory), gpus);
    places = drawn;
    fill(cuts, svg);
    Object.entries(grips).forEach(([name, grip]) => grip.put(places[name].middle[0], places[name].middle[1]));
    fill(
      bars,
      bar(width, "Memory of the fullest rank", parts, Math.max(used, p.memory), (v) => si(v, "B"), 0.92 * p.memory),
      colourKeys(namesOf(parts), "part"),
      bar(width, "A step's time", spent, whole_step, (v) => (v === 0 ? "0 s" : si(v, "s"))),
      colourKeys(namesOf(spent), "part"),
    );
    const days = model.get("tokens") / rate / 86400;
    ui.numbers(() =>
      fill(
        sums,
        grid(
          "A model, not measured",
          ["what", "how much"],
          [
            ...parts.map(([name, v]) => [name, si(v, "B")]),
            ...spent.map(([name, v]) => [
              `${name}, a step`,
              v === 0 ? "0 s" : v < 1 ? `${plain(v * 1e3)} ms` : `${plain(v)} s`,
            ]),
            ["tokens a step", si(p.data * p.micro_batch * p.micro_batches * p.sequence)],
            ["tokens a second", si(rate)],
            ["days", plain(days)],
          ],
        ),
      ),
    );
    const worst = spent.slice(1).reduce((a, b) => (b[1] > a[1] ? b : a));
    ui.says.textContent =
      `${whole(gpus)} GPU${gpus > 1 ? "s" : ""}: ${verdict()}; ${Math.round(100 * mfu)} % of the peak is useful` +
      (worst[1] > 0.02 * whole_step ? `; the largest loss: ${worst[0]}` : "") +
      `; ${plain(days)} days for ${si(model.get("tokens"))} tokens.`;
  }
  const view = fit(board, paint);
  function draw() {
    pick.select.value = model.get("model");
    Object.entries(steps).forEach(([name, field]) => field.put(nearest(lists[name], model.get(name))));
    tokens.put(model.get("tokens"));
    tick.checked = Boolean(model.get("recompute"));
    view.draw();
  }
  return follow(model, ["model", ...Object.keys(steps), "recompute", "tokens"], draw, view.stop);
}
