import { h, KEYS, unique, frame, button } from "../shared/dom.js";
import { follow, put } from "../shared/state.js";
import { letter, right } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(el, "predict", "Predict before you run");
  const group = unique("lk-options");
  const commit = button(
    "Commit",
    () => {
      put(model, { choice: chosen() }, draw);
      ui.says.focus();
    },
    { class: "lk-commit", disabled: true },
  );
  const radios = model.get("options").map((text, index) => {
    const radio = h("input", {
      ...KEYS,
      type: "radio",
      name: group,
      value: index,
      onchange: () => {
        commit.disabled = false;
      },
    });
    return {
      radio,
      el: h(
        "label",
        { class: "lk-option" },
        radio,
        h("span", {}, h("b", {}, `${letter(index)}  `), text),
        h("span", { class: "lk-verdict" }),
      ),
    };
  });
  const chosen = () => radios.findIndex(({ radio }) => radio.checked);
  ui.says.tabIndex = -1;
  ui.stage.append(
    h(
      "fieldset",
      { class: "lk-options" },
      h("legend", {}, model.get("question")),
      radios.map((one) => one.el),
    ),
    commit,
  );

  function draw() {
    const choice = model.get("choice"),
      answer = model.get("answer");
    const done = choice !== null && choice !== undefined;
    ui.says.hidden = !done;
    commit.hidden = done;
    if (!done) {
      ui.says.textContent = "";
      return;
    }
    radios.forEach(({ radio, el: label }, index) => {
      radio.checked = index === choice;
      radio.disabled = true;
      label.classList.toggle("right", index === answer);
      label.classList.toggle("wrong", index === choice && index !== answer);
      label.querySelector(".lk-verdict").textContent =
        index === answer ? "✓ right" : index === choice ? "✗ your prediction" : "";
    });
    ui.says.textContent =
      (right(choice, answer) ? "Right." : `Not this time: it is ${letter(answer)}.`) + ` ${model.get("because")}`;
  }
  return follow(model, ["choice"], draw);
}
