// Twin of model.py. A count is [line, space, op, bytes per lane, requests, lanes, sectors, wavefronts, ideal sectors,
// ideal wavefronts, worst].
export const FIELD = {
  line: 0,
  space: 1,
  op: 2,
  size: 3,
  requests: 4,
  lanes: 5,
  sectors: 6,
  wavefronts: 7,
  idealSectors: 8,
  idealWavefronts: 9,
  worst: 10,
};
const PER_REQUEST = { sectors: ["global", 6, 8], wavefronts: ["shared", 7, 9] };
export function heat(counts, steps, metric) {
  if (metric === "steps") return steps.map(([line, value]) => [line, value, value, 1]).sort((a, b) => a[0] - b[0]);
  const [space, top, low] = PER_REQUEST[metric] || [null, 4, 4],
    sums = new Map();
  for (const count of counts) {
    if ((space && count[1] !== space) || !count[4]) continue;
    const [requests, value, floor] = sums.get(count[0]) || [0, 0, 0];
    sums.set(count[0], [requests + count[4], value + count[top], floor + count[low]]);
  }
  return [...sums]
    .sort((a, b) => a[0] - b[0])
    .map(([line, [requests, value, floor]]) => {
      const times = space ? requests : 1;
      return [line, value / times, floor / times, times];
    });
}
export function hottest(rows) {
  const key = ([line, value, floor, times]) => [(value - floor) * times, value * times, -line];
  const above = (a, b) => {
    const at = key(a).findIndex((value, i) => value !== key(b)[i]);
    return at >= 0 && key(a)[at] > key(b)[at];
  };
  return rows.length ? rows.reduce((best, row) => (above(row, best) ? row : best))[0] : null;
}
export function excess(count) {
  const [top, low] = count[1] === "global" ? [6, 8] : [7, 9];
  return count[low] ? count[top] / count[low] : 1;
}
