import { h, KEYS, frame, button, grid } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { follow, put } from "../shared/state.js";
import { fill, sketch } from "../shared/redraw.js";
import {
  prod,
  contiguous,
  indices,
  places,
  isContiguous,
  aliases,
  outside,
  lines,
  transpose,
  cut,
  flip,
  broadcast,
} from "./model.js";

const LINE = 64,
  MOST = 256;

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "strides",
    "A tensor is a view of linear memory",
    "Memory holds 0, 1, 2, … so that each element shows where it lives. Drag the start of the view in memory; " +
      "point at an element, or walk with the arrow keys.",
  );
  const size = model.get("size"),
    itemsize = model.get("itemsize"),
    perLine = LINE / itemsize;
  const start = { shape: model.get("shape"), strides: model.get("strides"), offset: model.get("offset") };
  const now = () => ({ shape: model.get("shape"), strides: model.get("strides"), offset: model.get("offset") });
  const named = (view) =>
    isContiguous(view) && view.offset === 0 && prod(view.shape) === size
      ? "x"
      : `x.as_strided((${view.shape.join(", ")}), (${view.strides.join(", ")}), ${view.offset})`;
  let code = named(start),
    at = 0;

  const entry = (label, read) => {
    const input = h("input", {
      type: "text",
      inputmode: "numeric",
      autocomplete: "off",
      spellcheck: "false",
      class: "mono",
    });
    input.addEventListener("change", () => {
      const numbers = input.value
        .trim()
        .split(/[\s,()]+/)
        .filter(Boolean)
        .map(Number);
      const view = numbers.every(Number.isInteger) && numbers.length ? read(numbers) : null;
      if (!view || view.shape.some((n) => n < 1) || view.shape.length > 3 || prod(view.shape) > MOST) {
        input.setAttribute("aria-invalid", "true");
        ui.says.textContent =
          `${label}: whole numbers, at most 3 axes, each at least 1, at most ${MOST} elements ` + "in all.";
        return;
      }
      code = named(view);
      go(view);
    });
    return { el: h("label", { class: "lk-field" }, h("span", {}, label), input), input };
  };
  const shape = entry("Shape", (n) => ({
    ...now(),
    shape: n,
    strides: n.length === now().shape.length ? now().strides : contiguous(n),
  }));
  const strides = entry("Strides (elements)", (n) =>
    n.length === now().shape.length ? { ...now(), strides: n } : null,
  );
  const offset = entry("Offset (elements)", (n) => (n.length === 1 ? { ...now(), offset: n[0] } : null));

  /**
   * A button for an operation that makes a new view.
   * @param {string} label
   * @param {(view: any) => string} suffix the operation in NumPy's notation
   * @param {(view: any) => any} change
   * @param {(view: any) => boolean} fits
   */
  const act = (label, suffix, change, fits = () => true) => {
    const node = button(label, () => {
      const next = change(now());
      code += suffix(now());
      go(next);
    });
    return {
      node,
      check: (view) => {
        node.disabled = !fits(view);
      },
    };
  };
  const last = (view) => view.shape.length - 1;
  const acts = [
    act("Transpose", () => ".T", transpose),
    act(
      "Flip first axis",
      () => "[::-1]",
      (v) => flip(v, 0),
    ),
    act(
      "Every 2nd of last axis",
      () => "[..., ::2]",
      (v) => cut(v, last(v), 0, 2),
      (v) => v.shape[last(v)] > 1,
    ),
    act(
      "Drop first",
      () => "[1:]",
      (v) => cut(v, 0, 1, 1),
      (v) => v.shape[0] > 1,
    ),
    act(
      "Broadcast ×3",
      (v) => ` → broadcast to (3, ${v.shape.join(", ")})`,
      (v) => broadcast(v, 3),
      (v) => v.shape.length < 3 && prod(v.shape) * 3 <= MOST,
    ),
  ];
  ui.controls.append(shape.el, strides.el, offset.el, acts[0].node);
  ui.more.append(
    ...acts.slice(1).map((a) => a.node),
    button("Reset", () => {
      code = named(start);
      go(start);
    }),
  );

  const expression = h("code", { class: "lk-code" }),
    formula = h("p", { class: "lk-formula mono" });
  const tensor = h("div", { class: "lk-tensor", role: "group", "aria-label": "The view's elements: arrow keys move" });
  const memory = h("div", { class: "lk-memory" });
  const middle = (slot) => {
    const [box, own] = [memory.getBoundingClientRect(), slot.getBoundingClientRect()];
    return [own.left + own.width / 2 - box.left, own.bottom - box.top + 8];
  };
  const origin = handle("Start of the view in memory", {
    axis: "xy",
    range: () => [[0, size - 1]],
    now: () => [Math.min(size - 1, Math.max(0, now().offset))],
    at: (x, y) => {
      const far = slots.map((slot) => {
        const [u, v] = middle(slot);
        return Math.hypot(u - x, v - y);
      });
      return [far.indexOf(Math.min(...far))];
    },
    move: (offset) => {
      code = named({ ...now(), offset });
      go({ ...now(), offset });
    },
    say: () => `offset ${now().offset}: ${outside(now(), size)} elements outside memory`,
  });
  const beginning = () => {
    const [x, y] = middle(slots[Math.min(size - 1, Math.max(0, now().offset))]);
    origin.put(x, y);
  };
  const watch = new ResizeObserver(() => slots.length && beginning());
  watch.observe(memory);
  const facts = h("div", { class: "lk-scroll" });
  ui.stage.append(
    h(
      "div",
      { class: "lk-pair" },
      h("div", {}, h("h4", {}, "The view ", expression), tensor),
      h(
        "div",
        {},
        h("h4", {}, `Memory, a row a ${LINE}-byte cache line`),
        h(
          "div",
          { class: "lk-scroll", tabindex: 0, role: "region", "aria-label": "Linear memory" },
          held(memory, origin),
        ),
      ),
    ),
    formula,
  );
  ui.rest.append(facts);

  /** @type {HTMLElement[]} */
  let cells = [],
    /** @type {HTMLElement[]} */
    slots = [],
    spots = [],
    all = [];
  const light = (which) => {
    at = which;
    const spot = spots[which],
      view = now();
    cells.forEach((cell, i) => {
      cell.classList.toggle("on", i === which);
      cell.classList.toggle("twin", i !== which && spots[i] === spot);
      const stop = i === which ? 0 : -1;
      if (cell.tabIndex !== stop) cell.tabIndex = stop;
    });
    slots.forEach((slot, i) => {
      slot.classList.toggle("on", i === spot);
      slot.classList.toggle("near", i !== spot && Math.floor(i / perLine) === Math.floor(spot / perLine));
    });
    formula.textContent = tell(view, which);
  };
  const tell = (view, which) => {
    const index = all[which],
      spot = spots[which],
      byte = spot * itemsize;
    const sum = index
      .map((i, axis) => `${i}·${view.strides[axis] < 0 ? `(${view.strides[axis]})` : view.strides[axis]}`)
      .join(" + ");
    const where =
      spot < 0 || spot >= size ? "outside the memory" : `byte ${byte}, cache line ${Math.floor(byte / LINE)}`;
    return `[${index.join(", ")}] → ${view.offset} + ${sum} = ${spot} → ${where}`;
  };
  const key = (event) => {
    const dims = now().shape,
      width = dims[dims.length - 1];
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: width, ArrowUp: -width }[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? cells.length - 1 : at + step;
    if (Number.isNaN(next) || next < 0 || next >= cells.length) return;
    event.preventDefault();
    cells[next].focus();
  };

  function draw() {
    const view = now();
    [
      [shape, view.shape],
      [strides, view.strides],
      [offset, [view.offset]],
    ].forEach(([field, value]) => {
      field.input.value = value.join(", ");
      field.input.removeAttribute("aria-invalid");
    });
    acts.forEach((a) => a.check(view));
    expression.textContent = code;
    all = indices(view.shape);
    spots = places(view);
    const count = spots.length,
      first = new Map();
    spots.forEach((spot, i) => first.has(spot) || first.set(spot, i));
    const shade = (i) => `--t:${Math.round(10 + (34 * i) / Math.max(1, count - 1))}%`;

    const fresh = spots.map((spot, i) => {
      const bad = spot < 0 || spot >= size;
      return sketch(
        "button",
        {
          ...KEYS,
          type: "button",
          tabindex: -1,
          class: `lk-cell${bad ? " bad" : ""}`,
          style: shade(i),
          "aria-label": tell(view, i),
          onfocus: () => light(i),
          onmouseenter: () => light(i),
          onkeydown: key,
        },
        bad ? `×${spot}` : String(spot),
      );
    });
    const width = view.shape[view.shape.length - 1],
      blocks = view.shape.length === 3 ? view.shape[0] : 1;
    fill(
      tensor,
      ...Array.from({ length: blocks }, (_, b) =>
        sketch(
          "div",
          { class: "lk-block", style: `grid-template-columns:repeat(${width},minmax(30px,44px))` },
          fresh.slice((b * count) / blocks, ((b + 1) * count) / blocks),
        ),
      ),
    );

    const boxes = Array.from({ length: size }, (_, i) =>
      sketch(
        "span",
        {
          class: `lk-slot${first.has(i) ? " used" : ""}`,
          style: first.has(i) ? shade(first.get(i)) : null,
          onmouseenter: () => first.has(i) && light(first.get(i)),
        },
        String(i),
      ),
    );
    fill(
      memory,
      ...Array.from({ length: Math.ceil(size / perLine) }, (_, line) =>
        sketch(
          "div",
          { class: "lk-line" },
          sketch("span", { class: "lk-tag" }, `line ${line}`),
          sketch(
            "div",
            { style: `grid-template-columns:repeat(${perLine},minmax(16px,1fr))` },
            boxes.slice(line * perLine, (line + 1) * perLine),
          ),
        ),
      ),
    );

    cells = [...tensor.querySelectorAll("button")];
    slots = [.../** @type {NodeListOf<HTMLElement>} */ (memory.querySelectorAll(".lk-slot"))];
    const [distinct, moves] = lines(view, itemsize, LINE),
      shared = aliases(view),
      lost = outside(view, size);
    const dense = isContiguous(view);
    ui.numbers(() =>
      fill(
        facts,
        grid(
          "What the strides say",
          ["property", "value"],
          [
            ["contiguous in reading order", dense ? "yes" : "no"],
            ["elements", String(count)],
            ["cache lines touched", String(distinct)],
            ["moves to another line while reading in order", String(moves)],
            ["elements that share a place (aliases)", String(shared)],
            ["elements outside memory", String(lost)],
          ],
        ),
      ),
    );
    ui.says.textContent = lost
      ? `${lost} of ${count} elements lie outside the ${size} elements of memory: reading them is undefined behaviour.`
      : (dense ? "Contiguous: reading order is memory order" : "Not contiguous: reading order jumps in memory") +
        `; ${count} elements, ${distinct} cache ${distinct === 1 ? "line" : "lines"}, ${moves} ` +
        `${moves === 1 ? "move" : "moves"} between lines` +
        (shared ? `; ${shared} elements alias another, so a write to one shows in both` : "") +
        "; no data moved" +
        (view.strides.some((n) => n < 0) ? "; NumPy has negative strides, PyTorch does not (flip copies there)" : "") +
        ".";
    light(Math.min(at, count - 1));
    beginning();
  }
  const go = (view) => {
    at = 0;
    put(model, view, draw);
  };
  return follow(model, ["shape", "strides", "offset"], draw, () => watch.disconnect());
}
