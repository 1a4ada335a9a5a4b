import { h, KEYS, frame, ladder, choice, button, grid, picture, fit, whileHeld } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { plain } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { decode, largest, nearest, neighbours } from "./model.js";

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "formats",
    "What a format makes of a number",
    "Drag the mark along the line, type a number, or flip a bit. Ticks are the numbers that the format has.",
  );
  const formats = model.get("formats"),
    current = () => formats.find((f) => f.name === model.get("format"));
  const SPANS = [0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 64, 512],
    MOST = 600;
  const exact = (x) =>
    Number.isNaN(x)
      ? "NaN"
      : Math.abs(x) >= 1e6 || (x !== 0 && Math.abs(x) < 1e-4)
        ? x.toExponential(4)
        : String(Number(x.toPrecision(8)));
  let span = 1;

  const kind = choice(
    "Format",
    formats.map((f) => [f.name, `${f.name} (${f.bits} bits)`]),
    model.get("format"),
    (name) => {
      put(model, { format: name }, draw);
    },
  );
  const entry = h("input", {
    ...KEYS,
    type: "text",
    inputmode: "decimal",
    autocomplete: "off",
    spellcheck: "false",
    class: "mono",
  });
  entry.addEventListener("change", () => {
    const value = Number(entry.value.replace(",", "."));
    if (!Number.isFinite(value) || entry.value.trim() === "") {
      entry.setAttribute("aria-invalid", "true");
      ui.says.textContent = "A number: digits, a point, perhaps an exponent, such as 0.1 or 3e-5.";
      return;
    }
    go(value);
  });
  const zoom = ladder(
    "Half-width of the line",
    SPANS,
    span,
    (x) => `±${x}`,
    (x) => {
      span = x;
      draw();
    },
  );
  ui.controls.append(kind.el, h("label", { class: "lk-field" }, h("span", {}, "Number"), entry), zoom.el);

  const line = h("div", { class: "lk-line-box" }),
    bits = h("div", { class: "lk-bits", role: "group", "aria-label": "Bits, the sign first: press to flip" });
  const facts = h("div", { class: "lk-scroll" });
  /** @type {[number, number, number]} the ends of the line and its width */
  let shown = [-1, 1, 1];
  const PAD = 14,
    PARTS = 500;
  const toLine = (v) => Math.round(((v - shown[0]) / (shown[1] - shown[0])) * PARTS);
  const mark = handle("Number", {
    range: () => [[0, PARTS]],
    now: () => [Math.min(PARTS, Math.max(0, toLine(model.get("value"))))],
    at: (x) => [((x - PAD) / (shown[2] - 2 * PAD)) * PARTS],
    move: (step) => go(Number((shown[0] + (step / PARTS) * (shown[1] - shown[0])).toPrecision(5))),
    // To the next number of the format; with the shift key by a small part of the line.
    nudge: (sign, event) => {
      const f = current(),
        value = model.get("value");
      go(event.shiftKey ? value + (sign * span) / 200 : neighbours(f, decode(f, nearest(f, value)))[sign > 0 ? 1 : 0]);
    },
    say: () =>
      `${exact(model.get("value"))}, stored as ${exact(decode(current(), nearest(current(), model.get("value"))))}`,
  });
  ui.stage.append(held(line, mark), bits);
  ui.rest.append(facts);

  // Every number of the format between two bounds, or null when there are too many to draw.
  function between(f, low, high) {
    const found = [];
    for (let x = neighbours(f, low)[1]; x <= high && x >= low;) {
      found.push(x);
      if (found.length > MOST) return null;
      const next = neighbours(f, x)[1];
      if (next <= x) break;
      x = next;
    }
    return found;
  }
  const view = fit(line, (width) => {
    const f = current(),
      value = model.get("value"),
      centre = Math.round(value / span) * span || 0;
    const low = centre - span * 1.02,
      high = centre + span * 1.02,
      pad = PAD,
      height = 104,
      base = 58;
    const x = (v) => pad + ((v - low) / (high - low)) * (width - 2 * pad);
    const stored = decode(f, nearest(f, value)),
      ticks = between(f, low, high);
    const inside = (v) => Math.min(width - pad, Math.max(pad, x(v)));
    shown = [low, high, width];
    mark.put(inside(value), base - 14);
    const drawn = picture(
      { width, height, role: "group", "aria-label": "Number line" },
      s("line", { class: "axis", x1: pad, x2: width - pad, y1: base, y2: base }),
      ticks
        ? ticks.map((v) =>
            s("line", {
              class: `lk-tick${v === stored ? " on" : ""}`,
              x1: x(v),
              x2: x(v),
              y1: base,
              y2: base + (v === stored ? 18 : 10),
            }),
          )
        : s("rect", { class: "lk-dense", x: pad, y: base, width: width - 2 * pad, height: 10 }),
      s("line", { class: "lk-gap", x1: inside(value), x2: inside(stored), y1: base + 14, y2: base + 14 }),
      s("text", { x: inside(stored), y: base + 34, "text-anchor": "middle", class: "halo" }, `stored ${exact(stored)}`),
      [
        [low, "start"],
        [high, "end"],
      ].map(([v, anchor]) =>
        s(
          "text",
          { class: "soft", x: x(v), y: height - 2, "text-anchor": anchor },
          exact(anchor === "start" ? centre - span : centre + span),
        ),
      ),
      s("text", { x: inside(value), y: base - 36, "text-anchor": "middle", class: "halo" }, exact(value)),
    );
    at = (event) => {
      const box = line.getBoundingClientRect();
      const v = low + ((((event.clientX - box.left) / box.width) * width - pad) / (width - 2 * pad)) * (high - low);
      return Number(Math.min(high, Math.max(low, v)).toPrecision(5));
    };
    fill(line, drawn);
  });
  /** @type {(event: MouseEvent) => number} */
  let at = () => model.get("value");
  line.addEventListener("pointerdown", (event) => event.preventDefault()); // so that the mark keeps the focus
  whileHeld(line, (event) => {
    go(at(event));
    mark.el.focus();
  });

  function drawBits(f, code) {
    if (f.numbers) {
      fill(
        bits,
        h(
          "p",
          { class: "lk-note" },
          `Code ${code}: the place in the list of this format's ${f.numbers.length} numbers.`,
        ),
      );
      return;
    }
    const text = code.toString(2).padStart(f.bits, "0"),
      sign = f.signed ? 1 : 0;
    const part = (i) => (i < sign ? "sign" : i < sign + f.exponent ? "exponent" : "mantissa");
    fill(
      bits,
      ...[...text].map((bit, i) =>
        button(
          bit,
          () => {
            const flipped = decode(f, code + (bit === "0" ? 1 : -1) * 2 ** (f.bits - 1 - i));
            if (Number.isFinite(flipped)) go(flipped);
            else ui.says.textContent = `With that bit flipped the code stands for ${exact(flipped)}.`;
            /** @type {HTMLElement} */ (bits.children[i])?.focus();
          },
          {
            class: `lk-bit mono ${part(i)}`,
            "aria-label":
              `${part(i)} bit ${i - (i < sign ? 0 : i < sign + f.exponent ? sign : sign + f.exponent)}: ` + `${bit}`,
          },
        ),
      ),
      h(
        "span",
        { class: "lk-key" },
        h("i", { class: "sign" }),
        "sign ",
        h("i", { class: "exponent" }),
        "exponent ",
        h("i", { class: "mantissa" }),
        "mantissa",
      ),
    );
  }
  function draw() {
    const f = current(),
      value = model.get("value"),
      code = nearest(f, value),
      stored = decode(f, code),
      [below, above] = neighbours(f, value);
    kind.select.value = f.name;
    entry.value = exact(value);
    entry.removeAttribute("aria-invalid");
    view.draw();
    drawBits(f, code);
    const top = decode(f, largest(f)),
      relative = (g) => {
        const e = decode(g, nearest(g, value)) - value;
        return value ? `${plain((100 * Math.abs(e)) / Math.abs(value))} %` : exact(Math.abs(e));
      };
    ui.says.textContent =
      stored === value
        ? `${exact(value)} is a number of ${f.name}: no error; its neighbours are ${exact(below)} and ${exact(above)}.`
        : `${exact(value)} lies ` +
          (value > top || value < (f.numbers ? f.numbers[0] : f.signed ? -top : decode(f, 0))
            ? "beyond the range"
            : `between ${exact(below)} and ${exact(above)}`) +
          `; ${f.name} stores ${exact(stored)}, an error of ${exact(Math.abs(stored - value))} (` +
          `${relative(f)}).`;
    ui.numbers(() =>
      fill(
        facts,
        grid(
          "The same number in every format, nearest and saturated",
          ["format", "bits", "stored", "relative error", "next below", "next above"],
          formats.map((g) => {
            const [low, high] = neighbours(g, value);
            return [g.name, String(g.bits), exact(decode(g, nearest(g, value))), relative(g), exact(low), exact(high)];
          }),
        ),
      ),
    );
  }
  const go = (value) => {
    put(model, { value }, draw);
  };
  return follow(model, ["value", "format"], draw, view.stop);
}
