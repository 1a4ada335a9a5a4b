import { h, frame, slider, ladder, button, grid, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { player } from "../shared/player.js";
import { si, plain } from "../shared/numbers.js";
import { fill, s, sketch } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { steps, loadedBytes, intensity, sharedBytes, threads, sharedLoadsPerFma, walk } from "./model.js";
import { tray } from "./tray.js";

const PACE = 700; // milliseconds a step
const MOST_THREADS = 1024,
  STATIC_SHARED = 48 * 1024;

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "tiles",
    "A tiled matrix product, step by step",
    "C = A·B. Drag the tile of C that a block owns: tiles of A and B march along k through shared memory.",
  );
  const get = (name) => model.get(name),
    item = get("item");
  const tiles = get("tiles"),
    sizes = [...new Set([16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, get("n")])].sort((a, b) => a - b);
  const clamp = (v, high) => Math.max(0, Math.min(high, v));
  const halt = (values) => {
    play.pause();
    set(values);
  };
  const set = (values) => {
    const next = {
      n: get("n"),
      tile: get("tile"),
      register: get("register"),
      block: get("block"),
      step: get("step"),
      ...values,
    };
    const across = steps(next.n, next.tile);
    put(
      model,
      {
        ...next,
        register: Math.min(next.register, next.tile),
        block: clamp(next.block, across * across - 1),
        step: clamp(next.step, across - 1),
      },
      draw,
    );
  };
  const of = (label, list, name) =>
    ladder(
      label,
      list,
      get(name),
      (v) => (name === "n" ? String(v) : `${v} x ${v}`),
      (v) => halt({ [name]: v, block: 0, step: 0 }),
    );
  const n = of("n (rows and columns)", sizes, "n"),
    tile = of("Tile", tiles, "tile"),
    register = of("Register tile of a thread", get("registers"), "register");
  const across = () => steps(get("n"), get("tile"));
  const block = slider("Block (row, column)", {
    min: 0,
    max: 1,
    value: 0,
    show: (b) => `${Math.floor(b / across())}, ${b % across()}`,
    input: (b) => halt({ block: b, step: 0 }),
  });
  const step = slider("Step along k", {
    min: 0,
    max: 1,
    value: 0,
    show: (k) => `${k + 1} of ${across()}`,
    input: (k) => halt({ step: k }),
  });
  const moved = (by) => {
    const count = across(),
      all = count ** 3,
      at = (get("block") * count + get("step") + by + all) % all;
    return { block: Math.floor(at / count), step: at % count };
  };
  const play = player(el, PACE, () => set(moved(1)), draw);
  const on = button("Next step", () => halt(moved(1)));
  ui.controls.append(tile.el, step.el, on, play.button);
  ui.more.append(
    n.el,
    register.el,
    block.el,
    button("Previous step", () => halt(moved(-1))),
  );
  // Where C and one of its tiles are in the picture.
  let corner = [0, 0],
    wide = 1,
    shown = "";
  const owned = handle("Tile of C", {
    axis: "xy",
    range: () => [
      [0, across() - 1],
      [1 - across(), 0],
    ],
    now: () => [get("block") % across(), -Math.floor(get("block") / across())],
    at: (x, y) => [(x - corner[0]) / wide - 0.5, 0.5 - (y - corner[1]) / wide],
    move: (column, row) => halt({ block: column - row * across(), step: 0 }),
    say: () =>
      `row ${Math.floor(get("block") / across())}, column ${get("block") % across()} of ${across()}: ` +
      `${si(sharedBytes(get("tile"), item), "B")} in shared memory`,
  });

  function paint(width) {
    const N = get("n"),
      T = get("tile"),
      R = get("register"),
      count = across(),
      [a, b, c] = walk(N, T, get("block"), get("step"));
    const label = 22,
      gap = 26,
      side = Math.floor(Math.min(width < 520 ? 150 : 172, (width - label - gap - 6) / 2)),
      px = side / N,
      x0 = label,
      x1 = x0 + side + gap,
      y0 = 20,
      y1 = y0 + side + gap;
    const place = (x, y, /** @type {number[]} */ [top, bottom, left, right]) => ({
      x: x + left * px,
      y: y + top * px,
      width: Math.max(2, (right - left) * px),
      height: Math.max(2, (bottom - top) * px),
    });
    const box = (x, y, part, name) => s("rect", { class: name, ...place(x, y, part) });
    // Beside the matrices if there is room, else below them.
    const beside = width - (x1 + side) > 250,
      low = y1 + side + 24,
      bytes = (many) => item * (c[1] - c[0] + c[3] - c[2]) * Math.min(N, many * T),
      state = [N, T, get("block"), get("step")].join();
    const store =
      T > 1 &&
      tray(
        beside
          ? { x: x1 + side + 40, y: y0, width: 236, height: side }
          : { x: x0, y: low, width: 2 * side + gap, height: 100 },
        {
          a: place(x0, y1, a),
          b: place(x1, y0, b),
          held: sharedBytes(T, item),
          loaded: bytes(get("step") + 1),
          all: bytes(count),
        },
      );
    const matrix = (x, y, name) => {
      const rules = [];
      if (T * px >= 5)
        for (let i = 1; i < count; i += 1) {
          rules.push(
            s("line", { class: "rule", x1: x + i * T * px, x2: x + i * T * px, y1: y, y2: y + side }),
            s("line", { class: "rule", x1: x, x2: x + side, y1: y + i * T * px, y2: y + i * T * px }),
          );
        }
      return [
        rules,
        s("rect", { class: "axis", x, y, width: side, height: side }),
        s("text", { x: x + 5, y: y - 6 }, name),
      ];
    };
    const [down, right] = [c[0], c[2]];
    const onclick = (/** @type {MouseEvent} */ event) => {
      const from = plot.getBoundingClientRect(),
        col = Math.floor((event.clientX - from.left - x1) / px / T),
        row = Math.floor((event.clientY - from.top - y1) / px / T);
      if (row >= 0 && col >= 0 && row < count && col < count) halt({ block: row * count + col, step: 0 });
    };
    const svg = picture(
      { width, height: store && !beside ? low + 106 : y1 + side + 6, "aria-label": sentence(), onclick },
      // In the empty corner: the block's tile of C up close, and what one thread owns of it.
      close(x0, y0, side - 4, T, R),
      box(x1, y0, [0, N, right, c[3]], "lk-band b"),
      box(x1, y0, [0, b[0], right, c[3]], "lk-past b"),
      box(x0, y1, [down, c[1], 0, N], "lk-band a"),
      box(x0, y1, [down, c[1], 0, a[2]], "lk-past a"),
      matrix(x1, y0, "B"),
      matrix(x0, y1, "A"),
      matrix(x1, y1, "C"),
      box(x1, y0, b, "lk-now b"),
      box(x0, y1, a, "lk-now a"),
      box(x1, y1, c, "lk-now c"),
      store && store.drawn,
      s("text", { class: "soft", x: x0 + side - 4, y: y1 - 6, "text-anchor": "end" }, "k →"),
      s("text", { class: "soft", x: x1 - 6, y: y0 + side - 6, "text-anchor": "end" }, "k ↓"),
    );
    fill(plot, svg);
    if (store && shown !== "" && shown !== state) store.slide(plot);
    shown = state;
    corner = [x1, y1];
    wide = T * px;
    const inside = (v, from) => Math.min(from + side, Math.max(from, v));
    owned.put(inside(x1 + (right + T / 2) * px, x1), inside(y1 + (down + T / 2) * px, y1));
    play.draw();
    if (!play.plays()) ui.says.textContent = sentence();
    ui.numbers(report);
  }
  function close(x, y, side, T, R) {
    const wide = T / R,
      unit = side / T,
      lines = [];
    if (unit * R >= 4 && T > 1)
      for (let i = 1; i < wide; i += 1) {
        lines.push(
          s("line", { class: "seam", x1: x + i * R * unit, x2: x + i * R * unit, y1: y, y2: y + side }),
          s("line", { class: "seam", x1: x, x2: x + side, y1: y + i * R * unit, y2: y + i * R * unit }),
        );
      }
    return s(
      "g",
      {},
      s(
        "text",
        { class: "soft", x: x + 5, y: y - 6 },
        x < 0 || side < 160 ? `${wide} x ${wide} threads` : `one tile of C: ${wide} x ${wide} threads`,
      ),
      s("rect", { class: "lk-close", x, y, width: side, height: side }),
      lines,
      s("rect", { class: "lk-thread", x, y, width: Math.max(3, R * unit), height: Math.max(3, R * unit) }),
    );
  }
  function sentence() {
    const N = get("n"),
      T = get("tile"),
      R = get("register"),
      count = across(),
      load = loadedBytes(N, T, item);
    const head = `Block ${get("block")} of ${count * count}, step ${get("step") + 1} of ${count}: `;
    if (T === 1)
      return (
        `${head}a tile of 1 is the naive kernel, and every multiply-add loads both of its operands from ` +
        `global memory, ${si(load, "B")} in all.`
      );
    const [, , [top, bottom, left, right]] = walk(N, T, get("block"), get("step")),
      [high, wide] = [bottom - top, right - left],
      serves = (times) => `serves ${times} multiply-add${times > 1 ? "s" : ""}`;
    return (
      head +
      (high === wide
        ? `each element that the block loads ${serves(high)}, `
        : `each element of A that the block loads ${serves(wide)}, of B ${high}, `) +
      `${si(load, "B")} loaded ` +
      `instead of ${si(loadedBytes(N, 1, item), "B")}, ${plain(intensity(N, T, item))} FLOP/B` +
      `${warning(T, R)}.`
    );
  }
  function warning(T, R) {
    const count = threads(T, R);
    if (count > MOST_THREADS)
      return `; ${count} threads are more than the ${MOST_THREADS} a block may have: give each thread more elements`;
    if (sharedBytes(T, item) > STATIC_SHARED)
      return (
        `; ${si(sharedBytes(T, item), "B")} of shared memory are more than the 48 KiB of a static ` +
        "array: it takes dynamic shared memory, or a tile less deep along k"
      );
    return count < 32 ? `; ${count} thread${count > 1 ? "s do" : " does"} not fill a warp of 32` : "";
  }
  function report() {
    const N = get("n"),
      T = get("tile"),
      R = get("register");
    fill(
      facts,
      grid(
        "What the tile costs and saves",
        ["what", "this tile", "naive"],
        [
          ["loaded from global memory", si(loadedBytes(N, T, item), "B"), si(loadedBytes(N, 1, item), "B")],
          [`formula 2·n³/tile·${item} B`, si((2 * N ** 3 * item) / T, "B"), si(2 * N ** 3 * item, "B")],
          ["times each element of A and B is loaded", String(across()), String(N)],
          ["arithmetic intensity", `${plain(intensity(N, T, item))} FLOP/B`, `${plain(intensity(N, 1, item))} FLOP/B`],
          ["shared memory a block", si(sharedBytes(T, item), "B"), "none"],
          ["shared loads a multiply-add", plain(sharedLoadsPerFma(T, R)), "none"],
          ["threads a block", String(threads(T, R)), "your choice"],
        ],
      ),
      sketch(
        "p",
        { class: "lk-note" },
        N % T
          ? `${T} does not divide ${N}: the last tiles are clipped, so the blocks load a little more ` +
              "than the formula says."
          : "Counted: the elements that blocks ask for. Caches may answer some of it; sectors depend on " +
              "which lane reads which element.",
      ),
    );
  }
  const plot = h("div", { class: "lk-plot" }),
    facts = h("div", { class: "lk-scroll" });
  ui.stage.append(held(plot, owned));
  ui.rest.append(facts);
  const view = fit(plot, paint);
  function draw() {
    const count = across();
    register.range.max = String(get("registers").filter((r) => r <= get("tile")).length - 1);
    for (const [name, field] of Object.entries({ n, tile, register })) field.put(get(name));
    block.range.max = String(count * count - 1);
    step.range.max = String(count - 1);
    block.put(get("block"));
    step.put(get("step"));
    view.draw();
  }
  return follow(model, ["n", "tile", "register", "block", "step"], draw, play.pause, view.stop);
}
