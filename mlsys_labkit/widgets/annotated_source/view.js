import { h, frame, choice, button, grid } from "../shared/dom.js";
import { listing } from "../shared/listing.js";
import { plain, whole } from "../shared/numbers.js";
import { follow, put } from "../shared/state.js";
import { FIELD, heat, hottest, excess } from "./model.js";

const HEATS = {
  sectors: { label: "Global sectors a request", unit: "sector", of: " a request", full: 32, floor: true },
  wavefronts: { label: "Shared wavefronts a request", unit: "wavefront", of: " a request", full: 32, floor: true },
  requests: { label: "Requests", unit: "request", of: "" },
  steps: { label: "Lane-steps (work done)", unit: "lane-step", of: "" },
};
const number = (value, kind) => (kind.floor ? plain(value) : whole(value));
const amount = (value, kind) => `${number(value, kind)} ${kind.unit}${value === 1 ? "" : "s"}${kind.of}`;

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "source",
    `Annotated source: ${model.get("title")}`,
    "Which lines move the data, and how well. Choose a line with the mouse or the arrow keys.",
  );
  const code = model.get("code"),
    counts = model.get("counts"),
    done = model.get("steps"),
    findings = model.get("findings");
  const go = (line, focus) => {
    put(model, { line: Math.min(code.length, Math.max(1, line)) }, draw);
    if (focus) lines.rows[model.get("line") - 1].focus();
    sight();
  };
  // Only the list scrolls, never the page.
  const sight = () => {
    const row = lines.rows[model.get("line") - 1],
      list = lines.el;
    list.scrollTop = Math.max(
      Math.min(list.scrollTop, row.offsetTop - list.offsetTop - 30),
      row.offsetTop + row.offsetHeight + 30 - list.offsetTop - list.clientHeight,
    );
  };
  const on = (line) => findings.filter((one) => one.line === line);
  const near = (line) => findings.filter((one) => one.other === line && one.line !== line);
  const marked = [...new Set(findings.map((one) => one.line))]
    .filter((line) => line > 0 && line <= code.length)
    .sort((a, b) => a - b);

  const metric = choice(
    "Heat",
    Object.entries(HEATS).map(([key, { label }]) => [key, label]),
    model.get("heat"),
    (heat) => {
      put(model, { heat }, draw);
    },
  );
  ui.controls.append(
    metric.el,
    button("Hottest line", () => go(hottest(heat(counts, done, model.get("heat"))) || model.get("line"))),
  );
  if (marked.length)
    ui.controls.append(button("Next finding", () => go(marked.find((line) => line > model.get("line")) || marked[0])));

  const bars = code.map(() => h("span", { class: "lk-bar" })),
    values = code.map(() => h("span", { class: "lk-value" }));
  const lines = listing(
    code.map((text, i) => ({
      class: `lk-row${on(i + 1).length ? " bad" : ""}`,
      cells: [
        h("span", { class: "lk-no" }, String(i + 1)),
        h("span", { class: "lk-flag" }, on(i + 1).length ? "✕" : near(i + 1).length ? "↔" : ""),
        bars[i],
        values[i],
        h("code", {}, text.match(/^\s*/)[0], h("span", {}, text.trim())),
      ],
    })),
    () => model.get("line") - 1,
    (place) => go(place + 1, true),
  );
  const legend = h("p", { class: "lk-key" }),
    panel = h("div", { class: "lk-panel" });
  ui.stage.append(lines.el, legend);
  ui.rest.append(panel, h("p", { class: "lk-note" }, model.get("note")));

  function draw() {
    const kind = HEATS[model.get("heat")],
      heats = new Map(heat(counts, done, model.get("heat")).map((row) => [row[0], row]));
    const full = Math.max(kind.full || 1, ...[...heats.values()].map((row) => row[1])),
      chosen = model.get("line");
    metric.select.value = model.get("heat");
    lines.mark();
    lines.rows.forEach((row, i) => {
      const [, value, floor] = heats.get(i + 1) || [0, 0, 0],
        bar = bars[i],
        wide = (part) => `width:${((100 * part) / full).toFixed(1)}%`;
      bar.replaceChildren(
        ...(value
          ? [h("i", { style: wide(Math.min(floor, value)) }), h("i", { style: wide(Math.max(0, value - floor)) })]
          : []),
      );
      bar.style.visibility = value ? "" : "hidden";
      values[i].textContent = value ? number(value, kind) : "";
      row.setAttribute(
        "aria-label",
        [
          `Line ${i + 1}: ${code[i].trim() || "empty"}`,
          value && `${amount(value, kind)}${kind.floor ? `, at best ${plain(floor)}` : ""}`,
          on(i + 1).length && `${on(i + 1).length} finding${on(i + 1).length > 1 ? "s" : ""}`,
        ]
          .filter(Boolean)
          .join("; "),
      );
    });
    legend.replaceChildren(
      h(
        "span",
        {},
        h("span", { class: "lk-bar" }, h("i", { style: "width:100%" })),
        kind.floor
          ? `needed by the bytes themselves (a full bar is ${plain(full)})`
          : `${kind.unit}s (a full bar is ${whole(full)})`,
      ),
      kind.floor
        ? h("span", {}, h("span", { class: "lk-bar" }, h("i", {}), h("i", { style: "width:100%" })), "more than needed")
        : "",
    );
    report(chosen, heats.get(chosen), kind);
  }

  function report(line, row, kind) {
    const own = counts.filter((count) => count[FIELD.line] === line),
      steps = done.find(([at]) => at === line);
    const per = (count, field) => plain(count[FIELD[field]] / count[FIELD.requests]);
    const local = (count, a, b) => (count[FIELD.space] === "global" ? a : b);
    const tell = (label, read) => [label, ...own.map(read)];
    panel.replaceChildren(
      h("h4", {}, `Line ${line}`),
      ...on(line).map((one) => h("p", { class: "lk-finding" }, h("b", {}, one.kind), `: ${one.message}`)),
      ...near(line).map((one) => h("p", { class: "lk-finding" }, `The other side of line ${one.line}: ${one.kind}.`)),
      own.length
        ? h(
            "div",
            { class: "lk-scroll", tabindex: 0, role: "region", "aria-label": `Numbers of line ${line}` },
            grid(
              "Memory accesses of this line",
              ["access", ...own.map((count) => `${count[FIELD.space]} ${count[FIELD.op]}, ${count[FIELD.size]} B`)],
              [
                tell("requests", (count) => whole(count[FIELD.requests])),
                tell("active lanes a request", (count) => per(count, "lanes")),
                tell("sectors a request", (count) => local(count, per(count, "sectors"), "–")),
                tell("wavefronts a request", (count) => local(count, "–", per(count, "wavefronts"))),
                ...(own.some((count) => count[FIELD.op] === "atomic")
                  ? [
                      tell("lanes on one address", (count) =>
                        count[FIELD.op] === "atomic" ? per(count, "wavefronts") : "–",
                      ),
                    ]
                  : []),
                tell("at best", (count) => per(count, local(count, "idealSectors", "idealWavefronts"))),
                tell("worst request", (count) => String(count[FIELD.worst])),
                tell("times the least traffic", (count) => `${plain(excess(count))}×`),
              ],
            ),
          )
        : h(
            "p",
            { class: "lk-note" },
            steps ? "No access to global or shared memory here." : "No code runs on this line, or none was counted.",
          ),
      h(
        "p",
        { class: "lk-note" },
        steps ? `${whole(steps[1])} lane-steps: each counts one lane passing this line once.` : "",
      ),
    );
    const worst = own.reduce((best, count) => (!best || excess(count) > excess(best) ? count : best), null);
    const words = !worst
      ? "no memory access on this line"
      : excess(worst) < 1.05
        ? "as little traffic as the bytes need"
        : worst[FIELD.space] === "global"
          ? `${plain(excess(worst))} times the sectors that the bytes need: neighbouring lanes should ` +
            "touch neighbouring addresses"
          : `${plain(excess(worst))} times the wavefronts needed: lanes queue at the same bank, in different words`;
    const errors = on(line)
      .map((one) => `finding: ${one.kind}`)
      .join("; ");
    ui.says.textContent = `Line ${line}: ${[row && amount(row[1], kind), words, errors].filter(Boolean).join("; ")}.`;
  }
  return follow(model, ["heat", "line"], draw, lines.whenLaid(sight));
}
