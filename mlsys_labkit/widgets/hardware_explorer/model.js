// Twin of model.py.
export function trend(x, y, isYear) {
  const places = x.map((v) => (isYear ? v : Math.log2(v))),
    heights = y.map(Math.log2);
  if (places.length < 2 || Math.max(...places) === Math.min(...places)) return null;
  const mean = (list) => list.reduce((sum, v) => sum + v, 0) / list.length,
    middle = mean(places),
    level = mean(heights);
  const spread = places.reduce((sum, v) => sum + (v - middle) ** 2, 0);
  return [places.reduce((sum, v, i) => sum + (v - middle) * (heights[i] - level), 0) / spread, middle, level];
}
export const doubling = (slope) => (Math.abs(slope) > 1e-3 ? 1 / slope : null);
export const roof = (peak, bandwidth, intensity) => Math.min(peak, bandwidth * intensity);
