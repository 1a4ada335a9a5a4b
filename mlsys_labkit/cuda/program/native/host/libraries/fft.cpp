// fft.cpp: cuFFT by a plain mixed-radix transform in double precision.
//
// numpy and SciPy have pocketfft inside extension modules that export nothing, so that no kept library can be called from here.
#include "lk/host/fft.h"

#include <cmath>
#include <complex>
#include <map>
#include <vector>

#include "library.h"

using namespace lk::host;

namespace {

using Complex = std::complex<double>;

struct Plan {
    std::vector<int> sizes;
    std::vector<int> embed_in, embed_out;  // empty: elements lie close
    int64_t stride_in = 1, distance_in = 0, stride_out = 1, distance_out = 0;
    cufftType type = CUFFT_C2C;
    int batch = 1;
};

std::map<cufftHandle, Plan>& plans() {
    static std::map<cufftHandle, Plan> all;
    return all;
}

constexpr double pi = 3.14159265358979323846;

void transform(std::vector<Complex>& x, int direction);

// A length with a large prime factor, as a convolution of a power of two (Bluestein).
void transform_prime(std::vector<Complex>& x, int direction) {
    const size_t n = x.size();
    size_t m = 1;
    while (m < 2 * n - 1) m *= 2;
    std::vector<Complex> chirp(n), a(m), b(m);
    for (size_t i = 0; i < n; ++i) {
        chirp[i] = std::polar(1.0, direction * pi * double(i * i % (2 * n)) / double(n));
        a[i] = x[i] * chirp[i];
        b[i] = b[(m - i) % m] = std::conj(chirp[i]);
    }
    transform(a, CUFFT_FORWARD);
    transform(b, CUFFT_FORWARD);
    for (size_t i = 0; i < m; ++i) a[i] *= b[i];
    transform(a, CUFFT_INVERSE);
    for (size_t i = 0; i < n; ++i) x[i] = a[i] / double(m) * chirp[i];
}

// By the smallest factor of the length (Cooley and Tukey); in place.
void step(Complex* x, Complex* spare, size_t n, const std::vector<Complex>& roots) {
    if (n == 1) return;
    size_t p = 2;
    while (n % p != 0) p += p == 2 ? 1 : 2;
    const size_t q = n / p;
    for (size_t i = 0; i < n; ++i) spare[i % p * q + i / p] = x[i];
    for (size_t part = 0; part < p; ++part) step(spare + part * q, x + part * q, q, roots);
    const size_t turn = roots.size() / n;
    for (size_t i = 0; i < q; ++i) {
        for (size_t k = 0; k < p; ++k) {
            Complex sum = 0;
            for (size_t part = 0; part < p; ++part) {
                sum += spare[part * q + i] * roots[part * (i + k * q) % n * turn];
            }
            x[k * q + i] = sum;
        }
    }
}

size_t largest_factor(size_t n) {
    size_t largest = 1;
    for (size_t p = 2; p * p <= n; ++p) {
        while (n % p == 0) {
            largest = p;
            n /= p;
        }
    }
    return n > 1 ? n : largest;
}

void transform(std::vector<Complex>& x, int direction) {
    const size_t n = x.size();
    if (largest_factor(n) > 31) return transform_prime(x, direction);
    std::vector<Complex> roots(n), spare(n);
    for (size_t i = 0; i < n; ++i) roots[i] = std::polar(1.0, direction * 2 * pi * double(i) / double(n));
    step(x.data(), spare.data(), n, roots);
}

// Every axis of one array in row-major order.
void transform_all(std::vector<Complex>& x, const std::vector<int>& sizes, int direction) {
    size_t after = 1;
    for (size_t axis = sizes.size(); axis-- > 0;) {
        const size_t n = size_t(sizes[axis]);
        std::vector<Complex> line(n);
        for (size_t start = 0; start < x.size(); ++start) {
            if (start / after % n != 0) continue;
            for (size_t i = 0; i < n; ++i) line[i] = x[start + i * after];
            transform(line, direction);
            for (size_t i = 0; i < n; ++i) x[start + i * after] = line[i];
        }
        after *= n;
    }
}

size_t count_of(const std::vector<int>& sizes) {
    size_t count = 1;
    for (const int size : sizes) count *= size_t(size);
    return count;
}

// Where the element with this row-major number is, in elements; rows have their length in memory.
int64_t place(size_t number, const std::vector<int>& sizes, const std::vector<int>& rows, int64_t stride) {
    int64_t at = 0, scale = 1;
    for (size_t axis = sizes.size(); axis-- > 0;) {
        at += int64_t(number % size_t(sizes[axis])) * scale;
        number /= size_t(sizes[axis]);
        scale *= rows[axis];
    }
    return at * stride;
}

std::vector<int> halved(std::vector<int> sizes) {
    sizes.back() = sizes.back() / 2 + 1;
    return sizes;
}

// One side of a plan: the shape that is stored, and how.
struct Side {
    std::vector<int> sizes, rows;
    int64_t stride, distance;
};

Side side(const Plan& plan, bool in, bool half, bool pads) {
    const std::vector<int> sizes = half ? halved(plan.sizes) : plan.sizes;
    const std::vector<int>& embed = in ? plan.embed_in : plan.embed_out;
    if (!embed.empty()) {
        return {sizes, embed, in ? plan.stride_in : plan.stride_out, in ? plan.distance_in : plan.distance_out};
    }
    std::vector<int> rows = sizes;
    if (pads) rows.back() = 2 * (plan.sizes.back() / 2 + 1);  // real numbers that share memory with their transform
    return {sizes, rows, 1, int64_t(count_of(rows))};
}

template <class T>
T* at(T* data, const Side& side, int batch, size_t number) {
    return data + batch * side.distance + place(number, side.sizes, side.rows, side.stride);
}

template <class T>
bool fits(const T* data, const Side& side, int batches) {
    const int64_t last = (batches - 1) * side.distance + place(count_of(side.sizes) - 1, side.sizes, side.rows, side.stride);
    return lk::host::fits(data, size_t(last + 1) * sizeof(T));
}

// The rest of a transform of real numbers: element -i is the conjugate of element i.
void complete(std::vector<Complex>& all, const std::vector<int>& sizes, const std::vector<Complex>& half) {
    const std::vector<int> short_sizes = halved(sizes);
    for (size_t number = 0; number < all.size(); ++number) {
        size_t left = number, mirrored = 0, plain = 0, short_scale = 1;
        const bool far = number % size_t(sizes.back()) >= size_t(short_sizes.back());
        for (size_t axis = sizes.size(); axis-- > 0;) {
            const size_t n = size_t(sizes[axis]), i = left % n;
            left /= n;
            mirrored += (n - i) % n * short_scale;
            plain += i * short_scale;
            short_scale *= size_t(short_sizes[axis]);
        }
        all[number] = far ? std::conj(half[mirrored]) : half[plain];
    }
}

template <class In, class Out, class Load, class Store>
[[gnu::always_inline]] inline cufftResult execute(cufftHandle handle, cufftType type, In* in, Out* out, int direction, Load load, Store store) {
    const auto found = plans().find(handle);
    if (found == plans().end() || found->second.sizes.empty()) return CUFFT_INVALID_PLAN;
    const Plan& plan = found->second;
    if (plan.type != type) return CUFFT_INVALID_TYPE;
    if (!in || !out || (direction != CUFFT_FORWARD && direction != CUFFT_INVERSE)) return CUFFT_INVALID_VALUE;
    return library_call(CUFFT_EXEC_FAILED, "cuFFT stands in with a plain transform on the CPU: its results, not its speed", [&] {
        const bool same = static_cast<void*>(in) == static_cast<void*>(out);
        const bool to_half = type == CUFFT_R2C || type == CUFFT_D2Z, from_half = type == CUFFT_C2R || type == CUFFT_Z2D;
        const Side from = side(plan, true, from_half, to_half && same), to = side(plan, false, to_half, from_half && same);
        if (!fits(in, from, plan.batch) || !fits(out, to, plan.batch)) return CUFFT_EXEC_FAILED;
        std::vector<Complex> all(count_of(plan.sizes)), read(count_of(from.sizes));
        for (int batch = 0; batch < plan.batch; ++batch) {
            for (size_t i = 0; i < read.size(); ++i) {
                const In* one = at(in, from, batch, i);
                library_reads(one, sizeof *one);
                read[i] = load(*one);
            }
            if (from_half) {
                complete(all, plan.sizes, read);
            } else {
                all = read;
            }
            transform_all(all, plan.sizes, direction);
            const size_t full_row = size_t(plan.sizes.back()), row = size_t(to.sizes.back());
            for (size_t i = 0; i < count_of(to.sizes); ++i) store(*at(out, to, batch, i), all[i / row * full_row + i % row]);
        }
        return CUFFT_SUCCESS;
    });
}

cufftResult made(cufftHandle handle, Plan plan, size_t* bytes) {
    for (const int size : plan.sizes) {
        if (size < 1) return CUFFT_INVALID_SIZE;
    }
    if (plan.batch < 1) return CUFFT_INVALID_SIZE;
    if (plans().count(handle) == 0) return CUFFT_INVALID_PLAN;
    if (bytes) *bytes = 0;
    plans()[handle] = std::move(plan);
    return CUFFT_SUCCESS;
}

Plan simple(std::vector<int> sizes, cufftType type, int batch) {
    Plan plan;
    plan.sizes = std::move(sizes);
    plan.type = type;
    plan.batch = batch;
    return plan;
}

const auto load_real = [](auto value) { return Complex(double(value), 0); };
const auto load_complex = [](auto value) { return Complex(double(value.x), double(value.y)); };
const auto store_real = [](auto& to, Complex value) { to = std::decay_t<decltype(to)>(value.real()); };
const auto store_complex = [](auto& to, Complex value) {
    to.x = std::decay_t<decltype(to.x)>(value.real());
    to.y = std::decay_t<decltype(to.y)>(value.imag());
};

}  // namespace

