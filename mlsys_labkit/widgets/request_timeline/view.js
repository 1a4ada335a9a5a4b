import { h, unique, frame, slider, ladder, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { plain, si, whole } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { ttft, tpot, missed, goodput, span, ticks } from "./model.js";

const KINDS = ["queued", "prefill", "decode", "preempted", "stalled"];
const PAGE = 24; // rows in sight

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "requests",
    "Requests over time",
    "A row a request, from its arrival to its last token. Drag the TTFT bound to see " +
      "which would have been served in time.",
  );
  const get = (name) => model.get(name),
    rows = get("rows"),
    segments = get("segments"),
    strips = get("strips"),
    blocks = get("blocks");
  const final = strips[strips.length - 1][1],
    most = Math.max(1, ...strips.map((strip) => strip[2])),
    hatch = KINDS.map(() => unique("lk-hatch"));
  const set = (values) => {
    put(model, values, draw);
  };
  const seconds = (value) => si(value, "s"),
    wait = (value) => (value === null ? "none" : seconds(value));
  const first = ladder("TTFT at most", get("ttfts"), get("ttft"), seconds, (v) => set({ ttft: v }));
  const rest = ladder("TPOT at most", get("tpots"), get("tpot"), seconds, (v) => set({ tpot: v }));
  const verdict = (row) => missed(row, get("ttft"), get("tpot"));
  const told = (i) => {
    const row = rows[i],
      miss = verdict(row),
      of = segments.filter((piece) => piece[0] === i),
      times = (kind) => of.filter((piece) => piece[1] === kind);
    const length = (kind) => times(kind).reduce((sum, piece) => sum + piece[3] - piece[2], 0);
    const chunks = times(1).length,
      lost = times(3).length;
    return (
      `${row[0]}: arrived at ${seconds(row[1])}, queued ${seconds(length(0))}, prefilled in ` +
      `${chunks} chunk${chunks === 1 ? "" : "s"}, ${row[4]} token${row[4] === 1 ? "" : "s"}, TTFT ` +
      `${wait(ttft(row))}, TPOT ${wait(tpot(row))}` +
      (lost ? `, preempted ${lost === 1 ? "once" : `${lost} times`} for ${seconds(length(3))}` : "") +
      ": " +
      (miss === ""
        ? "in time"
        : miss === "not served"
          ? `not served (${row[5] || "unfinished"})`
          : miss === "both"
            ? "misses both bounds"
            : `misses ${miss}`) +
      "."
    );
  };
  const chosen = slider("Request", {
    min: 0,
    max: rows.length - 1,
    value: get("row"),
    show: (i) => rows[i][0],
    input: (i) => set({ row: i }),
  });
  chosen.el.hidden = rows.length < 2;
  ui.controls.append(first.el, rest.el, chosen.el);

  function paint(width) {
    const top = Math.floor(get("row") / PAGE) * PAGE,
      shown = rows.slice(top, top + PAGE),
      [from, to] = span(rows, top, PAGE, final);
    const narrow = width < 560,
      tall = 19,
      left = Math.min(90, 14 + 7 * Math.max(...shown.map((row) => row[0].length))),
      right = width - (narrow ? 62 : 92),
      low = 8 + shown.length * tall;
    const extent = Math.max(to - from, 1e-9),
      X = (t) => left + Math.max(0, Math.min(1, (t - from) / extent)) * (right - left);
    const marks = ticks(from, to, narrow ? 4 : 7),
      floor = low + 2 * 66 + 6,
      height = floor + 40;
    const row = (data, n) => {
      const i = top + n,
        y = 8 + n * tall,
        miss = verdict(data),
        deadline = data[1] + get("ttft");
      const bars = segments
        .filter((piece) => piece[0] === i)
        .map(([, kind, start, end]) => {
          const box = { x: X(start), y: y + 4, width: Math.max(1, X(end) - X(start)), height: tall - 8 };
          if (kind === 4)
            return s("line", {
              class: "lk-stalled",
              x1: box.x,
              x2: box.x + box.width,
              y1: y + tall / 2,
              y2: y + tall / 2,
            });
          return [
            s("rect", { ...box, class: `lk-bar lk-${KINDS[kind]}` }),
            (kind === 0 || kind === 3) && s("rect", { ...box, fill: `url(#${hatch[kind]})` }),
          ];
        });
      return s(
        "g",
        { class: `lk-row ${miss ? "bad" : "good"}`, "data-row": i },
        s("rect", {
          class: `lk-ground${i === get("row") ? " on" : ""}`,
          x: 1,
          y: y + 0.5,
          width: width - 2,
          height: tall - 1,
          rx: 3,
        }),
        s("text", { x: 7, y: y + 14 }, data[0].length > 10 ? `${data[0].slice(0, 9)}…` : data[0]),
        bars,
        s("path", { class: "lk-arrival", d: `M${X(data[1])},${y + 2} V${y + tall - 2}` }),
        deadline <= to && s("path", { class: "lk-deadline", d: `M${X(deadline)},${y + 1} V${y + tall - 1}` }),
        data[2] !== null && s("circle", { class: "lk-first", cx: X(data[2]), cy: y + tall / 2, r: 3.5 }),
        s(
          "text",
          { class: "lk-mark", x: right + 8, y: y + 14 },
          miss === "" ? "✓" : narrow && miss === "not served" ? "✗ none" : `✗ ${miss}`,
        ),
      );
    };
    const strip = (y, name, column, high) => {
      const inside = strips.filter((each) => each[1] >= from && each[0] <= to),
        Y = (v) => y + 62 - (v / high) * 40;
      const path = inside
        .map(
          (each) =>
            `M${X(each[0])},${y + 62} V${Y(each[column])} H${Math.max(X(each[1]), X(each[0]) + 0.8)} V${y + 62} Z`,
        )
        .join("");
      return [
        s("text", { class: "soft", x: left, y: y + 14 }, name),
        s("path", { class: `lk-strip lk-s${column}`, d: path }),
        s("line", { class: "axis", x1: left, x2: right, y1: y + 62, y2: y + 62 }),
        s("text", { class: "soft", x: right + 8, y: Y(high) + 6 }, `${whole(high)}`),
        s("line", { class: "rule", x1: left, x2: right, y1: Y(high), y2: Y(high) }),
      ];
    };
    const [met, rate] = goodput(rows, get("ttft"), get("tpot"), get("seconds"));
    const svg = picture(
      {
        width,
        height,
        "aria-label":
          `Timeline of ${shown.length} requests: ${met} of ${rows.length} in time, goodput ` +
          `${plain(rate)} requests a second. ${told(get("row"))}`,
        onclick: (/** @type {MouseEvent} */ event) => {
          const at = /** @type {Element} */ (event.target).closest("[data-row]");
          if (at) set({ row: Number(at.getAttribute("data-row")) });
        },
      },
      s(
        "defs",
        {},
        [0, 3].map((kind) =>
          s(
            "pattern",
            {
              id: hatch[kind],
              width: 6,
              height: 6,
              patternUnits: "userSpaceOnUse",
              patternTransform: `rotate(${kind ? 45 : -45})`,
            },
            s("line", { class: `lk-line lk-${KINDS[kind]}`, x1: 0, x2: 0, y1: 0, y2: 6 }),
          ),
        ),
      ),
      shown.map(row),
      marks.map((t) => s("line", { class: "lk-tick", x1: X(t), x2: X(t), y1: 8, y2: floor })),
      strip(low, "tokens in the batch", 2, most),
      strip(low + 66, "blocks in use", 4, blocks),
      marks.map((t) => s("text", { class: "soft", x: X(t), y: floor + 14, "text-anchor": "middle" }, seconds(t))),
      s(
        "text",
        { class: "soft", x: (left + right) / 2, y: floor + 32, "text-anchor": "middle" },
        get("clock") === "virtual" ? "virtual time of the engine" : "time since the engine began",
      ),
    );
    fill(plot, svg);
    const own = rows[get("row")];
    scale = { left, wide: right - left, from, extent, arrival: own[1] };
    bound.put(X(own[1] + get("ttft")), 8 + (get("row") - top + 0.5) * tall);
  }
  const swatch = (name, body) => h("li", {}, s("svg", { width: 18, height: 14, "aria-hidden": "true" }, body), name);
  const bar = (kind) => [
    s(
      "defs",
      {},
      s(
        "pattern",
        {
          id: `${hatch[kind]}-l`,
          width: 6,
          height: 6,
          patternUnits: "userSpaceOnUse",
          patternTransform: `rotate(${kind ? 45 : -45})`,
        },
        s("line", { class: `lk-line lk-${KINDS[kind]}`, x1: 0, x2: 0, y1: 0, y2: 6 }),
      ),
    ),
    s("rect", { class: `lk-bar lk-${KINDS[kind]}`, x: 1, y: 1, width: 16, height: 12 }),
    (kind === 0 || kind === 3) && s("rect", { x: 1, y: 1, width: 16, height: 12, fill: `url(#${hatch[kind]}-l)` }),
  ];
  const legend = h(
    "ul",
    { class: "lk-legend", "aria-label": "What the marks mean" },
    [0, 1, 2, 3]
      .filter((kind) => kind !== 3 || segments.some((piece) => piece[1] === 3))
      .map((kind) => swatch(KINDS[kind], bar(kind))),
    segments.some((piece) => piece[1] === 4) &&
      swatch("holds blocks, waits", s("line", { class: "lk-stalled", x1: 1, x2: 17, y1: 7, y2: 7 })),
    swatch("first token", s("circle", { class: "lk-first", cx: 9, cy: 7, r: 3.5 })),
    swatch("TTFT bound", s("path", { class: "lk-deadline", d: "M9,0 V14" })),
  );
  const plot = h("div", { class: "lk-plot" });
  let scale = { left: 0, wide: 1, from: 0, extent: 1, arrival: 0 };
  const bound = handle("Bound of the first token", {
    range: () => [[0, get("ttfts").length - 1]],
    now: () => [get("ttfts").indexOf(get("ttft"))],
    at: (x) => {
      const seconds = scale.from + ((x - scale.left) / scale.wide) * scale.extent - scale.arrival,
        gap = (i) => Math.abs(get("ttfts")[i] - seconds);
      return [get("ttfts").reduce((best, _, i) => (gap(i) < gap(best) ? i : best), 0)];
    },
    move: (step) => set({ ttft: get("ttfts")[step] }),
    say: () => {
      const [met] = goodput(rows, get("ttft"), get("tpot"), get("seconds"));
      return `${seconds(get("ttft"))}: ${met} of ${rows.length} requests in time`;
    },
  });
  ui.stage.append(legend, held(plot, bound));
  const notes = [
    rows.length > PAGE && `${PAGE} of ${rows.length} requests are in sight; the slider Request moves on.`,
    get("stride") > 1 && `The strips show the largest of every ${get("stride")} steps.`,
  ].filter(Boolean);
  if (notes.length) ui.rest.append(h("p", { class: "lk-note" }, notes.join(" ")));
  const view = fit(plot, paint);
  function draw() {
    first.put(get("ttft"));
    rest.put(get("tpot"));
    chosen.put(get("row"));
    const [met, rate] = goodput(rows, get("ttft"), get("tpot"), get("seconds"));
    ui.says.textContent =
      `${met} of ${rows.length} requests (${plain((100 * met) / rows.length)} %) are served in ` +
      `time: goodput ${plain(rate)} requests/s; ${told(get("row"))}`;
    view.draw();
  }
  return follow(model, ["ttft", "tpot", "row"], draw, view.stop);
}
