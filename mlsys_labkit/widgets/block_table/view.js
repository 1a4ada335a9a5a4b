import { h, KEYS, unique, frame, slider, button, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { player } from "../shared/player.js";
import { plain, si, whole } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { tables, cached, pool, counts } from "./model.js";

const PACE = 350; // milliseconds a step

const ownerAt = (/** @type {MouseEvent} */ event) => {
  const owned = /** @type {Element} */ (event.target).closest("[data-owner]");
  return Number(owned?.getAttribute("data-owner") ?? -1);
};

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "blocks",
    "Blocks of a paged cache, step by step",
    "Each square is a physical block. A request's table maps its tokens, in order, to blocks anywhere in the pool. " +
      "Drag the time.",
  );
  const get = (name) => model.get(name),
    size = get("size"),
    shown = get("blocks"),
    total = get("total"),
    names = get("names");
  const steps = get("steps"),
    final = steps.length - 1,
    stride = get("stride");
  const hatch = unique("lk-hatch");
  let hover = -1;
  const go = (at) => {
    put(model, { step: (at + steps.length) % steps.length }, draw);
  };

  const cursor = slider("Step", {
    min: 0,
    max: final,
    value: get("step"),
    show: (at) => `${at + 1} of ${steps.length}`,
    input: (at) => halt(at),
  });
  const play = player(el, PACE, () => go(get("step") + 1), draw);
  const halt = (at) => {
    play.pause();
    go(at);
  };
  ui.controls.append(
    cursor.el,
    button("Previous step", () => halt(get("step") - 1)),
    button("Next step", () => halt(get("step") + 1)),
    play.button,
  );
  // The blocks in use over the run, with the present time on it.
  const use = steps.map((_, at) => counts(pool(tables(steps, at), size), size)[0]);
  const strip = h("div", {}),
    END = 16,
    HIGH = 40;
  const along = (width, at) => END + (at / Math.max(1, final)) * (width - 2 * END);
  const time = handle("Time of the run", {
    range: () => [[0, final]],
    now: () => [get("step")],
    at: (x) => [((x - END) / Math.max(1, strip.clientWidth - 2 * END)) * final],
    move: (at) => halt(at),
    say: () => `${get("step") + 1} of ${steps.length}: ${use[get("step")]} of ${total} blocks in use`,
  });
  let stripe = "";
  function drawStrip(width) {
    const rise = (n) => HIGH - 8 - (n / Math.max(1, total)) * (HIGH - 16),
      top = Math.max(...use),
      said = `Blocks in use after each of the ${steps.length} steps of the run, at most ${top} of ${total}`;
    if (stripe !== String(width))
      fill(
        strip,
        picture(
          { width, height: HIGH, "aria-label": said },
          s("line", { class: "axis", x1: END, x2: width - END, y1: HIGH - 8, y2: HIGH - 8 }),
          s("path", {
            class: "lk-use",
            d: use.map((n, at) => `${at ? "L" : "M"}${along(width, at).toFixed(1)},${rise(n).toFixed(1)}`).join(""),
          }),
        ),
      );
    stripe = String(width);
    time.put(along(width, get("step")), HIGH - 14);
  }

  const hue = (owner) => `lk-o${get("hues")[owner]}`;
  const marked = (now) => {
    const want = hover >= 0 ? hover : get("request");
    return now.find(([owner]) => owner === want) || null;
  };
  const share = (part, whole) => (whole ? `${plain((100 * part) / whole)} %` : "none");

  function cell(block, x, y, side, entry, isCached, chosen) {
    const place = chosen ? chosen[2].indexOf(block) : -1,
      wide = side - 3,
      dim = chosen && place < 0 ? " dim" : "";
    const box = { x, y, width: wide, height: wide, rx: 2 };
    const number = side >= 30 ? s("text", { class: "lk-no", x: x + 4, y: y + 11 }, String(block)) : null;
    const middle = (text) =>
      text.length * 7.5 < wide &&
      s(
        "text",
        { class: "lk-who", x: x + wide / 2, y: y + wide / 2 + (number ? 9 : 4), "text-anchor": "middle" },
        text,
      );
    if (!entry)
      return s(
        "g",
        { class: `${isCached ? "lk-cached" : "lk-free"}${dim}` },
        s("rect", { ...box, class: "edge" }),
        number,
      );
    const [references, filled, owner] = entry,
      part = (wide * filled) / size;
    return s(
      "g",
      { class: `lk-used ${references > 1 ? "lk-shared" : hue(owner)}${dim}`, "data-owner": owner },
      s("rect", { ...box, class: "ground" }),
      s("rect", { ...box, width: part, class: "full" }),
      filled < size && s("rect", { x: x + part, y, width: wide - part, height: wide, fill: `url(#${hatch})` }),
      s("rect", { ...box, class: "edge" }),
      number,
      place >= 0 ? middle(`#${place}`) : middle(references > 1 ? `×${references}` : number ? names[owner] : ""),
    );
  }
  const legendItem = (name, kind, entry, isCached) =>
    h("li", {}, s("svg", { width: 18, height: 18, "aria-hidden": "true" }, kind(entry, isCached)), name);

  function paint(width) {
    const at = get("step"),
      now = tables(steps, at),
      used = pool(now, size),
      kept = new Set(cached(steps, at)),
      chosen = marked(now);
    const side = Math.max(15, Math.min(46, Math.floor(Math.sqrt((width * 300) / shown.length)))),
      across = Math.max(1, Math.floor(width / side));
    const height = Math.ceil(shown.length / across) * side + 2;
    const svg = picture(
      {
        width,
        height,
        "aria-label": `The pool of blocks. ${sentence(now, used, kept)}`,
        onpointerover: (/** @type {PointerEvent} */ event) => point(ownerAt(event)),
        onpointerleave: () => point(-1),
        onclick: (/** @type {MouseEvent} */ event) => pin(ownerAt(event)),
      },
      s(
        "defs",
        {},
        s(
          "pattern",
          { id: hatch, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          s("line", { class: "lk-hatch", x1: 0, x2: 0, y1: 0, y2: 5 }),
        ),
      ),
      shown.map((block, i) =>
        cell(
          block,
          (i % across) * side + 1,
          Math.floor(i / across) * side + 1,
          side,
          used[block],
          kept.has(block),
          chosen,
        ),
      ),
    );
    fill(plot, svg);
    drawStrip(width);
    const small = (entry, isCached) => cell(-1, 1, 1, 18, entry, isCached, null);
    legend.replaceChildren(
      legendItem("a request's", small, [1, size, now[0]?.[0] ?? 0]),
      legendItem("shared", small, [2, size, 0]),
      legendItem("slots unfilled", small, [1, size / 3, now[0]?.[0] ?? 0]),
      legendItem("cached, can be taken", small, null, true),
      legendItem("free", small, null),
    );
  }
  const point = (owner) => {
    if (owner !== hover) {
      hover = owner;
      view.draw();
      told();
    }
  };
  const pin = (owner) => {
    put(model, { request: owner === get("request") ? -1 : owner }, draw);
  };

  function sentence(now, used, kept) {
    const [inUse, shared, slots, empty] = counts(used, size),
      at = get("step");
    const events = get("events")[at],
      clock = `${get("clock") === "virtual" ? "virtual " : ""}time ${si(get("seconds")[at], "s")}`,
      when = get("seconds")[final] ? ` (${clock})` : ""; // no clock ran: nothing to say
    return (
      `After step ${at + 1} of ${steps.length}${when}, ${now.length} request` +
      `${now.length === 1 ? " holds" : "s hold"} ${inUse} of ${total} blocks, ${shared} of them ` +
      "shared; " +
      `${kept.size} more are cached, ${share(empty, slots)} of the slots in use are unfilled` +
      `${events.length ? `; ${events.join("; ")}` : ""}.`
    );
  }
  // The chips stay as long as the same requests run, so that the focus does too.
  let listed = "";
  function list(now) {
    const key = now.map(([owner]) => owner).join();
    if (key !== listed) {
      listed = key;
      chips.replaceChildren(
        ...now.map(([owner]) =>
          h(
            "li",
            {},
            button(names[owner], () => pin(owner), {
              class: `lk-chip ${hue(owner)}`,
              "data-chip": owner,
              onfocus: () => point(owner),
              onblur: () => point(-1),
              onpointerenter: () => point(owner),
              onpointerleave: () => point(-1),
            }),
          ),
        ),
      );
    }
    for (const chip of /** @type {NodeListOf<HTMLElement>} */ (chips.querySelectorAll("[data-chip]")))
      chip.setAttribute("aria-pressed", String(Number(chip.dataset.chip) === get("request")));
  }
  function told() {
    const now = tables(steps, get("step")),
      used = pool(now, size),
      chosen = marked(now);
    if (!chosen)
      return table.replaceChildren(
        h(
          "p",
          { class: "lk-note" },
          now.length
            ? "Point at a request, or move the focus to it, to see its table; press to keep it."
            : "No request holds a block after this step.",
        ),
      );
    const [owner, held, blocks] = chosen;
    const filled = (i) => Math.min(size, Math.max(0, held - i * size));
    /** @type {[string, (block: number, i: number) => string | number][]} */
    const lines = [
      ["logical block", (_, i) => `#${i}`],
      ["physical block", (block) => block],
      [`slots filled of ${size}`, (_, i) => filled(i)],
      ["tables that hold it", (block) => used[block][0]],
    ];
    const caption =
      `Block table of ${names[owner]}: ${held} tokens in ${blocks.length} block` + `${blocks.length === 1 ? "" : "s"}`;
    const rows = lines.map(([name, of]) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, name),
        blocks.map((block, i) => h("td", {}, String(of(block, i)))),
      ),
    );
    return table.replaceChildren(
      h(
        "div",
        { ...KEYS, class: "lk-scroll", tabindex: 0, role: "region", "aria-label": caption },
        h("table", { class: "lk-map" }, h("caption", {}, caption), h("tbody", {}, rows)),
      ),
    );
  }
  const facts = h("dl", { class: "lk-counts" });
  function report() {
    const at = get("step"),
      now = tables(steps, at),
      used = pool(now, size),
      [inUse, , slots, empty] = counts(used, size),
      kept = cached(steps, at).length;
    facts.replaceChildren(
      ...[
        ["in use", inUse],
        ["cached", kept],
        ["free", total - inUse - kept],
        ["unfilled slots", `${empty} of ${slots}`],
      ].map(([name, n]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(n)))),
    );
    list(now);
    play.draw();
    if (!play.plays()) ui.says.textContent = sentence(now, used, new Set(cached(steps, at)));
  }
  const plot = h("div", { class: "lk-plot" }),
    legend = h("ul", { class: "lk-legend", "aria-label": "What the squares mean" });
  const chips = h("ul", { class: "lk-legend lk-chips", "aria-label": "Requests that hold blocks" }),
    table = h("div", { class: "lk-table" });
  ui.stage.append(facts, legend, plot, held(strip, time));
  const notes = [
    total > shown.length && `${whole(total - shown.length)} blocks that the run never touched are left out.`,
    stride > 1 && `Every ${stride}th step of the run is shown; events in between are told with the step after them.`,
  ].filter(Boolean);
  ui.rest.append(
    h("p", { class: "lk-note" }, "Requests that hold blocks:"),
    chips,
    table,
    notes.length ? h("p", { class: "lk-note" }, notes.join(" ")) : "",
  );
  const view = fit(plot, paint);
  function draw() {
    cursor.put(get("step"));
    report();
    view.draw();
    told();
  }
  return follow(model, ["step", "request"], draw, play.pause, view.stop);
}
