import { picture } from "../shared/dom.js";
import { s } from "../shared/redraw.js";
import { range } from "./model.js";
import { label, rows, sentence, written } from "./round.js";

/**
 * The ranks in a circle, and the messages between them.
 * @param {import("./round.js").Round} round
 * @param {boolean} moved whether the messages travel as the picture appears
 */
export function ringPicture(round, width, moved) {
  const { ranks: p, messages, uncut: lone } = round;
  const slot = Math.max(9, Math.min(20, Math.floor((width / 2 - 70) / p / 1.6))),
    tall = lone ? 22 : Math.max(10, Math.min(p > 6 ? 12 : 16, slot)),
    lines = lone ? 1 : p;
  const wide = slot * p,
    high = tall * lines,
    rx = Math.min(330, (width - wide) / 2 - 16),
    ry = Math.max(p > 4 ? (width < 440 ? 170 : 135) : 90, (high + 28) / 0.74),
    height = 2 * ry + high + 34;
  const place = range(p).map((r) => {
    const a = (2 * Math.PI * r) / p - Math.PI / 2;
    return [width / 2 + 6 + rx * Math.cos(a), height / 2 + 8 + ry * Math.sin(a)];
  });
  const came = written(round);
  /** @type {number[][]} middle and half of the width and height of what a label must not cover */
  const taken = place.map(([x, y]) => [x - 6, y - 10, wide / 2 + 10, high / 2 + 12]);
  const covers = (x, y, half) =>
    taken.filter(([u, v, a, b]) => Math.abs(u - x) < a + half && Math.abs(v - y) < b + 9).length;
  const boxes = () =>
    place.map(([x, y], r) => {
      const left = x - wide / 2,
        top = y - high / 2;
      return s(
        "g",
        {},
        s("text", { x, y: top - 6, "text-anchor": "middle" }, `rank ${r}`),
        s("rect", { class: "lk-box", x: left - 1, y: top - 1, width: wide + 2, height: high + 2, rx: 3 }),
        rows(round, r).map(([c, mask], row) => [
          lone || tall < 11 || under(left - 9, top + (row + 0.5) * tall)
            ? null
            : s(
                "text",
                { class: "lk-row", x: left - 5, y: top + row * tall + tall / 2 + 4, "text-anchor": "end" },
                String(c),
              ),
          range(p)
            .filter((i) => mask & (1 << i))
            .flatMap((i) => [
              s("rect", {
                class: `lk-slot r${i}`,
                x: left + i * slot + 0.5,
                y: top + row * tall + 0.5,
                width: slot - 1,
                height: tall - 1,
              }),
              slot > 10 && !under(left + (i + 0.5) * slot, top + (row + 0.5) * tall)
                ? s(
                    "text",
                    {
                      class: "lk-digit",
                      x: left + (i + 0.5) * slot,
                      y: top + row * tall + tall / 2 + 3.5,
                      "text-anchor": "middle",
                    },
                    String(i),
                  )
                : null,
            ]),
          came.has(`${r} ${c}`)
            ? s("rect", { class: "lk-new", x: left, y: top + row * tall, width: wide, height: tall, rx: 2 })
            : null,
        ]),
      );
    });
  // An arrow leaves and meets its boxes at their edges, bent a little so that two of opposite ways stay apart.
  const edge = (/** @type {number[]} */ [x, y], /** @type {number[]} */ [tx, ty]) => {
    const k = Math.min(
      (wide / 2 + 10) / (Math.abs(tx - x) || 1e-6),
      (high / 2 + (ty < y ? 22 : 8)) / (Math.abs(ty - y) || 1e-6),
      0.45,
    );
    return [x + (tx - x) * k, y + (ty - y) * k];
  };
  const arrows = messages.map((message) => {
    const [from, to] = message,
      a = edge(place[from], place[to]),
      b = edge(place[to], place[from]),
      long = Math.hypot(b[0] - a[0], b[1] - a[1]) || 1;
    const nx = -(b[1] - a[1]) / long,
      ny = (b[0] - a[0]) / long,
      bend = 14,
      m = [(a[0] + b[0]) / 2 + nx * bend, (a[1] + b[1]) / 2 + ny * bend];
    const dx = b[0] - m[0],
      dy = b[1] - m[1],
      d = Math.hypot(dx, dy) || 1,
      ux = dx / d,
      uy = dy / d,
      text = label(round, message);
    // Along the arrow, where the label covers least.
    const half = 3.6 * text.length + 6,
      spots = [0.37, 0.5, 0.25, 0.62, 0.15, 0.75, 0.87, 0.31, 0.44, 0.56, 0.69, 0.81, 0.2].map((t) =>
        [0, 1].map((k) => (1 - t) ** 2 * a[k] + 2 * t * (1 - t) * m[k] + t ** 2 * b[k]),
      ),
      mid = spots.reduce((best, spot) =>
        covers(spot[0], spot[1], half) < covers(best[0], best[1], half) ? spot : best,
      );
    const crowded =
      taken.slice(p).some(([u, v, a]) => Math.abs(u - mid[0]) < a + half && Math.abs(v - mid[1]) < 18) ||
      place.some(([x, y]) => Math.abs(x - mid[0]) < 24 + half && Math.abs(y - high / 2 - 10 - mid[1]) < 16);
    if (!crowded) taken.push([mid[0], mid[1], half, 9]);
    return [
      s(
        "g",
        { class: `r${from}` },
        s("path", { class: "lk-way", d: `M${a} Q${m} ${b}` }),
        s("path", {
          class: "lk-tip",
          d:
            `M${b[0] + ux * 5},${b[1] + uy * 5} L${b[0] - ux * 5 - uy * 5},${b[1] - uy * 5 + ux * 5} L` +
            `${b[0] - ux * 5 + uy * 5},${b[1] - uy * 5 - ux * 5} Z`,
        }),
      ),
      !crowded &&
        s(
          "g",
          { class: `lk-pill r${from}`, style: `--dx:${a[0] - mid[0]}px;--dy:${a[1] - mid[1]}px` },
          s("rect", { x: mid[0] - half, y: mid[1] - 9, width: 2 * half, height: 18, rx: 9 }),
          s("text", { x: mid[0], y: mid[1] + 4, "text-anchor": "middle" }, text),
        ),
    ];
  });
  const pills = taken.slice(p);
  function under(x, y) {
    return pills.some(([u, v, a, b]) => Math.abs(u - x) < a + 7 && Math.abs(v - y) < b + 9);
  }
  return picture(
    {
      width,
      height,
      class: moved ? "moving" : null,
      "aria-label": sentence(round),
    },
    arrows.map(([line]) => line),
    boxes(),
    arrows.map(([, pill]) => pill),
  );
}
