import { h, KEYS, unique, frame, choice } from "../shared/dom.js";
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
    if (focus) lines[model.get("line")].focus();
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

  const name = unique("lk-line");
  const lines = code.map(([number, text], i) =>
    h(
      "div",
      {
        ...KEYS,
        class: "lk-row",
        role: "option",
        id: `${name}-${i}`,
        onclick: () => go(i, true),
        "aria-label":
          `Line ${number}: ${text.trim() || "empty"}; ` +
          `${stages.map((one) => `${amount(one.runs, i)} ${one.name}`).join(", ")}`,
      },
      h("span", { class: "lk-no" }, String(number)),
      h("code", {}, text),
    ),
  );
  const list = h(
    "div",
    {
      class: "lk-code",
      role: "listbox",
      "aria-label": "Source lines",
      onkeydown: (event) => {
        const at = model.get("line");
        const next = {
          ArrowDown: at + 1,
          ArrowUp: at - 1,
          PageDown: at + 10,
          PageUp: at - 10,
          Home: 0,
          End: code.length - 1,
        }[event.key];
        if (next === undefined) return;
        event.preventDefault();
        go(next, true);
      },
    },
    lines,
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
  ui.stage.append(
    h(
      "div",
      { class: "lk-sides" },
      list,
      h(
        "div",
        { class: "lk-panes" },
        panes.map((one) => one.pane),
      ),
    ),
  );
  ui.rest.append(h("p", { class: "lk-note" }, model.get("note")));

  // Only the panes scroll, never the page.
  const sight = (box, first, last) => {
    const top = first.offsetTop - box.offsetTop,
      bottom = last.offsetTop + last.offsetHeight - box.offsetTop;
    if (top < box.scrollTop || bottom > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - 26);
  };

  function draw() {
    const line = model.get("line"),
      show = model.get("show");
    shown.select.value = show;
    lines.forEach((row, i) => {
      row.tabIndex = i === line ? 0 : -1;
      row.setAttribute("aria-selected", i === line);
    });
    sight(list, lines[line], lines[line]);
    el.querySelector(".lk-panes").classList.toggle("one", show !== "all");
    for (const { stage, rows, text, count, pane } of panes) {
      pane.hidden = show !== "all" && show !== stage.name;
      const now = new Set(lit(stage.runs, line));
      rows.forEach((row, i) => row.classList.toggle("lit", now.has(i)));
      count.textContent = `${whole(amount(stage.runs, line))} of ${whole(stage.total)} lines`;
      if (now.size && !pane.hidden) {
        const first = Math.min(...now);
        sight(text, rows[first], rows[first]);
      }
    }
    const counts = stages.map((one) => [amount(one.runs, line), one.name]).filter(([lines]) => lines);
    ui.says.textContent = `Line ${code[line][0]}: ${
      counts.length
        ? `${counts.map(([lines, stage]) => `${whole(lines)} line${lines === 1 ? "" : "s"} of ${stage}`).join(", ")}.`
        : "nothing is made of it: a name, a comment, or work that the compiler found needless."
    }`;
  }
  const quit = follow(model, ["line", "show"], draw);
  draw();
  const laid = new ResizeObserver(() => {
    if (list.clientHeight) {
      draw();
      laid.disconnect();
    }
  });
  laid.observe(list);
  return () => {
    quit();
    laid.disconnect();
  };
}
