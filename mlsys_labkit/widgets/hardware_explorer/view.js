import { h, unique, frame, choice, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { verticals, horizontals, labeller, roundNumbers } from "../shared/axes.js";
import { si, plain } from "../shared/numbers.js";
import { fill, s, sketch } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { trend, doubling, roof } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const columns = model.get("columns"),
    rows = model.get("rows"),
    names = rows.map(([name]) => name);
  const place = Object.fromEntries(columns.map(([key], i) => [key, i + 1])),
    unit = Object.fromEntries(columns.map(([key, , u]) => [key, u])),
    label = Object.fromEntries(columns.map(([key, text]) => [key, text]));
  const ui = frame(
    el,
    "hardware",
    model.get("title"),
    "Choose what to plot, and drag the two handles to the machines to compare.",
  );
  const say = (value, key) =>
    value === null ? "–" : unit[key] === "year" ? String(value) : si(value, unit[key] === "1" ? "" : unit[key]);
  const set = (pairs) => {
    put(model, pairs, draw);
  };
  const offered = model.get("offered").map((key) => [key, label[key]]),
    machines = names.map((name) => [name, name]);
  const fields = {
    x: choice("Across", offered, model.get("x"), (v) => set({ x: v })),
    y: choice("Up", offered, model.get("y"), (v) => set({ y: v })),
    first: choice("First machine", machines, model.get("first"), (v) => set({ first: v })),
    second: choice("Second machine", machines, model.get("second"), (v) => set({ second: v })),
  };
  ui.controls.append(...Object.values(fields).map((field) => field.el));
  /** @type {{ name: string, x: number, y: number }[]} the machines in the plot, from left to right */
  let places = [];
  const pointer = (label, field) =>
    handle(label, {
      axis: "xy",
      range: () => [[0, places.length - 1]],
      now: () => [places.findIndex((one) => one.name === model.get(field))],
      at: (x, y) => {
        const far = (one) => Math.hypot(one.x - x, one.y - y);
        return [places.reduce((best, one, i) => (far(one) < far(places[best]) ? i : best), 0)];
      },
      move: (at) => set({ [field]: places[at].name }),
      say: () => `${model.get(field)}: ${ratios()}`,
    });
  const pointers = {
    first: pointer("First machine on the plot", "first"),
    second: pointer("Second machine on the plot", "second"),
  };
  const has = "peak" in place && "bandwidth" in place,
    board = h("div", { class: "lk-beside" }),
    left = h("div", {}),
    right = h("div", {});
  const plot = held(left, pointers.first, pointers.second);
  board.append(plot, ...(has ? [right] : []));
  ui.stage.append(board);
  const of = (name, key) => rows[names.indexOf(name)][place[key]];

  // An axis over values: linear for years, decades otherwise.
  function axis(values, isYear, from, to) {
    const map = isYear ? (v) => v : Math.log10,
      low = Math.min(...values.map(map)),
      high = Math.max(...values.map(map)),
      room = (high - low) * 0.06 || 0.5;
    const [a, b] = [low - room, high + room],
      at = (v) => from + ((map(v) - a) / (b - a)) * (to - from),
      stride = Math.max(1, Math.round((b - a) / 5)),
      years = [];
    for (let v = Math.ceil(a); isYear && v <= b; v += stride) years.push(v);
    const ticks = isYear ? years : roundNumbers(a, b, b - a < 1.2 ? [1, 2, 5] : [1], stride);
    return { at, ticks, low: isYear ? a : 10 ** a, high: isYear ? b : 10 ** b };
  }
  const clip = unique("lk-clip");
  function paint(width) {
    const narrow = width < 640 || !has,
      w = narrow ? width : Math.floor(width * 0.58),
      tall = narrow ? 210 : 300,
      pad = { l: 80, r: 12, t: 10, b: 36 };
    plot.style.width = `${w}px`;
    right.style.width = `${narrow ? width : width - w - 24}px`;
    const x = model.get("x"),
      y = model.get("y"),
      points = rows
        .map((row) => ({ name: row[0], x: row[place[x]], y: row[place[y]] }))
        .filter((p) => p.x > 0 && p.y > 0);
    const pair = [model.get("first"), model.get("second")],
      isYear = unit[x] === "year";
    places = [];
    if (points.length) {
      const across = axis(
          points.map((p) => p.x),
          isYear,
          pad.l,
          w - pad.r,
        ),
        up = axis(
          points.map((p) => p.y),
          unit[y] === "year",
          tall - pad.b,
          pad.t,
        );
      const found =
          unit[y] === "year"
            ? null
            : trend(
                points.map((p) => p.x),
                points.map((p) => p.y),
                isYear,
              ),
        years = found && isYear ? doubling(found[0]) : null;
      const line =
        found &&
        [across.low, across.high].map((v) => 2 ** (found[2] + found[0] * ((isYear ? v : Math.log2(v)) - found[1])));
      const clear = labeller();
      places = points
        .map((p) => ({ name: p.name, x: across.at(p.x), y: up.at(p.y) }))
        .sort((a, b) => a.x - b.x || b.y - a.y);
      const told = years
        ? `${label[y]} ${years > 0 ? "doubles" : "halves"} every ${plain(Math.abs(years))} years.`
        : found
          ? `${label[y]} goes with ${label[x]} to the power of ${plain(found[0])}.`
          : "";
      fill(
        left,
        picture(
          {
            width: w,
            height: tall,
            "aria-label": `${points.length} machines, ${label[y]} over ${label[x]}. ${told}`,
          },
          s(
            "defs",
            {},
            s(
              "clipPath",
              { id: clip },
              s("rect", { x: pad.l, y: pad.t, width: w - pad.l - pad.r, height: tall - pad.t - pad.b }),
            ),
          ),
          verticals(across.ticks, across.at, pad.t, tall - pad.b, (v) => say(v, x)),
          horizontals(up.ticks, up.at, pad.l, w - pad.r, (v) => say(v, y)),
          line &&
            s("line", {
              class: "trend",
              "clip-path": `url(#${clip})`,
              x1: across.at(across.low),
              x2: across.at(across.high),
              y1: up.at(line[0]),
              y2: up.at(line[1]),
            }),
          points.map((p) => {
            const rank = pair.indexOf(p.name);
            return s(
              "circle",
              {
                class: `dot ${["a", "b"][rank] || ""}`,
                cx: across.at(p.x),
                cy: up.at(p.y),
                r: rank < 0 ? 5 : 7,
                onclick: () =>
                  set({
                    first: p.name,
                    second: model.get("first") === p.name ? model.get("second") : model.get("first"),
                  }),
              },
              s("title", {}, `${p.name}: ${say(p.x, x)}, ${say(p.y, y)}`),
            );
          }),
          points
            .filter((p) => pair.includes(p.name))
            .map((p) =>
              s("text", { class: "halo", ...clear(p.name, around(p.name, across.at(p.x), up.at(p.y), w)) }, p.name),
            ),
        ),
        sketch("p", { class: "lk-note" }, told),
      );
      for (const [field, one] of Object.entries(pointers)) {
        const spot = places.find((each) => each.name === model.get(field));
        one.el.hidden = !spot;
        if (spot) one.put(spot.x, spot.y);
      }
    } else fill(left, sketch("p", { class: "lk-note" }, `No machine here has both ${label[x]} and ${label[y]}.`));
    if (has) {
      const deep = tall,
        rw = narrow ? width : width - w - 24,
        both = pair
          .map((name) => ({ name, peak: of(name, "peak"), bandwidth: of(name, "bandwidth") }))
          .filter((m) => m.peak && m.bandwidth);
      const steps = Array.from({ length: 61 }, (_, i) => 10 ** (-1 + i / 12)),
        high = Math.max(1, ...both.map((m) => m.peak)),
        low = Math.min(high / 1e5, ...both.map((m) => roof(m.peak, m.bandwidth, 0.1)));
      const rx = (v) => 52 + ((Math.log10(v) + 1) / 5) * (rw - 62),
        ry = (v) =>
          deep - 36 - ((Math.log10(v) - Math.log10(low)) / (Math.log10(high * 2) - Math.log10(low))) * (deep - 46);
      const decades = [];
      for (let e = Math.ceil(Math.log10(low)); 10 ** e <= high * 2; e += 1) decades.push(10 ** e);
      fill(
        right,
        picture(
          {
            width: rw,
            height: deep,
            "aria-label": `Rooflines of ${both.map((m) => m.name).join(" and ")}`,
          },
          verticals([0.1, 1, 10, 100, 1000, 10000], rx, 10, deep - 36, String),
          horizontals(decades, ry, 52, rw - 10, si, 4),
          both.map((m) =>
            s("polyline", {
              class: `roof ${m.name === pair[0] ? "a" : "b"}`,
              points: steps.map((v) => `${rx(v).toFixed(1)},${ry(roof(m.peak, m.bandwidth, v)).toFixed(1)}`).join(" "),
            }),
          ),
          s("text", { class: "soft", x: rw - 10, y: deep - 4, "text-anchor": "end" }, "FLOP/B"),
        ),
        sketch("p", { class: "lk-note" }, "Attainable FLOP/s over intensity; first machine solid, second dashed."),
      );
    }
    ui.says.textContent = ratios();
  }
  // Places for a machine's name beside its handle and within the picture.
  function around(name, x, y, w) {
    const half = 3.7 * name.length,
      middle = Math.min(w - half, Math.max(half + 84, x));
    /** @type {[number, number][]} */
    const found = [-20, 28, -35, 43].map((down) => [middle, y + down]);
    return found.filter(([, v]) => v > 10);
  }
  function ratios() {
    const pair = [model.get("first"), model.get("second")];
    const times = model
      .get("offered")
      .filter((key) => unit[key] !== "year")
      .map((key) => [key, of(pair[0], key), of(pair[1], key)])
      .filter(([, a, b]) => a && b);
    const ratio = ([key, a, b]) => `${plain(b / a)} times the ${label[key]}`;
    const ridge = has
      ? pair.map((name) => [of(name, "peak"), of(name, "bandwidth")]).map(([p, b]) => (p && b ? plain(p / b) : null))
      : [];
    return pair[0] === pair[1]
      ? `${pair[0]}, beside itself.`
      : `${pair[1]} has ${times.map(ratio).join(", ") || "nothing in common"} of ${pair[0]}` +
          (ridge[0] && ridge[1] ? `; ridges: ${ridge[0]} and ${ridge[1]} FLOP/B.` : ".");
  }
  const view = fit(board, paint);
  function draw() {
    Object.entries(fields).forEach(([name, field]) => {
      field.select.value = model.get(name);
    });
    view.draw();
  }
  return follow(model, ["x", "y", "first", "second"], draw, view.stop);
}
