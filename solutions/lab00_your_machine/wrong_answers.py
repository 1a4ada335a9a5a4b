# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% wrong={"grade_id": "warmup_end", "name": "last_spike", "misconception": "everything slow is warm-up, wherever it stands", "keeps": 0}
def warmup_end(samples):
    limit = 1.25 * np.median(samples[len(samples) // 2 :])
    slow = np.flatnonzero(samples > limit)
    return int(slow[-1]) + 1 if len(slow) else 0

# %% wrong={"grade_id": "warmup_end", "name": "fixed_count", "misconception": "a fixed number of warm-up calls will do", "keeps": 0}
def warmup_end(samples):
    return min(3, len(samples))

# %% wrong={"grade_id": "warmup_end", "name": "mean_level", "misconception": "the mean is as good as the median: one spike moves it", "keeps": 0}
#-    limit = 1.25 * np.median(samples[len(samples) // 2 :])
#+    limit = 1.25 * np.mean(samples)

# %% wrong={"grade_id": "warmup_end", "name": "strict", "misconception": "a sample exactly at the limit is already too slow", "keeps": 0}
#-    steady = np.flatnonzero(samples <= limit)
#+    steady = np.flatnonzero(samples < limit)

# %% wrong={"grade_id": "warmup_end", "name": "median_of_all", "misconception": "the warm-up is too short to move the median of all samples", "keeps": 0}
#-    limit = 1.25 * np.median(samples[len(samples) // 2 :])
#+    limit = 1.25 * np.median(samples)

# %% wrong={"grade_id": "warmup_end", "name": "short_half", "misconception": "the second half of an odd number leaves the middle one out", "keeps": 0}
#-    limit = 1.25 * np.median(samples[len(samples) // 2 :])
#+    limit = 1.25 * np.median(samples[(len(samples) + 1) // 2 :])

# %% wrong={"grade_id": "warmup_end", "name": "upper_median", "misconception": "the middle of an even number of samples is one of them", "keeps": 0}
#-    limit = 1.25 * np.median(samples[len(samples) // 2 :])
#+    half = np.sort(samples[len(samples) // 2 :])
#+    limit = 1.25 * half[len(half) // 2]

# %% wrong={"grade_id": "warmup_end", "name": "either_side", "misconception": "a sample far below the steady level is warm-up, too", "keeps": 0}
#-    limit = 1.25 * np.median(samples[len(samples) // 2 :])
#-    steady = np.flatnonzero(samples <= limit)
#+    level = np.median(samples[len(samples) // 2 :])
#+    steady = np.flatnonzero(abs(samples - level) <= 0.25 * level)

# %% wrong={"grade_id": "warmup_end", "name": "scales_in_place", "misconception": "dividing the caller's array by its level does no harm", "keeps": 0}
#-    samples = np.asarray(samples, dtype=float)
#-    limit = 1.25 * np.median(samples[len(samples) // 2 :])
#-    steady = np.flatnonzero(samples <= limit)
#+    samples /= 1.25 * np.median(samples[len(samples) // 2 :])
#+    steady = np.flatnonzero(samples <= 1)

# %% wrong={"grade_id": "median_interval", "name": "normal_theory", "misconception": "timings are normal: mean plus or minus two standard errors", "keeps": 0}
def median_interval(samples):
    if len(samples) < 6:
        raise ValueError("too few")
    middle, error = np.mean(samples), np.std(samples, ddof=1) / math.sqrt(len(samples))
    return float(middle - 1.96 * error), float(middle + 1.96 * error)

# %% wrong={"grade_id": "median_interval", "name": "percentiles", "misconception": "the 2.5th and 97.5th percentile of the samples bound the median", "keeps": 0}
def median_interval(samples):
    if len(samples) < 6:
        raise ValueError("too few")
    return float(np.percentile(samples, 2.5)), float(np.percentile(samples, 97.5))

# %% wrong={"grade_id": "median_interval", "name": "five_percent_a_side", "misconception": "95 % coverage leaves 5 % on each side", "keeps": 2}
#-    while (tail + math.comb(n, rank)) * 40 <= 2**n:
#+    while (tail + math.comb(n, rank)) * 20 <= 2**n:

# %% wrong={"grade_id": "median_interval", "name": "ranks_for_samples", "misconception": "the interval consists of ranks, not of samples", "keeps": 2}
#-    ordered = np.sort(samples)
#-    return float(ordered[rank - 1]), float(ordered[n - rank])
#+    return rank, n - rank + 1

# %% wrong={"grade_id": "median_interval", "name": "sorts_in_place", "misconception": "sorting the caller's array does no harm", "keeps": 8}
#-    ordered = np.sort(samples)
#-    return float(ordered[rank - 1]), float(ordered[n - rank])
#+    samples.sort()
#+    return float(samples[rank - 1]), float(samples[n - rank])

# %% wrong={"grade_id": "median_interval", "name": "float_tail", "misconception": "probabilities are floats, and 0.5 to the n-th power never vanishes", "keeps": 10}
def median_interval(samples):
    n = len(samples)
    if n < 6:
        raise ValueError("too few")
    tail, rank = 0.0, 0
    while rank < n // 2 and tail + float(math.comb(n, rank)) * 0.5**n <= 0.025:
        tail += float(math.comb(n, rank)) * 0.5**n
        rank += 1
    ordered = np.sort(samples)
    return float(ordered[rank - 1]), float(ordered[n - rank])

# %% wrong={"grade_id": "standardize", "name": "careless", "misconception": "temporaries are free", "keeps": 8}
def standardize(x):
    centred = x - x.mean()
    deviation = np.sqrt((centred**2).mean())
    return centred / deviation if deviation else centred

# %% wrong={"grade_id": "standardize", "name": "in_place", "misconception": "no extra array at all is better still: it destroys the input", "keeps": 8}
def standardize(x):
    x -= x.mean()
    deviation = math.sqrt(np.dot(x, x) / len(x))
    if deviation:
        x /= deviation
    return x

# %% wrong={"grade_id": "standardize", "name": "square_of_mean", "misconception": "E[x^2] - E[x]^2 is safe in floating point", "keeps": 10}
def standardize(x):
    mean = x.mean()
    variance = np.dot(x, x) / len(x) - mean * mean
    out = x - mean
    if variance > 0:
        out /= math.sqrt(variance)
    return out

# %% wrong={"grade_id": "standardize", "name": "half_the_bytes", "misconception": "float32 temporaries are close enough", "keeps": 2}
#-    out = x - x.mean()
#+    out = x.astype(np.float32)
#+    out -= out.mean()

# %% wrong={"grade_id": "copy_bandwidth", "name": "reads_only", "misconception": "a copy moves each byte once", "keeps": 0}
def copy_bandwidth(elements, itemsize, seconds):
    return elements * itemsize / seconds

# %% wrong={"grade_id": "copy_bandwidth", "name": "in_gib", "misconception": "a result in GiB/s where B/s were asked", "keeps": 0}
def copy_bandwidth(elements, itemsize, seconds):
    return 2 * elements * itemsize / seconds / 2**30

# %% wrong={"grade_id": "copy_bandwidth", "name": "elements", "misconception": "elements are bytes", "keeps": 0}
def copy_bandwidth(elements, itemsize, seconds):
    return 2 * elements / seconds

# %% wrong={"grade_id": "costs", "name": "no_result", "misconception": "writing the result costs nothing", "keeps": 0}
#-    return 2 * n, (2 * n + 1) * itemsize
#+    return 2 * n, 2 * n * itemsize

#-    return 2 * m * n, (m * n + n + m) * itemsize
#+    return 2 * m * n, (m * n + n) * itemsize

#-    return 2 * m * n * k, (m * k + k * n + m * n) * itemsize
#+    return 2 * m * n * k, (m * k + k * n) * itemsize

# %% wrong={"grade_id": "costs", "name": "multiply_add_is_one", "misconception": "a multiply and an add are one FLOP", "keeps": 0}
#-    return 2 * n, (2 * n + 1) * itemsize
#+    return n, (2 * n + 1) * itemsize

#-    return 2 * m * n, (m * n + n + m) * itemsize
#+    return m * n, (m * n + n + m) * itemsize

#-    return 2 * m * n * k, (m * k + k * n + m * n) * itemsize
#+    return m * n * k, (m * k + k * n + m * n) * itemsize

# %% wrong={"grade_id": "costs", "name": "every_use_is_a_load", "misconception": "each operand of each multiply comes from memory", "keeps": 0}
#-    return 2 * m * n, (m * n + n + m) * itemsize
#+    return 2 * m * n, (2 * m * n + m) * itemsize

#-    return 2 * m * n * k, (m * k + k * n + m * n) * itemsize
#+    return 2 * m * n * k, (2 * m * n * k + m * n) * itemsize

# %% wrong={"grade_id": "costs", "name": "swapped_inner", "misconception": "n is the inner dimension", "keeps": 0}
#-    return 2 * m * n * k, (m * k + k * n + m * n) * itemsize
#+    return 2 * m * n * k, (m * n + n * k + m * k + m) * itemsize

# %% wrong={"grade_id": "attainable", "name": "bandwidth_only", "misconception": "more intensity always helps", "keeps": 4}
#-    return np.minimum(peak, np.asarray(intensity) * bandwidth)
#+    return np.asarray(intensity) * bandwidth

# %% wrong={"grade_id": "attainable", "name": "scalar_min", "misconception": "an array of intensities is one number", "keeps": 8}
#-    return np.minimum(peak, np.asarray(intensity) * bandwidth)
#+    return min(peak, intensity * bandwidth)

# %% wrong={"grade_id": "attainable", "name": "one_axis", "misconception": "an array of intensities is a list of numbers", "keeps": 8}
#-    return np.minimum(peak, np.asarray(intensity) * bandwidth)
#+    if np.isscalar(intensity):
#+        return min(peak, intensity * bandwidth)
#+    return np.array([min(peak, each * bandwidth) for each in intensity])

# %% wrong={"grade_id": "attainable", "name": "ridge_upside_down", "misconception": "the ridge is bandwidth over peak", "keeps": 8}
#-    return peak / bandwidth
#+    return bandwidth / peak

# %% wrong={"grade_id": "bound", "name": "one_peak_for_all", "misconception": "a machine has one peak, whatever the number format", "keeps": 8}
def bound(flops, bytes_moved, spec, dtype):
    return "compute" if flops * spec.bandwidth() >= spec.peak("float32") * bytes_moved else "memory"

# %% wrong={"grade_id": "bound", "name": "divides_by_zero", "misconception": "every kernel moves bytes", "keeps": 10}
def bound(flops, bytes_moved, spec, dtype):
    return "compute" if flops / bytes_moved >= spec.peak(dtype) / spec.bandwidth() else "memory"

# %% wrong={"grade_id": "bound", "name": "sides_swapped", "misconception": "left of the ridge is compute bound", "keeps": 0}
def bound(flops, bytes_moved, spec, dtype):
    return "memory" if flops * spec.bandwidth() >= spec.peak(dtype) * bytes_moved else "compute"

# %% wrong={"grade_id": "bound", "name": "always_this_machine", "misconception": "one number, 100 FLOP/B, fits every machine", "keeps": 6}
def bound(flops, bytes_moved, spec, dtype):
    return "compute" if flops >= 100 * bytes_moved else "memory"

# %% wrong={"grade_id": "bound", "name": "the_h100_at_hand", "misconception": "the machine above is the machine that was asked for", "keeps": 6}
def bound(flops, bytes_moved, spec, dtype):
    return "compute" if flops * h100.bandwidth() >= h100.peak(dtype) * bytes_moved else "memory"

# %% wrong={"grade_id": "large_enough", "name": "rounds_down", "misconception": "a size just below the ridge has reached it", "keeps": 2}
def large_enough(peak, bandwidth, itemsize):
    return max(1, int(1.5 * itemsize * peak / bandwidth))

# %% wrong={"grade_id": "large_enough", "name": "two_matrices", "misconception": "only the inputs are moved", "keeps": 2}
def large_enough(peak, bandwidth, itemsize):
    return max(1, math.ceil(itemsize * peak / bandwidth))

# %% wrong={"grade_id": "large_enough", "name": "elements_not_bytes", "misconception": "intensity is FLOPs per element", "keeps": 2}
def large_enough(peak, bandwidth, itemsize):
    return max(1, math.ceil(1.5 * peak / bandwidth))

# %% wrong={"grade_id": "fastest_seconds", "name": "no_overlap", "misconception": "arithmetic waits for all the bytes", "keeps": 3}
#-    return max(flops / peak, bytes_moved / bandwidth)
#+    return flops / peak + bytes_moved / bandwidth

# %% wrong={"grade_id": "fastest_seconds", "name": "arithmetic_only", "misconception": "only arithmetic takes time", "keeps": 2}
#-    return max(flops / peak, bytes_moved / bandwidth)
#+    return flops / peak

# %% wrong={"grade_id": "fastest_seconds", "name": "the_easier_roof", "misconception": "the faster of the two speeds decides", "keeps": 0}
#-    return max(flops / peak, bytes_moved / bandwidth)
#+    return min(flops / peak, bytes_moved / bandwidth)

# %% wrong={"grade_id": "fastest_seconds", "name": "no_mercy", "misconception": "clocks are exact", "keeps": 6}
#-    return bool(seconds < 0.98 * fastest_seconds(flops, bytes_moved, peak, bandwidth))
#+    return bool(seconds < fastest_seconds(flops, bytes_moved, peak, bandwidth))

# %% wrong={"grade_id": "fastest_seconds", "name": "divided_by_1_02", "misconception": "divided by 1.02 is the same as 2 % less", "keeps": 6}
#-    return bool(seconds < 0.98 * fastest_seconds(flops, bytes_moved, peak, bandwidth))
#+    return bool(seconds < fastest_seconds(flops, bytes_moved, peak, bandwidth) / 1.02)

# %% wrong={"grade_id": "median_interval", "name": "counted_from_zero", "misconception": "rank l is index l", "keeps": 0}
#-    return float(ordered[rank - 1]), float(ordered[n - rank])
#+    return float(ordered[rank]), float(ordered[n - rank - 1])

# %% wrong={"grade_id": "standardize", "name": "divides_by_n_minus_1", "misconception": "a standard deviation always divides by n - 1", "keeps": 2}
#-    deviation = math.sqrt(np.dot(out, out) / len(out))
#+    deviation = math.sqrt(np.dot(out, out) / max(len(out) - 1, 1))

# %% wrong={"grade_id": "costs", "name": "one_addition_less", "misconception": "a dot product of length n is n products and n - 1 sums", "keeps": 6}
#-    return 2 * n, (2 * n + 1) * itemsize
#+    return 2 * n - 1, (2 * n + 1) * itemsize
