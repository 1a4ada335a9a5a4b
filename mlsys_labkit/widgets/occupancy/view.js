import { h, frame, ladder, choice, grid, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { plain, whole } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { occupancy } from "./model.js";

const WORDS = { warps: "warp slots", blocks: "block slots" },
  named = (limit) => WORDS[limit] || limit;

const DOTS = {
  threads: "Dot of the block's threads",
  registers: "Dot of the registers",
  shared: "Dot of the shared bytes",
};

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "occupancy",
    "Occupancy of a streaming multiprocessor",
    "How many blocks are resident on one SM at once, and which resource stops the next one. Drag a dot.",
  );
  const get = (name) => model.get(name),
    table = new Map(get("architectures")),
    limits = () => table.get(get("architecture"));
  const set = (values) => {
    put(model, values, draw);
  };
  const upTo = (most, by, also) =>
    [...new Set([...Array.from({ length: Math.floor(most / by) + 1 }, (_, i) => i * by), also])].sort((a, b) => a - b);
  const most = Math.max(...[...table.values()].map((one) => one.shared_per_block));
  const lists = {
    threads: upTo(1024, 32, get("threads")).filter(Boolean),
    registers: upTo(255, 1, get("registers")).filter((n) => n >= 16 || n === get("registers")),
    shared: upTo(most, 1024, get("shared")),
  };
  const units = { registers: " registers", shared: "" };
  const show = { threads: whole, registers: String, shared: (bytes) => `${plain(bytes / 1024)} KiB` };
  const names = { threads: "Threads a block", registers: "Registers a thread", shared: "Shared memory" };
  const architecture = choice(
    "Architecture",
    [...table.keys()].map((key) => [key, `${key}: ${table.get(key).name}`]),
    get("architecture"),
    (v) => set({ architecture: v }),
  );
  const fields = Object.keys(lists).map((key) =>
    ladder(names[key], lists[key], get(key), show[key], (value) => set({ [key]: value })),
  );
  ui.controls.append(architecture.el);
  ui.more.append(...fields.map((field) => field.el));
  const at = (changed) => {
    const now = { threads: get("threads"), registers: get("registers"), shared: get("shared"), ...changed };
    return occupancy(limits(), now.threads, now.registers, now.shared);
  };
  const share = (result) => (100 * result.warps) / limits().warps_per_sm;

  const shownOf = (key) => lists[key].filter((v) => key !== "shared" || v <= limits().shared_per_block);
  const frames = Object.fromEntries(Object.keys(lists).map((key) => [key, [0, 1]]));
  const dots = Object.fromEntries(
    Object.keys(lists).map((key) => [
      key,
      handle(DOTS[key], {
        range: () => [[0, shownOf(key).length - 1]],
        now: () => [Math.max(0, shownOf(key).indexOf(get(key)))],
        at: (x) => [((x - frames[key][0]) / frames[key][1]) * (shownOf(key).length - 1)],
        move: (step) => set({ [key]: shownOf(key)[step] }),
        say: () => {
          const result = at({});
          return `${show[key](get(key))}: ${result.blocks} blocks, ${plain(share(result))} % occupancy`;
        },
      }),
    ]),
  );
  function curve(key, width) {
    const height = 126,
      left = 38,
      right = width - 14,
      top = 14,
      low = height - 34,
      values = shownOf(key);
    const first = values[0],
      last = values[values.length - 1],
      X = (v) => left + ((Math.min(v, last) - first) / (last - first)) * (right - left),
      Y = (percent) => low - (percent / 100) * (low - top);
    const points = values.map((value) => [value, share(at({ [key]: value }))]);
    const path = points
      .map(([value, percent], i) => (i ? `V${Y(percent)}H${X(value)}` : `M${X(value)},${Y(percent)}H${X(value)}`))
      .join("");
    const said = `Occupancy against ${names[key].toLowerCase()}: ${points
      .filter(([, percent], i) => !i || percent !== points[i - 1][1])
      .slice(0, 12)
      .map(([value, percent]) => `${plain(percent)} % from ${show[key](value)}`)
      .join(", ")}.`;
    frames[key] = [left, right - left];
    dots[key].put(X(get(key)), Y(share(at({}))));
    return picture(
      { width, height, "aria-label": said },
      [0, 50, 100].map((percent) => [
        s("line", { class: "rule", x1: left, x2: right, y1: Y(percent), y2: Y(percent) }),
        s(
          "text",
          { class: "soft", x: left - 6, y: Y(percent) + 4, "text-anchor": "end" },
          `${percent}${percent === 100 ? " %" : ""}`,
        ),
      ]),
      s("path", { class: "lk-curve", d: path }),
      s("line", { class: "lk-here", x1: X(get(key)), x2: X(get(key)), y1: top, y2: low }),
      s("text", { class: "soft", x: left, y: low + 16 }, show[key](first)),
      s("text", { class: "soft", x: right, y: low + 16, "text-anchor": "end" }, show[key](last)),
      s(
        "text",
        { class: "soft", x: (left + right) / 2, y: low + 30, "text-anchor": "middle" },
        names[key].toLowerCase(),
      ),
    );
  }
  function slots(width) {
    const result = at({}),
      each = Math.ceil(get("threads") / 32),
      all = limits().warps_per_sm,
      across = 16,
      gap = 2,
      cell = Math.min(46, (width - 2) / across),
      rows = Math.ceil(all / across),
      high = width < 520 ? 16 : 20;
    const cells = Array.from({ length: all }, (_, i) => {
      const block = i < result.warps ? Math.floor(i / each) : -1,
        x = (i % across) * cell,
        y = Math.floor(i / across) * high;
      return s(
        "g",
        { class: `lk-warp${block < 0 ? "" : block % 2 ? " odd" : " even"}` },
        s("rect", { x: x + gap / 2, y: y + gap / 2, width: cell - gap, height: high - gap, rx: 2 }),
        block >= 0 ? s("text", { x: x + cell / 2, y: y + high / 2 + 4, "text-anchor": "middle" }, String(block)) : null,
      );
    });
    return picture(
      {
        width,
        height: rows * high,
        "aria-label": `${result.warps} of ${all} warp slots in use, by ${result.blocks} blocks`,
      },
      cells,
    );
  }
  // The largest value below the present one that lets another block in.
  function relief(key) {
    if (!key) return "";
    const now = at({}).blocks,
      better = lists[key].filter((value) => value < get(key) && at({ [key]: value }).blocks > now).pop();
    return better === undefined
      ? ""
      : `; at ${show[key](better)}${units[key]} it would be ${at({ [key]: better }).blocks} blocks`;
  }
  function sentence() {
    const result = at({}),
      each = Math.ceil(get("threads") / 32);
    if (!result.blocks)
      return (
        `No block fits: one block asks for more ${result.limits.map(named).join(" and ")} than ` +
        `${get("architecture")} has, so the launch fails.`
      );
    const head =
      `${result.blocks} block${result.blocks > 1 ? "s" : ""} of ${each} warp${each > 1 ? "s" : ""} ` +
      `fill${result.blocks > 1 ? "" : "s"} ${result.warps} of ${limits().warps_per_sm} warp slots: ` +
      `${plain(share(result))} % ` +
      `occupancy; the limit: ${result.limits.map(named).join(" and ")}`;
    const idle = (32 - (get("threads") % 32)) % 32,
      waste = idle
        ? `; ${idle} lane${idle > 1 ? "s" : ""} of each block's last warp never work${idle > 1 ? "" : "s"}`
        : "";
    return (
      head +
      (result.limits.length > 1
        ? ""
        : relief({ registers: "registers", "shared memory": "shared" }[result.limits[0]])) +
      waste +
      "."
    );
  }
  function paint(width) {
    const result = at({});
    fill(sm, slots(Math.min(width, 16 * 46)));
    const columns = width >= 620 ? 3 : 1,
      wide = Math.floor((width - (columns - 1) * 18) / columns);
    Object.keys(lists).forEach((key) => fill(plots[key], curve(key, wide)));
    ui.numbers(() =>
      fill(
        facts,
        grid(
          "How many blocks each resource would allow",
          ["resource", "blocks", "verdict"],
          Object.entries(result.allowed).map(([name, blocks]) => [
            named(name),
            String(blocks),
            blocks === result.blocks ? "← the limit" : "",
          ]),
        ),
      ),
    );
    ui.says.textContent = sentence();
  }
  const sm = h("div", { class: "lk-sm" }),
    plots = Object.fromEntries(Object.keys(lists).map((key) => [key, h("div", {})])),
    curves = h(
      "div",
      { class: "lk-curves" },
      Object.keys(lists).map((key) => held(plots[key], dots[key])),
    ),
    facts = h("div", { class: "lk-scroll" }),
    box = h(
      "div",
      {},
      h("h4", {}, "Warp slots of one SM, with the number of the block in each"),
      sm,
      h("h4", {}, "What if? Occupancy against each resource"),
      curves,
    );
  ui.stage.append(box);
  ui.rest.append(
    facts,
    h(
      "p",
      { class: "lk-note" },
      "Occupancy hides latency; it is not speed. A kernel with more registers, fewer warps and " +
        "more work a thread is often faster.",
    ),
  );
  const view = fit(box, paint);
  function draw() {
    architecture.select.value = get("architecture");
    Object.keys(lists).forEach((key, i) => fields[i].put(get(key)));
    view.draw();
  }
  return follow(model, ["architecture", "threads", "registers", "shared"], draw, view.stop);
}
