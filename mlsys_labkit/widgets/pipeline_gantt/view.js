import { h, frame, slider, choice, grid, picture, fit, whileHeld } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { si, plain } from "../shared/numbers.js";
import { fill, s, sketch } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { range, bars, bubble, idle, live } from "./model.js";

const NAMES = { gpipe: "GPipe", "1f1b": "1F1B", interleaved: "interleaved 1F1B", zero_bubble: "zero bubble (ZB-H1)" };
const FORMULA = {
  gpipe: "(p − 1) / (m + p − 1)",
  "1f1b": "(p − 1) / (m + p − 1)",
  interleaved: "(p − 1) / (v·m + p − 1)",
  zero_bubble: "(p − 1)·F / (m·(F + B) + (p − 1)·F)",
};
const KINDS = {
  F: "forward",
  B: "backward",
  W: "gradient of the weights",
  task: "task",
  call: "in a call: sending, receiving, waiting",
};
const MOST = 1000;
const block = (x, y, wide, tall) =>
  `M${x.toFixed(2)},${y.toFixed(2)}h${wide.toFixed(2)}v${tall.toFixed(2)}h${(-wide).toFixed(2)}z`;

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const given = model.get("bars"),
    arrows = model.get("arrows"),
    traced = given.length > 0,
    get = (name) => model.get(name);
  const ui = frame(
    el,
    "pipeline",
    traced ? "Ranks in time" : "Pipeline schedule",
    traced
      ? "A row is a rank. Arrows are messages, from the call that sent to where they were received; " +
          "red is the critical path, the chain that sets the time. Drag the time."
      : "A row is a stage, a bar one micro-batch's forward or backward on it. Empty is idle: the " +
          "bubble. Drag the time; below each row, how many micro-batches' activations the stage holds.",
  );
  const set = (values) => {
    const next = {
      stages: get("stages"),
      micro_batches: get("micro_batches"),
      schedule: get("schedule"),
      chunks: get("chunks"),
      backward: get("backward"),
      cursor: get("cursor"),
      ...values,
    };
    if (next.chunks > 1)
      next.micro_batches =
        Math.max(1, Math.min(Math.floor(32 / next.stages), Math.ceil(next.micro_batches / next.stages))) * next.stages;
    put(model, next, draw);
  };
  let length = 1,
    drawn = given,
    scale = [0, 1];
  const fields = {},
    number = (name, label, min, max, step = 1, /** @type {(value: number) => string} */ show = String) => {
      fields[name] = slider(label, { min, max, step, value: get(name), show, input: (v) => set({ [name]: v }) });
    };
  const which = choice("Schedule", Object.entries(NAMES), get("schedule"), (v) =>
    set({ schedule: v, chunks: v === "interleaved" ? 2 : 1 }),
  );
  if (!traced) {
    number("stages", "Stages, p", 1, 8);
    number("micro_batches", "Micro-batches, m", 1, 32);
    number("chunks", "Chunks a stage, v", 1, 4);
    number("backward", "Backward, in forwards", 0.5, 3, 0.5);
    ui.controls.append(which.el, fields.stages.el, fields.micro_batches.el, fields.chunks.el);
    ui.more.append(fields.backward.el);
  }
  const tell = (t) => (traced ? si(t, "s") : `${plain(t)} F`);
  number("cursor", "Time", 0, MOST, 1, (at) => tell((at / MOST) * length));
  ui.more.append(fields.cursor.el);

  const name = (bar) => (traced ? (bar[1].length === 1 ? bar[1] + bar[2] : bar[2]) : bar[1] + bar[2]);
  let made = "",
    shown = "",
    move = () => {};
  const shape = () => ["stages", "micro_batches", "schedule", "chunks", "backward"].map(get).join();
  function paint(width) {
    const key = `${width},${shape()}`;
    if (key === shown) return move(); // only the cursor: up to a thousand bars stay as they are
    shown = key;
    const p = get("stages"),
      left = width < 520 ? 44 : 56,
      right = width - 6,
      lives = range(p).map((r) => live(drawn, r)),
      most = Math.max(1, ...lives.flat().map((one) => one[1]));
    const bar = 24,
      strip = lives.some((row) => row.length) ? 14 : 0,
      pitch = bar + strip + (arrows.length ? 22 : 8),
      X = (t) => left + (t / length) * (right - left),
      Y = (r) => 4 + r * pitch,
      low = Y(p) + 2;
    scale = [left, right];
    const rows = range(p).map((r) => [
      s(
        "text",
        { class: "soft", x: left - 8, y: Y(r) + 16, "text-anchor": "end" },
        width < 520 ? String(r) : `${traced ? "rank" : "stage"} ${r}`,
      ),
      s("rect", { class: "lk-lane", x: left, y: Y(r), width: right - left, height: bar }),
      s("path", {
        class: "lk-held",
        d: lives[r]
          .map(([t, n], i) => {
            const x = X(t),
              to = X(i + 1 < lives[r].length ? lives[r][i + 1][0] : t),
              tall = (n / most) * (strip - 3);
            return n && to > x ? block(x, Y(r) + bar + strip - tall, to - x, tall) : "";
          })
          .join(""),
      }),
    ]);
    // Thousands of bars are one path a kind; those of the critical path stand alone, above.
    const kin = new Map();
    drawn.forEach(([r, kind, label, start, end, on], i) => {
      const style = `lk-bar ${kind}${on ? " on" : ""}${/\.[13]$/.test(label) && kind !== "call" ? " odd" : ""}`,
        key = on ? i : style;
      if (!kin.has(key)) kin.set(key, { style, on, d: [], words: [] });
      const x = X(start),
        wide = Math.max(1, X(end) - x),
        text = kind.length > 1 ? label : label.split(".")[0],
        { d, words } = kin.get(key);
      d.push(block(x, Y(r) + 1, wide, bar - 2));
      if (wide > 6.6 * text.length + 3)
        words.push(s("text", { x: x + wide / 2, y: Y(r) + 16, "text-anchor": "middle" }, text));
    });
    const boxes = [...kin.values()]
      .sort((a, b) => Number(Boolean(a.on)) - Number(Boolean(b.on)))
      .map(({ style, d, words }) => s("g", { class: style }, s("path", { d: d.join("") }), words));
    const heads = arrows.map(([from, a, to, b, , on]) => {
      const down = to > from,
        x = X(b),
        y = Y(to) + (down ? 0 : bar);
      return [
        on,
        `M${X(a)},${Y(from) + (down ? bar : 0)} L${x},${y} m-3,${down ? -5 : 5} l3,${down ? 5 : -5} ` +
          `l3,${down ? -5 : 5}`,
      ];
    });
    const lines = [false, true].map((on) =>
      s("path", {
        class: `lk-arrow${on ? " on" : ""}`,
        d: heads
          .filter((one) => Boolean(one[0]) === on)
          .map((one) => one[1])
          .join(""),
      }),
    );
    const unit = 10 ** Math.floor(Math.log10(length / 4)),
      step = [1, 2, 5].map((k) => k * unit).find((k) => length / k <= (width < 520 ? 5 : 9)) ?? 10 * unit,
      ticks = range(Math.floor(length / step + 1e-9) + 1);
    const said = sentence();
    move = () => {
      const at = (get("cursor") / MOST) * length;
      /** @type {SVGElement} */ (plot.querySelector(".lk-cursor")).style.transform = `translate(${X(at)}px)`;
      time.put(X(at), low + 14);
      ui.numbers(() => report(p, lives, at));
    };
    fill(
      plot,
      picture(
        { width, height: low + 44, "aria-label": said },
        rows,
        boxes,
        lines,
        s("line", { class: "axis", x1: left, x2: right, y1: low, y2: low }),
        ticks.map((k) =>
          s(
            "text",
            { class: "soft", x: Math.min(X(k * step), right - 14), y: low + 42, "text-anchor": "middle" },
            tell(k * step),
          ),
        ),
        s("line", { class: "lk-cursor", y1: 0, y2: low + 4 }),
      ),
    );
    ui.says.textContent = said;
    const kinds = [...new Set(drawn.map((one) => one[1]))];
    const item = (style, words) =>
      sketch(
        "li",
        {},
        s(
          "svg",
          { width: 18, height: 14, "aria-hidden": "true" },
          s("g", { class: style }, s("path", { d: block(0, 0, 18, 14) })),
        ),
        words,
      );
    fill(
      legend,
      ...Object.keys(KINDS)
        .filter((kind) => kinds.includes(kind))
        .map((kind) => item(`lk-bar ${kind}`, KINDS[kind])),
      ...(get("chunks") > 1 ? [item("lk-bar F odd", "pale: odd chunk")] : []),
      ...(strip ? [item("lk-held", "below a row: micro-batches whose activations are held")] : []),
    );
    move();
  }
  function sentence() {
    const p = get("stages"),
      m = get("micro_batches"),
      v = get("chunks"),
      b = get("backward"),
      by = get("schedule");
    if (traced)
      return `${p} ranks in ${si(length, "s")}: computing fills ${plain(
        100 *
          (1 -
            idle(
              drawn.filter((one) => one[1] !== "call"),
              p,
              length,
            )),
      )} % of their time; ${`${get("note")}${get("path")}`.replaceAll(". ", "; ")}`;
    const bubbles = idle(drawn, p, length),
      theory = bubble(by, p, m, v, 1, b),
      exact = Math.abs(bubbles - theory) < 1e-9;
    return (
      `${NAMES[by]}: the bubble is ${plain(100 * bubbles)} % of all time; ${FORMULA[by]} = ` +
      `${plain(100 * theory)} %${exact ? "" : ", which holds for m ≥ p and W ≤ F"}; ` +
      `${plain(length)} forwards in all.`
    );
  }
  function report(p, held, at) {
    const rows = range(p).map((r) => {
      const mine = drawn.filter((one) => one[0] === r),
        now =
          mine
            .filter((one) => one[3] <= at && at < one[4])
            .map(name)
            .join(", ") || "idle",
        busy = mine.filter((one) => one[1] !== "call").reduce((sum, one) => sum + one[4] - one[3], 0);
      const past = held[r].filter(([t]) => t <= at),
        n = past.length ? past[past.length - 1][1] : 0,
        top = Math.max(0, ...held[r].map((one) => one[1]));
      return [
        String(r),
        now,
        tell(busy),
        tell(length - busy),
        ...(held.some((row) => row.length) ? [String(n), String(top)] : []),
      ];
    });
    fill(
      facts,
      grid(
        `At ${tell(at)}, and in all`,
        [
          traced ? "rank" : "stage",
          "doing",
          "computing",
          "idle",
          ...(rows[0].length > 4 ? (get("chunks") > 1 ? ["chunks held", "at most"] : ["holds now", "at most"]) : []),
        ],
        rows,
      ),
    );
  }
  const legend = h("ul", { class: "lk-legend", "aria-label": "Colours" }),
    plot = h("div", { class: "lk-plot" }),
    facts = h("div", { class: "lk-scroll" });
  const time = handle("Moment on the schedule", {
    range: () => [[0, MOST]],
    now: () => [get("cursor")],
    at: (x) => [((x - scale[0]) / (scale[1] - scale[0])) * MOST],
    move: (cursor) => set({ cursor }),
    say: () => {
      const at = (get("cursor") / MOST) * length,
        busy = drawn.filter((one) => one[1] !== "call" && one[3] <= at && at < one[4]).length;
      return `${tell(at)}: ${busy} of ${get("stages")} ${traced ? "ranks" : "stages"} compute`;
    },
  });
  ui.stage.append(legend, held(plot, time));
  ui.rest.append(facts);
  const view = fit(plot, paint);
  whileHeld(plot, (event) => {
    const part = (event.clientX - plot.getBoundingClientRect().left - scale[0]) / (scale[1] - scale[0]);
    set({ cursor: Math.max(0, Math.min(MOST, Math.round(part * MOST))) });
  });
  function draw() {
    if (!traced && made !== shape())
      drawn = bars(get("schedule"), get("stages"), get("micro_batches"), get("chunks"), 1, get("backward"));
    made = shape();
    length = Math.max(...drawn.map((one) => one[4]));
    which.select.value = get("schedule");
    if (fields.chunks) fields.chunks.el.hidden = get("schedule") !== "interleaved";
    Object.entries(fields).forEach(([key, field]) => field.put(get(key)));
    view.draw();
  }
  return follow(model, ["stages", "micro_batches", "schedule", "chunks", "backward", "cursor"], draw, view.stop);
}
