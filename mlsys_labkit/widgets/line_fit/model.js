// Twin of model.py.
const mean = (list) => list.reduce((sum, v) => sum + v, 0) / list.length;
export const error = (x, y, slope, intercept) => mean(x.map((a, i) => (slope * a + intercept - y[i]) ** 2));
export function gradient(x, y, slope, intercept) {
  const misses = x.map((a, i) => slope * a + intercept - y[i]);
  return [2 * mean(misses.map((m, i) => m * x[i])), 2 * mean(misses)];
}
export function best(x, y) {
  const mx = mean(x),
    my = mean(y);
  const slope = mean(x.map((a, i) => (a - mx) * (y[i] - my))) / mean(x.map((a) => (a - mx) ** 2));
  return [slope, my - slope * mx];
}
export function level(x, y, above, points = 48) {
  const mx = mean(x),
    spread = Math.sqrt(mean(x.map((a) => (a - mx) ** 2))),
    [slope, intercept] = best(x, y);
  return Array.from({ length: points }, (_, i) => {
    const turn = (2 * Math.PI * i) / points,
      u = Math.sqrt(above) * Math.cos(turn),
      v = Math.sqrt(above) * Math.sin(turn);
    return [slope + u / spread, intercept + v - (mx * u) / spread];
  });
}
export function largest_rate(x) {
  const a = mean(x.map((v) => v * v)),
    b = mean(x);
  return 2 / (a + 1 + Math.sqrt((a - 1) ** 2 + 4 * b * b));
}
