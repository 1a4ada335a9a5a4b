import { h, frame, choice, colourKeys, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { follow, put } from "../shared/state.js";
import { fill, s } from "../shared/redraw.js";
import { order } from "./model.js";

const ROW = 27;

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const kinds = model.get("kinds"),
    changes = model.get("changes"),
    takes = model.get("takes"),
    levels = kinds.map(([, , each]) => each.map(([level]) => level));
  const ui = frame(
    el,
    "accelerators",
    "What is fixed, and what is programmable?",
    "Drag the mark up or down from machine to machine: the change sinks as deep as it has to " +
      "go. The levels are a judgement, with its reason.",
  );
  const pick = choice(
    "What changes",
    changes.map((text, i) => [String(i), text]),
    String(model.get("change")),
    (v) => {
      put(model, { change: Number(v) }, draw);
    },
  );
  ui.controls.append(pick.el);
  let at = 1; // the row that the change is dropped on
  const sorted = () => order(levels, model.get("change"));
  const told = () => {
    const k = sorted()[at],
      [level, reason] = kinds[k][2][model.get("change")];
    return `${kinds[k][0]} takes ${takes[level]}: ${reason}`;
  };
  const change = handle("The change, on a machine", {
    axis: "y",
    range: () => [[1 - kinds.length, 0]],
    now: () => [-at],
    at: (x, y) => [0.5 - y / ROW],
    move: (step) => {
      at = -step;
      draw();
    },
    say: told,
  });
  const board = h("div", {});
  ui.stage.append(held(board, change), colourKeys(takes, "level"));
  function paint(width) {
    const now = model.get("change"),
      name = Math.min(210, width * 0.56),
      each = (width - name - 16) / takes.length,
      tall = ROW * kinds.length,
      end = (level) => name + (level + 1) * each;
    fill(
      board,
      picture(
        {
          width,
          height: tall,
          "aria-label": `${changes[now]}: ${sorted()
            .map((i) => `${kinds[i][0]} takes ${takes[levels[i][now]]}`)
            .join("; ")}`,
        },
        takes.map((_, i) => s("line", { class: "rule", x1: end(i), x2: end(i), y1: 0, y2: tall })),
        sorted().map((k, i) => {
          const [title, words] = kinds[k],
            level = levels[k][now],
            y = i * ROW;
          return s(
            "g",
            { class: i === at ? "on" : "" },
            s("title", {}, words),
            s("text", { x: name - 8, y: y + 18, "text-anchor": "end" }, title),
            s("rect", { class: `level${level}`, x: name, y: y + 5, width: end(level) - name, height: ROW - 10, rx: 3 }),
          );
        }),
      ),
    );
    change.put(end(levels[sorted()[at]][now]), (at + 0.5) * ROW);
    const easy = kinds.filter((_, k) => levels[k][now] <= 1).map(([title]) => title),
      hard = kinds.filter((_, k) => levels[k][now] === 4).length;
    ui.says.textContent =
      `${changes[now][0].toUpperCase()}${changes[now].slice(1)}: ` +
      (easy.length ? `possible while running on ${easy.join(", ")}` : "possible on none of them while running") +
      `; ${hard} of ${kinds.length} need a new chip; ${told()}.`;
  }
  const view = fit(board, paint);
  function draw() {
    pick.select.value = String(model.get("change"));
    view.draw();
  }
  return follow(model, ["change"], draw, view.stop);
}
