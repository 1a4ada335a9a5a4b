import { h, unique, frame, slider, button, picture, fit, whileHeld } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { plain } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { error, gradient, best, level, largest_rate } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const x = model.get("x"),
    y = model.get("y"),
    ui = frame(
      el,
      "fit",
      "Find f",
      "Drag an end of the line until the misses are short. The map shows the error of every line there is: " +
        "you are the dot, and training walks downhill.",
    );
  const [m, b] = best(x, y),
    least = error(x, y, m, b),
    limit = largest_rate(x);
  const start = [model.get("slope"), model.get("intercept")];
  const wide = Math.max(1e-9, Math.abs(m - start[0]) * 1.6),
    high = Math.max(1e-9, Math.abs(b - start[1]) * 1.8, (Math.max(...y) - Math.min(...y)) * 0.6);
  const range = { slope: [m - wide, m + wide], intercept: [b - high, b + high] };
  let path = [start],
    rate = 0.6,
    timer = 0;
  const clamp = (v, [low, top]) => Math.min(top, Math.max(low, v)),
    tidy = (v) => Number(v.toPrecision(5));
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    go.textContent = "Walk downhill";
  };
  const to = (slope, intercept, walked) => {
    path = walked ? [...path.slice(-200), [slope, intercept]] : [[slope, intercept]];
    put(model, { slope: tidy(slope), intercept: tidy(intercept) }, draw);
  };
  const field = (label, name) =>
    slider(label, {
      min: range[name][0],
      max: range[name][1],
      step: (range[name][1] - range[name][0]) / 400,
      value: model.get(name),
      show: plain,
      input: (v) => {
        stop();
        to(...(name === "slope" ? [v, model.get("intercept")] : [model.get("slope"), v]));
      },
    });
  const slope = field("Slope", "slope"),
    intercept = field("Intercept", "intercept");
  const pace = slider("Learning rate (diverges above 1)", {
    min: 0.05,
    max: 1.1,
    step: 0.05,
    value: rate,
    show: (v) => plain(v),
    input: (v) => {
      rate = v;
    },
  });
  const step = () => {
    const at = [model.get("slope"), model.get("intercept")],
      down = gradient(x, y, ...at);
    const next = at.map((v, i) => v - rate * limit * down[i]);
    if (!next.every((v) => Math.abs(v) < 1e6)) {
      stop();
      return;
    }
    to(next[0], next[1], true);
  };
  const once = button("One step", () => {
    stop();
    step();
  });
  const go = button("Walk downhill", () => {
    if (timer) {
      stop();
      return;
    }
    go.textContent = "Stop";
    let left = 120;
    timer = setInterval(() => {
      step();
      left -= 1;
      if (!left || error(x, y, model.get("slope"), model.get("intercept")) - least < 1e-4 * (least + 1e-9)) stop();
    }, 50);
  });
  const again = button("Start again", () => {
    stop();
    to(...start);
  });
  ui.controls.append(pace.el, once, go, again);
  ui.more.append(slope.el, intercept.el);

  const board = h("div", { class: "lk-beside" }),
    left = h("div", {}),
    right = h("div", {});
  let place = { w: 1, tall: 1 };
  const FINE = 200;
  const part = (name) => Math.round(((model.get(name) - range[name][0]) / (range[name][1] - range[name][0])) * FINE);
  const value = (name, step) => range[name][0] + (step / FINE) * (range[name][1] - range[name][0]);
  const fitted = () =>
    `slope ${plain(model.get("slope"))}, intercept ${plain(model.get("intercept"))}: mean squared error ` +
    plain(error(x, y, model.get("slope"), model.get("intercept")));
  const you = handle("Your line on the map", {
    axis: "xy",
    range: () => [
      [0, FINE],
      [0, FINE],
    ],
    now: () => [part("slope"), part("intercept")],
    at: (u, v) => [(u / place.w) * FINE, (1 - v / place.tall) * FINE],
    move: (a, c) => {
      stop();
      to(value("slope", a), value("intercept", c));
    },
    say: fitted,
  });
  const [x0, x1, y0, y1] = [Math.min(...x), Math.max(...x), Math.min(...y), Math.max(...y)],
    pad = (y1 - y0) * 0.15 || 1;
  const on = (v) => model.get("slope") * v + model.get("intercept");
  const height = (v) => ((v - y0 + pad) / (y1 - y0 + 2 * pad)) * FINE;
  const end = (label, here, there) =>
    handle(label, {
      axis: "y",
      range: () => [[0, FINE]],
      now: () => [Math.round(Math.min(FINE, Math.max(0, height(on(here)))))],
      at: (u, v) => [(1 - (v - 8) / (place.tall - 16)) * FINE],
      // The other end stays where it is.
      move: (step) => {
        stop();
        const up = y0 - pad + (step / FINE) * (y1 - y0 + 2 * pad),
          slope = (up - on(there)) / (here - there);
        to(slope, up - slope * here);
      },
      say: fitted,
    });
  const ends = [end("Left end of the line", x0, x1), end("Right end of the line", x1, x0)];
  board.append(held(left, ...ends), held(right, you));
  ui.stage.append(board);
  const clip = unique("lk-clip");
  function paint(width) {
    const narrow = width < 560,
      w = narrow ? width : (width - 24) / 2,
      tall = Math.min(300, w * (narrow ? 0.6 : 0.85));
    const at = [model.get("slope"), model.get("intercept")],
      now = error(x, y, ...at);
    const px = (v) => 8 + ((v - x0) / (x1 - x0)) * (w - 16),
      py = (v) => tall - 8 - ((v - y0 + pad) / (y1 - y0 + 2 * pad)) * (tall - 16);
    const said =
      `Slope ${plain(at[0])}, intercept ${plain(at[1])}: mean squared error ${plain(now)}, least ` +
      `possible ${plain(least)}.`;
    fill(
      left,
      picture(
        {
          width: w,
          height: tall,
          class: "lk-points",
          "aria-label": `${x.length} points and a line. ${said}`,
        },
        s("defs", {}, s("clipPath", { id: clip }, s("rect", { x: 1, y: 1, width: w - 2, height: tall - 2 }))),
        s("rect", { class: "rule", x: 0.5, y: 0.5, width: w - 1, height: tall - 1, rx: 6 }),
        s(
          "g",
          { "clip-path": `url(#${clip})` },
          x.map((v, i) => s("line", { class: "miss", x1: px(v), x2: px(v), y1: py(y[i]), y2: py(on(v)) })),
          s("line", { class: "line", x1: px(x0), x2: px(x1), y1: py(on(x0)), y2: py(on(x1)) }),
          x.map((v, i) => s("circle", { class: "dot", cx: px(v), cy: py(y[i]), r: 3.5 })),
        ),
      ),
    );
    const mx = (v) => ((v - range.slope[0]) / (range.slope[1] - range.slope[0])) * w,
      my = (v) => tall - ((v - range.intercept[0]) / (range.intercept[1] - range.intercept[0])) * tall;
    place = { w, tall };
    const rings = [0.05, 0.2, 0.5, 1, 2, 4, 8].map((f) => level(x, y, f * (error(x, y, ...start) - least) + 1e-12));
    const points = (list) => list.map(([a, c]) => `${mx(a).toFixed(1)},${my(c).toFixed(1)}`).join(" ");
    fill(
      right,
      picture(
        {
          width: w,
          height: tall,
          class: "lk-map",
          "aria-label":
            `The error over slope and intercept, as rings around the best line; ${path.length - 1} steps ` +
            `walked. ${said}`,
        },
        s("defs", {}, s("clipPath", { id: `${clip}-map` }, s("rect", { x: 1, y: 1, width: w - 2, height: tall - 2 }))),
        s(
          "g",
          { "clip-path": `url(#${clip}-map)` },
          rings.map((ring) => s("polygon", { class: "ring", points: points(ring) })),
          s("polyline", { class: "path", points: points(path) }),
          path.slice(0, -1).map(([a, c]) => s("circle", { class: "step", cx: mx(a), cy: my(c), r: 2 })),
          s("circle", { class: "goal", cx: mx(m), cy: my(b), r: 4 }),
        ),
        s("rect", { class: "rule", x: 0.5, y: 0.5, width: w - 1, height: tall - 1, rx: 6 }),
        s("text", { class: "soft halo", x: w - 6, y: tall - 8, "text-anchor": "end" }, "slope"),
        s("text", { class: "soft halo", x: 8, y: 16 }, "intercept"),
      ),
    );
    const inside = (v, most) => Math.min(most - 8, Math.max(8, v));
    you.put(inside(mx(at[0]), w), inside(my(at[1]), tall));
    ends.forEach((one, i) => one.put(px([x0, x1][i]) + [6, -6][i], inside(py(on([x0, x1][i])), tall)));
    ui.says.textContent = path.length > 1 ? `${said.slice(0, -1)}; ${path.length - 1} steps.` : said;
  }
  whileHeld(right, (event) => {
    stop();
    const box = right.getBoundingClientRect(),
      a = (event.clientX - box.left) / place.w,
      c = 1 - (event.clientY - box.top) / place.tall;
    to(
      range.slope[0] + clamp(a, [0, 1]) * (range.slope[1] - range.slope[0]),
      range.intercept[0] + clamp(c, [0, 1]) * (range.intercept[1] - range.intercept[0]),
    );
  });
  const view = fit(board, paint);
  function draw() {
    slope.put(model.get("slope"));
    intercept.put(model.get("intercept"));
    view.draw();
  }
  return follow(model, ["slope", "intercept"], draw, stop, view.stop);
}
