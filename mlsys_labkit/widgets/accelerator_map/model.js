// Twin of model.py.
export const SCALE_SECONDS = [1e-9, 1e-3, 1e2, 1e4, 6e7];
export const order = (levels, change) =>
  levels.map((_, i) => i).sort((a, b) => levels[a][change] - levels[b][change] || a - b);
