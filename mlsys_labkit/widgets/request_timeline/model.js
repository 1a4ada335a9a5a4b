// Twin of model.py. A row is [name, arrival, first, last, tokens, reason].
const ROUNDING = 1e-9;
export const ttft = (row) => (row[2] === null ? null : row[2] - row[1]);
export const tpot = (row) => (row[4] < 2 ? null : (row[3] - row[2]) / (row[4] - 1));
export function missed(row, mostTtft, mostTpot) {
  const first = ttft(row);
  if (first === null || !["stop", "length"].includes(row[5])) return "not served";
  const late = first > mostTtft * (1 + ROUNDING),
    slow = (tpot(row) || 0) > mostTpot * (1 + ROUNDING);
  return late && slow ? "both" : late ? "TTFT" : slow ? "TPOT" : "";
}
export function goodput(rows, mostTtft, mostTpot, seconds) {
  const met = rows.filter((row) => !missed(row, mostTtft, mostTpot)).length;
  return [met, seconds ? met / seconds : 0];
}
export function span(rows, first, count, end) {
  const shown = rows.slice(first, first + count);
  const start = shown.length ? Math.min(...shown.map((row) => row[1])) : 0;
  return [start, Math.max(start, ...shown.map((row) => (row[3] === null || !row[5] ? end : row[3])))];
}
export function ticks(low, high, most) {
  if (high <= low) return [];
  const power = Math.floor(Math.log10((high - low) / most));
  const sizes = [1, 2, 5, 10, 20].map((size) => (power >= 0 ? size * 10 ** power : size / 10 ** -power));
  const step = sizes.find((size) => (high - low) / size <= most) ?? sizes[4];
  const found = [];
  for (let count = Math.ceil(low / step); count <= Math.floor(high / step) && found.length < most; count += 1)
    found.push(count * step);
  return found;
}
