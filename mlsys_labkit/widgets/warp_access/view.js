import { h, frame, slider, choice, button, grid, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { plain } from "../shared/numbers.js";
import { fill, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import {
  sectors,
  distinctBytes,
  idealSectors,
  efficiency,
  phaseLanes,
  bankDepths,
  sameAddress,
  wavefronts,
  places,
} from "./model.js";

const RECORDED = "recorded",
  ROW = 128,
  MOST_ROWS = 14,
  LAST = 31;

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "warp",
    "One request of a warp",
    "A warp asks for memory once for all its lanes. Global memory answers in sectors of 32 " +
      "bytes, shared memory one word a bank at a time. Drag the lane.",
  );
  const presets = model.get("presets"),
    sites = model.get("sites"),
    samples = model.get("samples");
  const get = (name) => model.get(name);
  const set = (values) => {
    put(model, values, draw);
  };
  const mine = () => samples.filter((sample) => sample[0] === get("site"));
  const recorded = () => get("pattern") === RECORDED;

  const names = [sites.length ? [RECORDED, "recorded by the profile"] : null, ...presets].filter(Boolean);
  const pattern = choice(
    "Pattern",
    names.map(([key, text]) => [key, text]),
    get("pattern"),
    (key) => {
      const [, , formula, size, space, k] = presets.find((one) => one[0] === key) || [];
      set(formula ? { pattern: key, formula, size, space, k, request: 0 } : { pattern: key, request: 0 });
    },
  );
  const site = choice(
    "Access",
    sites.map((one, i) => [
      String(i),
      `line ${one.line}: ${one.space} ${one.op}${one.array && ` of ${one.array}`}, ${one.size} B`,
    ]),
    String(get("site")),
    (v) => set({ site: Number(v), request: 0 }),
  );
  const formula = h("input", {
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    class: "mono",
    value: get("formula"),
  });
  formula.addEventListener("change", () => {
    try {
      places(formula.value, { i: get("request"), k: get("k") });
      set({ formula: formula.value });
    } catch (error) {
      formula.setAttribute("aria-invalid", "true");
      const { message } = /** @type {Error} */ (error);
      ui.says.textContent = `Formula: ${message}. Write a C expression over lane, i and k.`;
    }
  });
  const typed = h("label", { class: "lk-field" }, h("span", {}, "Element of each lane"), formula);
  const stride = slider("k", { min: 0, max: 64, value: get("k"), input: (k) => set({ k }) });
  const size = choice(
    "Bytes a lane",
    [1, 2, 4, 8, 16].map((n) => [String(n), String(n)]),
    String(get("size")),
    (v) => set({ size: Number(v) }),
  );
  const space = choice(
    "Memory",
    [
      ["global", "global: sectors"],
      ["shared", "shared: banks"],
    ],
    get("space"),
    (v) => set({ space: v }),
  );
  const request = slider("Request", {
    min: 0,
    max: LAST,
    value: get("request"),
    show: (at) => (recorded() ? `${at + 1} of ${mine().length}` : `i = ${at}`),
    input: (at) => set({ request: at }),
  });
  const lane = slider("Lane", { min: 0, max: 31, value: get("lane"), input: (at) => set({ lane: at }) });
  const last = () => (recorded() ? mine().length - 1 : LAST);
  const step = (by) => set({ request: Math.min(last(), Math.max(0, get("request") + by)) });
  [pattern, site].forEach((field) => field.el.classList.add("lk-two"));
  ui.controls.append(pattern.el, site.el, stride.el, request.el);
  ui.more.append(
    typed,
    size.el,
    space.el,
    lane.el,
    button("Previous request", () => step(-1)),
    button("Next request", () => step(1)),
  );

  function shown() {
    if (!recorded()) {
      try {
        return {
          lanes: places(get("formula"), { i: get("request"), k: get("k") }).map((at) => at * get("size")),
          size: get("size"),
          space: get("space"),
          atomic: false,
          loads: true,
          where: "",
        };
      } catch (error) {
        return {
          lanes: Array(32).fill(null),
          size: get("size"),
          space: get("space"),
          atomic: false,
          loads: true,
          where: `Formula: ${/** @type {Error} */ (error).message}. `,
        };
      }
    }
    const one = sites[get("site")],
      [, where, lanes] = mine()[Math.min(get("request"), last())];
    return {
      lanes,
      size: one.size,
      space: one.space,
      atomic: one.op === "atomic",
      loads: one.op === "load",
      where: `Line ${one.line}, ${where}: `,
    };
  }

  function paint(width) {
    const { lanes, size: bytes, space: kind, atomic, loads, where } = shown(),
      global = kind === "global",
      chosen = get("lane");
    const words = new Map();
    lanes.forEach((at, i) => {
      if (at === null) return;
      for (let w = Math.floor(at / 4); w <= Math.floor((at + bytes - 1) / 4); w += 1)
        words.set(w, [...(words.get(w) || []), i]);
    });
    const found = sectors(lanes, bytes),
      lines = [...new Set([...words.keys()].map((w) => Math.floor(w / 32)))].sort((a, b) => a - b);
    const drawn = lines.slice(0, MOST_ROWS),
      left = width < 520 ? 46 : 62,
      cell = (width - left - 2) / 32,
      high = drawn.length > 12 ? 16 : 22;
    const head = 74,
      text = cell >= 17,
      waves = wavefronts(lanes, bytes, atomic, loads),
      together = phaseLanes(lanes, bytes, loads),
      group = Math.floor(chosen / together),
      depth = bankDepths(lanes, bytes, group, loads);
    const X = (i) => left + i * cell,
      Y = (i) => head + i * high,
      many = lines.length - drawn.length,
      foot = Y(drawn.length) + (many ? 24 : 8),
      height = foot + (global ? 4 : 62);
    const at = lanes[chosen],
      word = at === null ? null : Math.floor(at / 4);
    const inPhase = (lane) => global || Math.floor(lane / together) === group;

    /** @type {import("../shared/redraw.js").Sketch[]} */
    const top = [s("text", { class: "soft", x: 0, y: 14 }, "lane")];
    for (let i = 0; i < 32; i += 1) {
      top.push(
        s(
          "g",
          {
            class: `lk-lane${lanes[i] === null ? " off" : ""}${inPhase(i) ? "" : " dim"}${i === chosen ? " on" : ""}`,
            onclick: () => set({ lane: i }),
          },
          s("rect", { x: X(i) + 0.5, y: 1, width: cell - 1, height: 18, rx: 2 }),
          text ? s("text", { x: X(i) + cell / 2, y: 14, "text-anchor": "middle" }, String(i)) : null,
        ),
      );
    }
    const column = [];
    for (let i = 0; i < 32; i += global ? 8 : text ? 1 : 4) {
      column.push(
        s(
          "text",
          { class: "soft small", x: global ? X(i) + 4 * cell : X(i) + cell / 2, y: head - 6, "text-anchor": "middle" },
          global ? (width < 520 ? `+${4 * i}` : `sector +${4 * i} B`) : String(i),
        ),
      );
    }
    if (!global) column.push(s("text", { class: "soft small", x: 0, y: head - 6 }, "bank"));
    const map = drawn.flatMap((line, row) => [
      s("text", { class: "soft small", x: left - 6, y: Y(row) + high / 2 + 4, "text-anchor": "end" }, `${line * ROW}`),
      row && line !== drawn[row - 1] + 1
        ? s("line", { class: "gap", x1: 4, x2: left - 4, y1: Y(row), y2: Y(row) })
        : null,
      ...Array.from({ length: 4 }, (_, part) =>
        s("rect", {
          class: `lk-sector${global && found.includes(line * 4 + part) ? " hit" : ""}`,
          x: X(part * 8) + 1,
          y: Y(row) + 1,
          width: 8 * cell - 2,
          height: high - 2,
          rx: 2,
        }),
      ),
      ...Array.from({ length: 32 }, (_, i) => {
        const own = words.get(line * 32 + i);
        if (!own) return null;
        const here = own.filter(inPhase),
          clash = !global && here.length && depth[i] > 1,
          shared = own.length > 1 && bytes >= 4;
        return s(
          "g",
          {
            class: `lk-word${clash ? " clash" : ""}${here.length ? "" : " dim"}${own.includes(chosen) ? " on" : ""}`,
            onclick: () => set({ lane: own[0] }),
          },
          s("rect", { x: X(i) + 1.5, y: Y(row) + 2.5, width: cell - 3, height: high - 5, rx: 1.5 }),
          text
            ? s(
                "text",
                { x: X(i) + cell / 2, y: Y(row) + high / 2 + 4, "text-anchor": "middle" },
                shared ? `×${own.length}` : String(own[0]),
              )
            : null,
        );
      }),
    ]);
    const row = word === null ? -1 : drawn.indexOf(Math.floor(word / 32));
    const link =
      word === null || row < 0
        ? null
        : s("path", {
            class: "lk-link",
            d: `M${X(chosen) + cell / 2},48 L${X(((word % 32) + 32) % 32) + cell / 2},${Y(row) + 2}`,
          });
    const most = Math.max(...depth),
      bars = global
        ? []
        : [
            s("text", { class: "soft small", x: 0, y: foot + 30 }, "words"),
            s("text", { class: "soft small", x: 0, y: foot + 43 }, "a bank"),
            ...depth.map((n, i) =>
              n
                ? s(
                    "g",
                    { class: `lk-depth${n > 1 ? " clash" : ""}` },
                    s("rect", {
                      x: X(i) + 1,
                      width: cell - 2,
                      y: foot + 40 - (30 * n) / Math.max(4, most),
                      height: (30 * n) / Math.max(4, most),
                    }),
                    text || n === most
                      ? s(
                          "text",
                          { class: "small", x: X(i) + cell / 2, y: foot + 54, "text-anchor": "middle" },
                          String(n),
                        )
                      : null,
                  )
                : null,
            ),
          ];
    detail.textContent = about(chosen, at, bytes, global, group, waves);
    const said = where + tell(lanes, bytes, global, found, waves, atomic, loads);
    const below =
      many && s("text", { class: "soft small", x: left, y: Y(drawn.length) + 14 }, `and ${many} more rows of 128 B`);
    fill(plot, picture({ width, height, "aria-label": said }, top, column, map, below, link, bars));
    row0 = [left, cell];
    arm.put(X(chosen) + cell / 2, 34);
    more.textContent =
      `${many ? `${many} more rows of 128 B are not drawn. ` : ""}A row is 128 bytes from the byte ` +
      "on its left" +
      (text ? "; a number names the lane that asks for the word, ×2 that two lanes do" : "") +
      `${global ? "; framed sectors are fetched whole" : ""}.`;
    ui.says.textContent = said;
    ui.numbers(() => report(lanes, bytes, global, found, waves, atomic));
  }

  function tell(lanes, bytes, global, found, waves, atomic, loads) {
    const active = lanes.filter((at) => at !== null).length;
    if (!active) return "No lane is active.";
    const turns = atomic && sameAddress(lanes) > 1 ? `; ${sameAddress(lanes)} atomics on one address take turns` : "";
    const who = `${active} ${active === 1 ? "lane asks" : "lanes ask"} for ${bytes} B each: `;
    if (global) {
      const least = idealSectors(lanes, bytes),
        fine = found.length === least;
      return (
        `${who}${distinctBytes(lanes, bytes)} distinct bytes in ${found.length} sector` +
        `${found.length > 1 ? "s" : ""}, ` +
        `${fine ? "as few as there can be" : `where ${least} would do`}; ` +
        `${plain(100 * efficiency(lanes, bytes))} % of the ${32 * found.length} B fetched were asked ` +
        `for${turns}.`
      );
    }
    const total = waves.reduce((a, b) => a + b, 0),
      least = waves.filter(Boolean).length,
      conflict = Math.max(...waves.map((_, which) => Math.max(...bankDepths(lanes, bytes, which, loads))));
    return (
      `${who}${total} wavefront${total > 1 ? "s" : ""}` +
      (least > 1 ? ` in ${least} phases of ${phaseLanes(lanes, bytes, loads)} lanes` : "") +
      "; " +
      (conflict > 1
        ? `a ${conflict}-way bank conflict: ${conflict} different words in one bank`
        : "no bank conflict: no bank is asked for two different words at once") +
      `${turns}.`
    );
  }
  function about(chosen, at, bytes, global, group, waves) {
    if (at === null) return `Lane ${chosen} is inactive.`;
    const bank = ((Math.floor(at / 4) % 32) + 32) % 32;
    return global
      ? `Lane ${chosen}: byte ${at}, sector ${Math.floor(at / 32)} (bytes ${32 * Math.floor(at / 32)} ` +
          `to ${32 * Math.floor(at / 32) + 31}).`
      : `Lane ${chosen}: byte ${at}, word ${Math.floor(at / 4)}, bank ${bank}` +
          (bytes > 4
            ? ` to ${(bank + bytes / 4 - 1) % 32}; phase ${group + 1} of ${waves.length} (the others are dimmed)`
            : "") +
          ".";
  }
  function report(lanes, bytes, global, found, waves, atomic) {
    const total = waves.reduce((a, b) => a + b, 0);
    fill(
      facts,
      grid(
        "This request in numbers",
        ["what", "here", "at best"],
        (global
          ? [
              ["sectors of 32 B", String(found.length), String(idealSectors(lanes, bytes))],
              ["bytes fetched", String(32 * found.length), String(32 * idealSectors(lanes, bytes))],
              ["bytes asked for (distinct)", String(distinctBytes(lanes, bytes)), ""],
            ]
          : [
              ["wavefronts", String(total), String(waves.filter(Boolean).length)],
              ["most in one phase", String(Math.max(...waves)), "1"],
            ]
        ).concat(atomic ? [["lanes on one address", String(sameAddress(lanes)), "1"]] : []),
      ),
    );
  }

  let row0 = [0, 1];
  const arm = handle("Chosen thread of the warp", {
    range: () => [[0, LAST]],
    now: () => [get("lane")],
    at: (x) => [(x - row0[0]) / row0[1] - 0.5],
    move: (lane) => set({ lane }),
    say: () => detail.textContent,
  });
  const plot = h("div", {}),
    detail = h("p", { class: "lk-detail mono" }),
    more = h("p", { class: "lk-note" }),
    facts = h("div", { class: "lk-scroll" });
  ui.stage.append(detail, held(plot, arm));
  ui.rest.append(facts, more);
  const view = fit(plot, paint);
  function draw() {
    const own = recorded();
    site.el.hidden = !own;
    [typed, size.el, space.el].forEach((field) => {
      field.hidden = own;
    });
    stride.el.hidden = own || !/\bk\b/.test(get("formula"));
    pattern.select.value = get("pattern");
    site.select.value = String(get("site"));
    formula.value = get("formula");
    formula.removeAttribute("aria-invalid");
    size.select.value = String(get("size"));
    space.select.value = get("space");
    stride.put(get("k"));
    request.range.max = String(last());
    request.put(Math.min(get("request"), last()));
    lane.put(get("lane"));
    view.draw();
  }
  return follow(model, ["pattern", "site", "formula", "k", "size", "space", "request", "lane"], draw, view.stop);
}
