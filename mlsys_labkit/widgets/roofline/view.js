import { h, frame, slider, choice, grid, picture, fit, whileHeld } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { fill, s, sketch } from "../shared/redraw.js";
import { verticals, horizontals, labeller, roundNumbers } from "../shared/axes.js";
import { si, plain } from "../shared/numbers.js";
import { follow, put } from "../shared/state.js";
import { ITEM_BYTES, ridge, attainable, bound, leastSeconds, matmul } from "./model.js";

const FINE = 20; // slider steps a decade
const toLog = (value) => Math.round(Math.log10(value) * FINE);
const fromLog = (step) => Number((10 ** (step / FINE)).toPrecision(4));

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "roofline",
    "Roofline explorer",
    "How fast can this code run at best, and which of the two roofs stops it? Drag the point.",
  );
  const machines = model.get("machines"),
    works = model.get("works");
  const get = (name) => model.get(name);
  const set = (values) => {
    put(model, values, draw);
  };
  const keys = (field) =>
    [...new Set(machines.flatMap((machine) => Object.keys(machine[field])))].map((key) => [key, key]);
  const list = machines.map((machine, i) => [
    String(i),
    machine.name + (machine.origin === "measured" ? " (measured)" : ""),
  ]);

  const first = choice("Machine", list, String(get("first")), (v) => set({ first: Number(v) }));
  const second = choice("Compare with", [["-1", "none"], ...list], String(get("second")), (v) =>
    set({ second: Number(v) }),
  );
  const dtype = choice("Number format", keys("peaks"), get("dtype"), (v) => set(sized({ dtype: v })));
  const level = choice("Memory level", keys("bandwidths"), get("level"), (v) => set({ level: v }));
  const mode = choice(
    "Work",
    [
      ["free", "any FLOPs and bytes"],
      ["matmul", "matrix product m, n, k"],
    ],
    get("mode"),
    (v) => set(sized({ mode: v })),
  );
  const logs = (label, name, low, high, unit) =>
    slider(label, {
      min: low * FINE,
      max: high * FINE,
      value: toLog(get(name)),
      show: (step) => si(step === toLog(get(name)) ? get(name) : fromLog(step), unit), // a work is seldom on a step
      input: (step) => set({ [name]: fromLog(step) }),
    });
  const flops = logs("Arithmetic", "flops", 0, 16, "FLOP");
  const bytes = logs("Bytes moved", "bytes", 0, 14, "B");
  const sides = ["m", "n", "k"].map((name) =>
    slider(name, {
      min: 0,
      max: 15,
      value: Math.log2(get(name)),
      show: (power) => String(2 ** power),
      input: (power) => set(sized({ [name]: 2 ** power })),
    }),
  );
  ui.controls.append(first.el, flops.el, bytes.el, ...sides.map((side) => side.el));
  ui.more.append(second.el, dtype.el, level.el, mode.el);

  // In matmul mode the sizes decide FLOPs and bytes.
  function sized(values = {}) {
    const next = { mode: get("mode"), m: get("m"), n: get("n"), k: get("k"), dtype: get("dtype"), ...values },
      [flops, bytes] = matmul(next.m, next.n, next.k, ITEM_BYTES[next.dtype]);
    return next.mode === "matmul" ? { ...values, flops, bytes } : values;
  }
  const picks = () =>
    [get("first"), get("second")]
      .map((index, which) =>
        index < 0 || !machines[index] || (which && index === get("first"))
          ? null
          : {
              which,
              ...machines[index],
              peak: machines[index].peaks[get("dtype")],
              bandwidth: machines[index].bandwidths[get("level")],
            },
      )
      .filter(Boolean);
  const whole = (machine) => machine.peak && machine.bandwidth;
  const tagOf = (machine, shown) => (shown.length > 1 ? (machine.which ? "B " : "A ") : "");
  const intensity = () => get("flops") / get("bytes");

  const x0 = -2, // decades of the intensity
    x1 = 4,
    left = 66;
  let right = left;
  function paint(width) {
    right = width - 22;
    const height = Math.round(Math.min(440, Math.max(300, width * 0.56))),
      top = 22,
      bottom = height - 40;
    const ready = picks().filter(whole);
    const tops = ready.map((machine) => machine.peak);
    const y1 = Math.ceil(Math.log10(Math.max(1e9, ...tops)) + 0.25);
    const y0 = Math.min(
      y1 - 4,
      Math.floor(Math.log10(Math.min(1e15, ...ready.map((machine) => machine.bandwidth))) - 1),
    );
    const clamp = (v, low, high) => Math.min(high, Math.max(low, v));
    const X = (value) => left + ((clamp(Math.log10(value), x0, x1) - x0) / (x1 - x0)) * (right - left);
    const Y = (value) => bottom - ((clamp(Math.log10(value), y0, y1) - y0) / (y1 - y0)) * (bottom - top);
    const marks = [
      verticals(roundNumbers(x0, x1, [1]), X, top, bottom, (v) => String(Number(v.toPrecision(1)))),
      horizontals(roundNumbers(y0, y1, [1]), Y, left, right, si, 8),
      s(
        "text",
        { class: "soft", x: (left + right) / 2, y: height - 6, "text-anchor": "middle" },
        "arithmetic intensity, FLOP/B",
      ),
      s("text", { class: "soft", x: 4, y: 12 }, "FLOP/s"),
    ];

    const least = (work) =>
      work.achieved || (ready[0] ? attainable(work.flops / work.bytes, ready[0].peak, ready[0].bandwidth) : null);
    /** @type {[number, number, number][]} the diamonds of the works, and the handle */
    const spots = works
      .filter(least)
      .map((work) => [X(work.flops / work.bytes), Y(least(work)), 7])
      .concat(ready.slice(0, 1).map((m) => [X(intensity()), Y(attainable(intensity(), m.peak, m.bandwidth)), 15]));
    const clear = labeller(spots);
    const roofs = ready.map((machine) => {
      const { peak, bandwidth, which, origin } = machine,
        corner = ridge(peak, bandwidth);
      // Start where the roof enters the picture, so that a clamped end does not bend the slope.
      const from = Math.max(10 ** x0, 10 ** y0 / bandwidth),
        slope = [X(from), Y(from * bandwidth)];
      const path = `M${slope} L${X(corner)},${Y(peak)} L${right},${Y(peak)}`;
      const angle = (Math.atan2(Y(peak) - slope[1], X(corner) - slope[0]) * 180) / Math.PI;
      const up = which ? 17 : -8,
        between = (along) => from ** (1 - along) * corner ** along,
        room = (at) => Math.min(...spots.map(([x, y, r]) => Math.hypot(X(at) - x, Y(at * bandwidth) + up - y) - r));
      const mid = [0.72, 0.42, 0.57, 0.27, 0.85]
        .map(between)
        .reduce((best, at) => (Math.min(32, room(at)) > Math.min(32, room(best)) ? at : best));
      const tag = tagOf(machine, ready),
        tilt = (angle * Math.PI) / 180;
      const limit = `${tag}${si(peak, "FLOP/s")}`;
      const middle = right - 2 - 3.65 * limit.length,
        hidden = !which && Math.abs(X(intensity()) - middle) < 3.65 * limit.length + 16, // by the handle
        high = Y(peak) + (hidden ? -20 : up);
      clear(limit, [[middle, high]]);
      const ridged = `${tag}ridge ${plain(corner)}`,
        foot = bottom - 7 - 16 * which;
      clear(ridged, [[X(corner) + 5 + 3.65 * ridged.length, foot]]);
      for (let i = -3; i <= 3; i += 1)
        clear("ww", [
          [
            X(mid) + 13 * i * Math.cos(tilt) - up * Math.sin(tilt),
            Y(mid * bandwidth) + 13 * i * Math.sin(tilt) + up * Math.cos(tilt),
          ],
        ]);
      return s(
        "g",
        { class: `lk-roof lk-m${which}` },
        which ? null : s("path", { class: "area", d: `${path} V${bottom} H${slope[0]} Z` }),
        s("path", { class: "roof", d: path, "stroke-dasharray": origin === "measured" ? null : which ? "2 5" : "9 5" }),
        s("line", { class: "ridge", x1: X(corner), x2: X(corner), y1: Y(peak), y2: bottom }),
        s(
          which ? "rect" : "circle",
          which ? { x: X(corner) - 4, y: Y(peak) - 4, width: 8, height: 8 } : { cx: X(corner), cy: Y(peak), r: 4 },
        ),
        s("text", { class: "halo", x: X(corner) + 5, y: foot }, ridged),
        s("text", { class: "halo", x: right - 2, y: high, "text-anchor": "end" }, limit),
        // Without a label where the slope is shorter than one: it would leave the picture.
        Math.hypot(X(corner) - slope[0], Y(peak) - slope[1]) > 130 &&
          s(
            "text",
            {
              class: "halo",
              "text-anchor": "middle",
              transform: `translate(${X(mid)},${Y(mid * bandwidth)}) rotate(${angle}) translate(0,${up})`,
            },
            `${tag}${si(bandwidth, "B/s")}`,
          ),
      );
    });

    const own = works.map((work) => {
      const speed = least(work);
      if (!speed) return null;
      const [x, y] = [X(work.flops / work.bytes), Y(speed)];
      return s(
        "g",
        { class: `lk-work${work.achieved ? " full" : ""}` },
        s("path", { d: `M${x},${y - 6} l6,6 l-6,6 l-6,-6 z` }),
        s("title", {}, work.name),
        s("text", { class: "halo", ...clear(short(work.name), around(short(work.name), x, y)) }, short(work.name)),
      );
    });
    function short(name) {
      const most = Math.floor((right - left - 8) / 7.3);
      return name.length > most ? `${name.slice(0, most - 1)}…` : name;
    }
    function around(name, x, y) {
      const side = 12 + 3.65 * name.length,
        downs = [18, -10, 32, -24, 46, -38, 4];
      /** @type {[number, number][]} */
      const places = downs.flatMap(
        (down) =>
          /** @type {[number, number][]} */ ([
            [x + side, y + down],
            [x - side, y + down],
          ]),
      );
      const within = ([, level]) => level > 24 && level < bottom - 2; // above the numbers of the axis
      const inside = places
        .filter(([middle]) => middle - side > left - 12 && middle + side < right + 20)
        .filter(within);
      // Where neither side of its point has room, a name stands above or below, moved into the picture.
      const middle = Math.min(right + 20 - side, Math.max(left - 12 + side, x));
      const above = downs.map((down) => /** @type {[number, number]} */ ([middle, y + down]));
      return [...inside, ...above.filter(within)];
    }
    const here = ready.map((machine) => {
      const y = Y(attainable(intensity(), machine.peak, machine.bandwidth)),
        x = X(intensity());
      return s(
        "g",
        { class: `lk-point lk-m${machine.which}` },
        s("line", { class: "drop", x1: x, x2: x, y1: y, y2: bottom }),
        machine.which ? s("rect", { x: x - 7, y: y - 7, width: 14, height: 14 }) : s("circle", { cx: x, cy: y, r: 15 }),
      );
    });
    const said = sentence();
    const svg = picture({ width, height, "aria-label": said, class: "lk-plot" }, marks, roofs, own, here);
    fill(plot, svg);
    const [main] = ready;
    spot.el.hidden = !main;
    if (main) spot.put(X(intensity()), Y(attainable(intensity(), main.peak, main.bandwidth)));
    ui.says.textContent = said;
    ui.numbers(report);
  }

  function sentence() {
    const at = `${si(get("flops"), "FLOP")} over ${si(get("bytes"), "B")} is ${plain(intensity())} FLOP/B`;
    return (
      `${at}: ` +
      picks()
        .map((machine) => {
          if (!whole(machine))
            return (
              `${machine.name} states no ` +
              (machine.peak ? `bandwidth for ${get("level")}` : `peak for ${get("dtype")}`)
            );
          const most = attainable(intensity(), machine.peak, machine.bandwidth);
          return (
            `${machine.name} is ${bound(intensity(), machine.peak, machine.bandwidth)} bound: at most ` +
            `${si(most, "FLOP/s")}, ${plain((100 * most) / machine.peak)} % of its ${get("dtype")} peak`
          );
        })
        .join("; ") +
      "."
    );
  }
  function report() {
    const ready = picks().filter(whole),
      row = (name, tell) => [name, ...ready.map(tell)];
    fill(
      ui.rest,
      sketch(
        "div",
        { class: "lk-scroll" },
        grid(
          "The same in numbers",
          ["at this intensity", ...ready.map((machine) => tagOf(machine, ready) + machine.name)],
          [
            row("bound", (m) => bound(intensity(), m.peak, m.bandwidth)),
            row("attainable", (m) => si(attainable(intensity(), m.peak, m.bandwidth), "FLOP/s")),
            row("ridge", (m) => `${plain(ridge(m.peak, m.bandwidth))} FLOP/B`),
            row("least time", (m) => si(leastSeconds(get("flops"), get("bytes"), m.peak, m.bandwidth), "s")),
          ],
        ),
      ),
      sketch(
        "p",
        { class: "lk-note" },
        ready.some((m) => m.origin !== "measured")
          ? "Dashed, dotted: datasheets, not measured. Solid: measured. No code beats its roof; most stay below."
          : "Solid: measured on the machine named.",
      ),
    );
  }

  const plot = h("div", {});
  const dragged = (step) => set({ mode: "free", flops: fromLog(step + toLog(get("bytes"))) });
  const spot = handle("FLOP per byte", {
    range: () => [[Math.max(x0 * FINE, -toLog(get("bytes"))), x1 * FINE]],
    now: () => [toLog(intensity())],
    at: (x) => [FINE * (x0 + ((x - left) / (right - left)) * (x1 - x0))],
    move: dragged,
    say: () => {
      const [main] = picks().filter(whole);
      const most = main && attainable(intensity(), main.peak, main.bandwidth);
      return `${plain(intensity())} FLOP/B: ${main ? `at most ${si(most, "FLOP/s")}` : "no roof"}`;
    },
  });
  ui.stage.append(held(plot, spot));
  const view = fit(plot, paint);
  whileHeld(plot, (event) => {
    const box = plot.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left - left) / (right - left)));
    dragged(Math.max(-toLog(get("bytes")), toLog(10 ** (x0 + part * (x1 - x0)))));
  });

  function draw() {
    const product = get("mode") === "matmul";
    [flops, bytes].forEach((field) => {
      field.el.hidden = product;
    });
    sides.forEach((side, i) => {
      side.el.hidden = !product;
      side.put(Math.log2(get("mnk"[i])));
    });
    for (const [name, field] of Object.entries({ first, second, dtype, level, mode })) {
      field.select.value = String(get(name));
    }
    for (const [field, name, unit] of /** @type {const} */ ([
      [flops, "flops", "FLOP"],
      [bytes, "bytes", "B"],
    ])) {
      field.put(toLog(get(name)));
      field.output.textContent = si(get(name), unit); // a work may lie between two steps of the slider
      field.range.setAttribute("aria-valuetext", si(get(name), unit));
    }
    view.draw();
  }
  put(model, sized());
  const names = ["first", "second", "dtype", "level", "mode", "flops", "bytes", "m", "n", "k"];
  return follow(model, names, draw, view.stop);
}
