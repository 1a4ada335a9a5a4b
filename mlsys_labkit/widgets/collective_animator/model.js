// Twin of model.py. A message is [source, destination, chunks, adds]; what is held of a chunk, a bit mask of ranks.
export const range = (n) => Array.from({ length: n }, (_, i) => i);
const log2 = (p) => {
  let bits = 0;
  while (1 << bits < p) bits += 1;
  return bits;
};
const WAYS = {
  all_reduce: ["ring", "doubling", "direct", "tree", "star"],
  reduce_scatter: ["ring", "doubling", "direct"],
  all_gather: ["ring", "doubling", "direct"],
  broadcast: ["tree", "ring", "direct"],
  reduce: ["tree", "ring", "direct"],
  all_to_all: ["direct"],
};
export const ways = (collective) => WAYS[collective];

const backwards = (rounds) =>
  rounds.map((step) => step.map(([from, to, chunks]) => [to, from, chunks, true])).reverse();
function cast(way, p) {
  if (way === "tree")
    return range(log2(p)).map((k) =>
      range(1 << k)
        .filter((r) => r + (1 << k) < p)
        .map((r) => [r, r + (1 << k), [0], false]),
    );
  if (way === "direct") return range(p - 1).map((r) => [[0, r + 1, [0], false]]);
  return range(2 * p - 2).map((k) =>
    range(p - 1)
      .filter((r) => k - r >= 0 && k - r < p)
      .map((r) => [r, r + 1, [k - r], false]),
  );
}
const around = (p, behind, adds) =>
  range(p - 1).map((k) => range(p).map((r) => [r, (r + 1) % p, [(r - k - behind + p) % p], adds]));
function collect(way, p) {
  if (way === "ring") return around(p, 0, false);
  if (way === "direct") return range(p - 1).map((k) => range(p).map((r) => [r, (r + k + 1) % p, [r], false]));
  return range(log2(p)).map((k) =>
    range(p).map((r) => [
      r,
      (r - (1 << k) + p) % p,
      range(Math.min(1 << k, p - (1 << k))).map((j) => (r + j) % p),
      false,
    ]),
  );
}
const exchange = (p) =>
  range(p - 1).map((k) => range(p).map((r) => [r, (r + k + 1) % p, [p * r + ((r + k + 1) % p)], false]));
export function rounds(collective, way, p) {
  if (collective === "all_to_all") return exchange(p);
  if (collective === "broadcast") return cast(way, p);
  if (collective === "reduce") return backwards(cast(way, p));
  if (collective === "all_gather") return collect(way, p);
  if (collective === "reduce_scatter") return way === "ring" ? around(p, 1, true) : backwards(collect(way, p));
  return HALVES(way).flatMap(([name, by]) => rounds(name, by, p));
}

const uncut = (collective, way) =>
  way === "tree" || way === "star" || (way === "direct" && ["broadcast", "reduce"].includes(collective));
export const pieces = (collective, way, p) => (uncut(collective, way) ? 1 : collective === "all_to_all" ? p * p : p);
const atFirst = (collective, r, c, p) =>
  (({ broadcast: r === 0, all_gather: r === c, all_to_all: r === Math.floor(c / p) })[collective] ?? true) << r;
export function held(collective, way, p, step) {
  const has = range(p).map((r) => range(pieces(collective, way, p)).map((c) => atFirst(collective, r, c, p)));
  for (const messages of rounds(collective, way, p).slice(0, step)) {
    const carried = messages.map(([from, to, chunks, adds]) => [to, chunks.map((c) => [c, has[from][c], adds])]);
    carried.forEach(([to, parts]) =>
      parts.forEach(([c, mask, adds]) => {
        has[to][c] = mask | (adds ? has[to][c] : 0);
      }),
    );
  }
  return has;
}
export function sent(collective, way, p, step) {
  const counts = range(p).map(() => [0, 0]),
    each = uncut(collective, way) ? p : 1;
  rounds(collective, way, p)
    .slice(0, step)
    .flat()
    .forEach(([from, , chunks]) => {
      counts[from][0] += 1;
      counts[from][1] += each * chunks.length;
    });
  return counts;
}

// Formulas, not counts: what a rank sends in all (messages, p-ths of the tensor), and what follows on the busiest port.
const HALVES = (way) =>
  way === "tree" || way === "star"
    ? ["reduce", "broadcast"].map((name) => [name, way === "star" ? "direct" : way])
    : ["reduce_scatter", "all_gather"].map((name) => [name, way]);
const bits = (n) => log2(n + 1);
function one(collective, way, r, p) {
  if (collective === "all_reduce")
    return HALVES(way)
      .map(([name, by]) => one(name, by, r, p))
      .reduce((a, b) => [a[0] + b[0], a[1] + b[1]]);
  if (collective === "broadcast") {
    const n = way === "tree" ? Math.max(0, bits(p - 1 - r) - bits(r)) : way === "direct" ? (r ? 0 : p - 1) : 0;
    return way === "ring" ? (r < p - 1 ? [p, p] : [0, 0]) : [n, n * p];
  }
  if (collective === "reduce") return r ? [way === "ring" ? p : 1, p] : [0, 0];
  return [way === "doubling" ? log2(p) : p - 1, p - 1];
}
export const traffic = (collective, way, p) => range(p).map((r) => one(collective, way, r, p));
function busiest(collective, way, p) {
  if (collective === "all_reduce")
    return HALVES(way)
      .map(([name, by]) => busiest(name, by, p))
      .reduce((a, b) => [a[0] + b[0], a[1] + b[1]]);
  const part = (p - 1) / p,
    root = collective === "broadcast" || collective === "reduce";
  if (way === "tree") return [log2(p), log2(p)];
  if (way === "doubling") return [log2(p), part];
  if (root) return way === "ring" ? [2 * (p - 1), 2 * part] : [p - 1, p - 1];
  return [p - 1, part];
}
export function seconds(collective, way, p, size, latency, bandwidth) {
  const [messages, tensors] = busiest(collective, way, p);
  return messages * latency + (tensors * size) / bandwidth;
}
