// Twin of model.py. C = A·B, n x n; a piece is [top, bottom, left, right), counted in elements.
export const steps = (n, tile) => Math.ceil(n / tile);
export const loadedBytes = (n, tile, item) => 2 * n * n * steps(n, tile) * item;
export const globalBytes = (n, tile, item) => loadedBytes(n, tile, item) + n * n * item;
export const intensity = (n, tile, item) => (2 * n ** 3) / globalBytes(n, tile, item);
export const sharedBytes = (tile, item) => (tile > 1 ? 2 * tile * tile * item : 0);
export const threads = (tile, register) => Math.floor(tile / register) ** 2;
export const sharedLoadsPerFma = (tile, register) => (tile > 1 ? 2 / register : 0);
export function walk(n, tile, block, step) {
  const span = (at) => [at * tile, Math.min(n, (at + 1) * tile)],
    across = steps(n, tile);
  const rows = span(Math.floor(block / across)),
    columns = span(block % across),
    depth = span(step);
  return [
    [...rows, ...depth],
    [...depth, ...columns],
    [...rows, ...columns],
  ];
}
