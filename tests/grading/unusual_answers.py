"""Correct but unusual answers: lab -> task -> source. The graders give them the verdicts of a shell.

A second set of answers for one lab has a key "lab: what is unusual".

Each leans on something that could be lost between two processes: types other than the solution's (iterators, deques,
views of dicts, scalars and subclasses of numpy and torch, tuples for lists), helpers, decorators, caches, classes with
slots, properties and special methods, arguments scribbled on, exceptions derived from those asked for.
"""

from __future__ import annotations

__all__ = ["UNUSUAL"]

UNUSUAL: dict[str, dict[str, str]] = {
    "lab00_your_machine": {
        "warmup_end": """
            def warmup_end(samples):
                samples.flags.writeable and samples.setflags(write=False)
                limit = np.float64(1.25) * np.median(samples[len(samples) // 2:])
                return next((np.int64(i) for i, each in enumerate(samples) if each <= limit), len(samples))
        """,
        "median_interval": """
            class TooFewError(ValueError):
                def __init__(self, n):
                    self.n = n
                    super().__init__(f"{n} samples are too few")

            from collections import namedtuple
            Interval = namedtuple("Interval", "low high")

            def median_interval(samples):
                n = len(samples)
                if n < 6:
                    raise TooFewError(n)
                samples = [*map(np.longdouble, sorted(samples.tolist()))]
                tail = rank = 0
                while (tail + math.comb(n, rank)) * 40 <= 2**n:
                    tail += math.comb(n, rank)
                    rank += 1
                return Interval(np.float64(samples[rank - 1]), float(samples[n - rank]))
        """,
        "standardize": """
            class _Mine(np.ndarray):
                pass

            def standardize(x):
                out = np.subtract(x, x.mean(), subok=False)
                deviation = np.sqrt(out @ out / out.size)
                if deviation > 0:
                    np.divide(out, deviation, out=out)
                return out.view(_Mine)
        """,
        "costs": """
            import functools

            @functools.cache
            def dot_cost(n, itemsize):
                return 2 * n, (2 * n + 1) * itemsize

            mv_cost = lambda m, n, itemsize: (2 * m * n, (m * n + n + m) * itemsize)
            mm_cost = functools.partial(lambda m, n, k, itemsize: (2 * m * n * k, (m * k + k * n + m * n) * itemsize))
        """,
        "attainable": """
            import operator
            ridge = operator.truediv

            def attainable(intensity, peak, bandwidth):
                if np.ndim(intensity):
                    return np.fromiter((min(peak, i * bandwidth) for i in np.ravel(intensity)), float).reshape(
                        np.shape(intensity))
                return min(peak, intensity * bandwidth)
        """,
        "bound": """
            import enum

            class Roof(str, enum.Enum):
                MEMORY = "memory"
                COMPUTE = "compute"

            def bound(flops, bytes_moved, spec, dtype):
                return Roof(["memory", "compute"][flops * spec.bandwidth() >= spec.peak(dtype) * bytes_moved]).value
        """,
        "fastest_seconds": """
            def fastest_seconds(flops, bytes_moved, peak, bandwidth):
                return np.max([flops / peak, bytes_moved / bandwidth])

            def too_good(seconds, flops, bytes_moved, peak, bandwidth):
                return np.less(seconds, 0.98 * fastest_seconds(flops, bytes_moved, peak, bandwidth))
        """,
    },
    "lab01_linear_algebra": {
        "offset": '''
            class LengthError(ValueError):
                """With a helper in a class of its own."""

            def offset(index, strides, start=0):
                if len(index) != len(strides):
                    raise LengthError(index, strides)
                return np.int64(start) + np.dot(np.array(index, int), np.array(strides, int))
        ''',
        "contiguous_strides": """
            def contiguous_strides(shape, itemsize):
                return () if not shape else (contiguous_strides(shape[1:], itemsize) or (None,))[:0] + (
                    int(np.prod([max(n, 1) for n in shape[1:]])) * itemsize,) + contiguous_strides(shape[1:], itemsize)
        """,
        "transpose": """
            from dataclasses import replace

            def transpose(layout, axes):
                if {*axes} != {*range(len(layout.shape))} or len(axes) != len(layout.shape):
                    raise ValueError
                pick = lambda values: tuple(values[axis] for axis in axes)
                return replace(layout, shape=pick(layout.shape), strides=pick(layout.strides))
        """,
        "slice_view": """
            def slice_view(layout, axis, cut):
                class Cut(Layout):
                    pass

                kept = range(layout.shape[axis])[cut]
                shape, strides = [*layout.shape], [*layout.strides]
                shape[axis] = len(kept)
                offset = layout.offset + cut.indices(layout.shape[axis])[0] * strides[axis]
                strides[axis] = strides[axis] * (cut.step or 1)
                return Layout(tuple(shape), tuple(strides), offset)
        """,
        "windows": """
            def windows(x, width, step=1):
                starts = range(0, x.shape[0] - width + 1, step)
                if not starts:
                    return np.empty((0, width), x.dtype)

                class Windows:
                    __array_interface__ = {
                        **x.__array_interface__,
                        "shape": (len(starts), width),
                        "strides": (step * x.strides[0], x.strides[0]),
                    }
                    kept = x

                return np.asarray(Windows())
        """,
        "lines_touched": """
            import itertools

            def lines_touched(layout, itemsize, line_bytes=64):
                def lines():
                    for index in itertools.product(*map(range, layout.shape)):
                        first = layout.offset + sum(i * s for i, s in zip(index, layout.strides))
                        yield from range(first // line_bytes, (first + itemsize - 1) // line_bytes + 1)
                return np.unique(np.fromiter(lines(), np.int64)).size
        """,
        "apply_chain": """
            def apply_chain(matrices, x):
                left = matrices[:]
                while left:
                    x = left.pop() @ x
                return torch.nn.Parameter(x, requires_grad=False)
        """,
        "xor_backward": """
            def backward(net, x, y):
                hidden, p = forward(net, x)
                dz = (p - y) / len(y)
                dbend = (dz[:, None] * net.w2) * (1 - hidden**2)
                return Net(b2=dz.sum(), b1=dbend.sum(0), w2=dz @ hidden, w1=np.asfortranarray(dbend.T @ x))
        """,
        "transformer_size": """
            def parameter_count(layers, d, vocab, context):
                return np.int64(layers) * (12 * d * d + 13 * d) + (vocab + context + 2) * d

            def activation_count(*, batch=None, length=None, d=None, heads=None):
                return 16 * batch * length * d + batch * heads * length**2 + 4 * batch * length

            _activation_count = activation_count

            def activation_count(batch, length, d, heads):
                return _activation_count(batch=batch, length=length, d=d, heads=heads)
        """,
    },
    "lab02_pca": {
        "covariance": """
            def covariance(X):
                if len(X) < 2:
                    raise ValueError("too few")
                return np.cov(np.asarray(X, float), rowvar=False).reshape(X.shape[1], X.shape[1]).T
        """,
        "variance_split": """
            def variance_split(X, Q):
                centred = X - np.average(X, axis=0)
                along = np.var(centred @ Q, axis=0, ddof=1)
                lost = np.maximum(np.float64(np.square(centred, out=centred).sum() / (len(X) - 1) - along.sum()), 0)
                return [along, np.array(lost)]
        """,
        "pca_eigh": """
            import scipy.linalg

            def pca_eigh(X, k):
                if k > X.shape[1]:
                    raise ValueError(k)
                mean = X.mean(0)
                values, vectors = np.linalg.eigh(np.cov(X.T).reshape(X.shape[1], -1))
                order = np.argsort(values)[::-1][:k]
                return PCA(mean=mean, variances=np.maximum(values[order], 0), components=vectors[:, order])
        """,
        "rank_for": """
            def rank_for(variances, keep):
                assert_range(keep)
                tails = [*np.cumsum(variances[::-1])[::-1], 0.0]
                return np.intp(min(k for k, tail in enumerate(tails) if tail <= (1 - keep) * tails[0]))

            def assert_range(keep):
                if not (0 <= keep <= 1):
                    raise ValueError(f"{keep=}")
        """,
        "power_iteration": """
            def power_iteration(apply, start, steps):
                kept = np.array(start)
                start /= np.linalg.norm(start)  # scribbles, and cleans up
                v, value = np.array(start), None
                start[...] = kept
                for _ in range(steps):
                    w = apply(v)
                    value, length = np.vdot(v, w), np.sqrt(np.vdot(w, w))
                    if not length:
                        return np.float64(0), v
                    v = w / length
                return value, v
        """,
        "randomized_pca": """
            def randomized_pca(times, times_t, d, k, power, rng, oversample=8):
                draw = rng.normal(size=(min(k + oversample, d), d)).T
                def sketch(left=power):
                    Q = np.linalg.qr(times(draw), mode="reduced").Q
                    while left:
                        left -= 1
                        Q = np.linalg.qr(times(np.linalg.qr(times_t(Q)).Q)).Q
                    return Q
                found = np.linalg.svd(times_t(sketch()).T, full_matrices=False)
                return found.Vh[:k].T, found.S[:k]
        """,
        "low_rank": """
            def factor(W, k):
                U, S, Vh = map(np.asarray, np.linalg.svd(W, full_matrices=False))
                return np.multiply(U, S)[:, :k], memoryview(Vh[:k]) if False else Vh[:k]

            def apply_factors(X, A, B):
                return np.matmul(np.matmul(X, A), B)
        """,
    },
    "lab03_cuda_matmul": {
        "launch_shape": """
            def launch_shape(rows, columns, block=(32, 8)):
                import math
                grid = [(columns + block[0] - 1) // block[0], (rows + block[1] - 1) // block[1]]
                return tuple(map(math.prod, zip(grid)))
        """,
        "request_sectors": """
            import itertools

            def request_sectors(addresses, bytes_per_lane=4):
                lanes = filter(lambda each: each is not None, addresses)
                touched = itertools.chain.from_iterable(range(a >> 5, (a + bytes_per_lane - 1 >> 5) + 1) for a in lanes)
                return len(frozenset(touched))
        """,
        "blocks_per_sm": """
            from types import SimpleNamespace
            from functools import cached_property

            class Kernel:
                __slots__ = ("threads", "registers", "shared", "limits", "__dict__")

                def __init__(self, threads, registers, shared, limits):
                    self.threads, self.registers, self.shared = threads, registers, shared
                    self.limits = SimpleNamespace(**limits)

                @cached_property
                def warps(self):
                    return up(self.threads, 32) // 32

            def up(n, unit):
                return n + -n % unit

            def blocks_per_sm(threads, registers, shared_bytes, limits=SM_90):
                kernel = Kernel(threads, registers, shared_bytes, limits)
                has = kernel.limits
                warps = has.registers // 4 // up(32 * registers, has.registers_unit) * 4
                return np.min([has.warps // kernel.warps, has.blocks, warps // kernel.warps,
                               has.shared_bytes // up(shared_bytes + has.shared_reserved, has.shared_unit)])
        """,
        "vector_add": """
            %%cuda vector_add
            __device__ __forceinline__ float plus(float x, float y) { return x + y; }
            #define HERE (blockIdx.x * blockDim.x + threadIdx.x)
            __global__ void vector_add(const float* a, const float* b, float* c, int n)
            {
                const unsigned i = HERE;
                if (i >= static_cast<unsigned>(n)) return;
                *(c + i) = plus(a[i], b[i]);
            }
        """,
        "saxpy": """
            %%cuda saxpy
            __global__ void saxpy(int n, float alpha, const float* x, float* y)
            {
                int t = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
                const float4* x4 = reinterpret_cast<const float4*>(x);
                float4* y4 = reinterpret_cast<float4*>(y);
                for (int i = t; i < n / 4; i += all) {
                    float4 a = x4[i], b = y4[i];
                    b.x += alpha * a.x; b.y += alpha * a.y; b.z += alpha * a.z; b.w += alpha * a.w;
                    y4[i] = b;
                }
                for (int i = n / 4 * 4 + t; i < n; i += all) y[i] = alpha * x[i] + y[i];
            }
        """,
        "stencil": """
            %%cuda stencil
            __global__ void stencil(const float* in, float* out, int rows, int columns)
            {
                int c = blockIdx.x * blockDim.x + threadIdx.x;
                int r = blockIdx.y * blockDim.y + threadIdx.y;
                if (r >= rows || c >= columns) return;
                int i = r * columns + c;
                if (r > 0 && r < rows - 1 && c > 0 && c < columns - 1) {
                    out[i] = (in[i] + in[i - columns] + in[i + columns] + in[i - 1] + in[i + 1]) / 5.0f;
                } else {
                    out[i] = in[i];
                }
            }
        """,
        "matmul_naive": """
            %%cuda matmul_naive
            struct Matrix {
                const float* p;
                int stride;
                __device__ float operator()(int i, int j) const { return p[i * stride + j]; }
            };
            __global__ void matmul_naive(const float* A, const float* B, float* C, int m, int n, int k)
            {
                Matrix a{A, k}, b{B, n};
                for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < m; row += gridDim.y * blockDim.y)
                    for (int column = blockIdx.x * blockDim.x + threadIdx.x; column < n;
                         column += gridDim.x * blockDim.x) {
                        double sum = 0;
                        for (int p = 0; p < k; p++) sum += (double)a(row, p) * b(p, column);
                        C[row * n + column] = (float)sum;
                    }
            }
        """,
        "matmul_coalesced": """
            %%cuda matmul_coalesced
            template <typename T> __device__ T at(const T* p, int stride, int i, int j) { return p[i * stride + j]; }
            __global__ void matmul_coalesced(const float* A, const float* B, float* C, int m, int n, int k)
            {
                unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
                int row = int(blockIdx.y << 3 | warp), column = int(blockIdx.x << 5 | lane);
                if (row >= m) return;  // whole warps
                float sum = 0.0f;
                for (int from = 0; from < k; from += 32) {  // a lane loads one element of A for all
                    float mine = from + (int)lane < k ? at(A, k, row, from + lane) : 0.0f;
                    for (int p = 0; p < min(32, k - from); ++p) {
                        float a = __shfl_sync(0xffffffffu, mine, p);
                        if (column < n) sum = fmaf(a, at(B, n, from + p, column), sum);
                    }
                }
                if (column < n) C[row * n + column] = sum;
            }
        """,
        "alternate": """
            %%cuda alternate
            __device__ float even_path(float v) { for (int s = 0; s < 16; ++s) v = sqrtf(v + 1.0f); return v; }
            __device__ float odd_path(float v) { for (int s = 0; s < 16; ++s) v = v * 0.5f + 1.0f; return v; }

            __global__ void alternate(const float* x, float* y, int n)
            {
                int half = blockDim.x / 2, from = blockIdx.x * blockDim.x;
                bool odd = threadIdx.x >= half;  // the first half of a block takes the even elements
                int i = from + 2 * (threadIdx.x - odd * half) + odd;
                if (i < n) y[i] = odd ? odd_path(x[i]) : even_path(x[i]);
            }
        """,
        "row_sums": """
            %%cuda row_sums
            __global__ void row_sums(const float* x, float* sums, int rows, int columns, int pitch)
            {
                for (int r = blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += gridDim.x * blockDim.x) {
                    const float* cell = x + (long long)r * pitch;
                    sums[r] = 0.0f;
                    for (const float* end = cell + columns; cell != end; ++cell) sums[r] += *cell;
                }
            }
        """,
    },
    "lab03_cuda_matmul: idioms of C++ and of CUDA": {
        "launch_shape": """
            launch_shape = lambda rows, columns, block=(32, 8): tuple(
                map(lambda length, side: int(np.ceil(length / side)), (columns, rows), block)
            )
        """,
        "vector_add": """
            %%cuda vector_add
            #include <cooperative_groups.h>
            namespace cg = cooperative_groups;

            __global__ void vector_add(const float* a, const float* b, float* c, int n)
            {
                const auto grid = cg::this_grid();
                for (auto i = grid.thread_rank(); i < n; i += grid.size()) c[i] = __ldg(a + i) + __ldg(&b[i]);
            }
        """,
        "saxpy": """
            %%cuda saxpy
            template <typename F> __device__ void for_each(int n, F work)
            {
                for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) work(i);
            }

            __global__ void saxpy(int n, float alpha, const float* __restrict__ x, float* __restrict__ y)
            {
                for_each(n, [=](int i) { y[i] = fmaf(alpha, x[i], y[i]); });
            }
        """,
        "stencil": """
            %%cuda stencil
            struct Step { int down, right; };
            __device__ constexpr Step around[] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};

            __global__ void stencil(const float* in, float* out, int rows, int columns)
            {
                const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
                if (r >= rows || c >= columns) return;
                auto at = [&](Step step) { return in[(r + step.down) * columns + c + step.right]; };
                float& target = out[r * columns + c];
                if (unsigned(r - 1) >= unsigned(rows - 2) || unsigned(c - 1) >= unsigned(columns - 2)) {
                    target = at(around[0]);
                    return;
                }
                float sum = 0.0f;
                for (const Step& step : around) sum += at(step);
                target = sum / 5;
            }
        """,
        "matmul_naive": """
            %%cuda matmul_naive
            class Kahan {
                float sum = 0.0f, lost = 0.0f;

            public:
                __device__ Kahan& operator+=(float value)
                {
                    const float next = value - lost, total = sum + next;
                    lost = (total - sum) - next;
                    sum = total;
                    return *this;
                }
                __device__ operator float() const { return sum; }
            };

            __global__ void matmul_naive(const float* A, const float* B, float* C, int m, int n, int k)
            {
                const dim3 at(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y);
                if (at.x >= n || at.y >= m) return;
                Kahan sum;
                for (int p = 0; p < k; ++p) sum += A[at.y * k + p] * B[p * n + at.x];
                C[at.y * n + at.x] = sum;
            }
        """,
        "row_sums": """
            %%cuda row_sums
            template <int unrolled> __device__ float total(const float* row, int columns)
            {
                float parts[unrolled] = {};
                int c = 0;
                for (; c + unrolled <= columns; c += unrolled) {
                    #pragma unroll
                    for (int u = 0; u < unrolled; ++u) parts[u] += row[c + u];
                }
                while (c < columns) parts[0] += row[c++];
                float sum = 0.0f;
                for (float part : parts) sum += part;
                return sum;
            }

            __global__ void row_sums(const float* x, float* sums, int rows, int columns, int pitch)
            {
                if (const int r = blockIdx.x * blockDim.x + threadIdx.x; r < rows)
                    sums[r] = total<4>(x + size_t(r) * pitch, columns);
            }
        """,
    },
    "lab03_cuda_matmul: options on the first line, and other magics above it": {
        "vector_add": """
            %%capture
            %%cuda vector_add -D INDEX=unsigned -DSIZE=float
            __global__ void vector_add(const SIZE* a, const SIZE* b, SIZE* c, int n)
            {
                const INDEX i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) c[i] = a[i] + b[i];
            }
        """,
        "saxpy": """
            %%time
            %%cuda saxpy second
            __global__ void first(int n, float alpha, const float* x, float* y) { y[0] = n; }

            __global__ void second(int n, float alpha, const float* x, float* y)
            {
                for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
                    y[i] += alpha * x[i];
            }
        """,
        "matmul_naive": """
            %%time
            %%capture said
            %%cuda matmul_naive product<float>
            template <typename T> __global__ void product(const T* A, const T* B, T* C, int m, int n, int k)
            {
                const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
                if (row >= m || column >= n) return;
                T sum = 0;
                for (int p = 0; p < k; ++p) sum += A[row * k + p] * B[p * n + column];
                C[row * n + column] = sum;
            }
        """,
    },
    "lab04_tiling": {
        "tile_traffic": """
            def tile_traffic(m, n, k, tile, bytes_per_element=4):
                import math
                from fractions import Fraction
                tiles = lambda length: math.ceil(Fraction(length, tile))
                counts = (tiles(n) * m * k + tiles(m) * k * n, m * n, 2 * tile**2)
                return tuple(map(bytes_per_element.__mul__, counts))
        """,
        "matmul_tiled": """
            %%cuda matmul_tiled matmul_tiled<16>
            template <int T> struct Tile { float at[T][T]; };

            __device__ float at(const float* M, int rows, int columns, int i, int j)
            {
                return i < rows && j < columns ? M[i * columns + j] : 0.0f;
            }

            template <int T>
            __global__ void matmul_tiled(const float* A, const float* B, float* C, int m, int n, int k)
            {
                __shared__ Tile<T> a[2], b[2];  // the next tiles go into the other two: one barrier a step
                const int x = threadIdx.x, y = threadIdx.y;
                const int row = blockIdx.y * T + y, column = blockIdx.x * T + x;
                const int steps = (k + T - 1) / T;
                float sum = 0.0f;
                a[0].at[y][x] = at(A, m, k, row, x);
                b[0].at[y][x] = at(B, k, n, y, column);
                for (int step = 0; step < steps; ++step) {
                    __syncthreads();
                    const int now = step & 1;
                    if (step + 1 < steps) {
                        a[now ^ 1].at[y][x] = at(A, m, k, row, (step + 1) * T + x);
                        b[now ^ 1].at[y][x] = at(B, k, n, (step + 1) * T + y, column);
                    }
                    #pragma unroll
                    for (int p = 0; p < T; ++p) sum = fmaf(a[now].at[y][p], b[now].at[p][x], sum);
                }
                if (row < m && column < n) C[row * n + column] = sum;
            }
        """,
        "differences": """
            %%cuda differences
            __global__ void differences(const float* x, float* y, int pieces)
            {
                __shared__ float first[2][5];  // of the next warp; two copies, so that one barrier a piece is enough
                const int t = threadIdx.x, lane = t % 32, warp = t / 32;
                if (t < 2) first[t][4] = 0.0f;
                int copy = 0;
                for (int p = blockIdx.x; p < pieces; p += gridDim.x, copy ^= 1) {
                    const float v = x[128 * p + t];
                    if (lane == 0) first[copy][warp] = v;
                    __syncthreads();
                    float right = __shfl_down_sync(0xffffffff, v, 1);
                    if (lane == 31) right = first[copy][warp + 1];
                    y[128 * p + t] = right - v;
                }
            }
        """,
        "transpose_tiled": """
            %%cuda transpose_tiled
            struct Tile {
                float words[32 * 32];  // no padding: element (i, j) lies in column i ^ j
                __device__ float& operator()(int i, int j) { return words[32 * i + (i ^ j)]; }
            };

            __global__ void transpose_tiled(const float* in, float* out, int rows, int columns)
            {
                __shared__ Tile tile;
                const int top = 32 * blockIdx.y, left = 32 * blockIdx.x;
                for (int i = threadIdx.y; i < 32 && top + i < rows; i += blockDim.y)
                    if (left + threadIdx.x < columns)
                        tile(i, threadIdx.x) = in[(top + i) * columns + left + threadIdx.x];
                __syncthreads();
                for (int j = threadIdx.y; j < 32 && left + j < columns; j += blockDim.y)
                    if (top + threadIdx.x < rows) out[(left + j) * rows + top + threadIdx.x] = tile(threadIdx.x, j);
            }
        """,
        "matmul_registers": """
            %%cuda matmul_registers
            constexpr int side = 64, step = 16;

            __global__ void matmul_registers(const float* A, const float* B, float* C, int m, int n, int k)
            {
                __shared__ float a[side][step];
                __shared__ __align__(16) float b[step][side];
                const int t = threadIdx.y * 16 + threadIdx.x;
                const int top = blockIdx.y * side, left = blockIdx.x * side;
                float4 sum[4] = {};
                for (int base = 0; base < k; base += step) {
                    for (int e = t; e < side * step; e += 256) {
                        const int i = e / step, p = e % step;
                        a[i][p] = top + i < m && base + p < k ? A[(top + i) * k + base + p] : 0.0f;
                    }
                    for (int e = t; e < step * side; e += 256) {
                        const int p = e / side, j = e % side;
                        b[p][j] = base + p < k && left + j < n ? B[(base + p) * n + left + j] : 0.0f;
                    }
                    __syncthreads();
                    for (int p = 0; p < step; ++p) {
                        const float4 v = *reinterpret_cast<const float4*>(&b[p][4 * threadIdx.x]);
                        for (int i = 0; i < 4; ++i) {
                            const float u = a[threadIdx.y + 16 * i][p];
                            sum[i].x += u * v.x;
                            sum[i].y += u * v.y;
                            sum[i].z += u * v.z;
                            sum[i].w += u * v.w;
                        }
                    }
                    __syncthreads();
                }
                for (int i = 0; i < 4; ++i) {
                    const int row = top + threadIdx.y + 16 * i, column = left + 4 * threadIdx.x;
                    if (row >= m) continue;
                    const float parts[4] = {sum[i].x, sum[i].y, sum[i].z, sum[i].w};
                    for (int j = 0; j < 4; ++j)
                        if (column + j < n) C[row * n + column + j] = parts[j];
                }
            }
        """,
        "scale4": """
            %%cuda scale4
            __device__ float4 operator*(float a, float4 v) { return {a * v.x, a * v.y, a * v.z, a * v.w}; }

            __global__ void scale4(const float* x, float* y, float alpha, int n)
            {
                auto x4 = (const float4*)x;
                auto y4 = (float4*)y;
                const int quads = n >> 2, threads = gridDim.x * blockDim.x;
                const int first = blockIdx.x * blockDim.x + threadIdx.x;
                for (int i = first; i < quads; i += threads) y4[i] = alpha * x4[i];
                if (first < (n & 3)) y[4 * quads + first] = alpha * x[4 * quads + first];
            }
        """,
        "block_sum": """
            %%cuda block_sum
            __global__ void block_sum(const float* x, float* sums, int n)
            {
                __shared__ float handed[256];
                const int t = threadIdx.x;
                float v = 0.0f;
                for (int i = 512 * blockIdx.x + t; i < min(n, 512 * (int)(blockIdx.x + 1)); i += 256) v += x[i];
                for (int half = 128; half >= 32; half >>= 1) {
                    if (t >= half && t < 2 * half) handed[t] = v;
                    __syncthreads();
                    if (t < half) v += handed[t + half];
                }
                if (t < 32) {
                    volatile float* mine = handed;
                    for (int half = 16; half > 0; half >>= 1) {
                        mine[t] = v;
                        __syncwarp();
                        v += mine[(t + half) & 31];
                        __syncwarp();
                    }
                    if (t == 0) sums[blockIdx.x] = v;
                }
            }
        """,
        "shuffle_sum": """
            %%cuda shuffle_sum
            template <int width>
            __device__ float butterfly(float v)
            {
                for (int lane = width / 2; lane; lane >>= 1) v += __shfl_xor_sync(~0u, v, lane);
                return v;
            }

            __global__ void shuffle_sum(const float* x, float* sums, int n)
            {
                __shared__ float of_warp[8];
                const unsigned t = threadIdx.x, base = 512 * blockIdx.x;
                float v = 0;
                #pragma unroll 2
                for (unsigned i = t; i < 512 && base + i < n; i += 256) v += x[base + i];
                v = butterfly<32>(v);
                if (!(t & 31)) of_warp[t >> 5] = v;
                __syncthreads();
                if (t >> 5) return;
                v = butterfly<8>(of_warp[t & 7]);
                if (t == 0) sums[blockIdx.x] = v;
            }
        """,
        "histogram": """
            %%cuda histogram
            __global__ void histogram(const unsigned char* values, unsigned int* counts, int n)
            {
                __shared__ unsigned int bins[2][256];
                unsigned int* flat = &bins[0][0];
                for (int b = threadIdx.x; b < 512; b += blockDim.x) flat[b] = 0;
                __syncthreads();
                const int each = (n + gridDim.x - 1) / gridDim.x;
                const int begin = blockIdx.x * each, end = min(n, begin + each);
                unsigned int* mine = bins[threadIdx.x / 32 % 2];
                for (int i = begin + threadIdx.x; i < end; i += blockDim.x) atomicAdd(mine + values[i], 1);
                __syncthreads();
                for (int b = threadIdx.x; b < 256; b += blockDim.x)
                    if (unsigned int seen = bins[0][b] + bins[1][b]) atomicAdd(counts + b, seen);
            }
        """,
        "debug": """
            %%cuda debug
            __global__ void normalize(float* x)
            {
                __shared__ float largest[2];
                float& mine = x[blockDim.x * blockIdx.x + threadIdx.x];
                float v = mine;
                for (int d = 16; d; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
                if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = v;
                __syncthreads();
                mine /= fmaxf(largest[0], largest[1]);
            }

            __global__ void clamp(float* x, int n)
            {
                const int gid = blockDim.x * blockIdx.x + threadIdx.x;
                if (gid < n && x[gid] < 0.0f) x[gid] = 0.0f;
            }

            __global__ void blur(const float* in, float* out, int n)
            {
                const int gid = blockDim.x * blockIdx.x + threadIdx.x;
                if (gid >= n) return;
                float sum = in[gid];
                if (gid > 0) sum += in[gid - 1];
                if (gid + 1 < n) sum += in[gid + 1];
                out[gid] = sum * (1.0f / 3.0f);
            }

            __global__ void prefix_sum(const float* in, float* out, int n)
            {
                __shared__ float sdata[2][64];
                const int tid = threadIdx.x, gid = blockDim.x * blockIdx.x + tid;
                int now = 0;
                sdata[now][tid] = gid < n ? in[gid] : 0.0f;
                for (int s = 1; s < 64; s <<= 1) {
                    __syncthreads();
                    sdata[now ^ 1][tid] = sdata[now][tid] + (tid >= s ? sdata[now][tid - s] : 0.0f);
                    now ^= 1;
                }
                if (gid < n) out[gid] = sdata[now][tid];
            }
        """,
    },
    "lab04_tiling: idioms of C++ and of CUDA": {
        "tile_traffic": """
            def tile_traffic(m, n, k, tile, bytes_per_element=4):
                up = lambda length: len(range(0, length, tile))
                counts = k * (up(n) * m + up(m) * n), m * n, 2 * tile * tile
                return tuple(bytes_per_element * count for count in counts)
        """,
        "differences": """
            %%cuda differences
            #include <cooperative_groups.h>

            __global__ void differences(const float* x, float* y, int pieces)
            {
                auto block = cooperative_groups::this_thread_block();
                __shared__ float piece[129];
                const auto t = block.thread_rank();
                if (t == 0) piece[128] = 0.0f;
                for (int p = blockIdx.x; p < pieces; p += gridDim.x) {
                    const auto at = 128 * p + t;
                    piece[t] = x[at];
                    block.sync();
                    const float change = piece[t + 1] - piece[t];
                    block.sync();
                    y[at] = change;
                }
            }
        """,
        "transpose_tiled": """
            %%cuda transpose_tiled
            constexpr unsigned swizzled(unsigned row, unsigned column) { return row * 32 + (column ^ row); }

            __global__ void transpose_tiled(const float* in, float* out, int rows, int columns)
            {
                __shared__ float tile[32 * 32];
                auto move = [&](int left, int top, int width, int height, auto each) {
                    #pragma unroll
                    for (int j = 0; j < 32; j += 8) {
                        const int x = left + threadIdx.x, y = top + threadIdx.y + j;
                        if (x < width && y < height) each(y * width + x, threadIdx.y + j);
                    }
                };
                move(blockIdx.x * 32, blockIdx.y * 32, columns, rows,
                     [&](int at, unsigned y) { tile[swizzled(y, threadIdx.x)] = in[at]; });
                __syncthreads();
                move(blockIdx.y * 32, blockIdx.x * 32, rows, columns,
                     [&](int at, unsigned y) { out[at] = tile[swizzled(threadIdx.x, y)]; });
            }
        """,
        "scale4": """
            %%cuda scale4
            __global__ void scale4(const float* x, float* y, float alpha, int n)
            {
                const int i = blockIdx.x * blockDim.x + threadIdx.x, rest = n - 4 * i;
                if (rest <= 0) return;
                if (rest >= 4) {
                    const float4 v = __ldg(reinterpret_cast<const float4*>(x) + i);
                    reinterpret_cast<float4*>(y)[i] = make_float4(alpha * v.x, alpha * v.y, alpha * v.z, alpha * v.w);
                    return;
                }
                switch (rest) {
                case 3: y[4 * i + 2] = alpha * x[4 * i + 2];  // falls through
                case 2: y[4 * i + 1] = alpha * x[4 * i + 1];  // falls through
                default: y[4 * i] = alpha * x[4 * i];
                }
            }
        """,
        "shuffle_sum": """
            %%cuda shuffle_sum
            #include <cooperative_groups.h>
            namespace cg = cooperative_groups;

            template <typename Tile> __device__ float total(const Tile& tile, float v)
            {
                for (auto d = tile.size() / 2; d > 0; d /= 2) v += tile.shfl_down(v, d);
                return v;
            }

            __global__ void shuffle_sum(const float* x, float* sums, int n)
            {
                __shared__ float part[8];
                auto block = cg::this_thread_block();
                auto warp = cg::tiled_partition<32>(block);
                const int i = blockIdx.x * 512 + block.thread_rank();
                float v = total(warp, (i < n ? x[i] : 0.0f) + (i + 256 < n ? x[i + 256] : 0.0f));
                if (warp.thread_rank() == 0) part[warp.meta_group_rank()] = v;
                block.sync();
                if (warp.meta_group_rank() != 0) return;
                v = total(cg::tiled_partition<8>(warp), part[warp.thread_rank() % 8]);
                if (warp.thread_rank() == 0) sums[blockIdx.x] = v;
            }
        """,
        "histogram": """
            %%cuda histogram
            __global__ void histogram(const unsigned char* values, unsigned int* counts, int n)
            {
                __shared__ unsigned int bins[256];
                const int t = threadIdx.x;
                for (int b = t; b < 256; b += blockDim.x) bins[b] = 0;
                __syncthreads();
                for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) {
                    const unsigned value = values[i], same = __match_any_sync(__activemask(), value);
                    if (t % 32 == __ffs(same) - 1) atomicAdd(&bins[value], __popc(same));  // one lane for all
                }
                __syncthreads();
                for (int b = t; b < 256; b += blockDim.x)
                    if (bins[b]) atomicAdd(&counts[b], bins[b]);
            }
        """,
    },
    "lab05_triton": {
        "add": """
            def add_grid(n, BLOCK):
                return [-(-n // BLOCK)] and (int(np.ceil(n / BLOCK)),)

            @triton.jit
            def add(x, y, out, n, BLOCK: tl.constexpr):
                start = tl.program_id(axis=0) * BLOCK
                index = start + tl.arange(0, BLOCK)
                valid = index < n
                tl.store(pointer=out + index, value=tl.load(x + index, valid) + tl.load(y + index, valid), mask=valid)
        """,
        "scale_rows": """
            @triton.jit
            def scale_rows(
                x, scale, out, M, N, x_row, x_column, out_row, out_column, ROWS: tl.constexpr, COLUMNS: tl.constexpr
            ):
                at = (tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS)
                source = tl.make_block_ptr(x, (M, N), (x_row, x_column), at, (ROWS, COLUMNS), (1, 0))
                target = tl.make_block_ptr(out, (M, N), (out_row, out_column), at, (ROWS, COLUMNS), (1, 0))
                factors = tl.make_block_ptr(scale, (M,), (1,), (at[0],), (ROWS,), (0,))
                factor = tl.load(factors, boundary_check=(0,))
                tl.store(target, tl.load(source, boundary_check=(0, 1)) * factor[:, None], boundary_check=(0, 1))
        """,
        "softmax": """
            @triton.jit
            def softmax(x, out, N, x_row, out_row, BLOCK: tl.constexpr):
                row = tl.program_id(0).to(tl.int64)
                lanes = tl.arange(0, BLOCK)
                inside = lanes < N
                x += row * x_row
                out += row * out_row
                values = tl.load(x + lanes, mask=inside, other=-float("inf")).to(tl.float32)
                powers = tl.math.exp2((values - tl.max(values)) * 1.4426950408889634)
                tl.store(out + lanes, (powers * (1.0 / tl.sum(powers))).to(out.dtype.element_ty), mask=inside)
        """,
        "bias_gelu": """
            ROOT_HALF: tl.constexpr = tl.constexpr(0.7071067811865476)

            @triton.jit
            def gelu(t):
                return 0.5 * t * (1.0 + tl.math.erf(t * ROOT_HALF))

            @triton.jit
            def bias_gelu(x, bias, out, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
                columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
                added = tl.load(bias + columns, mask=columns < N, other=0).to(tl.float32)
                first = tl.program_id(0) * ROWS
                for row in range(first, min(first + ROWS, M)):
                    t = tl.load(x + row * N + columns, mask=columns < N, other=0).to(tl.float32) + added
                    tl.store(out + row * N + columns, gelu(t).to(out.dtype.element_ty), mask=columns < N)
        """,
        "matmul_tile": """
            @triton.jit
            def matmul_tile(a, b, c, M, N, K, i, j, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
                left = tl.make_block_ptr(a, (M, K), (K, 1), (i * BM, 0), (BM, BK), (1, 0))
                right = tl.make_block_ptr(b, (K, N), (N, 1), (0, j * BN), (BK, BN), (1, 0))
                sums = tl.zeros((BM, BN), tl.float32)
                for _ in range(tl.cdiv(K, BK)):
                    sums = tl.dot(
                        tl.load(left, boundary_check=(0, 1), padding_option="zero"),
                        tl.load(right, boundary_check=(0, 1), padding_option="zero"),
                        sums,
                    )
                    left = tl.advance(left, (0, BK))
                    right = tl.advance(right, (BK, 0))
                out = tl.make_block_ptr(c, (M, N), (N, 1), (i * BM, j * BN), (BM, BN), (1, 0))
                tl.store(out, sums.to(c.dtype.element_ty), boundary_check=(0, 1))

            @triton.jit
            def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
                matmul_tile(a, b, c, M, N, K, tl.program_id(0), tl.program_id(1), BM, BN, BK)
        """,
        "tile_of": """
            @triton.jit
            def tile_of(program, tiles_m, tiles_n, GROUP: tl.constexpr):
                first = program // (GROUP * tiles_n) * GROUP
                left = tiles_m - first
                height = left if left < GROUP else GROUP
                inside = program - first * tiles_n
                j = inside // height
                return first + inside - j * height, j
        """,
        "row_mean": """
            @triton.jit
            def row_mean(x, out, N, x_row, BLOCK: tl.constexpr):
                x += tl.program_id(0) * x_row + tl.arange(0, BLOCK)
                left = N
                total = 0.0
                while left > 0:
                    total += tl.sum(tl.load(x, mask=tl.arange(0, BLOCK) < left, other=0).to(tl.float32), axis=0)
                    x += BLOCK
                    left -= BLOCK
                tl.store(out + tl.program_id(0), total / N)
        """,
        "count_values": """
            @triton.jit
            def count_values(values, counts, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
                lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                bins = tl.arange(0, BINS)
                mine = tl.load(values + lanes, mask=lanes < n, other=-1)
                found = tl.sum((mine[:, None] == bins[None, :]).to(tl.int32), axis=0)
                tl.atomic_add(counts + bins, found, sem="relaxed")
        """,
        "token_loss": """
            @triton.jit
            def token_loss(x, labels, out, N, x_row, BLOCK: tl.constexpr):
                row = tl.program_id(0)
                label = tl.load(labels + row)
                state = float("-inf")
                hit = 0.0
                for start in range(0, N, BLOCK):
                    lanes = start + tl.arange(0, BLOCK)
                    values = tl.load(x + row * x_row + lanes, mask=lanes < N, other=float("-inf")).to(tl.float32)
                    hit += tl.sum(tl.where(lanes == label, values, 0.0))
                    top = tl.max(values)
                    block = top + tl.log(tl.sum(tl.exp(values - top)))
                    high = tl.maximum(state, block)
                    state = high + tl.log(tl.exp(state - high) + tl.exp(block - high))
                tl.store(out + row, state - hit)
        """,
        "search": """
            import heapq

            class NothingRunsError(ValueError):
                pass

            def search(configs, fits, bound, measure):
                heap = [(bound(each), at) for at, each in enumerate(configs) if fits(each)]
                heapq.heapify(heap)
                best = (math.inf, None)
                while heap and heap[0][0] < best[0]:
                    _, at = heapq.heappop(heap)
                    best = min(best, (measure(configs[at]), at), key=lambda pair: pair[0])
                if best[1] is None:
                    raise NothingRunsError()
                return [configs[best[1]], best[0]] if False else (configs[best[1]], best[0])
        """,
    },
    "lab06_quantization": {
        "encode": """
            def encode(x, table):
                x = np.asarray(x, float)
                size = np.minimum(np.abs(x), table[-1])
                gaps = np.abs(size[..., None] - np.asarray(table, float))
                nearest = gaps.min(-1, keepdims=True)
                odd = np.arange(len(table)) % 2
                place = np.where(gaps == nearest, odd, 2)
                return (np.argmin(place, -1) + len(table) * np.signbit(x)).astype("<i8")
        """,
        "affine": """
            def affine(x, bits=8):
                low, high = torch.clamp(x.min(), max=0).double(), torch.clamp(x.max(), min=0).double()
                if low == high:
                    return torch.zeros(x.shape, dtype=torch.int32), 1.0, 0
                scale = ((high - low) / (2**bits - 1)).item()
                zero = int(torch.round(-low / scale))
                codes = torch.round(x.double() / scale).add_(zero).clamp_(0, 2**bits - 1)
                return [codes.int(), scale, zero] if False else (codes.int(), scale, zero)
        """,
        "groups": """
            def quantize_groups(W, bits, group):
                if divmod(W.shape[1], group)[1]:
                    raise ValueError(W.shape, group)
                top = (1 << bits - 1) - 1
                rows = W.unflatten(1, (-1, group))
                scales = rows.abs().max(dim=-1).values.div_(top)
                scales[scales == 0] = 1
                codes = (rows / scales.unsqueeze(-1)).round_().clamp_(-top, top)
                return codes.flatten(1).char(), scales.T.contiguous().T
        """,
        "smooth": """
            from contextlib import contextmanager

            @torch.no_grad()
            def smooth(X, W, alpha=0.5):
                x, w = (each.abs().max(dim=0)[0] for each in (X, W))
                s = x.pow(alpha) / w.pow(1 - alpha)
                s[(x == 0) | (w == 0)] = 1
                return X.div(s), W.mul(s)
        """,
        "pack": """
            def pack(codes):
                pairs = (codes.long() % 16).unflatten(-1, (-1, 2))
                return (pairs[..., 0] + 16 * pairs[..., 1]).byte()

            def unpack(packed):
                halves = torch.stack((packed % 16, packed // 16), -1).long().flatten(-2)
                return torch.where(halves > 7, halves - 16, halves).to(dtype=torch.int8)
        """,
        "kv": """
            def quantize_vectors(x):
                scales = x.abs().max(-1, True)[0].div(127).half()
                scales = scales.masked_fill(scales == 0, 1)
                return x.div(scales.float()).round().clamp(-127, 127).char(), scales

            def cache_bytes(config, tokens, bits, scale_bits=0):
                vectors = np.int64(config.layers * config.kv_heads * tokens * 2)
                return vectors * (config.head_width * bits + scale_bits) // 8
        """,
        "decode": """
            import math


            def _one(code, e, m):
                M, E = code % 2**m, code // 2**m % 2**e
                sign = -1.0 if code >> (e + m) else 1.0
                if E == 2**e - 1:
                    return math.nan if M else sign * math.inf
                return sign * math.ldexp(M + (2**m if E else 0), max(E, 1) - (2 ** (e - 1) - 1) - m)


            def decode(codes, exponent_bits, mantissa_bits):
                every = range(2 ** (1 + exponent_bits + mantissa_bits))
                return np.array([_one(code, exponent_bits, mantissa_bits) for code in every])[codes]
        """,
        "mxfp4": """
            def mxfp4(x):
                codes, scales = [], []
                for block in np.asarray(x, dtype=np.float64).reshape(-1, 32):
                    largest = float(np.abs(block).max())
                    exponent = int(np.float64(largest).view(np.int64) >> 52) - 1023 if largest else -10**6
                    code = max(0, min(254, exponent - 2 + 127))
                    scales.append(code)
                    codes.extend(nearest_e2m1(np.ldexp(block, 127 - code)))
                return np.array(codes), np.array(scales)
        """,
        "gptq": """
            def gptq(W, H, bits, group, damp=0.01):
                top = 2 ** (bits - 1) - 1
                _, scales = quantize_groups(W, bits, group)
                w = W.detach().cpu().numpy().astype(np.float64)
                h = H.detach().cpu().numpy().astype(np.float64)
                inverse = np.linalg.inv(h + damp * np.mean(np.diag(h)) * np.eye(len(h)))
                left = sorted(range(len(h)), key=lambda c: -h[c, c])
                codes = np.zeros(w.shape, dtype=np.int8)
                while left:
                    c = left.pop(0)
                    s = scales[:, c // group].double().numpy()
                    codes[:, c] = np.clip(np.rint(w[:, c] / s), -top, top)
                    error = (w[:, c] - codes[:, c] * s) / inverse[c, c]
                    w -= np.outer(error, inverse[c])
                    inverse -= np.outer(inverse[:, c], inverse[c]) / inverse[c, c]
                return torch.from_numpy(codes), scales
        """,
        "prune": """
            def prune_2_4(W):
                values = torch.empty(W.shape[0], W.shape[1] // 2, dtype=W.dtype)
                places = torch.empty_like(values, dtype=torch.uint8)
                for row, four in np.ndindex(W.shape[0], W.shape[1] // 4):
                    part = W[row, 4 * four : 4 * four + 4].tolist()
                    for k, at in enumerate(sorted(sorted(range(4), key=lambda i: (-abs(part[i]), i))[:2])):
                        values[row, 2 * four + k], places[row, 2 * four + k] = part[at], at
                return values, places
        """,
        "w4a16": """
            @triton.jit
            def w4a16(packed, scales, x, y, OUT, IN: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr):
                first = tl.program_id(0) * ROWS
                half, groups = IN // 2, IN // GROUP
                bytes_at = tl.make_block_ptr(packed, (OUT, half), (half, 1), (first, 0), (ROWS, GROUP // 2), (1, 0))
                scale_at = tl.make_block_ptr(scales, (OUT, groups), (groups, 1), (first, 0), (ROWS, 1), (1, 0))
                acc = tl.zeros((ROWS, GROUP), tl.float32)
                for start in range(0, IN, GROUP):
                    both = tl.load(bytes_at, boundary_check=(0,))
                    low = both.to(tl.int8, bitcast=True) << 4 >> 4
                    high = both.to(tl.int8, bitcast=True) >> 4
                    codes = tl.interleave(low, high).to(tl.float32)
                    scale = tl.load(scale_at, boundary_check=(0,)).to(tl.float32)
                    inputs = tl.load(x + start + tl.arange(0, GROUP)).to(tl.float32)
                    acc += codes * scale * inputs[None, :]
                    bytes_at = tl.advance(bytes_at, (0, GROUP // 2))
                    scale_at = tl.advance(scale_at, (0, 1))
                rows = first + tl.arange(0, ROWS)
                tl.store(y + rows, tl.sum(acc, axis=1), mask=rows < OUT)
        """,
    },
    "lab06_quantization:other": {
        "encode": """
            def encode(x, table):
                mid = (table[1:] + table[:-1]) / 2
                down, up = np.searchsorted(mid, np.abs(x), "left"), np.searchsorted(mid, np.abs(x), "right")
                return np.where(down % 2, up, down) | len(table) * np.signbit(x)
        """,
        "affine": """
            def affine(x, bits=8):
                a = x.double().numpy()
                lo, hi = min(0.0, a.min()), max(0.0, a.max())
                if lo == hi:
                    return x.to(torch.int32), 1.0, 0
                top = (1 << bits) - 1
                scale = (hi - lo) / top
                zero = int(np.rint(-lo / scale))
                return torch.from_numpy(np.clip(np.rint(a / scale) + zero, 0, top)).to(torch.int32), float(scale), zero
        """,
        "groups": """
            def quantize_groups(W, bits, group):
                if W.shape[1] % group:
                    raise ValueError(f"{group} does not divide {W.shape[1]}")
                top = 2 ** (bits - 1) - 1
                codes, scales = [], []
                for part in W.split(group, dim=1):
                    largest = torch.linalg.vector_norm(part, ord=float("inf"), dim=1, keepdim=True)
                    scale = largest / top
                    scale[largest == 0] = 1
                    codes.append((part / scale).round().clamp_(-top, top).char())
                    scales.append(scale.float())
                return torch.hstack(codes), torch.hstack(scales)
        """,
        "smooth": """
            def smooth(X, W, alpha=0.5):
                s = []
                for x, w in zip(X.double().abs().unbind(1), W.double().abs().unbind(1)):
                    s.append(float(x.max() ** alpha * w.max() ** (alpha - 1)) if x.any() and w.any() else 1.0)
                s = torch.tensor(s, dtype=torch.float64)
                return (X / s).to(X.dtype), (W * s).to(W.dtype)
        """,
        "pack": """
            def pack(codes):
                low, high = codes.unflatten(-1, (-1, 2)).int().unbind(-1)
                return (16 * high + low % 16).remainder(256).byte()


            def unpack(packed):
                table = torch.tensor([[(b + 8) % 16 - 8, (b // 16 + 8) % 16 - 8] for b in range(256)], dtype=torch.int8)
                return table[packed.long()].flatten(-2)
        """,
        "kv": """
            def quantize_vectors(x):
                largest = x.double().abs().max(dim=-1, keepdim=True).values
                scales = (largest / 127).to(torch.float16)
                scales = torch.where(scales == 0, torch.ones_like(scales), scales)
                codes = (x.double() / scales.double()).round().clamp(-127, 127)
                return codes.to(torch.int8), scales


            def cache_bytes(config, tokens, bits, scale_bits=0):
                vectors = sum(2 * config.kv_heads for _ in range(config.layers))
                return vectors * tokens * (config.head_width * bits + scale_bits) / 8
        """,
    },
    "lab07_parallelism": {
        "first_message": """
            def first_message(x):
                if dist.get_rank() == 1:
                    y = torch.zeros_like(x)
                    dist.recv(y)
                    x.copy_(y)
                if dist.get_rank() == 0:
                    dist.send(tensor=x, dst=1, tag=0)
                return x
        """,
        "reduce_scatter": """
            def ring_reduce_scatter(x):
                rank, p, right, left = neighbours()
                y = x.detach().clone()
                views = y.tensor_split(p)
                for c in range(p - 1):
                    send, add = views[(rank - 1 - c) % p], views[(rank - 2 - c) % p]
                    buffer = torch.zeros(len(add), dtype=x.dtype)
                    if rank % 2 or p == 1:
                        dist.recv(buffer, left); dist.send(send, right)
                    else:
                        request = dist.isend(send, right); dist.recv(buffer, left); request.wait()
                    add.add_(buffer)
                return views[rank]
        """,
        "all_gather": """
            def ring_all_gather(chunk, n):
                rank, p, right, left = neighbours()
                sizes, chunks = chunk_sizes(n, p), {rank: chunk}
                for step in range(p - 1):
                    source = (rank - step - 1) % p
                    chunks[source] = chunk.new_empty(sizes[source])
                    exchange(chunks[(rank - step) % p], right, chunks[source], left)
                return torch.cat([chunks[c] for c in range(p)])

            def ring_all_reduce(x):
                mine = ring_reduce_scatter(x)
                return ring_all_gather(mine, x.numel())
        """,
        "all_to_all": """
            def all_to_all(parts, rows):
                rank, p, _, _ = neighbours()
                received = [None] * p
                received[rank] = parts[rank].clone()
                for k in range(1, p):
                    source = (rank - k) % p
                    received[source] = torch.empty((rows[source],) + tuple(parts[0].shape[1:]), dtype=parts[0].dtype)
                    a = dist.irecv(received[source], source)
                    b = dist.isend(parts[(rank + k) % p].contiguous(), (rank + k) % p)
                    a.wait(); b.wait()
                return received
        """,
        "average_gradients": """
            from dataclasses import dataclass, field
            @dataclass
            class Bucket:
                places: list = field(default_factory=list)
                bytes: int = 0
                def start(self, gradients):
                    self.flat = torch.zeros(self.bytes // 4)
                    torch.cat([gradients[i].ravel() for i in self.places], out=self.flat)
                    self.work = dist.all_reduce(self.flat, op=dist.ReduceOp.SUM, async_op=True)
            def average_gradients(gradients, bucket_bytes):
                done, now = [], Bucket()
                for i in range(len(gradients) - 1, -1, -1):
                    now.places.append(i); now.bytes += gradients[i].element_size() * gradients[i].nelement()
                    if now.bytes >= bucket_bytes:
                        now.start(gradients); done.append(now); now = Bucket()
                if now.places:
                    now.start(gradients); done.append(now)
                result = [torch.empty_like(g) for g in gradients]
                for b in done:
                    b.work.wait()
                    for i, piece in zip(b.places, torch.split(b.flat, [gradients[i].numel() for i in b.places])):
                        result[i].copy_(piece.div(dist.get_world_size()).view(gradients[i].shape))
                return tuple(result)
        """,
        "moe": """
            def moe(x, choice, gate, weight):
                p, (n, k), d = dist.get_world_size(), choice.shape, x.shape[1]
                pairs = [(int(choice[t, j]), t, j) for t in range(n) for j in range(k)]
                pairs.sort()
                leaving = torch.tensor([sum(e == r for e, _, _ in pairs) for r in range(p)], dtype=torch.int32)
                arriving = torch.zeros(p, dtype=torch.int32)
                dist.all_to_all_single(arriving, leaving)
                out = torch.stack([x[t] for _, t, _ in pairs]) if pairs else x.new_zeros(0, d)
                rows = torch.zeros(int(arriving.sum()), d)
                dist.all_to_all_single(rows, out, arriving.tolist(), leaving.tolist())
                back = torch.zeros(len(pairs), d)
                dist.all_to_all_single(back, expert(rows, weight), leaving.tolist(), arriving.tolist())
                y = torch.zeros_like(x)
                for row, (_, t, j) in zip(back, pairs):
                    y[t] += gate[t, j] * row
                return y
        """,
        "ring_attention": """
            def blocks(k, v, lengths):
                rank, p, right, left = neighbours()
                yield k, v
                for step in range(1, p):
                    shape = len(k), lengths[(rank - step) % p], k.shape[-1]
                    nk, nv = k.new_empty(shape), v.new_empty(shape)
                    exchange(k.contiguous(), right, nk, left); exchange(v.contiguous(), right, nv, left)
                    k, v = nk, nv
                    yield k, v

            def ring_attention(q, k, v, lengths):
                outs, lses = [], []
                for k, v in blocks(k, v, lengths):
                    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
                    lses.append(s.logsumexp(-1, keepdim=True)); outs.append(s.softmax(-1) @ v)
                    if len(outs) == 2:
                        both = torch.logaddexp(*lses)
                        outs, lses = [outs[0] * (lses[0] - both).exp() + outs[1] * (lses[1] - both).exp()], [both]
                return outs[0]
        """,
        "tree_broadcast": """
            def tree_broadcast(x, root):
                p, me = dist.get_world_size(), dist.get_rank()
                turned = (me - root) % p
                if turned:
                    high = 1 << turned.bit_length() - 1
                    dist.recv(x, src=(me - high) % p)
                for reach in (1 << bit for bit in range(turned.bit_length(), p.bit_length())):
                    if turned + reach < p:
                        dist.send(x, dst=(me + reach) % p)
                return x
        """,
        "tensor_parallel": """
            def mine(n, rank, p):
                least, more = divmod(n, p)
                start = rank * least + min(rank, more)
                return slice(start, start + least + (rank < more))

            def shard_mlp(W1, b1, W2, b2, rank, p):
                units = mine(len(b1), rank, p)
                return [W1[:, units].clone(), b1[units], W2[units], b2]

            def mlp_forward(x, shard):
                W1, b1, W2, b2 = shard
                y = torch.addmm(b2 / dist.get_world_size(), F.gelu(torch.addmm(b1, x, W1)), W2)
                dist.all_reduce(y)
                return y
        """,
        "schedules": """
            def gpipe(stage, stages, micro_batches):
                return sum(([f"{kind}{i}" for i in range(micro_batches)] for kind in ("F", "B")), [])

            def one_f_one_b(stage, stages, micro_batches):
                steps, done = [], {"F": 0, "B": 0}
                def do(kind):
                    steps.append(kind + str(done[kind]))
                    done[kind] += 1
                while done["B"] < micro_batches:
                    behind = done["F"] - done["B"] < min(micro_batches, stages - stage)
                    do("F" if behind and done["F"] < micro_batches else "B")
                return steps
        """,
        "zero": """
            def state_bytes(parameters, ranks, stage):
                kept = {0: (2, 2, 12), 1: (2, 2, 12 / ranks), 2: (2, 2 / ranks, 12 / ranks)}
                return parameters * sum(kept.get(stage, (16 / ranks,)))

            def zero1_step(parameter, gradient, m, v, step, lr=0.01):
                rank, p, *_ = neighbours()
                own = torch.nn.Parameter(parameter.tensor_split(p)[rank].clone())
                own.grad = reduce_scatter(gradient).div_(p)
                adam = torch.optim.Adam([own], lr=lr)
                adam.state[own] = {"step": torch.tensor(step - 1.0), "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
                adam.step()
                state = adam.state[own]
                return all_gather(own.detach(), parameter.numel()), state["exp_avg"], state["exp_avg_sq"]
        """,
        "plan": """
            import itertools

            def gpu_bytes(job, dp, tp, pp):
                m = job.batch // dp
                return np.float64(job.parameters / (tp * pp) * (4 + 12 / dp)
                                  + job.sequence * job.width / tp * (2 * job.layers / pp * min(m, pp) + 34))

            def step_seconds(job, dp, tp, pp):
                m = job.batch // dp
                compute = 8 * job.parameters * job.batch * job.sequence / (job.gpus * job.flops_per_second)
                reduces = 6 * job.layers * m / pp * 2 * (tp - 1) / tp * 2 * job.sequence * job.width / job.nvlink
                gradients = 2 * (dp - 1) / dp * 2 * job.parameters / (tp * pp) / job.network
                return (m + pp - 1) / m * (compute + reduces) + gradients

            def layouts(job):
                for tp, pp in itertools.product(range(1, job.node + 1), range(1, job.layers + 1)):
                    dp, rest = divmod(job.gpus, tp * pp)
                    if dp and not (rest or job.node % tp or job.layers % pp or job.batch % dp):
                        yield dp, tp, pp

            def best_layout(job):
                best = None
                for dp, tp, pp in layouts(job):
                    if gpu_bytes(job, dp, tp, pp) <= job.memory:
                        key = step_seconds(job, dp, tp, pp)
                        if best is None or key < best[0]:
                            best = key, (dp, tp, pp)
                return best and best[1]
        """,
    },
    "lab08_paged_kv": {
        "attend": """
            import math

            def attend(queries, keys, values):
                heads, new, width = queries.shape
                keys, values = (each.repeat_interleave(heads // len(each), dim=0) for each in (keys, values))
                scores = torch.einsum("hnd,htd->hnt", queries, keys) / math.sqrt(width)
                future = torch.arange(keys.shape[1]) > torch.arange(keys.shape[1])[-new:, None]
                return torch.einsum("hnt,htd->hnd", scores.masked_fill(future, -math.inf).softmax(-1), values)
        """,
        "waste": """
            def blocks_for(tokens, block):
                return np.int64(tokens) // block + (tokens % block > 0)

            def waste(lengths, block):
                reserved = block * sum(map(lambda length: blocks_for(length, block), lengths))
                return np.float64(reserved - sum(lengths)) / reserved if reserved else 0
        """,
        "pool": '''
            class Free(collections.OrderedDict):
                """Block numbers, the one that has been free longest first."""

            class BlockPool:
                __slots__ = ("size", "idle", "held")

                def __init__(self, size):
                    self.size, self.idle, self.held = size, Free.fromkeys(range(size)), collections.Counter()

                free = property(lambda self: len(self.idle))

                def _known(self, block):
                    if block not in range(self.size):
                        raise ValueError(block)
                    return block

                def holders(self, block):
                    return self.held[self._known(block)]

                def take(self):
                    try:
                        block, _ = self.idle.popitem(last=False)
                    except KeyError:
                        raise OutOfBlocks from None
                    self.held[block] += 1
                    return np.int64(block)

                def share(self, block):
                    if not self.holders(block):
                        raise ValueError("free")
                    self.held[block] += 1

                def drop(self, block):
                    if not self.holders(block):
                        raise ValueError("free")
                    self.held.subtract([block])
                    if not self.held[block]:
                        self.idle[block] = None
        ''',
        "table": """
            class Sequence:
                def __repr__(self):
                    return f"{type(self).__name__}({self.blocks})"

            class BlockTable(Sequence):
                def __init__(self, pool, block):
                    self.pool, self.block = pool, block
                    self.blocks, self.length = [], 0

                def slot(self, position):
                    if position not in range(self.length):
                        raise IndexError(position)
                    at, offset = divmod(position, self.block)
                    return self.blocks[at], offset

                def append(self):
                    if self.length % self.block == 0:
                        self.blocks.append(self.pool.take())
                    self.length += 1
                    return self.slot(self.length - 1)

                def release(self):
                    while self.blocks:
                        self.pool.drop(self.blocks.pop())
                    self.length = 0

            def gather(cache, blocks, length):
                return torch.cat([cache[block] for block in blocks] or [cache[:0].flatten(0, 1)])[:length].movedim(0, 1)
        """,
        "fork": """
            import copy

            def fork(table):
                child = copy.copy(table)
                child.blocks = table.blocks[:]
                collections.deque(map(table.pool.share, child.blocks), maxlen=0)
                return child

            def append_own(table, caches):
                inside = table.length % table.block
                if inside and table.pool.holders(table.blocks[-1]) > 1:
                    shared = table.blocks.pop()
                    try:
                        table.blocks.append(table.pool.take())
                    except OutOfBlocks:
                        table.blocks.append(shared)
                        raise
                    for cache in caches:
                        cache[table.blocks[-1]].copy_(cache[shared])
                    table.pool.drop(shared)
                return table.append()
        """,
        "prefix": """
            import itertools

            def block_keys(tokens, block):
                return [repr(tokens[:end]) for end in range(block, len(tokens) + 1, block)]

            def reusable(tokens, block, known):
                keys = block_keys(tokens[:-1], block)
                return list(map(known.__getitem__, itertools.takewhile(known.__contains__, keys)))
        """,
        "latency": """
            import statistics

            def ttft_tpot(arrival, times):
                gaps = [b - a for a, b in itertools.pairwise(times)]
                return times[0] - arrival, statistics.fmean(gaps) if gaps else 0

            def goodput(arrivals, token_seconds, most_ttft, most_tpot):
                last = max(map(max, token_seconds.values()))
                pairs = ((ttft_tpot(arrivals[name], times)) for name, times in token_seconds.items())
                return sum(a <= most_ttft and b <= most_tpot for a, b in pairs) / (last - min(arrivals.values()))
        """,
        "speculate": """
            def speculate(drafted, draft, target, uniforms):
                def tokens():
                    for i, token in enumerate(drafted):
                        if uniforms[i] * draft[i][token] >= target[i][token]:
                            rest = (target[i] - draft[i]).clip(0)
                            yield pick(rest / rest.sum(), uniforms[-1])
                            return
                        yield token
                    yield pick(target[-1], uniforms[-1])
                return [*tokens()]
        """,
        "step_work": """
            def step_work(config, sequences, past, new, itemsize=2):
                seen = sum(past + j + 1 for j in range(new))
                token = 2 * config.layers * config.kv_heads * config.head_width * np.int64(itemsize)
                flops = [2 * new * matrix_weights(config), 4 * config.layers * config.heads * config.head_width * seen]
                read = itemsize * matrix_weights(config) + sequences * past * token
                return lk.Work(np.float64(sum(flops)) * sequences, read, sequences * new * token)
        """,
        "paged": """
            def paged_attention(q, keys, values, tables, lengths):
                # all scores of a sequence first, then its values: the softmax is not online
                (B, H, h), (_, block, K, _) = q.shape, keys.shape
                out = torch.zeros_like(q)
                for row, length in enumerate(lengths.tolist()):
                    numbers = tables[row][tables[row] >= 0].tolist()
                    starts = range(0, length, block)
                    grouped = q[row].view(K, H // K, h)
                    turned = (keys[b][: length - at].permute(1, 2, 0) for b, at in zip(numbers, starts))
                    weights = torch.cat([grouped @ each for each in turned], -1).div_(h**0.5).softmax(-1)
                    for b, at in zip(numbers, starts):
                        part = weights[..., at : at + block]
                        out[row] += torch.matmul(part, values[b][: length - at].transpose(0, 1)).reshape(H, h)
                return out
        """,
        "paged_kernel": """
            @triton.jit
            def _tile(start, rows, stride: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
                tile = tl.make_block_ptr(start, (rows, WIDTH), (stride, 1), (0, 0), (BLOCK, WIDTH), (1, 0))
                return tl.load(tile, boundary_check=(0,), padding_option="zero").to(tl.float32)

            @triton.jit
            def _rescale(m, total, acc, s):
                top = tl.maximum(m, tl.max(s, axis=1))
                shrink, weights = tl.exp2(m - top), tl.exp2(s - top[:, None])
                return top, total * shrink + tl.sum(weights, axis=1), acc * shrink[:, None], weights

            @triton.jit
            def paged_decode(
                q, keys, values, tables, lengths, out, scale, most_blocks,
                H: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
            ):
                row, head = tl.program_id(0), tl.program_id(1)
                GROUP: tl.constexpr = H // K
                first = (row * H + head * GROUP) * WIDTH
                mine = tl.make_block_ptr(q + first, (GROUP, WIDTH), (WIDTH, 1), (0, 0), (GROUP, WIDTH), (1, 0))
                query = tl.load(mine).to(tl.float32) * (scale * 1.4426950408889634)
                length = tl.load(lengths + row).to(tl.int32)
                m = tl.full([GROUP], -float("inf"), tl.float32)
                total = tl.zeros([GROUP], tl.float32)
                acc = tl.zeros([GROUP, WIDTH], tl.float32)
                entry = tables + row * most_blocks
                left = length
                while left > 0:
                    start = tl.load(entry) * (BLOCK * K * WIDTH) + head * WIDTH
                    here = tl.minimum(left, BLOCK)
                    k = _tile(keys + start, here, K * WIDTH, BLOCK, WIDTH)
                    v = _tile(values + start, here, K * WIDTH, BLOCK, WIDTH)
                    s = tl.sum(query[:, None, :] * k[None, :, :], axis=2)
                    s = tl.where((tl.arange(0, BLOCK) < here)[None, :], s, -float("inf"))
                    m, total, acc, weights = _rescale(m, total, acc, s)
                    acc += tl.sum(weights[:, :, None] * v[None, :, :], axis=1)
                    entry += 1
                    left -= BLOCK
                result = tl.make_block_ptr(out + first, (GROUP, WIDTH), (WIDTH, 1), (0, 0), (GROUP, WIDTH), (1, 0))
                tl.store(result, acc / total[:, None])
        """,
        "scheduler": """
            class Scheduler:
                def __init__(self, blocks, block):
                    self.pool, self.block = BlockPool(blocks), block
                    self.blocks = blocks
                    self.waiting, self.running = [], []
                    self._number = itertools.count()
                    self._when = {}

                def submit(self, name, prompt, new_tokens):
                    most = len(prompt) + new_tokens - 1
                    if -(-most // self.block) > self.pool.size:
                        raise ValueError(f"{name} needs more than {self.pool.size} blocks")
                    job = Job(name, list(prompt), new_tokens, BlockTable(self.pool, self.block))
                    self._when[name] = next(self._number)
                    self.waiting = self.waiting + [job]

                def _evict(self):
                    job = max(self.running, key=lambda one: self._when[one.name])
                    self.running.remove(job)
                    job.table.release()
                    self.waiting.insert(0, job)
                    return job

                def step(self):
                    stayed = []
                    before = len(self.running)
                    index = 0
                    while index < len(self.running):
                        job = self.running[index]
                        full = job.table.length == len(job.table.blocks) * self.block
                        if full and self.pool.free == 0:
                            self._evict()
                            continue
                        job.table.append()
                        place = {"past": job.table.length - 1, "blocks": job.table.blocks[:]}
                        stayed.append(Entry(name=job.name, tokens=job.tokens[-1:], **place))
                        index += 1
                    if len(self.running) < before:
                        return stayed
                    free = self.pool.free
                    for job in list(self.waiting):
                        free -= blocks_for(len(job.tokens), self.block)
                        if free < 0:
                            break
                        [job.table.append() for _ in job.tokens]
                        self.waiting = self.waiting[1:]
                        self.running.append(job)
                        stayed.append(Entry(job.name, job.tokens, 0, job.table.blocks[:]))
                    return stayed

                def accept(self, name, token):
                    (job,) = [one for one in self.running if one.name == name]
                    job.produced += [token]
                    if len(job.produced) >= job.new_tokens:
                        self.running = [one for one in self.running if one is not job]
                        job.table.release()
        """,
    },
    "lab09_flash_attention": {
        "attention": """
            def attention(q, k, v):
                return torch.softmax(torch.from_numpy(q @ k.T) / q.shape[-1] ** 0.5, -1).numpy() @ v
        """,
        "chain_bytes": """
            def chain_bytes(M, N, d, item=2):
                outside = (M + N) * d + M * N
                return [np.int64(each * item) for each in (outside, 2 * M * N, outside)]

            least_bytes = lambda M, N, d, item=2: 2 * item * d * (M + N)
        """,
        "step": """
            class State(tuple):
                pass

            def step(state, scores, values):
                before, l, o = state
                m = np.max(scores, initial=before)
                shift = m if np.isfinite(m) else 0.0
                powers = np.exp(scores - shift)
                l, o = l * np.exp(before - shift), o * np.exp(before - shift)
                o += np.einsum("b,bd->d", powers, values)
                return [m, l + np.sum(powers), o]
        """,
        "merge": """
            def merge(a, b):
                m = np.maximum(a[0], b[0])
                with np.errstate(invalid="ignore"):
                    wa, wb = (np.nan_to_num(np.exp(each[0] - m)) for each in (a, b))
                a[2][:] *= wa[:, np.newaxis]
                a[2][:] += wb[:, np.newaxis] * b[2]
                return [m, wa * a[1] + wb * b[1], a[2]]
        """,
        "flash": """
            LOG2E = tl.constexpr(1.4426950408889634)

            @triton.jit
            def update(m, l, scores):
                largest = tl.maximum(m, tl.max(scores, 1))
                correction = tl.exp2(m - largest)
                powers = tl.exp2(scores - largest[:, None])
                return largest, l * correction + tl.sum(powers, 1), correction, powers

            @triton.jit
            def flash(q, k, v, out, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
                mine = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None] * D + tl.arange(0, D)[None, :]
                queries = tl.load(q + mine)
                m = tl.full([BM], float("-inf"), tl.float32)
                l = tl.full([BM], 0.0, tl.float32)
                o = tl.zeros([BM, D], tl.float32)
                start = 0
                while start < N:
                    at = start + tl.arange(0, BN)
                    turned = tl.load(k + at[None, :] * D + tl.arange(0, D)[:, None])
                    m, l, correction, powers = update(m, l, tl.dot(queries, turned) * (scale * LOG2E))
                    values = tl.load(v + at[:, None] * D + tl.arange(0, D)[None, :])
                    o = tl.dot(powers.to(tl.float16), values, acc=o * correction[:, None])
                    start += BN
                tl.store(out + mine, (o * (1 / l)[:, None]).to(out.dtype.element_ty))
        """,
        "flash_causal": """
            @triton.jit
            def one_tile(
                q, k, v, rows, start, N, scale, m, l, o, D: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr
            ):
                at, columns = start + tl.arange(0, BN), tl.arange(0, D)
                keys = tl.load(k + at[:, None] * D + columns[None, :], mask=at[:, None] < N, other=0.0)
                values = tl.load(v + at[:, None] * D + columns[None, :], mask=at[:, None] < N, other=0.0)
                scores = tl.dot(q, keys.T) * scale
                if MASKED:
                    scores += tl.where(rows[:, None] >= at[None, :], 0.0, -float("inf"))
                largest = tl.maximum(m, tl.max(scores, axis=1))
                powers = tl.exp(scores - largest[:, None])
                correction = tl.exp(m - largest)
                o = o * correction[:, None] + tl.dot(powers.to(tl.float16), values)
                return largest, l * correction + tl.sum(powers, axis=1), o

            @triton.jit
            def flash_causal(q, k, v, out, lse, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
                first = tl.program_id(0) * BM
                rows, columns = first + tl.arange(0, BM), tl.arange(0, D)
                mine, inside = rows[:, None] * D + columns[None, :], (rows < N)[:, None]
                queries = tl.load(q + mine, mask=inside, other=0.0)
                m = tl.full([BM], -float("inf"), dtype=tl.float32)
                l, o = tl.zeros([BM], dtype=tl.float32), tl.zeros([BM, D], dtype=tl.float32)
                below = first // BN * BN  # tiles that end before the diagonal need no mask
                for start in range(0, below, BN):
                    m, l, o = one_tile(queries, k, v, rows, start, N, scale, m, l, o, D, BN, False)
                for start in range(below, min(first + BM, N), BN):
                    m, l, o = one_tile(queries, k, v, rows, start, N, scale, m, l, o, D, BN, True)
                tl.store(out + mine, tl.fdiv(o, l[:, None]), mask=inside)
                tl.store(lse + rows, m + tl.log2(l) * 0.6931471805599453, mask=rows < N)
        """,
        "flash_bytes": """
            def tile_rows(sram, d, item=2):
                rows, _ = divmod(sram, 4 * d * item)
                if not rows:
                    raise ValueError
                return np.int64(rows)

            def flash_bytes(N, d, sram, item=2):
                return 2 * N * d * item * (1 + math.ceil(N / tile_rows(sram, d, item)))
        """,
        "backward": """
            def backward(q, k, v, o, lse, do, block):
                dq, scale = 0, q.shape[1] ** -0.5
                delta = np.einsum("md,md->m", do, o)[:, None]
                dk, dv = [], []
                cuts = range(block, len(k), block)
                for keys, values in zip(np.split(k, cuts), np.split(v, cuts)):
                    p = q @ keys.T
                    p *= scale
                    p -= lse[:, None]
                    np.exp(p, out=p)
                    dv.append(p.T @ do)
                    p *= do @ values.T - delta
                    p *= scale
                    dq = dq + p @ keys
                    dk.append(p.T @ q)
                return [dq, np.concatenate(dk), np.concatenate(dv)]
        """,
        "grouped_decode": """
            @triton.jit
            def grouped_decode(q, k, v, out, N, scale, GROUP, D: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr):
                g, row, columns = tl.program_id(0), tl.arange(0, BG), tl.arange(0, D)[None, :]
                mine, inside = (g * GROUP + row)[:, None] * D + columns, row[:, None] < GROUP
                queries = tl.load(q + mine, mask=inside, other=0.0)
                m, l = tl.full([BG, 1], -float("inf"), dtype=tl.float32), tl.zeros([BG, 1], dtype=tl.float32)
                o = tl.zeros([BG, D], dtype=tl.float32)
                k += g * N * D
                v += g * N * D
                for tile in range(tl.cdiv(N, BN)):
                    at = (tile * BN + tl.arange(0, BN))[:, None]
                    keys = tl.load(k + at * D + columns, mask=at < N, other=0.0)
                    scores = tl.where(tl.trans(at) < N, tl.dot(queries, tl.trans(keys)) * scale, -1e30)
                    largest = tl.maximum(m, tl.max(scores, axis=1, keep_dims=True))
                    powers, correction = tl.exp(scores - largest), tl.exp(m - largest)
                    l = l * correction + tl.sum(powers, axis=1, keep_dims=True)
                    values = tl.load(v + at * D + columns, mask=at < N, other=0.0)
                    o = o * correction + tl.dot(powers.to(tl.float16), values)
                    m = largest
                tl.store(out + mine, o / l, mask=inside)
        """,
        "decode_split": """
            import functools

            @triton.jit
            def tile(k, g, N, at, end, D: tl.constexpr):
                place = (g * N + at)[:, None] * D + tl.arange(0, D)[None, :]
                return tl.load(k + place, mask=(at < end)[:, None], other=0.0)

            @triton.jit
            def decode_split(
                q, k, v, m_out, l_out, o_out, N, CHUNK, scale, GROUP,
                D: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr,
            ):
                g, s, row = tl.program_id(0), tl.program_id(1), tl.arange(0, BG)
                head, inside = g * GROUP + row, row < GROUP
                queries = tl.load(q + head[:, None] * D + tl.arange(0, D)[None, :], mask=inside[:, None], other=0.0)
                m = tl.full([BG], -float("inf"), dtype=tl.float32)
                l, o = tl.zeros([BG], dtype=tl.float32), tl.zeros([BG, D], dtype=tl.float32)
                for step in range(0, CHUNK, BN):
                    at = s * CHUNK + step + tl.arange(0, BN)
                    end = min(s * CHUNK + CHUNK, N)
                    if s * CHUNK + step < end:
                        scores = tl.dot(queries, tile(k, g, N, at, end, D).T) * scale
                        scores = tl.where((at < end)[None, :], scores, -float("inf"))
                        largest = tl.maximum(m, tl.max(scores, axis=1))
                        powers = tl.exp(scores - largest[:, None])
                        l = l * tl.exp(m - largest) + tl.sum(powers, axis=1)
                        o = o * tl.exp(m - largest)[:, None] + tl.dot(powers.to(tl.float16), tile(v, g, N, at, end, D))
                        m = largest
                place = s * (tl.num_programs(0) * GROUP) + head
                tl.store(m_out + place, m, mask=inside)
                tl.store(l_out + place, l, mask=inside)
                tl.store(o_out + place[:, None] * D + tl.arange(0, D)[None, :], o, mask=inside[:, None])

            def combine(m, l, o):
                m, l, o = functools.reduce(merge, zip(m, l, o))
                return o / l[:, None]
        """,
        "flash_wmma": """
            %%cuda flash_wmma
            #include <cuda/pipeline>
            #include <mma.h>
            using namespace nvcuda;
            using Sums = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

            struct Tiles { half k[16][88], v[16][88]; };

            template <int rows>
            __device__ void fetch(half (*to)[88], const half* from, cuda::pipeline<cuda::thread_scope_thread>& pipe)
            {
                for (int row = 0; row < rows; row += 4) {
                    int r = row + threadIdx.x / 8, c = threadIdx.x % 8 * 8;
                    cuda::memcpy_async(&to[r][c], from + 64 * r + c, cuda::aligned_size_t<16>(16), pipe);
                }
            }

            __global__ void flash_wmma(const half* q, const half* k, const half* v, float* out, int keys, float scale)
            {
                __shared__ alignas(128) Tiles tiles[2];
                __shared__ alignas(128) half queries[16][88], p[16][24];
                __shared__ alignas(128) float s[16][24], o[16][72];
                auto pipe = cuda::make_pipeline();
                const int lane = threadIdx.x;
                float m[8], l[8];
                for (int i = 0; i < 8; ++i) m[i] = -1e30f, l[i] = 0.0f;
                for (int i = lane; i < 16 * 72; i += 32) o[i / 72][i % 72] = 0.0f;
                pipe.producer_acquire();
                fetch<16>(queries, q + blockIdx.x * 1024, pipe);
                fetch<16>(tiles[0].k, k, pipe);
                fetch<16>(tiles[0].v, v, pipe);
                pipe.producer_commit();
                for (int from = 0; from < keys; from += 16) {
                    Tiles& tile = tiles[from / 16 % 2];
                    if (from + 16 < keys) {
                        pipe.producer_acquire();
                        fetch<16>(tiles[1 - from / 16 % 2].k, k + (from + 16) * 64, pipe);
                        fetch<16>(tiles[1 - from / 16 % 2].v, v + (from + 16) * 64, pipe);
                        pipe.producer_commit();
                        cuda::pipeline_consumer_wait_prior<1>(pipe);
                    } else {
                        cuda::pipeline_consumer_wait_prior<0>(pipe);
                    }
                    __syncthreads();
                    Sums sum;
                    wmma::fill_fragment(sum, 0.0f);
                    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
                    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> kt;
                    #pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        wmma::load_matrix_sync(a, queries[0] + 16 * c, 88);
                        wmma::load_matrix_sync(kt, tile.k[0] + 16 * c, 88);
                        wmma::mma_sync(sum, a, kt, sum);
                    }
                    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= scale;
                    wmma::store_matrix_sync(s[0], sum, 24, wmma::mem_row_major);
                    __syncthreads();
                    for (int i = 0; i < 8; ++i) {
                        int row = i % 2 + i / 2 * 4 + lane / 16 * 2;
                        float score = s[row][lane % 16], top = score;
                        for (int d = 1; d < 16; d *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
                        top = fmaxf(top, m[i]);
                        float power = __expf(score - top), total = power, correction = __expf(m[i] - top);
                        for (int d = 1; d < 16; d *= 2) total += __shfl_xor_sync(~0u, total, d);
                        l[i] = fmaf(l[i], correction, total);
                        m[i] = top;
                        p[row][lane % 16] = half(power);
                        for (int c = 0; c < 4; ++c) o[row][lane % 16 + 16 * c] *= correction;
                    }
                    __syncthreads();
                    wmma::load_matrix_sync(a, p[0], 24);
                    for (int c = 0; c < 64; c += 16) {
                        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
                        wmma::load_matrix_sync(b, tile.v[0] + c, 88);
                        wmma::load_matrix_sync(sum, o[0] + c, 72, wmma::mem_row_major);
                        wmma::mma_sync(sum, a, b, sum);
                        wmma::store_matrix_sync(o[0] + c, sum, 72, wmma::mem_row_major);
                    }
                    __syncthreads();
                }
                for (int i = 0; i < 8; ++i) {
                    int row = i % 2 + i / 2 * 4 + lane / 16 * 2;
                    for (int c = lane % 16; c < 64; c += 16) out[blockIdx.x * 1024 + row * 64 + c] = o[row][c] / l[i];
                }
            }
        """,
    },
}

