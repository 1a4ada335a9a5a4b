import { h, s, frame, choice, picture, fit } from "../shared/dom.js";
import { follow, put } from "../shared/state.js";
import { order } from "./model.js";

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
    "Ask all of them for the same change. The further right the bar, the deeper the change has " +
      "to go; the levels are a judgement, with its reason.",
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
  const board = h("div", { class: "lk-scroll" });
  ui.stage.append(board);
  function paint(width) {
    const change = model.get("change"),
      w = Math.max(width, 560),
      name = Math.min(230, w * 0.36),
      each = (w - name) / takes.length,
      row = 44,
      tall = 40 + row * kinds.length;
    board.replaceChildren(
      picture(
        {
          width: w,
          height: tall,
          "aria-label": `${changes[change]}: ${order(levels, change)
            .map((i) => `${kinds[i][0]} takes ${takes[levels[i][change]]}`)
            .join("; ")}`,
        },
        takes.map((text, i) =>
          s(
            "text",
            { class: "soft", x: name + (i + 0.5) * each, y: 14, "text-anchor": "middle" },
            text.split(" ").slice(0, 2).join(" "),
            s("tspan", { x: name + (i + 0.5) * each, dy: 13 }, text.split(" ").slice(2).join(" ")),
          ),
        ),
        takes.map((_, i) => s("line", { class: "rule", x1: name + i * each, x2: name + i * each, y1: 34, y2: tall })),
        order(levels, change).map((k, i) => {
          const [title, words, reasons] = kinds[k],
            level = levels[k][change],
            y = 40 + i * row;
          return s(
            "g",
            {},
            s("title", {}, words),
            s("text", { x: name - 8, y: y + 17, "text-anchor": "end" }, title),
            s("rect", { class: `level${level}`, x: name, y: y + 4, width: (level + 1) * each - 4, height: 18, rx: 3 }),
            s("text", { class: "soft", x: name + 2, y: y + 36 }, reasons[change][1]),
          );
        }),
      ),
    );
    const easy = kinds.filter((_, k) => levels[k][change] <= 1).map(([title]) => title),
      hard = kinds.filter((_, k) => levels[k][change] === 4).length;
    ui.says.textContent =
      `${changes[change][0].toUpperCase()}${changes[change].slice(1)}: ` +
      (easy.length ? `while running on ${easy.join(", ")}` : "on none of them while running") +
      `; ${hard} of ${kinds.length} need a new chip.`;
  }
  const view = fit(board, paint);
  function draw() {
    pick.select.value = String(model.get("change"));
    view.draw();
  }
  return follow(model, ["change"], draw, view.stop);
}
