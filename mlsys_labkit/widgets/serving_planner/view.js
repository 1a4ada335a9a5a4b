import { h, colourKeys, frame, slider, ladder, choice, grid, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { verticals, horizontals, roundNumbers } from "../shared/axes.js";
import { si, plain, whole } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { memory, decodeSeconds, prefillSeconds, usdPerMillion, mostUsers } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const models = model.get("models"),
    devices = model.get("devices");
  const ui = frame(
    el,
    "serving",
    "Which set-up for which model?",
    "Choose model and machine. Then drag the dot to more users: memory fills, the price of a token falls, " +
      "and every user waits longer.",
  );
  const set = (pairs) => {
    put(model, pairs, draw);
  };
  const lists = {
    gpus: [1, 2, 4, 8, 16, 32, 64, 72],
    bits: [16, 8, 4],
    users: Array.from({ length: 41 }, (_, i) => Math.max(1, Math.round(2 ** (i / 4)))).filter(
      (v, i, all) => all.indexOf(v) === i,
    ),
    context: [256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072],
  };
  const nearest = (list, v) => list.reduce((a, b) => (Math.abs(Math.log(b / v)) < Math.abs(Math.log(a / v)) ? b : a));
  const step = (label, name, show) =>
    ladder(label, lists[name], nearest(lists[name], model.get(name)), show, (v) => set({ [name]: v }));
  const fields = {
    model: choice(
      "Model",
      models.map((each) => [each.name, each.name]),
      model.get("model"),
      (v) => set({ model: v }),
    ),
    device: choice(
      "GPU",
      devices.map((each) => [each.key, each.name]),
      model.get("device"),
      (v) => set({ device: v }),
    ),
    gpus: step("GPUs that share a layer", "gpus", String),
    bits: step("Bits a weight", "bits", String),
    users: step("Users in the batch", "users", String),
    context: step("Tokens of context each", "context", whole),
    price: slider("USD an hour and GPU", {
      min: 0.2,
      max: 12,
      step: 0.1,
      value: model.get("price"),
      show: plain,
      input: (v) => set({ price: v }),
    }),
    efficiency: slider("Part of the peaks reached", {
      min: 0.2,
      max: 1,
      step: 0.05,
      value: model.get("efficiency"),
      show: (v) => `${Math.round(100 * v)} %`,
      input: (v) => set({ efficiency: v }),
    }),
  };
  const SEEN = ["model", "device", "gpus", "bits"];
  ui.controls.append(...SEEN.map((name) => fields[name].el));
  ui.more.append(...["users", "context", "price", "efficiency"].map((name) => fields[name].el));
  const setup = (more) => ({
    ...models.find((each) => each.name === model.get("model")),
    ...devices.find((each) => each.key === model.get("device")),
    ...Object.fromEntries(
      ["gpus", "bits", "users", "context", "price", "efficiency"].map((name) => [name, model.get(name)]),
    ),
    ...more,
  });
  const board = h("div", { class: "lk-stack" }),
    bars = h("div", {}),
    keys = colourKeys(["weights", "cache of keys and values"], "part"),
    curve = h("div", {}),
    sums = h("div", {});
  /** @type {[number, number][]} */
  let dots = [];
  const userStep = () => lists.users.indexOf(nearest(lists.users, model.get("users")));
  const spot = handle("Users in the batch", {
    range: () => [[0, lists.users.length - 1]],
    now: () => [userStep()],
    // The nearest dot of the curve: it may turn back where more users no longer make a token cheaper.
    at: (x, y) => [
      dots.reduce(
        (best, [a, b], i) => (Math.hypot(a - x, b - y) < Math.hypot(dots[best][0] - x, dots[best][1] - y) ? i : best),
        0,
      ),
    ],
    move: (step) => set({ users: lists.users[step] }),
    say: () => {
      const q = setup();
      return (
        `${q.users} users: ${plain(1e3 * decodeSeconds(q))} ms a token, ${plain(usdPerMillion(q))} USD a million` +
        (memory(q).free >= 0 ? "" : "; does not fit")
      );
    },
  });
  board.append(bars, keys, held(curve, spot));
  ui.stage.append(board);
  ui.rest.append(sums);
  function paint(width) {
    const q = setup(),
      { weights, cache, free } = memory(q),
      top = Math.max(q.memory, weights + cache),
      w = width,
      at = (v) => (v / top) * (w - 2) + 1,
      fits = free >= 0;
    /** @type {[string, number, string][]} */
    const parts = [
      ["weights", weights, "part0"],
      ["cache", cache, "part1"],
    ];
    let x = 0;
    fill(
      bars,
      picture(
        {
          width: w,
          height: 62,
          "aria-label":
            `Memory of each GPU: weights ${si(weights, "B")}, cache ${si(cache, "B")}, ` +
            (fits ? `${si(free, "B")} free` : `${si(-free, "B")} too much`),
        },
        s("rect", { class: "rule", x: 1, y: 8, width: at(q.memory) - 1, height: 26 }),
        parts.map(([name, size, kind]) => {
          const from = at(x);
          x += size;
          return s(
            "g",
            {},
            s("rect", { class: kind, x: from, y: 8, width: Math.max(0, at(x) - from), height: 26 }),
            at(x) - from > 112 && s("text", { class: "lk-on-bar", x: from + 6, y: 25 }, `${name} ${si(size, "B")}`),
          );
        }),
        s("line", { class: "lk-limit", x1: at(0.9 * q.memory), x2: at(0.9 * q.memory), y1: 2, y2: 40 }),
        s(
          "text",
          { class: "soft", x: at(0.9 * q.memory), y: 54, "text-anchor": at(0.9 * q.memory) > w / 2 ? "end" : "start" },
          `usable of ${si(q.memory, "B")}`,
        ),
      ),
    );

    const many = lists.users.map((users) => {
      const each = setup({ users });
      return { users, ms: 1e3 * decodeSeconds(each), usd: usdPerMillion(each), fits: memory(each).free >= 0 };
    });
    const tall = 220,
      pad = { l: 70, r: 14, t: 12, b: 36 },
      logs = (list) => [Math.log10(Math.min(...list)) - 0.08, Math.log10(Math.max(...list)) + 0.08];
    const [x0, x1] = logs(many.map((p) => p.ms)),
      [y0, y1] = logs(many.map((p) => p.usd));
    const px = (v) => pad.l + ((Math.log10(v) - x0) / (x1 - x0)) * (w - pad.l - pad.r),
      py = (v) => tall - pad.b - ((Math.log10(v) - y0) / (y1 - y0)) * (tall - pad.t - pad.b);
    const here = { ms: 1e3 * decodeSeconds(q), usd: usdPerMillion(q) };
    fill(
      curve,
      picture(
        {
          width: w,
          height: tall,
          "aria-label": "Price of a million tokens over the time a user waits for each, from 1 to 1024 users",
        },
        verticals(roundNumbers(x0, x1), px, pad.t, tall - pad.b, plain),
        horizontals(roundNumbers(y0, y1), py, pad.l, w - pad.r, (v) => `${plain(v)} $`),
        s("polyline", {
          class: "way",
          points: many.map((p) => `${px(p.ms).toFixed(1)},${py(p.usd).toFixed(1)}`).join(" "),
        }),
        many.map((p) =>
          s(
            "circle",
            { class: p.fits ? "dot" : "dot out", cx: px(p.ms), cy: py(p.usd), r: 3.5 },
            s(
              "title",
              {},
              `${p.users} users: ${plain(p.ms)} ms a token, ${plain(p.usd)} USD a million` +
                `${p.fits ? "" : "; does not fit"}`,
            ),
          ),
        ),
        s("text", { class: "soft", x: w - pad.r, y: tall - 4, "text-anchor": "end" }, "ms a token, for each user"),
        s("text", { class: "soft halo", x: w - pad.r, y: pad.t + 12, "text-anchor": "end" }, "USD a million tokens"),
      ),
    );
    dots = many.map((p) => [px(p.ms), py(p.usd)]);
    spot.put(px(Math.min(10 ** x1, Math.max(10 ** x0, here.ms))), py(Math.min(10 ** y1, Math.max(10 ** y0, here.usd))));
    const rate = q.users / decodeSeconds(q);
    ui.numbers(() =>
      fill(
        sums,
        grid(
          "A model, not measured",
          ["what", "how much"],
          [
            ["users that fit", whole(mostUsers(q))],
            ["time to the first token, at least", si(prefillSeconds(q), "s")],
            ["time a token", `${plain(here.ms)} ms`],
            ["tokens a second, all users", whole(Math.round(rate))],
            ["USD for a million tokens", plain(here.usd)],
          ],
        ),
      ),
    );
    ui.says.textContent = fits
      ? `${q.users} users write ${plain(1000 / here.ms)} tokens a second each, ${plain(rate)} ` +
        `together, at ${plain(here.usd)} USD a million.`
      : `It does not fit: ${si(-free, "B")} too much on each GPU; take at most ${mostUsers(q)} ` +
        "users, fewer bits, more GPUs or less context.";
  }
  const view = fit(board, paint);
  function draw() {
    ["model", "device"].forEach((name) => {
      fields[name].select.value = model.get(name);
    });
    ["gpus", "bits", "users", "context"].forEach((name) => fields[name].put(nearest(lists[name], model.get(name))));
    ["price", "efficiency"].forEach((name) => fields[name].put(model.get(name)));
    view.draw();
  }
  return follow(model, ["model", "device", "gpus", "bits", "users", "context", "price", "efficiency"], draw, view.stop);
}