UNUSUAL["lab00_your_machine"] |= {
    "copy_bandwidth": """
        from fractions import Fraction

        class Copy:
            moved = property(lambda self: sum((self.elements * self.itemsize,) * 2))

            def __init__(self, elements, itemsize):
                self.elements, self.itemsize = elements, itemsize

        def copy_bandwidth(elements, itemsize, seconds):
            return float(Fraction(Copy(elements, itemsize).moved) / Fraction(seconds))
    """,
    "large_enough": """
        import bisect

        def large_enough(peak, bandwidth, itemsize):
            reaches = lambda n: 2 * n * bandwidth >= 3 * itemsize * peak
            return 1 + bisect.bisect_left(range(1, 1_000_000), True, key=reaches)
    """,
}

UNUSUAL["lab00_your_machine: another algorithm"] = {
    "warmup_end": """
        from itertools import takewhile
        from statistics import median

        def warmup_end(samples):
            values = list(map(float, samples))
            limit = median(values[len(values) // 2 :]) * 5 / 4
            return len(list(takewhile(limit.__lt__, values)))
    """,
    "median_interval": """
        from fractions import Fraction
        from itertools import accumulate, takewhile

        def median_interval(samples):
            n = samples.size
            tails = accumulate(Fraction(math.comb(n, i), 2**n) for i in range(n))
            l = sum(1 for _ in takewhile(lambda tail: tail <= Fraction(1, 40), tails))
            if l == 0:
                raise ValueError(f"{n} samples have no interval")
            ordered = np.partition(samples, (l - 1, n - l))
            return np.array([ordered[l - 1], ordered[n - l]])
    """,
    "standardize": """
        def standardize(x):
            n = x.size
            y, mean, squares = np.empty_like(x), x.mean(), 0.0
            for start in range(0, n, 1024):
                block = np.subtract(x[start : start + 1024], mean, out=y[start : start + 1024])
                squares += float(np.vdot(block, block))
            if x.max() == x.min():
                y[:] = 0
            else:
                y *= 1 / math.sqrt(squares / n)
            return y
    """,
    "costs": """
        class Cost(tuple):
            pass

        def mm_cost(m, n, k, itemsize):
            left, right, out = (np.broadcast_to(np.int8(0), shape) for shape in ((m, k), (k, n), (m, n)))
            return Cost((float(2 * k * out.size), sum(each.size for each in (left, right, out)) * itemsize))

        def mv_cost(m, n, itemsize):
            return mm_cost(m, 1, n, itemsize)

        def dot_cost(n, itemsize):
            return list(mv_cost(1, n, itemsize))
    """,
    "attainable": """
        from dataclasses import dataclass

        @dataclass
        class Roof:
            peak: float
            bandwidth: float
            ridge = property(lambda self: self.peak / self.bandwidth)

        def ridge(peak, bandwidth):
            return Roof(peak, bandwidth).ridge

        def attainable(intensity, peak, bandwidth):
            return np.interp(intensity, [0.0, Roof(peak, bandwidth).ridge], [0.0, peak])
    """,
    "bound": """
        def bound(flops, bytes_moved, spec, dtype):
            seconds = {"memory": bytes_moved / spec.bandwidth(), "compute": flops / spec.peak(dtype)}
            return max(reversed(seconds), key=seconds.get)
    """,
    "large_enough": """
        def large_enough(peak, bandwidth, itemsize):
            def starves(n):
                flops, moved = mm_cost(n, n, n, itemsize)
                return flops * bandwidth < peak * moved

            high = 1
            while starves(high):
                high *= 2
            low = high // 2
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if starves(middle) else (low, middle)
            return np.int64(high)
    """,
    "fastest_seconds": """
        def fastest_seconds(flops, bytes_moved, peak, bandwidth):
            return np.max(np.array([flops, bytes_moved], float) / [peak, bandwidth])

        def too_good(seconds, flops, bytes_moved, peak, bandwidth):
            least = fastest_seconds(flops, bytes_moved, peak, bandwidth)
            return np.less(seconds, least - 0.02 * least)
    """,
}

