import { h, frame, slider, ladder, choice, button, grid, picture, fit } from "../shared/dom.js";
import { handle, held } from "../shared/handle.js";
import { player } from "../shared/player.js";
import { si } from "../shared/numbers.js";
import { fill, make, s } from "../shared/redraw.js";
import { follow, put } from "../shared/state.js";
import { range, ways, rounds, sent, traffic } from "./model.js";
import { ringPicture } from "./ring_picture.js";
import { holding, roundOf, sentence } from "./round.js";
import { timeCurves } from "./time_curves.js";

const PACE = 1100,
  MOST = 8; // milliseconds a round
const NAMES = {
  all_reduce: "all-reduce",
  reduce_scatter: "reduce-scatter",
  all_gather: "all-gather",
  broadcast: "broadcast",
  reduce: "reduce",
  all_to_all: "all-to-all",
};
const CLUSTERS = range(10).map((k) => 2 << k);
const SIZES = range(15).map((k) => 1e3 * 10 ** (k / 2)),
  LATENCIES = [1, 2, 5, 10, 20, 50, 100].map((us) => us / 1e6),
  BANDS = [1, 10, 25, 50, 100, 200, 450].map((gb) => gb * 1e9);
const NUMBERS = ["size", "cluster", "latency", "bandwidth"];

