// Twin of model.py. The axes come from Jacobi rotations: small, exact enough, and independent of the twin's LAPACK.
export function covariance(points) {
  const n = points.length;
  const mean = points[0].map((_, j) => points.reduce((a, p) => a + p[j], 0) / n);
  return mean.map((_, i) =>
    mean.map((__, j) => points.reduce((a, p) => a + (p[i] - mean[i]) * (p[j] - mean[j]), 0) / n),
  );
}
export function direction(angle, tilt, dims) {
  const a = (angle * Math.PI) / 180,
    t = (tilt * Math.PI) / 180;
  return dims === 2 ? [Math.cos(a), Math.sin(a)] : [Math.cos(t) * Math.cos(a), Math.cos(t) * Math.sin(a), Math.sin(t)];
}
export const kept = (cov, unit) =>
  unit.reduce((sum, u, i) => sum + u * unit.reduce((a, v, j) => a + cov[i][j] * v, 0), 0);
export const total = (cov) => cov.reduce((sum, row, i) => sum + row[i], 0);
export const tail = (spectrum, k) => spectrum.slice(k).reduce((a, b) => a + b, 0);
export function principal(cov) {
  const n = cov.length,
    a = cov.map((row) => [...row]),
    v = a.map((_, i) => a.map((__, j) => Number(i === j)));
  for (let sweep = 0; sweep < 30; sweep += 1) {
    for (let p = 0; p < n - 1; p += 1) {
      for (let q = p + 1; q < n; q += 1) {
        if (Math.abs(a[p][q]) < 1e-300) continue;
        const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1)),
          c = 1 / Math.hypot(t, 1),
          sn = t * c;
        for (let k = 0; k < n; k += 1) [a[k][p], a[k][q]] = [c * a[k][p] - sn * a[k][q], sn * a[k][p] + c * a[k][q]];
        for (let k = 0; k < n; k += 1) [a[p][k], a[q][k]] = [c * a[p][k] - sn * a[q][k], sn * a[p][k] + c * a[q][k]];
        for (let k = 0; k < n; k += 1) [v[k][p], v[k][q]] = [c * v[k][p] - sn * v[k][q], sn * v[k][p] + c * v[k][q]];
      }
    }
  }
  const order = a.map((_, i) => i).sort((i, j) => a[j][j] - a[i][i]);
  const axes = order.map((i) => {
    const axis = v.map((row) => row[i]),
      big = axis.reduce((m, x) => (Math.abs(x) > Math.abs(m) ? x : m), 0);
    return axis.map((x) => x * Math.sign(big));
  });
  return [order.map((i) => a[i][i]), axes];
}