UNUSUAL["lab01_linear_algebra"] |= {
    "broadcast": """
        def broadcast(layout, shape):
            memory = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), layout.shape, layout.strides)
            return Layout(tuple(shape), np.broadcast_to(memory, shape).strides, layout.offset)
    """,
    "matmul": """
        count = 0

        def counted(function):
            @functools.wraps(function)
            def inner(*arguments):
                global count
                count += 1
                return function(*arguments)

            return inner

        @counted
        def matmul(a, b, c):
            def add(factor, row, sums):
                for j in range(c.shape[1]):
                    sums[j] += factor * b[row, j]

            for i in range(c.shape[0]):
                sums = [c[i, j] for j in range(c.shape[1])]
                for k in range(a.shape[1]):
                    add(a[i, k], k, sums)
                for j, total in enumerate(sums):
                    c[i, j] = total
    """,
    "cosines": """
        def cosines(x, w):
            out = x @ w.T
            for rows, shape in ((x, (-1, 1)), (w, (1, -1))):
                lengths = np.sqrt(np.einsum("rf,rf->r", rows, rows)).reshape(shape)
                np.divide(out, lengths, out=out, where=lengths > 0)
            return out
    """,
}

UNUSUAL["lab02_pca"] |= {
    "project": """
        def project(X, basis):
            shadow, axes = np.zeros_like(X), []
            for column in basis.T:
                for axis in axes * 2:  # Gram and Schmidt, twice
                    column = column - (axis @ column) * axis
                axes.append(column / np.linalg.norm(column))
                shadow += np.outer(X @ axes[-1], axes[-1])
            return shadow
    """,
    "pca_svd": """
        def pca_svd(X, k):
            if k > min(X.shape):
                raise ValueError(k)
            mean = X.mean(axis=0)
            _, R = np.linalg.qr(X - mean)
            found = np.linalg.svd(R, full_matrices=False)
            return PCA(variances=np.square(found.S[:k]) / (len(X) - 1), components=found.Vh[:k].T, mean=mean)
    """,
    "streaming_pca": """
        def streaming_pca(chunks, d, k):
            n, shift, total, scatter = 0, None, np.zeros(d), np.zeros((d, d))
            for chunk in filter(len, chunks()):
                shift = chunk[0].copy() if shift is None else shift
                moved = chunk - shift
                n, total = n + len(moved), total + moved.sum(axis=0)
                scatter += moved.T @ moved
            if n < 2:
                raise ValueError(n)
            values, vectors = np.linalg.eigh((scatter - np.outer(total, total) / n) / (n - 1))
            return PCA(shift + total / n, vectors[:, ::-1][:, :k], values[::-1][:k].clip(0))
    """,
}

