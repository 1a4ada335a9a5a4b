import { h, colourKeys, frame, slider, ladder, choice, grid, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { si, plain } from "../shared/numbers.js";
import { fill, s, sketch } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import {
  ruleParameters,
  parts,
  activeParameters,
  ruleActivations,
  activations,
  trainingFlops,
  kvBytes,
} from "./model.js";

const NAMES = [
  "attention",
  "MLP",
  "norms, routers",
  "tables at the input",
  "output layer",
  "saved",
  "attention's scores",
];
const off = (rule, exact) => {
  const e = 100 * (rule / exact - 1);
  return `${e < 0 ? "−" : "+"}${Math.abs(e).toFixed(1)} %`;
};
const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => 2 ** (from + i));
const whole1 = (x) => Math.max(1, Math.round(x));

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "sizer",
    "How large is a transformer?",
    "Rules of thumb beside exact counts. Drag the corner of the stack of layers and see which rule holds.",
  );
  const get = (name) => model.get(name),
    presets = get("presets"),
    m = () => get("shape");
  const set = (values) => {
    put(model, values, draw);
  };
  const resize = (changes) => set({ name: "", shape: { ...m(), ...changes } });
  const divisor = (n, most) => {
    let k = Math.min(n, most);
    while (n % k) k -= 1;
    return k;
  };
  const withOwn = (list, value) => [...new Set([...list, value])].sort((a, b) => a - b);
  const WIDTHS = withOwn(
    [64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 18432, 25600],
    m().width,
  );
  const HEADS = withOwn([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160], m().heads);
  const WORDS = withOwn([256, 2048, 32000, 50257, 51200, 128256, 256000], m().vocabulary);

  const preset = choice("Model", [["", "own sizes"], ...presets.map((p) => [p.name, p.name])], get("name"), (name) => {
    const { name: known, ...shape } = presets.find((p) => p.name === name) || { name: "", ...m() };
    set({ name: known, shape });
  });
  const widened = (d) => ({
    width: d,
    head_width: whole1((d / m().width) * m().head_width),
    hidden: whole1((d / m().width) * m().hidden),
  });
  const width = ladder("d, width", WIDTHS, m().width, String, (d) => resize(widened(d)));
  const layers = slider("N, layers", {
    min: 1,
    max: Math.max(160, m().layers),
    value: m().layers,
    input: (n) => resize({ layers: n }),
  });
  const heads = ladder("h, heads", HEADS, m().heads, String, (n) =>
    resize({ heads: n, kv_heads: divisor(n, m().kv_heads), head_width: whole1((m().heads * m().head_width) / n) }),
  );
  const splits = () => Array.from({ length: m().heads }, (_, i) => i + 1).filter((k) => m().heads % k === 0);
  const shared = slider("Key-value heads", {
    min: 1,
    max: 1,
    value: 1,
    input: (i) => resize({ kv_heads: splits()[i - 1] }),
    show: (i) => String(splits()[i - 1] ?? m().kv_heads),
  });
  const hidden = slider("MLP width, in d", {
    min: 4,
    max: 64,
    value: 16,
    show: (q) => String(q / 8),
    input: (q) => resize({ hidden: whole1((q / 8) * m().width) }),
  });
  const words = ladder("V, vocabulary", WORDS, m().vocabulary, String, (v) => resize({ vocabulary: v }));
  const batch = ladder("B, sequences", withOwn(powers(0, 8), get("batch")), get("batch"), String, (v) =>
    set({ batch: v }),
  );
  const length = ladder("L, tokens of one", withOwn(powers(7, 17), get("sequence")), get("sequence"), String, (v) =>
    set({ sequence: v }),
  );
  ui.controls.append(preset.el, heads.el, words.el, length.el);
  ui.more.append(width.el, layers.el, shared.el, hidden.el, batch.el);

  const plot = h("div", {}),
    keys = colourKeys(NAMES, "p");
  const facts = h("div", { class: "lk-scroll" });
  const stack = h("div", {}),
    TALL = 116,
    DEEPEST = Math.max(160, m().layers);
  const near = (list, v) =>
    list.reduce((best, x) => (Math.abs(Math.log(x / v)) < Math.abs(Math.log(best / v)) ? x : best));
  let room = 1;
  const down = (n) => 10 + (Math.log(n) / Math.log(DEEPEST)) * (TALL - 26);
  const rightOf = (i) => 60 + (i / (WIDTHS.length - 1)) * (room - 80);
  const corner = handle("Width and layers", {
    axis: "xy",
    range: () => [
      [0, WIDTHS.length - 1],
      [-DEEPEST, -1],
    ],
    now: () => [WIDTHS.indexOf(near(WIDTHS, m().width)), -m().layers],
    at: (x, y) => [
      ((x - 60) / Math.max(1, room - 80)) * (WIDTHS.length - 1),
      -(DEEPEST ** Math.max(0, (y - 10) / (TALL - 26))),
    ],
    move: (i, n) => {
      const changed = WIDTHS[i] === near(WIDTHS, m().width) ? {} : widened(WIDTHS[i]);
      resize({ ...changed, layers: -n });
    },
    say: () => `width ${m().width}, ${m().layers} layers: ${si(total())} parameters`,
  });
  function drawStack(wide) {
    room = wide;
    const [x, y] = [rightOf(widthStep()), down(m().layers)],
      lines = Array.from({ length: Math.min(60, m().layers) }, (_, i) => ((i + 1) / Math.min(60, m().layers)) * y);
    fill(
      stack,
      picture(
        {
          width: wide,
          height: TALL,
          "aria-label": `${m().layers} layers of width ${m().width}, on logarithmic scales`,
        },
        s("rect", { class: "lk-layers", x: 0, y: 0, width: x, height: y }),
        y / lines.length > 3 && lines.map((v) => s("line", { class: "lk-layer", x1: 0, x2: x, y1: v, y2: v })),
        s("text", { class: "soft", x: 0, y: Math.min(TALL - 2, y + 14) }, `${m().layers} layers of width ${m().width}`),
      ),
    );
    corner.put(x, y);
  }
  const widthStep = () => WIDTHS.indexOf(near(WIDTHS, m().width));
  ui.stage.append(held(stack, corner), plot, keys);
  ui.rest.append(facts);

  const total = () => parts(m()).reduce((a, b) => a + b, 0);
  function numbers() {
    const B = get("batch"),
      L = get("sequence"),
      one = m();
    return {
      rule: ruleParameters(one),
      exact: total(),
      elements: ruleActivations(one, B, L),
      linear: 9 * B * L * one.width,
      kept: activations(one, B, L, false),
      flash: activations(one, B, L, true),
      six: 6 * activeParameters(one),
      flops: trainingFlops(one, L),
      keys: kvBytes(one),
      fourNd: 4 * one.layers * one.width,
    };
  }
  const view = fit(plot, (wide) => {
    drawStack(wide);
    const n = numbers(),
      narrow = wide < 560,
      left = narrow ? 0 : 178,
      rowHeight = narrow ? 44 : 30,
      right = wide - 92;
    /** @type {[string, [number, string][], number, number][]} */
    const rows = [
      ["parameters, exact", parts(m()).map((v, i) => [v, `p${i}`]), n.exact, 0],
      ["rule: 12Nd² + Vd", [[n.rule, "rule"]], n.rule, 0],
      [
        "saved a layer, scores kept",
        [
          [n.flash, "p5"],
          [n.kept - n.flash, "p6"],
        ],
        n.kept,
        1,
      ],
      [
        "rule: 9BLd + 2BhL²",
        [
          [n.linear, "rule"],
          [n.elements - n.linear, "rule"],
        ],
        n.elements,
        1,
      ],
    ];
    const most = [Math.max(n.exact, n.rule), Math.max(n.kept, n.elements)],
      height = rows.length * rowHeight + 14;
    const drawn = rows.map(([label, pieces, value, group], i) => {
      const y = i * rowHeight + 14 * group,
        top = y + (narrow ? 18 : 5);
      let at = left;
      const boxes = pieces.map(([v, kind]) => {
        const w = Math.max(0, (v / most[group]) * (right - left));
        const box = s("rect", { class: kind, x: at, y: top, width: w, height: 20 });
        at += w;
        return box;
      });
      return [
        s(
          "text",
          {
            class: "soft",
            x: narrow ? 0 : left - 10,
            y: narrow ? y + 12 : top + 14,
            "text-anchor": narrow ? "start" : "end",
          },
          label,
        ),
        boxes,
        s("text", { x: at + 6, y: top + 14 }, si(value)),
      ];
    });
    fill(
      plot,
      picture(
        {
          class: "lk-sizes",
          width: wide,
          height,
          "aria-label": sentence(),
        },
        drawn,
      ),
    );
  });
  function sentence() {
    const n = numbers(),
      share = (100 * (n.kept - n.flash)) / n.kept;
    return (
      `${get("name") || "This model"} has ${si(n.exact)} parameters; 12Nd² + Vd says ${si(n.rule)}, ` +
      `off by ${off(n.rule, n.exact)}; ` +
      `a layer saves ${si(n.kept)} elements, ${plain(Math.max(0, share))} % of them attention's ` +
      `scores, which FlashAttention does not keep; 9BLd + 2BhL² says ${si(n.elements)}, off by ` +
      `${off(n.elements, n.kept)}.`
    );
  }
  function draw() {
    const one = m(),
      n = numbers();
    preset.select.value = get("name");
    const show = (field, list, v) => {
      field.put(near(list, v));
      field.output.textContent = String(v);
      field.range.setAttribute("aria-valuetext", String(v));
    };
    show(width, WIDTHS, one.width);
    show(heads, HEADS, one.heads);
    show(words, WORDS, one.vocabulary);
    layers.put(one.layers);
    shared.range.max = String(splits().length);
    shared.put(splits().indexOf(one.kv_heads) + 1);
    hidden.put(Math.round((8 * one.hidden) / one.width));
    const ratio = plain(one.hidden / one.width);
    hidden.output.textContent = ratio;
    hidden.range.setAttribute("aria-valuetext", `${ratio}, ${one.hidden}`);
    batch.put(get("batch"));
    length.put(get("sequence"));
    view.draw();
    ui.says.textContent = sentence();
    const row = (name, rule, exact, unit = "") => [name, si(rule, unit), si(exact, unit), off(rule, exact)];
    ui.numbers(() =>
      fill(
        facts,
        grid(
          "Rules of thumb and exact counts",
          ["what", "rule", "exact", "rule is off by"],
          [
            row("parameters, 12Nd² + Vd", n.rule, n.exact),
            row("elements a layer saves, 9BLd + 2BhL²", n.elements, n.kept),
            row("the same with FlashAttention, 9BLd", n.linear, n.flash),
            row("training FLOPs a token, 6 x parameters", n.six, n.flops),
            row("cache a token, 4Nd bytes", n.fourNd, n.keys, "B"),
            row("weights on disk, 2 bytes each", 2 * n.rule, 2 * n.exact, "B"),
            row("checkpoint to go on from, 14 bytes each", 14 * n.rule, 14 * n.exact, "B"),
          ],
        ),
        sketch(
          "p",
          { class: "lk-note" },
          "Counted, not measured: elements of 16 bits that fused kernels save of one layer; a " +
            "checkpoint to go on from holds 16-bit weights and Adam's 12 bytes." +
            (one.experts > 1
              ? ` 6 x parameters counts the ${one.active_experts} of ${one.experts} experts that a token visits.`
              : ""),
        ),
      ),
    );
  }
  return follow(model, ["name", "shape", "batch", "sequence"], draw, view.stop);
}
