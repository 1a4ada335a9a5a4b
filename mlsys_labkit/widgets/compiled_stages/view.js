import { h, unique, frame, choice } from "../shared/dom.js";
import { listing } from "../shared/listing.js";
import { whole } from "../shared/numbers.js";
import { follow, put } from "../shared/state.js";
import { lit, amount, origin } from "./model.js";

const ABOUT = {
  TTIR: "what a program does to blocks, as written",
  TTGIR: "the same with layouts: which thread holds what",
  "LLVM IR": "what one thread does",
  PTX: "one thread, in NVIDIA's assembly",
};

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "stages",
    `From source to PTX: ${model.get("title")}`,
    "What the compiler makes of each line. Choose a line with the mouse or the arrow keys; a " +
      "line of a stage leads back.",
  );
  const code = model.get("code"),
    stages = model.get("stages");
  const go = (line, focus) => {
    put(model, { line: Math.min(code.length - 1, Math.max(0, line)) }, draw);
    if (focus) lines.rows[model.get("line")].focus();
  };

  const shown = choice(
    "Show",
    [["all", "All four"], ...stages.map((one) => [one.name, one.name])],
    model.get("show"),
    (show) => {
      put(model, { show }, draw);
    },
  );
  ui.controls.append(shown.el);

  const lines = listing(
    code.map(([number, text], i) => ({
      "aria-label":
        `Line ${number}: ${text.trim() || "empty"}; ` +
        `${stages.map((one) => `${amount(one.runs, i)} ${one.name}`).join(", ")}`,
      cells: [h("span", { class: "lk-no" }, String(number)), h("code", {}, text)],
    })),
    () => model.get("line"),
    (place) => go(place, true),
  );

  const panes = stages.map((stage) => {
    const rows = [];
    for (const [, texts, hidden] of stage.runs) {
      texts.forEach((text) => rows.push(h("code", {}, text)));
      if (hidden) rows.push(h("code", { class: "lk-more" }, `… ${whole(hidden)} more`));
    }
    rows.forEach((row, i) => {
      const from = origin(stage.runs, i);
      if (from !== null) {
        row.classList.add("from");
        row.addEventListener("click", () => go(from));
      }
    });
    const heading = unique("lk-stage"),
      count = h("span", { class: "lk-count" });
    const text = h("div", { class: "lk-text", tabindex: 0, role: "region", "aria-labelledby": heading }, rows);
    const pane = h(
      "div",
      { class: "lk-pane" },
      h("div", { class: "lk-head" }, h("h4", { id: heading }, stage.name), count),
      h("p", { class: "lk-about" }, ABOUT[stage.name]),
      text,
    );
    return { stage, rows, text, count, pane };
  });
  const side = h("div", { class: "lk-panes" }, ...panes.map((one) => one.pane));
  ui.stage.append(h("div", { class: "lk-sides" }, lines.el, side));
  ui.rest.append(h("p", { class: "lk-note" }, model.get("note")));

  // Only the panes scroll, never the page. Unless all rows from `row` to `last` are in sight, `row` comes to the top.
  const sight = (box, row, last = row) => {
    const top = row.offsetTop - box.offsetTop,
      bottom = last.offsetTop - box.offsetTop + last.offsetHeight;
    if (top < box.scrollTop || bottom > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - 26);
  };
  // JupyterLab takes outputs that are out of view from the page, and what was scrolled is at its beginning afterwards.
  const back = new ResizeObserver(() => {
    if (side.clientHeight) look();
  });
  back.observe(side);

  function look() {
    const line = model.get("line");
    sight(lines.el, lines.rows[line]);
    for (const { stage, rows, text, pane } of panes) {
      const now = lit(stage.runs, line);
      if (now.length && !pane.hidden) sight(text, rows[now[0]], rows[now[now.length - 1]]);
    }
  }

  function draw() {
    const line = model.get("line"),
      show = model.get("show");
    shown.select.value = show;
    lines.mark();
    side.classList.toggle("one", show !== "all");
    for (const { stage, rows, count, pane } of panes) {
      pane.hidden = show !== "all" && show !== stage.name;
      const now = new Set(lit(stage.runs, line));
      rows.forEach((row, i) => row.classList.toggle("lit", now.has(i)));
      count.textContent = `${whole(amount(stage.runs, line))} of ${whole(stage.total)} lines`;
    }
    look();
    const counts = stages.map((one) => [amount(one.runs, line), one.name]).filter(([lines]) => lines);
    ui.says.textContent = `Line ${code[line][0]}: ${
      counts.length
        ? `${counts.map(([lines, stage]) => `${whole(lines)} line${lines === 1 ? "" : "s"} of ${stage}`).join(", ")}.`
        : "nothing is made of it: a name, a comment, or work that the compiler found needless."
    }`;
  }
  return follow(model, ["line", "show"], draw, () => back.disconnect());
}