# A second set of answers: in place, exact, by rows, by merging.
UNUSUAL["lab02_pca: in place"] = {
    "covariance": """
        def covariance(X):
            if (rows := len(X)) < 2:
                raise ValueError(f"needs two rows, got {rows}")
            mean, scatter = np.zeros(X.shape[1]), np.zeros((X.shape[1], X.shape[1]))
            for seen, x in enumerate(X.astype(np.float64), start=1):  # Welford
                before = x - mean
                mean += before / seen
                scatter += np.multiply.outer(before, x - mean)
            return (scatter + scatter.T) / 2 / (rows - 1)
    """,
    "variance_split": """
        def variance_split(X, Q):
            X -= X.mean(axis=0)  # the text does not forbid it
            along = []
            for q in Q.T:
                shadow = X @ q
                X -= shadow[:, None] * q
                along.append(shadow @ shadow / (len(X) - 1))
            return along, np.vdot(X, X) / (len(X) - 1)
    """,
    "rank_for": """
        from fractions import Fraction

        def rank_for(variances, keep):
            if keep < 0 or keep > 1:
                raise ValueError("keep lies from 0 to 1")
            exact = [Fraction(float(each)) for each in variances]
            budget, k = (1 - Fraction(float(keep))) * sum(exact), len(exact)
            while k and budget >= exact[k - 1]:
                k -= 1
                budget -= exact[k]
            return k
    """,
    "subspace_cosine": """
        def subspace_cosine(x, table, basis):
            there, cosine, share = project(x[None], basis)[0], np.zeros(len(table)), np.zeros(len(table))
            for i in range(0, len(table), 1000):
                rows = table[i : i + 1000]
                shadows = project(rows, basis)
                inside, whole = (shadows * shadows).sum(1), (rows * rows).sum(1)
                lengths = np.sqrt(inside) * np.linalg.norm(there)
                np.divide(shadows @ there, lengths, out=cosine[i : i + 1000], where=lengths != 0)
                np.divide(inside, whole, out=share[i : i + 1000], where=whole != 0)
            return cosine, share
    """,
    "randomized_pca": """
        def randomized_pca(times, times_t, d, k, power, rng, oversample=8):
            block = rng.uniform(-1, 1, size=(d, min(d, k + oversample)))
            for turn in range(1 + power):
                back = times_t(orthonormal(times(block)))
                block = orthonormal(back) if turn < power else None
            Q, R = np.linalg.qr(back)
            left, S, _ = np.linalg.svd(R, full_matrices=False)
            return np.ascontiguousarray((Q @ left)[:, :k]), S[:k]

        def orthonormal(block):
            return np.linalg.svd(block, full_matrices=False)[0]
    """,
    "streaming_pca": """
        import functools

        class Moments:
            def __init__(self, rows):
                self.n, self.mean = len(rows), rows.mean(axis=0) if len(rows) else np.zeros(rows.shape[1])
                rows -= self.mean  # the chunk is mine until I ask for the next
                self.scatter = rows.T @ rows

            def __add__(self, other):
                n = self.n + other.n
                if n:
                    gap = other.mean - self.mean
                    self.scatter += other.scatter + np.outer(gap, gap) * (self.n * other.n / n)
                    self.mean += gap * (other.n / n)
                self.n = n
                return self

        def streaming_pca(chunks, d, k):
            total = functools.reduce(Moments.__add__, map(Moments, chunks()), Moments(np.empty((0, d))))
            if total.n < 2:
                raise ValueError(f"{total.n} rows have no spread")
            U, S, _ = np.linalg.svd(total.scatter / (total.n - 1))
            return PCA(total.mean, U[:, :k], S[:k])
    """,
    "low_rank": """
        def factor(W, k):
            U, S, Vt = np.linalg.svd(W)
            root = np.sqrt(S[:k])
            return np.einsum("mk,k->mk", U[:, :k], root), root[:, None] * Vt[:k]

        def apply_factors(X, A, B):
            return np.dot(np.dot(X, A), B)
    """,
}

