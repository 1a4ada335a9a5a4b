import { h, colourKeys, frame, slider, ladder, choice, grid, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { horizontals } from "../shared/axes.js";
import { si, plain } from "../shared/numbers.js";
import { fill, s, sketch } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { stage, fullest, tensorSizes, pipelineSizes } from "./model.js";

const PARTS = ["parameters", "gradients", "optimizer", "activations", "buffers"];
const MOST_BARS = 16;

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "bars",
    "Does it fit? Memory of one rank",
    "What a GPU holds while a transformer is trained. Drag the top of a bar: down to more " +
      "data parallel ranks, sideways " +
      "to another ZeRO stage.",
  );
  const get = (name) => model.get(name),
    presets = get("presets"),
    devices = get("devices"),
    ladders = get("ladders"),
    l = () => get("layout");
  const m = () => presets.find((p) => p.name === get("name")),
    device = () => devices.find(([key]) => key === get("device"));
  const set = (values) => {
    put(model, values, draw);
  };
  const change = (values) => set({ layout: { ...l(), ...values } });
  const near = (list, v) => list.filter((x) => x <= v).pop() ?? list[0];

  const name = choice(
    "Model",
    presets.map((p) => [p.name, p.name]),
    get("name"),
    (v) => {
      const next = presets.find((p) => p.name === v);
      set({
        name: v,
        layout: {
          ...l(),
          tensor: near(tensorSizes(next), l().tensor),
          pipeline: near(pipelineSizes(next), l().pipeline),
        },
      });
    },
  );
  const gpu = choice(
    "GPU",
    devices.map(([key, text]) => [key, text.replace("NVIDIA ", "")]), // so that the name fits the box
    get("device"),
    (v) => set({ device: v }),
  );
  const shown = choice(
    "Bars",
    [
      ["zero", "ZeRO 0 to 3"],
      ["stages", "pipeline stages"],
    ],
    get("view"),
    (v) => set({ view: v }),
  );
  const again = choice(
    "Recomputation",
    [
      ["none", "none"],
      ["full", "full"],
    ],
    l().recompute,
    (v) => change({ recompute: v }),
  );
  const field = (label, key) => ladder(label, ladders[key], l()[key], String, (v) => change({ [key]: v }));
  const data = field("Data parallel ranks", "data");
  const pick = (label, key, list) =>
    slider(label, {
      min: 0,
      max: 1,
      value: 0,
      show: (i) => String(list()[i] ?? l()[key]),
      input: (i) => change({ [key]: list()[i] }),
    });
  const tensor = pick("Tensor parallel ranks", "tensor", () => tensorSizes(m())),
    pipeline = pick("Pipeline stages", "pipeline", () => pipelineSizes(m()));
  const zero = slider("ZeRO stage", { min: 0, max: 3, value: l().zero, input: (v) => change({ zero: v }) });
  const micro = field("Micro-batch, sequences", "micro_batch"),
    many = field("Micro-batches a step", "micro_batches"),
    length = field("Tokens a sequence", "sequence");
  ui.controls.append(name.el, gpu.el, tensor.el, pipeline.el);
  ui.more.append(shown.el, again.el, data.el, zero.el, micro.el, many.el, length.el);

  const plot = h("div", {}),
    facts = h("div", { class: "lk-scroll" });
  const peakOf = (cut) => stage(m(), cut, fullest(m(), cut))[5];
  let scale = { left: 0, step: 1, Y: (/** @type {number} */ bytes) => bytes };
  const top = handle("Top of the bar", {
    axis: "xy",
    range: () => [
      [0, 3],
      [1 - ladders.data.length, 0],
    ],
    now: () => [l().zero, -ladders.data.indexOf(l().data)],
    at: (x, y) => {
      const z = Math.min(3, Math.max(0, Math.floor((x - scale.left) / scale.step))),
        far = (ranks) => Math.abs(scale.Y(peakOf({ ...l(), zero: z, data: ranks })) - y);
      const nearest = ladders.data.reduce((best, ranks) => (far(ranks) < far(best) - 0.5 ? ranks : best), l().data);
      return [z, -ladders.data.indexOf(nearest)];
    },
    move: (z, ranks) => change({ zero: z, data: ladders.data[-ranks] }),
    say: () => `ZeRO-${l().zero}, ${l().data} data parallel ranks: ${si(peakOf(l()), "B")} of ${si(limit(), "B")}`,
  });
  ui.stage.append(held(plot, top), colourKeys(PARTS, "q"));
  ui.rest.append(facts);

  function bars() {
    if (get("view") === "zero")
      return [0, 1, 2, 3].map((z) => {
        const cut = { ...l(), zero: z };
        return { label: `ZeRO-${z}`, on: z === l().zero, values: stage(m(), cut, fullest(m(), cut)) };
      });
    const count = l().pipeline,
      picked =
        count <= MOST_BARS
          ? [...Array(count).keys()]
          : [...new Set(Array.from({ length: MOST_BARS }, (_, i) => Math.round((i * (count - 1)) / (MOST_BARS - 1))))];
    return picked.map((i) => ({ label: String(i), on: i === fullest(m(), l()), values: stage(m(), l(), i) }));
  }
  const room = () => device()[2],
    limit = () => get("usable") * room();
  const view = fit(plot, (wide) => {
    const list = bars(),
      left = 62,
      right = wide - 8,
      high = 52,
      bottom = 262,
      height = 300;
    const most = Math.max(room() * 1.12, ...list.map((bar) => bar.values[5])) * 1.02,
      Y = (v) => bottom - (v / most) * (bottom - high);
    const step = (right - left) / list.length,
      thick = Math.min(84, step * 0.62),
      raw = most / 5,
      unit = 10 ** Math.floor(Math.log10(raw));
    const tick = [1, 2, 5].map((k) => k * unit).find((k) => k >= raw) ?? 10 * unit,
      marks = [];
    for (let v = 0; v <= most; v += tick) marks.push(v);
    const drawn = list.map(({ label, values, on }, i) => {
      const x = left + (i + 0.5) * step;
      let at = 0;
      const boxes = PARTS.map((part, k) => {
        const y = Y(at + values[k]),
          box = s("rect", { class: `q${k}`, x: x - thick / 2, y, width: thick, height: Math.max(0, Y(at) - y) });
        at += values[k];
        return box;
      });
      const over = values[5] > limit(),
        text = step > 52 || on ? si(values[5], "B") : "";
      return s(
        "g",
        {},
        boxes,
        s(
          "text",
          {
            class: over ? "halo over" : "halo",
            x: Math.max(left + 26, x),
            y: Y(Math.max(at, values[5])) - (on && get("view") === "zero" ? 18 : 6),
            "text-anchor": "middle",
          },
          text,
        ),
        s(
          "text",
          { class: on ? "" : "soft", x, y: bottom + 17, "text-anchor": "middle", "font-weight": on ? 600 : 400 },
          label,
        ),
      );
    });
    scale = { left, step, Y };
    top.el.hidden = get("view") !== "zero";
    top.put(left + (l().zero + 0.5) * step, Y(peakOf(l())));
    fill(
      plot,
      picture(
        {
          class: "lk-bars",
          width: wide,
          height,
          "aria-label": sentence(),
        },
        horizontals(marks, Y, left, right, (v) => si(v, "B"), 8),
        drawn,
        s("line", { class: "room", x1: left, x2: right, y1: Y(room()), y2: Y(room()) }),
        s("line", { class: "usable", x1: left, x2: right, y1: Y(limit()), y2: Y(limit()) }),
        s(
          "text",
          { class: "red halo", x: right, y: 14, "text-anchor": "end" },
          `${device()[1].split(",")[0]}: ${plain(room() / 2 ** 30)} GiB = ${si(room(), "B")}`,
        ),
        get("view") === "stages"
          ? s(
              "text",
              { class: "soft", x: (left + right) / 2, y: height - 4, "text-anchor": "middle" },
              "pipeline stage",
            )
          : null,
      ),
    );
  });
  function sentence() {
    const values = stage(m(), l(), fullest(m(), l())),
      gpus = l().data * l().tensor * l().pipeline,
      peak = values[5];
    const largest = PARTS[values.indexOf(Math.max(...values.slice(0, 5)))];
    const verdict =
      peak <= limit() ? `fits, with ${si(limit() - peak, "B")} to spare of` : `is ${si(peak - limit(), "B")} more than`;
    return (
      `${get("name")} on ${gpus} GPU${gpus > 1 ? "s" : ""} with ZeRO-${l().zero}: ${si(peak, "B")} ` +
      `on the fullest rank${l().pipeline > 1 ? ` (stage ${fullest(m(), l())})` : ""}; that ` +
      `${verdict} the ${si(limit(), "B")} that tensors may fill on ${device()[1]}; the largest part is ` +
      `${largest}.`
    );
  }
  function draw() {
    for (const [key, one] of Object.entries({ name, device: gpu, view: shown })) one.select.value = get(key);
    again.select.value = l().recompute;
    const cuts = [
      { one: tensor, key: "tensor", list: tensorSizes(m()) },
      { one: pipeline, key: "pipeline", list: pipelineSizes(m()) },
    ];
    for (const { one, key, list } of cuts) {
      one.range.max = String(Math.max(1, list.length - 1));
      one.range.disabled = list.length < 2;
      one.put(list.indexOf(l()[key]));
    }
    const sliders = { data, micro_batch: micro, micro_batches: many, sequence: length, zero };
    for (const [key, one] of Object.entries(sliders)) one.put(l()[key]);
    view.draw();
    ui.says.textContent = sentence();
    const list = bars(),
      head = get("view") === "zero" ? "the fullest stage" : `ZeRO-${l().zero}, stage`;
    ui.numbers(() =>
      fill(
        facts,
        grid(
          "Bytes of one rank",
          [head, ...list.map((bar) => bar.label)],
          [
            ...PARTS.map((part, k) => [part, ...list.map((bar) => si(bar.values[k], "B"))]),
            ["at the peak", ...list.map((bar) => si(bar.values[5], "B"))],
            ["fits", ...list.map((bar) => (bar.values[5] <= limit() ? "yes" : "no"))],
          ],
        ),
        sketch(
          "p",
          { class: "lk-note" },
          "By formula, not measured: 16-bit weights and gradients, 12 bytes of Adam, fused kernels, " +
            `FlashAttention, 1F1B. Dashed: ${plain(100 * get("usable"))} % of the memory; the rest is ` +
            "the driver's, NCCL's and lost between tensors.",
        ),
      ),
    );
  }
  return follow(model, ["name", "device", "layout", "view"], draw, view.stop);
}
