// Twin of model.py. A view is { shape, strides, offset }, counted in elements.
export const prod = (numbers) => numbers.reduce((a, b) => a * b, 1);
export const contiguous = (shape) => shape.map((_, axis) => prod(shape.slice(axis + 1)));
export const place = (index, view) => index.reduce((sum, i, axis) => sum + i * view.strides[axis], view.offset);
export function indices(shape) {
  return shape.reduce((all, length) => all.flatMap((head) => Array.from({ length }, (_, i) => [...head, i])), [[]]);
}
export const places = (view) => indices(view.shape).map((index) => place(index, view));
export function isContiguous(view) {
  const dense = contiguous(view.shape);
  return view.shape.every((length, axis) => length <= 1 || view.strides[axis] === dense[axis]);
}
export const aliases = (view) => prod(view.shape) - new Set(places(view)).size;
export const outside = (view, size) => places(view).filter((spot) => spot < 0 || spot >= size).length;
export function lines(view, itemsize, lineBytes = 64) {
  const walk = places(view).map((spot) => Math.floor((spot * itemsize) / lineBytes));
  return [new Set(walk).size, walk.filter((line, i) => i > 0 && line !== walk[i - 1]).length];
}
export const transpose = (view) => ({
  ...view,
  shape: [...view.shape].reverse(),
  strides: [...view.strides].reverse(),
});
export function cut(view, axis, start, step) {
  const length = view.shape[axis],
    stride = view.strides[axis];
  const kept = step > 0 ? Math.ceil((length - start) / step) : Math.floor(start / -step) + 1;
  return {
    shape: view.shape.with(axis, kept),
    strides: view.strides.with(axis, stride * step),
    offset: view.offset + start * stride,
  };
}
export const flip = (view, axis) => cut(view, axis, view.shape[axis] - 1, -1);
export const broadcast = (view, length) => ({ ...view, shape: [length, ...view.shape], strides: [0, ...view.strides] });