# A second set of answers, in torch and with block pointers.
UNUSUAL["lab09_flash_attention: in torch"] = {
    "attention": """
        def attention(q, k, v):
            q, k, v = map(torch.as_tensor, (q, k, v))
            return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0].numpy()
    """,
    "step": """
        class Running:
            def __init__(self, m, l, o):
                self.m, self.l, self.o = m, l, o

            def add(self, s, v):
                if s == -math.inf:
                    return
                if s > self.m:
                    c = math.exp(self.m - s)
                    self.l *= c
                    self.o *= c
                    self.m = s
                w = math.exp(s - self.m)
                self.l += w
                self.o += w * v

        def step(state, scores, values):
            r = Running(*state)
            for s, v in zip(scores.tolist(), values):
                r.add(s, v)
            return r.m, r.l, r.o
    """,
    "merge": """
        def merge(a, b):
            (ma, la, oa), (mb, lb, ob) = a, b
            swap = mb > ma
            hi = np.where(swap, mb, ma); lo = np.where(swap, ma, mb)
            gap = np.full_like(hi, -math.inf)
            np.subtract(lo, hi, out=gap, where=lo != -math.inf)
            c = np.exp(gap)
            ca, cb = np.where(swap, c, 1.0), np.where(swap, 1.0, c)
            la *= ca; la += cb * lb
            oa *= ca[..., None]; oa += cb[..., None] * ob
            ma[:] = hi
            return a
    """,
    "flash": """
        @triton.jit
        def tile_step(m, l, ot, st, values):
            new = tl.maximum(m, tl.max(st, axis=0))
            fix = tl.exp2(m - new)
            pt = tl.exp2(st - new[None, :])
            ot = ot * fix[None, :]
            ot = tl.dot(tl.trans(values), pt.to(values.dtype), ot)
            return new, l * fix + tl.sum(pt, axis=0), ot


        @triton.jit
        def flash(q, k, v, out, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
            i = tl.program_id(0)
            n_q = tl.num_programs(0) * BM
            qp = tl.make_block_ptr(q, (n_q, D), (D, 1), (i * BM, 0), (BM, D), (1, 0))
            kp = tl.make_block_ptr(k, shape=(N, D), strides=(D, 1), offsets=(0, 0), block_shape=(BN, D), order=(1, 0))
            vp = tl.make_block_ptr(v, shape=(N, D), strides=(D, 1), offsets=(0, 0), block_shape=(BN, D), order=(1, 0))
            op = tl.make_block_ptr(out, (n_q, D), (D, 1), (i * BM, 0), (BM, D), (1, 0))
            queries = tl.trans(tl.load(qp))
            m = tl.full([BM], -float("inf"), dtype=tl.float32)
            l = tl.zeros([BM], dtype=tl.float32)
            ot = tl.zeros([D, BM], dtype=tl.float32)
            for _ in range(0, N // BN):
                keys = tl.load(kp)
                values = tl.load(vp)
                st = tl.dot(keys, queries) * (scale * 1.4426950408889634)
                m, l, ot = tile_step(m, l, ot, st, values)
                kp = tl.advance(kp, (BN, 0))
                vp = tl.advance(vp, (BN, 0))
            tl.store(op, tl.trans(ot / l[None, :]).to(out.dtype.element_ty))
    """,
    "flash_causal": """
        @triton.jit
        def flash_causal(q, k, v, out, lse, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
            first = tl.program_id(0) * BM
            rows = first + tl.arange(0, BM)
            m = tl.full([BM], -float("inf"), dtype=tl.float32)
            l = tl.zeros([BM], dtype=tl.float32)
            o = tl.zeros([BM, D], dtype=tl.float32)
            qp = tl.make_block_ptr(q, (N, D), (D, 1), (first, 0), (BM, D), (1, 0))
            queries = tl.load(qp, boundary_check=(0,), padding_option="zero")
            queries = (queries * (scale * 1.4426950408889634)).to(tl.float16)
            tiles = tl.cdiv(tl.minimum(N, first + BM), BN)
            for t in range(tiles):
                start = (tiles - 1 - t) * BN
                kp = tl.make_block_ptr(k, (D, N), (1, D), (0, start), (D, BN), (0, 1))
                vp = tl.make_block_ptr(v, (N, D), (D, 1), (start, 0), (BN, D), (1, 0))
                s = tl.dot(queries, tl.load(kp, boundary_check=(1,), padding_option="zero"))
                if start + BN > first:
                    j = start + tl.arange(0, BN)
                    s += tl.where(j[None, :] > rows[:, None], -1.0e30, 0.0)
                new = tl.maximum(m, tl.max(s, 1))
                c = tl.exp2(m - new)
                p = tl.exp2(s - new[:, None])
                l = l * c + tl.sum(p, 1)
                o = o * c[:, None]
                o += tl.dot(p.to(tl.float16), tl.load(vp, boundary_check=(0,), padding_option="zero"))
                m = new
            op = tl.make_block_ptr(out, (N, D), (D, 1), (first, 0), (BM, D), (1, 0))
            tl.store(op, (o / l[:, None]).to(out.dtype.element_ty), boundary_check=(0,))
            tl.store(lse + rows, (m + tl.log2(l)) * 0.6931471805599453, mask=rows < N)
    """,
    "flash_bytes": """
        class TooSmall(ValueError):
            pass

        def tile_rows(sram, d, item=2):
            row = d * item
            best = 0
            lo, hi = 0, sram
            while lo < hi:      # binary search
                mid = (lo + hi + 1) // 2
                if 4 * mid * row <= sram:
                    lo = mid
                else:
                    hi = mid - 1
            if lo == 0:
                raise TooSmall(f"{sram} bytes hold no row of {d} numbers")
            return lo


        def flash_bytes(N, d, sram, item=2):
            B = tile_rows(sram, d, item)
            moved, at = 0, 0
            while at < N:
                rows = min(B, N - at)
                moved += 2 * rows * d + 2 * N * d
                at += rows
            return np.int64(moved * item)
    """,
    "backward": """
        def backward(q, k, v, o, lse, do, block):
            q, k, v, o, lse, do = (torch.from_numpy(np.ascontiguousarray(each)) for each in (q, k, v, o, lse, do))
            scale = q.shape[1] ** -0.5
            D = torch.einsum("mc,mc->m", do, o)[:, None]
            dq, dks, dvs = torch.zeros_like(q), [], []
            for kb, vb in zip(k.split(block), v.split(block)):
                p = torch.addmm(-lse[:, None], q, kb.T, alpha=scale).exp_()
                dvs.append(p.T @ do)
                p *= (do @ vb.T).sub_(D)
                dks.append(scale * (p.T @ q))
                dq.addmm_(p, kb, alpha=scale)
            return dq.numpy(), torch.cat(dks).numpy(), torch.cat(dvs).numpy()
    """,
    "grouped_decode": """
        @triton.jit
        def grouped_decode(
            q, k, v, out, N, scale, GROUP,
            D: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr,
        ):
            g = tl.program_id(0)
            row, columns = tl.arange(0, BG), tl.arange(0, D)
            m = tl.full([BG], -float("inf"), dtype=tl.float32)
            l = tl.zeros([BG], dtype=tl.float32)
            o = tl.zeros([BG, D], dtype=tl.float32)
            # without tl.dot: products and sums in FP32, values kept transposed
            heads = g * GROUP + row
            inside = (row < GROUP)[:, None] & (columns >= 0)[None, :]
            queries = tl.load(q + heads[:, None] * D + columns[None, :], inside, 0.0).to(tl.float32) * scale
            k += g * N * D
            v += g * N * D
            start = 0
            while start < N:
                j = start + tl.arange(0, BN)
                there = j < N
                keys = tl.load(k + j[:, None] * D + columns[None, :], mask=there[:, None], other=0).to(tl.float32)
                s = tl.sum(queries[:, None, :] * keys[None, :, :], axis=2)
                s += tl.where(there, 0.0, -float("inf"))[None, :]
                new = tl.maximum(m, tl.max(s, axis=1))
                p = tl.exp(s - new[:, None])
                fix = tl.exp(m - new)
                l = l * fix + tl.sum(p, axis=1)
                values = tl.load(v + j[:, None] * D + columns[None, :], mask=there[:, None], other=0).to(tl.float32)
                o = o * fix[:, None] + tl.sum(p[:, :, None] * values[None, :, :], axis=1)
                m = new
                start += BN
            tl.store(out + heads[:, None] * D + columns[None, :], o / l[:, None], inside)
    """,
    "decode_split": """
        @triton.jit
        def decode_split(
            q, k, v, m_out, l_out, o_out, N, CHUNK, scale, GROUP,
            D: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr,
        ):
            g, s = tl.program_id(0), tl.program_id(1)
            total = tl.num_programs(0) * GROUP
            row, columns = tl.arange(0, BG), tl.arange(0, D)
            real = row < GROUP
            first = s * CHUNK
            here = tl.maximum(0, tl.minimum(CHUNK, N - first))
            queries = tl.load(q + (g * GROUP + row)[:, None] * D + columns[None, :], mask=real[:, None], other=0.0)
            kp = tl.make_block_ptr(k + (g * N + first) * D, (D, here), (1, D), (0, 0), (D, BN), (0, 1))
            vp = tl.make_block_ptr(v + (g * N + first) * D, (here, D), (D, 1), (0, 0), (BN, D), (1, 0))
            m = tl.full([BG], -1.0e30, dtype=tl.float32)
            l = tl.zeros([BG], dtype=tl.float32)
            o = tl.zeros([BG, D], dtype=tl.float32)
            for start in range(0, here, BN):
                t = tl.dot(queries, tl.load(kp, boundary_check=(1,), padding_option="zero")) * scale
                t = tl.where((start + tl.arange(0, BN) < here)[None, :], t, -1.0e30)
                new = tl.maximum(m, tl.max(t, 1))
                p = tl.where((start + tl.arange(0, BN) < here)[None, :], tl.exp(t - new[:, None]), 0.0)
                c = tl.exp(m - new)
                l = l * c + tl.sum(p, 1)
                o = o * c[:, None] + tl.dot(p.to(tl.float16), tl.load(vp, boundary_check=(0,), padding_option="zero"))
                m = new
                kp = tl.advance(kp, (0, BN))
                vp = tl.advance(vp, (BN, 0))
            m = tl.where(l > 0, m, -float("inf"))
            to = s * total + g * GROUP + row
            tl.store(m_out + to, m, mask=real)
            tl.store(l_out + to, l, mask=real)
            tl.store(o_out + to[:, None] * D + columns[None, :], o, mask=real[:, None])


        def combine(m, l, o):
            from functools import reduce
            m, l, o = reduce(merge, [(m[i].copy(), l[i].copy(), o[i].copy()) for i in range(len(m))])
            o /= l[:, None]
            return o
    """,
}

