import { h, KEYS, frame, grid } from "../shared/dom.js";
import { plain } from "../shared/numbers.js";
import { follow } from "../shared/state.js";
import { left } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(el, "progress", "Where you are", model.get("lab"));
  const only = h("input", { ...KEYS, type: "checkbox", onchange: () => draw() });
  ui.controls.append(h("label", { class: "lk-only" }, only, " Only what is left to do"));
  const news = h("div", { class: "lk-news" }),
    notes = h("div", {});
  ui.rest.append(news, notes);
  const state = (task) =>
    h("span", { class: `lk-state ${task.state}` }, h("b", { "aria-hidden": "true" }, task.mark), ` ${task.words}`);

  function draw() {
    const tasks = model.get("tasks");
    const shown = only.checked ? left(tasks) : tasks.map((task, index) => [index + 1, task]);
    const passing = tasks.length - left(tasks).length;
    const strip = h(
      "div",
      { class: "lk-strip", role: "img", "aria-label": `${passing} of ${tasks.length} tasks pass the checks you see` },
      tasks.map((task, index) =>
        h(
          "span",
          {
            class: task.state,
            style: `flex-grow: ${task.of || 1}`,
            title: `${index + 1} · ${task.title}: ${task.words}`,
          },
          task.mark,
        ),
      ),
    );
    const rows = shown.map(([number, task]) => [
      `${number} · ${task.title}`,
      state(task),
      `${plain(task.points)} of ${plain(task.of)}`,
      task.hints,
    ]);
    ui.stage.replaceChildren(
      strip,
      h(
        "div",
        { class: "lk-scroll" },
        grid(
          only.checked ? `${shown.length} of ${tasks.length} tasks are left` : "The tasks of this lab",
          ["task", "state", "points", "hints"],
          rows,
        ),
      ),
    );
    if (ui.says.textContent !== model.get("says")) ui.says.textContent = model.get("says");
    notes.replaceChildren(...model.get("notes").map((line) => h("p", { class: "lk-note" }, line)));
    const [first, ...lines] = model.get("news");
    news.replaceChildren(
      ...(first
        ? [
            h("h4", {}, first),
            h(
              "ul",
              {},
              lines.map((line) => h("li", {}, line)),
            ),
          ]
        : []),
    );
  }
  return follow(model, ["tasks", "says", "notes", "news"], draw);
}
