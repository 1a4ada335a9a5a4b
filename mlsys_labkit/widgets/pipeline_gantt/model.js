// Twin of model.py. A step is [kind, micro-batch, chunk], a bar [rank, kind, label, start, end].
export const range = (n) => Array.from({ length: n }, (_, i) => i);
const AHEAD = {
  gpipe: (s, p, m) => m - 1,
  "1f1b": (s, p, m) => Math.min(m, p - s) - 1,
  interleaved: (s, p, m, v) => Math.min(m * v - 1, v > 1 ? 2 * (p - 1 - s) + (v - 1) * p : p - 1 - s),
  zero_bubble: (s, p, m) => Math.min(m, p - s) - 1,
};
// In the order of a stage: p micro-batches through one chunk, then through the next.
function turns(p, m, v) {
  const group = v > 1 ? p : m,
    all = range(m).flatMap((i) => range(v).map((c) => [i, c]));
  return all.sort((a, b) => Math.floor(a[0] / group) - Math.floor(b[0] / group) || a[1] - b[1] || a[0] - b[0]);
}
export function steps(name, p, m, v) {
  const order = turns(p, m, v);
  return range(p).map((s) => {
    const ahead = AHEAD[name](s, p, m, v),
      places = order.flatMap(([i, c], at) => [
        [at, 0, ["F", i, c]],
        [at + ahead, 1, ["B", i, v - 1 - c]],
        ...(name === "zero_bubble" ? [[at + ahead + s, 2, ["W", i, c]]] : []),
      ]);
    return places.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , step]) => step);
  });
}
// Each stage runs its next step as soon as what it needs is there; round and round until nothing is left.
export function bars(name, p, m, v, forward, backward) {
  const rows = steps(name, p, m, v),
    split = name === "zero_bubble",
    last = p * v - 1,
    ends = new Map(),
    at = rows.map(() => 0),
    free = rows.map(() => 0),
    drawn = rows.map(() => /** @type {any[]} */ ([]));
  const took = { F: forward / v, B: (split ? backward / 2 : backward) / v, W: backward / 2 / v };
  for (let left = rows.flat().length; left;) {
    for (let s = 0; s < p; s += 1) {
      for (; at[s] < rows[s].length; at[s] += 1) {
        const [kind, i, c] = rows[s][at[s]],
          place = c * p + s,
          other = kind === "F" ? place - 1 : place + 1;
        const needs = kind !== "W" && other >= 0 && other <= last ? ends.get(`${kind}${i} ${other}`) : 0;
        if (needs === undefined) break;
        const start = Math.max(free[s], needs);
        free[s] = start + took[kind];
        ends.set(`${kind}${i} ${place}`, free[s]);
        drawn[s].push([s, kind, c ? `${i}.${c}` : `${i}`, start, free[s]]);
        left -= 1;
      }
    }
  }
  return drawn.flat();
}
export function bubble(name, p, m, v, forward, backward) {
  // For zero bubble, F + B - 2W, where W is half of B.
  const slot = name === "zero_bubble" ? forward : (forward + backward) / (name === "interleaved" ? v : 1);
  return ((p - 1) * slot) / (m * (forward + backward) + (p - 1) * slot);
}
export function idle(drawn, p, length) {
  return 1 - drawn.reduce((sum, bar) => sum + bar[4] - bar[3], 0) / (p * length);
}
export function live(drawn, rank) {
  const last = drawn.some((bar) => bar[1] === "W") ? "W" : "B",
    mine = drawn.filter((bar) => bar[0] === rank && (bar[1] === "F" || bar[1] === last));
  let held = 0;
  return mine
    .map((bar) => (bar[1] === "F" ? [bar[3], 1] : [bar[4], -1]))
    .sort((a, b) => a[0] - b[0] || a[1] - b[1])
    .map(([time, change]) => [time, (held += change)]);
}