extern "C" {

cufftResult cufftCreate(cufftHandle* plan) {
    static int last = 0;
    *plan = ++last;
    plans()[*plan] = {};
    return CUFFT_SUCCESS;
}

cufftResult cufftMakePlan1d(cufftHandle plan, int size, cufftType type, int batch, size_t* bytes) {
    return made(plan, simple({size}, type, batch), bytes);
}

cufftResult cufftMakePlan2d(cufftHandle plan, int rows, int columns, cufftType type, size_t* bytes) {
    return made(plan, simple({rows, columns}, type, 1), bytes);
}

cufftResult cufftMakePlan3d(cufftHandle plan, int depth, int rows, int columns, cufftType type, size_t* bytes) {
    return made(plan, simple({depth, rows, columns}, type, 1), bytes);
}

cufftResult cufftMakePlanMany(cufftHandle handle, int rank, int* n, int* embed_in, int stride_in, int distance_in,
                              int* embed_out, int stride_out, int distance_out, cufftType type, int batch, size_t* bytes) {
    if (rank < 1 || rank > 3 || !n) return CUFFT_INVALID_VALUE;
    Plan plan = simple(std::vector<int>(n, n + rank), type, batch);
    if (embed_in && embed_out) {
        plan.embed_in.assign(embed_in, embed_in + rank);
        plan.embed_out.assign(embed_out, embed_out + rank);
        plan.stride_in = stride_in;
        plan.distance_in = distance_in;
        plan.stride_out = stride_out;
        plan.distance_out = distance_out;
    }
    return made(handle, plan, bytes);
}

cufftResult cufftPlan1d(cufftHandle* plan, int size, cufftType type, int batch) {
    cufftCreate(plan);
    return cufftMakePlan1d(*plan, size, type, batch, nullptr);
}

cufftResult cufftPlan2d(cufftHandle* plan, int rows, int columns, cufftType type) {
    cufftCreate(plan);
    return cufftMakePlan2d(*plan, rows, columns, type, nullptr);
}

cufftResult cufftPlan3d(cufftHandle* plan, int depth, int rows, int columns, cufftType type) {
    cufftCreate(plan);
    return cufftMakePlan3d(*plan, depth, rows, columns, type, nullptr);
}

cufftResult cufftPlanMany(cufftHandle* plan, int rank, int* n, int* embed_in, int stride_in, int distance_in, int* embed_out,
                          int stride_out, int distance_out, cufftType type, int batch) {
    cufftCreate(plan);
    return cufftMakePlanMany(*plan, rank, n, embed_in, stride_in, distance_in, embed_out, stride_out, distance_out, type,
                             batch, nullptr);
}

cufftResult cufftDestroy(cufftHandle plan) { return plans().erase(plan) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN; }
cufftResult cufftSetStream(cufftHandle plan, cudaStream_t) { return plans().count(plan) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN; }
cufftResult cufftSetAutoAllocation(cufftHandle, int) { return CUFFT_SUCCESS; }
cufftResult cufftSetWorkArea(cufftHandle, void*) { return CUFFT_SUCCESS; }

cufftResult cufftGetSize(cufftHandle, size_t* bytes) {
    *bytes = 0;
    return CUFFT_SUCCESS;
}

cufftResult cufftEstimate1d(int, cufftType, int, size_t* bytes) { return cufftGetSize(0, bytes); }
cufftResult cufftEstimate2d(int, int, cufftType, size_t* bytes) { return cufftGetSize(0, bytes); }

cufftResult cufftGetVersion(int* version) {
    *version = CUFFT_VERSION;
    return CUFFT_SUCCESS;
}

cufftResult cufftGetProperty(libraryPropertyType type, int* value) {
    *value = type == MAJOR_VERSION ? CUFFT_VERSION / 1000 : 0;
    return CUFFT_SUCCESS;
}

cufftResult cufftExecC2C(cufftHandle plan, cufftComplex* in, cufftComplex* out, int direction) {
    return execute(plan, CUFFT_C2C, in, out, direction, load_complex, store_complex);
}

cufftResult cufftExecZ2Z(cufftHandle plan, cufftDoubleComplex* in, cufftDoubleComplex* out, int direction) {
    return execute(plan, CUFFT_Z2Z, in, out, direction, load_complex, store_complex);
}

cufftResult cufftExecR2C(cufftHandle plan, cufftReal* in, cufftComplex* out) {
    return execute(plan, CUFFT_R2C, in, out, CUFFT_FORWARD, load_real, store_complex);
}

cufftResult cufftExecD2Z(cufftHandle plan, cufftDoubleReal* in, cufftDoubleComplex* out) {
    return execute(plan, CUFFT_D2Z, in, out, CUFFT_FORWARD, load_real, store_complex);
}

cufftResult cufftExecC2R(cufftHandle plan, cufftComplex* in, cufftReal* out) {
    return execute(plan, CUFFT_C2R, in, out, CUFFT_INVERSE, load_complex, store_real);
}

cufftResult cufftExecZ2D(cufftHandle plan, cufftDoubleComplex* in, cufftDoubleReal* out) {
    return execute(plan, CUFFT_Z2D, in, out, CUFFT_INVERSE, load_complex, store_real);
}

}  // extern "C"
