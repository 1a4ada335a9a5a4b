import { h, unique, frame, slider, button, grid, picture, fit, whileHeld } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { horizontals } from "../shared/axes.js";
import { si, plain } from "../shared/numbers.js";
import { fill, s, sketch } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { live, peak, alive } from "./model.js";

const SHOWN = 10;

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const kinds = model.get("kinds"),
    one = kinds.join(" or "),
    many = kinds.map((kind) => `${kind}s`).join(" and ");
  const ui = frame(
    el,
    "memory",
    "Memory timeline",
    `Live bytes after each allocation and free. Drag the cursor to see which ${many} hold the ` +
      "memory, and the line that made them.",
  );
  const events = model.get("events"),
    categories = model.get("categories"),
    sources = model.get("lines"),
    names = model.get("names");
  const rows = live(events, categories.length),
    [top, most] = peak(events),
    final = events.length - 1;
  const ids = categories.map(() => unique("lk-fill"));
  const used = categories.map((_, c) => c).filter((c) => rows.some((row) => row[c] > 0));
  const sum = (row) => row.reduce((a, b) => a + b, 0);
  const go = (at) => {
    put(model, { cursor: Math.min(final, Math.max(0, Math.round(at))) }, draw);
  };

  const cursor = slider("Event", {
    min: 0,
    max: final,
    value: model.get("cursor"),
    show: (at) => `${at + 1} of ${events.length}`,
    input: go,
  });
  ui.controls.append(
    cursor.el,
    button("Go to the peak", () => go(top)),
    button("Previous event", () => go(model.get("cursor") - 1)),
    button("Next event", () => go(model.get("cursor") + 1)),
  );

  // Colour and pattern both name a category: neither alone has to be seen.
  const textures = [
    [],
    [s("path", { d: "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4" })],
    [s("circle", { cx: 4, cy: 4, r: 1.4, class: "dot" })],
    [s("path", { d: "M0,4 H8" })],
    [s("path", { d: "M0,4 H8 M4,0 V8" })],
  ];
  const fills = () =>
    s(
      "defs",
      {},
      categories.map((_, c) =>
        s(
          "pattern",
          { id: ids[c], width: 8, height: 8, patternUnits: "userSpaceOnUse", class: `lk-c${c % 5}` },
          s("rect", { width: 8, height: 8 }),
          textures[c % 5],
        ),
      ),
    );

  const left = 62;
  let right = 0,
    shown = 0,
    point = () => {};
  function paint(width) {
    if (width !== shown) lay(width);
    shown = width;
    point();
  }
  // All but the cursor: hundreds of events stay as they are while it moves.
  function lay(width) {
    right = width - 14;
    const height = Math.round(Math.min(340, Math.max(230, width * 0.42))),
      high = 34,
      low = height - 34;
    const unit = 10 ** Math.floor(Math.log10(Math.max(1, most))),
      step = [1, 2, 5, 10].map((m) => (m * unit) / 5).find((v) => most / v <= 6) || unit;
    const X = (at) => left + (at / Math.max(1, final + 1)) * (right - left),
      Y = (bytes) => low - (bytes / Math.max(1, most * 1.06)) * (low - high);
    const marks = [];
    for (let v = 0; v <= most * 1.06; v += step) marks.push(v);
    const below = rows.map(() => 0);
    const areas = used.map((c) => {
      const floor = [...below];
      rows.forEach((row, at) => {
        below[at] += row[c];
      });
      const edge = below.map((v, at) => `L${X(at)},${Y(v)} H${X(at + 1)}`).join("");
      const back = floor
        .map((_, i) => final - i)
        .map((at) => `L${X(at + 1)},${Y(floor[at])} H${X(at)}`)
        .join("");
      return s("path", {
        class: `lk-area lk-c${c % 5}`,
        d: `M${X(0)},${Y(floor[0])}${edge}${back}Z`,
        fill: `url(#${ids[c]})`,
      });
    });
    const px = (X(top) + X(top + 1)) / 2;
    const pin = s(
      "g",
      { class: "lk-pin" },
      s("path", { d: `M${px},${Y(most) - 5} l-5,-9 h10 z` }),
      s(
        "text",
        { class: "halo", x: Math.min(right - 70, Math.max(left + 70, px)), y: Y(most) - 19, "text-anchor": "middle" },
        `peak ${si(most, "B")} at ${top + 1}`,
      ),
    );
    const svg = picture(
      { width, height },
      fills(),
      horizontals(marks, Y, left, right, (v) => si(v, "B"), 8),
      areas,
      s("line", { class: "axis", x1: left, x2: right, y1: low, y2: low }),
      pin,
      s("g", { class: "lk-cursor" }, s("line", { x1: 0, x2: 0, y1: high, y2: low }), s("circle", { cx: 0, r: 5 })),
      s(
        "text",
        { class: "soft", x: (left + right) / 2, y: height - 8, "text-anchor": "middle" },
        "event (allocation or free), in order",
      ),
    );
    fill(plot, svg);
    const here = /** @type {SVGElement} */ (plot.querySelector(".lk-cursor"));
    point = () => {
      const at = model.get("cursor"),
        said = tell(at);
      grip.put((X(at) + X(at + 1)) / 2, low);
      here.style.transform = `translate(${(X(at) + X(at + 1)) / 2}px)`;
      here.lastElementChild?.setAttribute("cy", String(Y(sum(rows[at]))));
      plot.firstElementChild?.setAttribute(
        "aria-label",
        `Live bytes by category over ${events.length} events. ${said}`,
      );
      report(at, said);
    };
  }
  const tell = (at) =>
    `At event ${at + 1}: ${si(sum(rows[at]), "B")} live` +
    (at === top
      ? ", the peak"
      : `, ${plain((100 * sum(rows[at])) / Math.max(1, most))} % of the peak of ${si(most, "B")}`) +
    ".";
  function report(at, said) {
    ui.says.textContent = said;
    fill(
      legend,
      ...used.map((c) =>
        sketch(
          "li",
          {},
          s(
            "svg",
            { width: 18, height: 14, "aria-hidden": "true" },
            s("rect", { width: 18, height: 14, class: `lk-area lk-c${c % 5}`, fill: `url(#${ids[c]})` }),
          ),
          ` ${categories[c]} `,
          sketch("b", {}, si(rows[at][c], "B")),
        ),
      ),
    );
    const kept = alive(events, at),
      rest = kept.slice(SHOWN);
    ui.numbers(() =>
      fill(
        list,
        grid(
          `Alive after event ${at + 1}: ${kept.length} ${kept.length === 1 ? one : many}, largest first`,
          [one, "bytes", "category", "made at"],
          kept
            .slice(0, SHOWN)
            .map(([id, size, c, line]) => [
              names[id] || `#${id}`,
              si(size, "B"),
              categories[c],
              sketch("code", {}, sources[line] || "unknown"),
            ]),
        ),
        rest.length
          ? sketch(
              "p",
              { class: "lk-note" },
              `and ${rest.length} more, ${si(
                rest.reduce((a, e) => a + e[1], 0),
                "B",
              )} in all`,
            )
          : "",
      ),
    );
  }
  const grip = handle("Cursor", {
    range: () => [[0, final]],
    now: () => [model.get("cursor")],
    at: (x) => [((x - left) / (right - left)) * (final + 1) - 0.5],
    move: go,
    say: () => tell(model.get("cursor")),
  });
  const legend = h("ul", { class: "lk-legend", "aria-label": "Live bytes by category at the cursor" });
  const plot = h("div", { class: "lk-plot" }),
    list = h("div", { class: "lk-scroll" });
  ui.stage.append(legend, held(plot, grip));
  ui.rest.append(list);
  const view = fit(plot, paint);
  whileHeld(plot, (event) => {
    const part = (event.clientX - plot.getBoundingClientRect().left - left) / (right - left);
    go(part * (final + 1) - 0.5);
  });
  function draw() {
    cursor.put(model.get("cursor"));
    view.draw();
  }
  return follow(model, ["cursor"], draw, view.stop);
}
