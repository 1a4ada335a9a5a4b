// Twin of model.py: FLOP/s, B/s, FLOP/B, seconds.
export const ITEM_BYTES = { float64: 8, float32: 4, tf32: 4, bfloat16: 2, float16: 2, float8: 1, int8: 1, float4: 0.5 };
export const ridge = (peak, bandwidth) => peak / bandwidth;
export const attainable = (intensity, peak, bandwidth) => Math.min(peak, intensity * bandwidth);
export const bound = (intensity, peak, bandwidth) => (intensity < ridge(peak, bandwidth) ? "memory" : "compute");
export const leastSeconds = (flops, moved, peak, bandwidth) => Math.max(flops / peak, moved / bandwidth);
export const matmul = (m, n, k, itemBytes) => [2 * m * n * k, itemBytes * (m * k + k * n + m * n)];
