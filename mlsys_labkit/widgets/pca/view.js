import { h, KEYS, unique, frame, slider, button, picture, fit, whileHeld } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { plain } from "../shared/numbers.js";
import { fill, s, sketch } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { covariance, direction, kept, total, tail, principal } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const points = model.get("points"),
    spectrum = model.get("spectrum"),
    dims = points[0].length,
    note = model.get("note");
  const ui = frame(
    el,
    "pca",
    "Which direction keeps the most?",
    "Drag the end of the line. Each point casts a shadow on it: the spread of the shadows is kept, the rest " +
      `is the reconstruction error.${note ? ` ${note}` : ""}`,
  );
  const mean = points[0].map((_, j) => points.reduce((a, p) => a + p[j], 0) / points.length);
  const cloud = points.map((p) => p.map((x, j) => x - mean[j])),
    cov = covariance(points),
    all = total(cov);
  const [values, axes] = principal(cov),
    reach = Math.max(1e-12, ...cloud.map((p) => Math.hypot(...p))) * 1.06;
  const spread = Math.max(
    1e-300,
    spectrum.reduce((a, b) => a + b, 0),
  );
  const set = (pairs) => {
    put(model, pairs, draw);
  };
  const degrees = (v) => `${v}°`,
    wrap = (v) => ((Math.round(v) % 180) + 180) % 180;

  const angle = slider("Direction", {
    min: 0,
    max: 179,
    value: model.get("angle"),
    show: degrees,
    input: (v) => set({ angle: v }),
  });
  const tilt = slider("Tilt", {
    min: -90,
    max: 90,
    value: model.get("tilt"),
    show: degrees,
    input: (v) => set({ tilt: v }),
  });
  const turn = slider("Turn the view", { min: 0, max: 359, value: 30, show: degrees, input: () => draw() });
  const tick = h("input", { ...KEYS, type: "checkbox", onchange: () => set({ axes: tick.checked }) });
  const best = button("Jump to the best", () => {
    const u = axes[0],
      out = dims === 3 ? (Math.asin(Math.min(1, Math.max(-1, u[2]))) * 180) / Math.PI : 0;
    const flat = (Math.atan2(u[1], u[0]) * 180) / Math.PI,
      flipped = Math.round(flat) < 0 || Math.round(flat) > 179;
    set({ angle: wrap(flat), tilt: Math.round(flipped ? -out : out) });
  });
  const count = slider("Components kept", {
    min: 0,
    max: spectrum.length,
    value: model.get("k"),
    show: (v) => `${v} of ${spectrum.length}`,
    input: (v) => set({ k: v }),
  });
  const reveal = h("label", { class: "lk-check" }, tick, "Reveal the principal axes");
  ui.controls.append(angle.el, ...(dims === 3 ? [tilt.el] : [reveal]), count.el, best);
  if (dims === 3) ui.more.append(turn.el, reveal);

  // 3-D is seen from a little above; in 2-D this is the plane itself.
  const look = (p) => {
    if (dims === 2) return p;
    const a = (Number(turn.range.value) * Math.PI) / 180,
      x = p[0] * Math.cos(a) - p[1] * Math.sin(a),
      y = p[0] * Math.sin(a) + p[1] * Math.cos(a);
    return [x, p[2] * 0.9 + y * 0.436];
  };
  let heart = [0, 0],
    side = 1, // the end of the line that the handle is at
    ends = (/** @type {number} */ angle) => [angle, 0];
  const tip = handle("End of the line", {
    axis: "xy",
    range: () => [[0, 179]],
    now: () => [model.get("angle")],
    // The end nearest to the pointer, of all directions with this tilt.
    at: (x, y) => {
      let best = [Infinity, 0, 1];
      for (let i = 0; i < 360; i += 1) {
        const end = i < 180 ? 1 : -1,
          [u, v] = ends(i % 180).map((part, j) => heart[j] + end * (part - heart[j])),
          near = Math.abs(Math.atan2(v - heart[1], u - heart[0]) - Math.atan2(y - heart[1], x - heart[0]));
        const gap = Math.min(near, 2 * Math.PI - near);
        if (gap < best[0]) best = [gap, i % 180, end];
      }
      side = best[2];
      return [best[1]];
    },
    move: (angle) => set({ angle }),
    say: () => {
      const held = kept(cov, direction(model.get("angle"), model.get("tilt"), dims));
      return `${degrees(model.get("angle"))}: keeps ${plain((100 * held) / Math.max(1e-300, all))} % of the variance`;
    },
  });
  const cut = handle("Eigenvalues kept", {
    range: () => [[0, spectrum.length]],
    now: () => [model.get("k")],
    at: (x) => [(x / Math.max(1, pieces.bars.clientWidth)) * spectrum.length],
    move: (k) => set({ k }),
    say: () => {
      const share = 1 - tail(spectrum, model.get("k")) / spread;
      return `${model.get("k")} of ${spectrum.length} components: ${plain(100 * share)} % kept`;
    },
  });
  function paint(width) {
    const narrow = width < 560,
      square = Math.min(320, narrow ? Math.min(width, 270) : width * 0.5),
      half = square / 2,
      r = half - 18;
    heart = [half, half];
    const at = (p) => {
      const [x, y] = look(p);
      return [half + (x / reach) * r, half - (y / reach) * r];
    };
    const u = direction(model.get("angle"), model.get("tilt"), dims),
      along = (p) => u.reduce((sum, x, j) => sum + x * p[j], 0);
    const keeps = kept(cov, u),
      lost = Math.max(0, all - keeps);
    // Rounded so that the two printed parts add up to the printed total.
    const places = Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(Math.max(all, 1e-10))))),
      fix = (v) => v.toFixed(places);
    const [heldText, allText] = [fix(keeps), fix(all)],
      lostText = fix(Math.abs(Number(allText) - Number(heldText)));
    const ray = (axis, length) => {
      const [a, b] = [at(axis.map((x) => -x * length)), at(axis.map((x) => x * length))];
      return { x1: a[0], y1: a[1], x2: b[0], y2: b[1] };
    };
    const foot = cloud.map((p) => {
      const d = along(p);
      return at(u.map((x) => x * d));
    });
    // One path for all points and one for all lines: 900 elements would be too many for a frame.
    const dots = cloud.map(at),
      spots = (list) => list.map(([x, y]) => `M${x.toFixed(1)},${y.toFixed(1)}h0`).join("");
    const misses = dots
      .map(([x, y], i) => `M${x.toFixed(1)},${y.toFixed(1)}L${foot[i][0].toFixed(1)},${foot[i][1].toFixed(1)}`)
      .join("");
    const shown = model.get("axes")
      ? axes.map((axis, i) => {
          const size = Math.sqrt(Math.max(0, values[i])) * 2,
            [x, y] = at(axis.map((v) => v * size));
          return s(
            "g",
            { class: "own" },
            s("line", ray(axis, size)),
            s("text", { class: "halo", x: x + 5, y: y - 5 }, `PC${i + 1}`),
          );
        })
      : [];
    const share = plain((100 * keeps) / Math.max(1e-300, all)),
      limit = plain((100 * values[0]) / Math.max(1e-300, all));
    const said =
      `This direction keeps ${share} % of the variance and loses ${plain(100 - Number(share))} %; ` +
      `the best direction keeps ${limit} %.`;
    const scatter = picture(
      {
        width: square,
        height: square,
        class: "lk-cloud",
        "aria-label": `${points.length} points and a line through their mean. ${said}`,
      },
      s("rect", { class: "rule", x: 0.5, y: 0.5, width: square - 1, height: square - 1, rx: 6 }),
      s("path", { class: "miss", d: misses }),
      s("line", { class: "line", ...ray(u, reach) }),
      s("path", { class: "foot", d: spots(foot) }),
      s("path", { class: "dot", d: spots(dots) }),
      shown,
    );

    const w = narrow ? width : width - square - 28,
      bar = (v) => (v / Math.max(1e-300, all)) * w;
    const edge = bar(values[0]);
    const sumBar = picture(
      {
        width: w,
        height: 66,
        "aria-label": `Kept ${heldText} plus lost ${lostText} is the total ${allText}`,
      },
      s(
        "defs",
        {},
        s(
          "pattern",
          { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
          s("path", { class: "hatch", d: "M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2" }),
        ),
      ),
      s("rect", { class: "keep", x: 0, y: 22, width: bar(keeps), height: 24 }),
      s("rect", { class: "lose", x: bar(keeps), y: 22, width: bar(lost), height: 24, fill: `url(#${hatch})` }),
      s("line", { class: "limit", x1: edge, x2: edge, y1: 15, y2: 52 }),
      s(
        "text",
        { class: "soft", x: Math.min(w, edge), y: 64, "text-anchor": edge > w * 0.3 ? "end" : "start" },
        "best possible",
      ),
      s("text", { x: 0, y: 13 }, `kept ${heldText}`),
      s("text", { x: w, y: 13, "text-anchor": "end" }, `lost ${lostText}`),
    );
    const sum = sketch(
      "p",
      { class: "lk-note" },
      `${heldText} + ${lostText} = ${allText}, the total variance, whatever the direction.`,
    );

    const k = model.get("k"),
      n = spectrum.length,
      tall = 84,
      gap = n > 60 ? 0 : 2,
      each = w / n,
      high = Math.max(1e-300, spectrum[0]);
    const bars = picture(
      {
        width: w,
        height: tall + 18,
        "aria-label": `Spectrum of ${n} eigenvalues, largest first; ${k} kept`,
      },
      spectrum.map((v, i) =>
        s("rect", {
          class: i < k ? "keep" : "lose",
          fill: i < k ? null : `url(#${hatch})`,
          x: i * each + gap / 2,
          width: Math.max(1, each - gap),
          y: tall - Math.max(1, (v / high) * tall),
          height: Math.max(1, (v / high) * tall),
        }),
      ),
      s("line", { class: "axis", x1: 0, x2: w, y1: tall, y2: tall }),
      s("text", { class: "soft", x: 0, y: tall + 14 }, "largest"),
      s("text", { class: "soft", x: w, y: tall + 14, "text-anchor": "end" }, "smallest"),
    );
    const left = tail(spectrum, k);
    ends = (angle) => at(direction(angle, model.get("tilt"), dims).map((x) => x * reach));
    const [endX, endY] = ends(model.get("angle"));
    tip.put(heart[0] + side * (endX - heart[0]), heart[1] + side * (endY - heart[1]));
    cut.put(Math.min(w - 8, Math.max(8, k * each)), tall);
    fill(pieces.scatter, scatter);
    fill(pieces.sum, sumBar, sum);
    fill(pieces.bars, bars);
    pieces.rest.textContent =
      `${k} of ${n} components keep ${plain(100 * (1 - left / spread))} %; the error is the sum of ` +
      `the eigenvalues left out, ${plain(left)}.`;
    ui.says.textContent = said;
  }
  const hatch = unique("lk-hatch");
  const pieces = {
    scatter: h("div", {}),
    sum: h("div", {}),
    bars: h("div", {}),
    rest: h("p", { class: "lk-note", "aria-live": "polite" }),
  };
  const board = h(
    "div",
    { class: "lk-beside" },
    held(pieces.scatter, tip),
    h("div", { class: "lk-side" }, pieces.sum, h("h4", {}, "Spectrum"), held(pieces.bars, cut), pieces.rest),
  );
  ui.stage.append(board);
  const view = fit(board, paint);
  whileHeld(pieces.scatter, (event) => {
    if (dims !== 2) return;
    const box = pieces.scatter.getBoundingClientRect();
    set({
      angle: wrap(
        (Math.atan2(box.top + heart[1] - event.clientY, event.clientX - box.left - heart[0]) * 180) / Math.PI,
      ),
    });
  });
  function draw() {
    angle.put(model.get("angle"));
    tilt.put(model.get("tilt"));
    count.put(model.get("k"));
    tick.checked = model.get("axes");
    view.draw();
  }
  return follow(model, ["angle", "tilt", "k", "axes"], draw, view.stop);
}