/** @param {import("../shared/state.js").View} view */
export function render({ model, el }) {
  const ui = frame(
    el,
    "collective",
    "A collective, round by round",
    "A box is a rank's tensor, a row one of its chunks; a coloured slot says that this rank's " +
      "contribution is in it. A round: one message out, one in. Drag the time.",
  );
  const get = (name) => model.get(name),
    kind = () => get("collective"),
    by = () => get("algorithm");
  const count = () => rounds(kind(), by(), get("ranks")).length;
  let moved = false;
  const set = (values) => {
    const next = { collective: kind(), algorithm: by(), ranks: get("ranks"), step: get("step"), ...values };
    if (!ways(next.collective).includes(next.algorithm)) [next.algorithm] = ways(next.collective);
    next.step = Math.max(0, Math.min(next.step, rounds(next.collective, next.algorithm, next.ranks).length));
    moved = next.step === get("step") + 1;
    put(model, { ...values, ...next }, draw);
  };
  const jump = (values) => {
    play.pause();
    set({ step: 0, ...values });
  };
  const which = choice("Collective", Object.entries(NAMES), kind(), (v) => jump({ collective: v }));
  const way = choice("Algorithm", [], by(), (v) => jump({ algorithm: v }));
  const ranks = slider("Ranks", { min: 2, max: MOST, value: get("ranks"), input: (v) => jump({ ranks: v }) });
  const step = slider("Round", {
    min: 0,
    max: 1,
    value: 0,
    show: (k) => `${k} of ${count()}`,
    input: (k) => jump({ step: k }),
  });
  const next = () => set({ step: get("step") < count() ? get("step") + 1 : 0 });
  const play = player(el, PACE, next, () => (play.plays() ? next() : draw()));
  ui.controls.append(which.el, way.el, ranks.el, play.button);
  ui.more.append(
    step.el,
    button("Previous round", () => jump({ step: get("step") - 1 })),
    button("Next round", () => jump({ step: get("step") + 1 })),
  );
  const track = h("div", {}),
    END = 16;
  const along = (width, at) => END + (at / Math.max(1, count())) * (width - 2 * END);
  const time = handle("Time in messages", {
    range: () => [[0, count()]],
    now: () => [get("step")],
    at: (x) => [((x - END) / Math.max(1, track.clientWidth - 2 * END)) * count()],
    move: (step) => jump({ step }),
    say: () => `after ${get("step")} of ${count()} rounds: ${sentence(round())}`,
  });
  function drawTrack(width) {
    const text = `Time: ${count()} rounds`;
    fill(
      track,
      picture(
        { width, height: 30, "aria-label": `${text}, and the present one, ${get("step")}` },
        s("line", { class: "axis", x1: END, x2: width - END, y1: 15, y2: 15 }),
        range(count() + 1).map((at) =>
          s("line", { class: "axis", x1: along(width, at), x2: along(width, at), y1: 10, y2: 20 }),
        ),
      ),
    );
    time.put(along(width, get("step")), 15);
  }

  const round = () => roundOf(kind(), by(), get("ranks"), get("step"));
  function paint(width) {
    const here = round();
    plot.replaceChildren(make(ringPicture(here, width, moved)));
    moved = false;
    drawTrack(width);
    play.draw();
    if (!play.plays()) ui.says.textContent = sentence(here);
  }
  function report() {
    const p = get("ranks"),
      size = get("size"),
      now = sent(kind(), by(), p, get("step")),
      theory = traffic(kind(), by(), p);
    const bytes = (parts) => si((parts * size) / p, "B");
    fill(
      facts,
      grid(
        `Sent so far, of what theory says, for a tensor of ${si(size, "B")}`,
        ["rank", "messages", "bytes"],
        range(p).map((r) => [
          String(r),
          `${now[r][0]} of ${theory[r][0]}`,
          `${bytes(now[r][1])} of ${bytes(theory[r][1])}`,
        ]),
      ),
    );
    const here = round();
    holds.replaceChildren(...range(p).map((r) => h("li", {}, holding(here, r))));
  }

  const near = (list, value) => [...new Set([...list, value])].sort((a, b) => a - b);
  const ladderOf = (title, list, name, unit) =>
    ladder(
      title,
      near(list, get(name)),
      get(name),
      (v) => (unit ? si(v, unit) : String(v)),
      (v) => set({ [name]: v }),
    );
  const estimate = [
    ladderOf("Tensor", SIZES, "size", "B"),
    ladderOf("Ranks of the cluster", CLUSTERS, "cluster", ""),
    ladderOf("Latency of a message", LATENCIES, "latency", "s"),
    ladderOf("Bandwidth of a port", BANDS, "bandwidth", "B/s"),
  ];
  function curves(width) {
    const state = {
      collective: kind(),
      algorithm: by(),
      cluster: get("cluster"),
      latency: get("latency"),
      bandwidth: get("bandwidth"),
      size: get("size"),
    };
    const { svg, text } = timeCurves(state, width);
    fill(chart, svg);
    verdict.textContent = text;
  }

  const plot = h("div", {}),
    facts = h("div", {}),
    holds = h("ul", {}),
    chart = h("div", {}),
    verdict = h("p", { class: "lk-says" });
  ui.stage.append(plot, held(track, time));
  ui.rest.append(
    facts,
    h("details", {}, h("summary", {}, "What each rank holds, in words"), holds),
    h("h4", {}, "How long it takes on a cluster"),
    h(
      "div",
      { class: "lk-controls" },
      estimate.map((field) => field.el),
    ),
    chart,
    verdict,
    h(
      "p",
      { class: "lk-note" },
      "Estimated, not measured: latency + bytes / bandwidth a message, one port a rank each way, " +
        "adding for free. Libraries also overlap steps, and go by the wiring: a ring needs " +
        "neighbours only.",
    ),
  );
  // A round changes the picture alone, a size or a bandwidth the curves alone.
  const fresh = (names, paint) => {
    let last = "";
    return (width) => {
      const key = [width, play.plays(), ...names.map(get)].join();
      if (key !== last) {
        last = key;
        paint(width);
      }
    };
  };
  const views = [
    fit(plot, fresh(["collective", "algorithm", "ranks", "step"], paint)),
    fit(chart, fresh(["collective", "algorithm", ...NUMBERS], curves)),
  ];
  function draw() {
    way.select.replaceChildren(
      ...ways(kind()).map((name) => h("option", { value: name, selected: name === by() }, name)),
    );
    way.select.value = by();
    which.select.value = kind();
    ranks.put(get("ranks"));
    step.range.max = count();
    step.put(get("step"));
    NUMBERS.forEach((name, i) => estimate[i].put(get(name)));
    views.forEach((view) => view.draw());
    report();
  }
  const names = ["collective", "algorithm", "ranks", "step", ...NUMBERS];
  return follow(model, names, draw, play.pause, ...views.map((view) => view.stop));
}