UNUSUAL["lab10_asynchronous_hopper"] = {
    "in_flight": """
        def in_flight(bandwidth, latency_ns, sms, stage_bytes):
            from fractions import Fraction
            from math import ceil
            exact = Fraction(bandwidth) * Fraction(latency_ns, 1_000_000_000)
            return [ceil(exact), ceil(exact / sms), ceil(exact / (sms * stage_bytes))]
    """,
    "reverse_tile": """
        %%cuda reverse_tile
        #include <cooperative_groups.h>
        #include <cuda/barrier>
        #include <cuda/ptx>
        namespace cg = cooperative_groups;
        namespace ptx = cuda::ptx;
        using Barrier = cuda::barrier<cuda::thread_scope_block>;

        __global__ void reverse_tile(const float* x, float* y)
        {
            extern __shared__ float unused[];
            __shared__ alignas(16) float tile[256];
            __shared__ Barrier bar;
            auto block = cg::this_thread_block();
            if (block.thread_rank() == 255) {
                init(&bar, block.size());
                ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
            }
            block.sync();
            Barrier::arrival_token token;
            const float* from = x + 256 * blockIdx.x;
            if (block.thread_rank() == 255) {
                cuda::device::barrier_expect_tx(bar, sizeof tile);
                ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, from, sizeof tile,
                                   cuda::device::barrier_native_handle(bar));
            }
            token = bar.arrive();
            bar.wait(std::move(token));
            y[256 * blockIdx.x + 255 - threadIdx.x] = tile[threadIdx.x];
        }
    """,
    "ring": """
        def ring(i, stages):
            round_, stage = divmod(i, stages)
            return (stage, round_ & 1, ~round_ & 1)
    """,
    "reverse_two": """
        %%cuda reverse_two
        #include <cuda/ptx>
        namespace ptx = cuda::ptx;

        __device__ void start(float* to, const float* from, uint64_t* bar)
        {
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, 1024);
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, to, from, 1024, bar);
        }

        __global__ void reverse_two(const float* x, float* y, int tiles)
        {
            __shared__ alignas(128) float even[256], odd[256];
            __shared__ uint64_t bars[2];
            float* stages[] = {even, odd};
            if (threadIdx.x == 0) {
                ptx::mbarrier_init(bars, 1);
                ptx::mbarrier_init(bars + 1, 1);
                ptx::fence_proxy_async();
                for (int i = 0; i < min(tiles, 2); ++i) start(stages[i], x + 256 * i, bars + i);
            }
            __syncthreads();
            unsigned parity = 0;
            for (int i = 0; i < tiles; ++i) {
                float* tile = stages[i & 1];
                while (!ptx::mbarrier_try_wait_parity(bars + (i & 1), parity)) {}
                const float mine = tile[255 - threadIdx.x];
                __syncthreads();
                if (threadIdx.x == 0 && i + 2 < tiles) start(tile, x + 256 * (i + 2), bars + (i & 1));
                y[256 * i + threadIdx.x] = mine;
                parity ^= i & 1;
            }
        }
    """,
    "reverse_ring": """
        %%cuda reverse_ring reverse_ring<4>
        #include <cuda/barrier>
        #include <cuda/ptx>
        using barrier = cuda::barrier<cuda::thread_scope_block>;

        template <int S>
        struct Stages {
            alignas(128) float tile[S][256];
            barrier full[S];
        };

        template <int S>
        __global__ void reverse_ring(const float* x, float* y, int tiles)
        {
            __shared__ Stages<S> stages;
            const int last = blockDim.x - 1, t = threadIdx.x;
            if (t == last) {
                for (auto& each : stages.full) init(&each, 1);
                cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
            }
            __syncthreads();
            int next = blockIdx.x, fill = 0;
            auto load = [&] {
                if (next >= tiles) return;
                if (t == last) {
                    auto& bar = stages.full[fill];
                    (void)cuda::device::barrier_arrive_tx(bar, 1, 1024);
                    const float* from = x + 256 * next;
                    cuda::device::memcpy_async_tx(stages.tile[fill], from, cuda::aligned_size_t<16>(1024), bar);
                }
                next += gridDim.x;
                fill = fill + 1 == S ? 0 : fill + 1;
            };
            #pragma unroll
            for (int i = 0; i < S; ++i) load();
            bool parity = false;
            for (int tile = blockIdx.x, stage = 0; tile < tiles; tile += gridDim.x) {
                stages.full[stage].wait_parity(parity);
                y[256 * tile + 255 - t] = stages.tile[stage][t];
                __syncthreads();
                load();
                if (++stage == S) stage = 0, parity = !parity;
            }
        }
    """,
    "specialised": """
        %%cuda specialised
        #include <cuda/barrier>
        #include <cuda/ptx>
        using barrier = cuda::barrier<cuda::thread_scope_block>;

        __global__ void specialised(const float* x, float* y, int tiles)
        {
            __shared__ alignas(128) float s[3][256];
            __shared__ barrier full[3], empty[3];
            const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
            if (warp == 0 && lane < 3) {
                init(full + lane, 1);
                init(empty + lane, 8);  // a warp arrives as one, after __syncwarp
                cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
            }
            __syncthreads();
            int stage = 0;
            bool parity = false;
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                if (warp == 0) {
                    if (lane == 0) {
                        empty[stage].wait_parity(!parity);
                        (void)cuda::device::barrier_arrive_tx(full[stage], 1, 1024);
                        for (int half = 0; half < 2; ++half) {
                            cuda::device::memcpy_async_tx(s[stage] + 128 * half, x + 256 * tile + 128 * half,
                                                          cuda::aligned_size_t<16>(512), full[stage]);
                        }
                    }
                } else {
                    const int t = threadIdx.x - 32;
                    full[stage].wait_parity(parity);
                    y[256 * tile + t] = s[stage][255 - t];
                    __syncwarp();
                    if (lane == 0) (void)empty[stage].arrive();
                }
                if (++stage == 3) {
                    stage = 0;
                    parity = !parity;
                }
            }
        }
    """,
    "scale_copies": """
        %%cuda scale_copies
        #include <cuda/barrier>
        #include <cuda/ptx>
        namespace ptx = cuda::ptx;
        using barrier = cuda::barrier<cuda::thread_scope_block>;

        __global__ void scale_copies(float* x, float factor, int tiles)
        {
            __shared__ alignas(128) float in[2][256], out[2][256];  // a place of its own for the way back
            __shared__ barrier full[2];
            const int t = threadIdx.x;
            if (t == 0) {
                init(full, 1);
                init(full + 1, 1);
                ptx::fence_proxy_async(ptx::space_shared);
                for (int i = 0; i < 2 && i < tiles; ++i) {
                    cuda::device::memcpy_async_tx(in[i], x + 256 * i, cuda::aligned_size_t<16>(1024), full[i]);
                    (void)cuda::device::barrier_arrive_tx(full[i], 1, 1024);
                }
            }
            __syncthreads();
            for (int i = 0; i < tiles; ++i) {
                const int now = i & 1;
                full[now].wait_parity(i >> 1 & 1);
                if (t == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<1>());  // the copy before the last one
                __syncthreads();
                out[now][t] = factor * in[now][t];
                ptx::fence_proxy_async();
                __syncthreads();
                if (t == 0) {
                    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, x + 256 * i, out[now], 1024);
                    ptx::cp_async_bulk_commit_group();
                    if (i + 2 < tiles) {
                        (void)cuda::device::barrier_arrive_tx(full[now], 1, 1024);
                        const float* from = x + 256 * (i + 2);
                        cuda::device::memcpy_async_tx(in[now], from, cuda::aligned_size_t<16>(1024), full[now]);
                    }
                }
            }
            if (t == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
        }
    """,
    "cluster_sum": """
        %%cuda cluster_sum
        #include <cooperative_groups.h>
        namespace cg = cooperative_groups;

        __global__ void __cluster_dims__(4) cluster_sum(const float* x, float* sums)
        {
            __shared__ float whole;  // of the cluster, in its last block
            auto cluster = cg::this_cluster();
            if (threadIdx.x == 0) whole = 0;
            cluster.sync();
            float v = x[cluster.num_threads() * (blockIdx.x / 4) + cluster.thread_rank()];
            for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
            if (threadIdx.x % 32 == 0) atomicAdd(cluster.map_shared_rank(&whole, 3), v);
            cluster.sync();
            if (cluster.block_rank() == 3 && threadIdx.x == 17) sums[blockIdx.x / cluster.num_blocks()] = whole;
        }
    """,
    "debug_async": """
        %%cuda debug_async
        #include <cuda/barrier>
        #include <cuda/ptx>
        using barrier = cuda::barrier<cuda::thread_scope_block>;

        __global__ void sums(const float* x, float* out, int tiles)
        {
            __shared__ alignas(128) float s[64];
            __shared__ barrier full;
            if (threadIdx.x == 0) {
                init(&full, 1);
                cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
            }
            for (int i = 0; i < tiles; ++i) {
                __syncthreads();  // one stage, and all meet before it is filled again
                if (threadIdx.x == 0) {
                    (void)cuda::device::barrier_arrive_tx(full, 1, sizeof s);
                    cuda::device::memcpy_async_tx(s, x + 64 * i, cuda::aligned_size_t<16>(sizeof s), full);
                }
                full.wait_parity(i & 1);
                if (threadIdx.x == 0) {
                    float sum = 0;
                    for (float each : s) sum += each;
                    out[i] = sum;
                }
            }
        }

        __global__ void join(const float* a, const float* b, float* y)
        {
            __shared__ alignas(128) float both[2][128];
            __shared__ barrier bars[2];
            const int t = threadIdx.x, at = 128 * blockIdx.x;
            if (t < 2) {
                init(bars + t, 1);
                cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
                cuda::device::memcpy_async_tx(both[t], (t ? b : a) + at, cuda::aligned_size_t<16>(512), bars[t]);
                (void)cuda::device::barrier_arrive_tx(bars[t], 1, 512);
            }
            __syncthreads();
            for (auto& each : bars) each.wait_parity(0);
            y[at + t] = both[0][t] + both[1][t];
        }
    """,
}
