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

# %% wrong={"grade_id": "attention", "name": "divides_by_d", "misconception": "scores are divided by d", "keeps": 0}
#-    scores = q @ k.T / math.sqrt(q.shape[1])
#+    scores = q @ k.T / q.shape[1]

# %% wrong={"grade_id": "attention", "name": "no_scale", "misconception": "softmax makes the scale of its scores irrelevant", "keeps": 2}
#-    scores = q @ k.T / math.sqrt(q.shape[1])
#+    scores = q @ k.T

# %% wrong={"grade_id": "attention", "name": "no_maximum", "misconception": "subtracting the maximum changes nothing, so it can go", "keeps": 3}
#-    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
#+    powers = np.exp(scores)

# %% wrong={"grade_id": "attention", "name": "over_queries", "misconception": "weights of a key add up to 1", "keeps": 0}
#-    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
#-    return powers / powers.sum(axis=1, keepdims=True) @ v
#+    powers = np.exp(scores - scores.max(axis=0, keepdims=True))
#+    return powers / powers.sum(axis=0, keepdims=True) @ v

# %% wrong={"grade_id": "attention", "name": "one_maximum_for_all_rows", "misconception": "any number not smaller will do, so the largest of all rows", "keeps": 3}
#-    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
#+    powers = np.exp(scores - scores.max())

# %% wrong={"grade_id": "chain_bytes", "name": "elements", "misconception": "a number is a byte", "keeps": 0}
#-    queries, keys, matrix = M * d * item, N * d * item, M * N * item
#+    queries, keys, matrix = M * d, N * d, M * N

# %% wrong={"grade_id": "chain_bytes", "name": "stays_in_cache", "misconception": "what a kernel wrote, the next one finds in registers", "keeps": 0}
#-    return queries + keys + matrix, 2 * matrix, matrix + keys + queries
#+    return queries + keys + matrix, matrix, keys + queries

# %% wrong={"grade_id": "chain_bytes", "name": "square_only", "misconception": "there are as many queries as keys", "keeps": 0}
#-    queries, keys, matrix = M * d * item, N * d * item, M * N * item
#+    queries, keys, matrix = N * d * item, N * d * item, N * N * item

# %% wrong={"grade_id": "chain_bytes", "name": "forgets_the_output", "misconception": "only what is read is moved", "keeps": 0}
#-    return (2 * M * d + 2 * N * d) * item
#+    return (M * d + 2 * N * d) * item

# %% wrong={"grade_id": "step", "name": "o_not_corrected", "misconception": "only the sum of powers depends on the maximum", "keeps": 1}
#-    return largest, correction * l + powers.sum(), correction * o + powers @ values
#+    return largest, correction * l + powers.sum(), o + powers @ values

# %% wrong={"grade_id": "step", "name": "l_not_corrected", "misconception": "a sum, once added up, is final", "keeps": 1}
#-    return largest, correction * l + powers.sum(), correction * o + powers @ values
#+    return largest, l + powers.sum(), correction * o + powers @ values

# %% wrong={"grade_id": "step", "name": "maximum_of_the_block", "misconception": "each block has a maximum of its own, and that is enough", "keeps": 1}
#-    largest = max(m, float(scores.max()))
#+    largest = float(scores.max())

# %% wrong={"grade_id": "step", "name": "correction_upside_down", "misconception": "old sums grow when the maximum does", "keeps": 1}
#-    correction = math.exp(m - largest)
#+    correction = math.exp(largest - m) if m > -math.inf else 0.0

# %% wrong={"grade_id": "step", "name": "nothing_minus_nothing", "misconception": "exp(-inf - -inf) is 0", "keeps": 7}
#-    if largest == -math.inf:
#-        return state
#-    correction = math.exp(m - largest)
#+    correction = float(np.exp(m - largest))

# %% wrong={"grade_id": "step", "name": "normalizes_each_block", "misconception": "o holds the output so far", "keeps": 1}
#-    return largest, correction * l + powers.sum(), correction * o + powers @ values
#+    sums = correction * l + powers.sum()
#+    return largest, sums, (correction * l * o + powers @ values) / sums

# %% wrong={"grade_id": "step", "name": "first_score_decides", "misconception": "a block whose first score is masked is masked altogether", "keeps": 7}
#-    largest = max(m, float(scores.max()))
#+    if scores[0] == -math.inf:
#+        return state
#+    largest = max(m, float(scores.max()))

# %% wrong={"grade_id": "merge", "name": "no_maximum", "misconception": "two sums of powers can be added as they are", "keeps": 1}
#-    return largest, of_a * a[1] + of_b * b[1], of_a[:, None] * a[2] + of_b[:, None] * b[2]
#+    return largest, a[1] + b[1], a[2] + b[2]

# %% wrong={"grade_id": "merge", "name": "corrects_one_side", "misconception": "a came first, so only a is old", "keeps": 1}
#-    return largest, of_a * a[1] + of_b * b[1], of_a[:, None] * a[2] + of_b[:, None] * b[2]
#+    return largest, of_a * a[1] + b[1], of_a[:, None] * a[2] + b[2]

# %% wrong={"grade_id": "merge", "name": "o_not_corrected", "misconception": "only the sum of powers depends on the maximum", "keeps": 1}
#-    return largest, of_a * a[1] + of_b * b[1], of_a[:, None] * a[2] + of_b[:, None] * b[2]
#+    return largest, of_a * a[1] + of_b * b[1], a[2] + b[2]

# %% wrong={"grade_id": "merge", "name": "nothing_minus_nothing", "misconception": "at least one part has seen something", "keeps": 7}
#-    finite = np.where(np.isneginf(largest), 0.0, largest)  # where both parts are empty there is nothing to correct
#+    finite = largest

# %% wrong={"grade_id": "merge", "name": "one_maximum_for_all_rows", "misconception": "any number not smaller will do, so the largest of all rows", "keeps": 0}
#-    largest = np.maximum(a[0], b[0])
#+    largest = np.full(len(a[0]), max(a[0].max(), b[0].max()))

# %% wrong={"grade_id": "merge", "name": "all_rows_or_none", "misconception": "rows are empty together", "keeps": 7}
#-    finite = np.where(np.isneginf(largest), 0.0, largest)  # where both parts are empty there is nothing to correct
#+    if np.isneginf(largest).all():
#+        return a
#+    finite = largest

# %% wrong={"grade_id": "flash", "name": "o_not_corrected", "misconception": "only the sum of powers depends on the maximum", "keeps": 3}
#-        o = o * correction[:, None] + tl.dot(powers.to(values.dtype), values)
#+        o += tl.dot(powers.to(values.dtype), values)

# %% wrong={"grade_id": "flash", "name": "l_not_corrected", "misconception": "a sum, once added up, is final", "keeps": 3}
#-        l = l * correction + tl.sum(powers, axis=1)
#+        l += tl.sum(powers, axis=1)

# %% wrong={"grade_id": "flash", "name": "maximum_of_the_tile", "misconception": "each tile has a maximum of its own, and that is enough", "keeps": 10}
#-        largest = tl.maximum(m, tl.max(scores, axis=1))
#+        largest = tl.max(scores, axis=1)

# %% wrong={"grade_id": "flash", "name": "no_maximum", "misconception": "subtracting the maximum changes nothing, so it can go", "keeps": 10}
#-        powers = tl.exp(scores - largest[:, None])
#-        l = l * correction + tl.sum(powers, axis=1)
#-        o = o * correction[:, None] + tl.dot(powers.to(values.dtype), values)
#+        powers = tl.exp(scores)
#+        l += tl.sum(powers, axis=1)
#+        o += tl.dot(powers.to(values.dtype), values)

# %% wrong={"grade_id": "flash", "name": "scales_twice", "misconception": "both products need the scale", "keeps": 0}
#-        powers = tl.exp(scores - largest[:, None])
#+        powers = tl.exp(scale * (scores - largest[:, None]))

# %% wrong={"grade_id": "flash", "name": "stores_every_tile", "misconception": "the output grows in memory", "keeps": 8}
#-        m = largest
#-    tl.store(out + rows[:, None] * D + columns[None, :], o / l[:, None])
#+        m = largest
#+        tl.store(out + rows[:, None] * D + columns[None, :], o / l[:, None])

# %% wrong={"grade_id": "flash", "name": "does_not_divide", "misconception": "powers are weights", "keeps": 0}
#-    tl.store(out + rows[:, None] * D + columns[None, :], o / l[:, None])
#+    tl.store(out + rows[:, None] * D + columns[None, :], o)

# %% wrong={"grade_id": "flash", "name": "maximum_along_queries", "misconception": "axis 0 of the scores is the row", "keeps": 0}
#-        largest = tl.maximum(m, tl.max(scores, axis=1))
#+        largest = tl.maximum(m, tl.max(scores, axis=0))

# %% wrong={"grade_id": "flash_causal", "name": "off_by_one", "misconception": "a query does not see itself", "keeps": 0}
#-        scores = tl.where(at[None, :] <= rows[:, None], scores, -float("inf"))
#+        scores = tl.where(at[None, :] < rows[:, None], scores, -float("inf"))

# %% wrong={"grade_id": "flash_causal", "name": "mask_is_zero", "misconception": "a masked score is 0", "keeps": 0}
#-        scores = tl.where(at[None, :] <= rows[:, None], scores, -float("inf"))
#+        scores = tl.where(at[None, :] <= rows[:, None], scores, 0.0)

# %% wrong={"grade_id": "flash_causal", "name": "mask_after_exp", "misconception": "weights can be masked when they have been added up", "keeps": 0}
#-        scores = tl.where(at[None, :] <= rows[:, None], scores, -float("inf"))

#-        o = o * correction[:, None] + tl.dot(powers.to(values.dtype), values)
#+        powers = tl.where(at[None, :] <= rows[:, None], powers, 0.0)
#+        o = o * correction[:, None] + tl.dot(powers.to(values.dtype), values)

# %% wrong={"grade_id": "flash_causal", "name": "one_tile_short", "misconception": "the tile on the diagonal is masked altogether", "keeps": 0}
#-    for start in range(0, tl.minimum(N, first + BM), BN):
#+    for start in range(0, tl.maximum(BN, tl.minimum(N, first)), BN):

# %% wrong={"grade_id": "flash_causal", "name": "one_tile_too_many", "misconception": "better one tile more than one less", "keeps": 9}
#-    for start in range(0, tl.minimum(N, first + BM), BN):
#+    for start in range(0, tl.minimum(N, first + BM + 1), BN):

# %% wrong={"grade_id": "flash_causal", "name": "all_tiles", "misconception": "the mask is what saves the work", "keeps": 9}
#-    for start in range(0, tl.minimum(N, first + BM), BN):
#+    for start in range(0, N, BN):

# %% wrong={"grade_id": "flash_causal", "name": "keys_unmasked", "misconception": "the causal mask keeps loads inside, too", "keeps": 4}
#-        keys = tl.load(k + at[:, None] * D + columns[None, :], mask=inside, other=0.0)
#-        values = tl.load(v + at[:, None] * D + columns[None, :], mask=inside, other=0.0)
#+        keys = tl.load(k + at[:, None] * D + columns[None, :])
#+        values = tl.load(v + at[:, None] * D + columns[None, :])

# %% wrong={"grade_id": "flash_causal", "name": "lse_without_the_maximum", "misconception": "the logarithm of l is the logsumexp", "keeps": 11}
#-    tl.store(lse + rows, m + tl.log(l), mask=rows < N)
#+    tl.store(lse + rows, tl.log(l), mask=rows < N)

# %% wrong={"grade_id": "flash_causal", "name": "maximum_before_the_mask", "misconception": "any number not smaller will do as the maximum", "keeps": 9}
#-        scores = tl.where(at[None, :] <= rows[:, None], scores, -float("inf"))
#-        largest = tl.maximum(m, tl.max(scores, axis=1))
#+        largest = tl.maximum(m, tl.max(scores, axis=1))
#+        scores = tl.where(at[None, :] <= rows[:, None], scores, -float("inf"))

# %% wrong={"grade_id": "flash_causal", "name": "mask_of_minus_10000", "misconception": "no score is as small as -10,000", "keeps": 9}
#-        scores = tl.where(at[None, :] <= rows[:, None], scores, -float("inf"))
#+        scores = tl.where(at[None, :] <= rows[:, None], scores, -1.0e4)

# %% wrong={"grade_id": "flash_bytes", "name": "three_tiles", "misconception": "the output needs no place on the chip", "keeps": 0}
#-    rows = sram // (4 * d * item)
#+    rows = sram // (3 * d * item)

# %% wrong={"grade_id": "flash_bytes", "name": "sram_in_numbers", "misconception": "memory is counted in numbers", "keeps": 0}
#-    rows = sram // (4 * d * item)
#+    rows = sram // (4 * d)

# %% wrong={"grade_id": "flash_bytes", "name": "keys_once", "misconception": "nothing is read twice", "keeps": 3}
#-    return (2 * N * d + tiles * 2 * N * d) * item
#+    return 4 * N * d * item

# %% wrong={"grade_id": "flash_bytes", "name": "whole_tiles_only", "misconception": "N is a multiple of the tile", "keeps": 1}
#-    tiles = -(-N // tile_rows(sram, d, item))
#+    tiles = N // tile_rows(sram, d, item)

# %% wrong={"grade_id": "flash_bytes", "name": "queries_every_time", "misconception": "queries pass by with the keys", "keeps": 3}
#-    return (2 * N * d + tiles * 2 * N * d) * item
#+    return 4 * N * d * tiles * item

# %% wrong={"grade_id": "flash_bytes", "name": "at_least_one_row", "misconception": "too little memory means tiles of one row", "keeps": 6}
#-    rows = sram // (4 * d * item)
#-    if rows < 1:
#-        raise ValueError(f"{sram} bytes do not hold four rows of {d} numbers")
#-    return rows
#+    return max(1, sram // (4 * d * item))

# %% wrong={"grade_id": "flash_bytes", "name": "one_tile_more", "misconception": "the quotient rounded down and one more is the quotient rounded up", "keeps": 3}
#-    tiles = -(-N // tile_rows(sram, d, item))
#+    tiles = N // tile_rows(sram, d, item) + 1

# %% wrong={"grade_id": "backward", "name": "no_delta", "misconception": "softmax works element by element", "keeps": 0}
#-        dscores = weights * (do @ v[part].T - delta[:, None])
#+        dscores = weights * (do @ v[part].T)

# %% wrong={"grade_id": "backward", "name": "delta_of_do_only", "misconception": "delta is the row sum of dO", "keeps": 0}
#-    delta = (do * o).sum(axis=1)
#+    delta = do.sum(axis=1)

# %% wrong={"grade_id": "backward", "name": "dq_of_the_last_block", "misconception": "each gradient belongs to one block of keys", "keeps": 0}
#-        dq += scale * (dscores @ k[part])
#+        dq = scale * (dscores @ k[part])

# %% wrong={"grade_id": "backward", "name": "scale_forgotten", "misconception": "the scale is in the weights already", "keeps": 0}
#-        dk[part] = scale * (dscores.T @ q)
#+        dk[part] = dscores.T @ q

# %% wrong={"grade_id": "backward", "name": "softmax_of_the_block", "misconception": "a block's weights add up to 1", "keeps": 0}
#-        weights = np.exp(scale * (q @ k[part].T) - lse[:, None])
#+        weights = np.exp(scale * (q @ k[part].T) - lse[:, None])
#+        weights /= weights.sum(axis=1, keepdims=True)

# %% wrong={"grade_id": "backward", "name": "whole_matrix", "misconception": "backward needs all weights at once", "keeps": 8}
def backward(q, k, v, o, lse, do, block):
    scale = 1 / math.sqrt(q.shape[1])
    weights = np.exp(scale * (q @ k.T) - lse[:, None])
    dscores = weights * (do @ v.T - (do * o).sum(axis=1)[:, None])
    return scale * (dscores @ k), scale * (dscores.T @ q), weights.T @ do

# %% wrong={"grade_id": "backward", "name": "whole_blocks_only", "misconception": "N is a multiple of the block", "keeps": 7}
#-    for start in range(0, len(k), block):
#+    for start in range(0, len(k) // block * block, block):

# %% wrong={"grade_id": "backward", "name": "keeps_every_block", "misconception": "blocks that are small can all be kept", "keeps": 8}
#-    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
#+    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
#+    kept = []

#-        dv[part] = weights.T @ do
#+        kept.append(weights)
#+        dv[part] = weights.T @ do

# %% wrong={"grade_id": "grouped_decode", "name": "heads_interleaved", "misconception": "query head h uses head h % (number of heads of keys)", "keeps": 0}
#-    mine = (g * GROUP + row)[:, None] * D + columns[None, :]
#+    mine = (g + row * tl.num_programs(0))[:, None] * D + columns[None, :]

# %% wrong={"grade_id": "grouped_decode", "name": "same_keys_for_all", "misconception": "all heads share the first head of keys", "keeps": 0}
#-        place = (g * N + at)[:, None] * D + columns[None, :]
#+        place = at[:, None] * D + columns[None, :]

# %% wrong={"grade_id": "grouped_decode", "name": "missing_keys_score_zero", "misconception": "a key of zeros has no weight", "keeps": 3}
#-        scores = tl.where(at[None, :] < N, scale * tl.dot(queries, tl.trans(keys)), -float("inf"))
#+        scores = scale * tl.dot(queries, tl.trans(keys))

# %% wrong={"grade_id": "grouped_decode", "name": "rows_unmasked", "misconception": "rows behind the group hurt nobody", "keeps": 0}
#-    tl.store(out + mine, o / l[:, None], mask=row[:, None] < GROUP)
#+    tl.store(out + mine, o / l[:, None])

# %% wrong={"grade_id": "grouped_decode", "name": "keys_for_each_head", "misconception": "a cache will serve the group", "keeps": 5}
#-        keys = tl.load(k + place, mask=at[:, None] < N, other=0.0)
#+        for again in range(1, GROUP):
#+            tl.load(k + place, mask=at[:, None] < N, other=0.0)
#+        keys = tl.load(k + place, mask=at[:, None] < N, other=0.0)

# %% wrong={"grade_id": "grouped_decode", "name": "scales_twice", "misconception": "both products need the scale", "keeps": 0}
#-        powers = tl.exp(scores - largest[:, None])
#+        powers = tl.exp(scale * (scores - largest[:, None]))

# %% wrong={"grade_id": "decode_split", "name": "divides_in_each_chunk", "misconception": "each program can divide by its own sum", "keeps": 2}
#-    tl.store(o_out + (s * total + head)[:, None] * D + columns[None, :], o, mask=row[:, None] < GROUP)
#+    tl.store(o_out + (s * total + head)[:, None] * D + columns[None, :], o / l[:, None], mask=row[:, None] < GROUP)

# %% wrong={"grade_id": "decode_split", "name": "reads_into_the_next_chunk", "misconception": "a chunk is a number of whole tiles", "keeps": 3}
#-        keys = tl.load(k + place, mask=at[:, None] < end, other=0.0)
#-        values = tl.load(v + place, mask=at[:, None] < end, other=0.0)
#-        scores = tl.where(at[None, :] < end, scale * tl.dot(queries, tl.trans(keys)), -float("inf"))
#+        keys = tl.load(k + place, mask=at[:, None] < N, other=0.0)
#+        values = tl.load(v + place, mask=at[:, None] < N, other=0.0)
#+        scores = tl.where(at[None, :] < N, scale * tl.dot(queries, tl.trans(keys)), -float("inf"))

# %% wrong={"grade_id": "decode_split", "name": "every_chunk_is_full", "misconception": "there are keys in every chunk", "keeps": 4}
#-    end = tl.minimum(N, (s + 1) * CHUNK)
#+    end = (s + 1) * CHUNK

# %% wrong={"grade_id": "decode_split", "name": "starts_at_the_beginning", "misconception": "the split changes where a chunk ends only", "keeps": 2}
#-    for start in range(s * CHUNK, end, BN):
#+    for start in range(0, end, BN):

# %% wrong={"grade_id": "decode_split", "name": "merges_without_maximum", "misconception": "sums of powers can be added as they are", "keeps": 4}
#-    corrections = np.exp(m - m.max(axis=0))
#+    corrections = np.ones_like(m)

# %% wrong={"grade_id": "decode_split", "name": "mean_of_outputs", "misconception": "the output is the mean of the chunks' outputs", "keeps": 4}
#-    return (corrections[:, :, None] * o).sum(axis=0) / (corrections * l).sum(axis=0)[:, None]
#+    return (o / l[:, :, None]).mean(axis=0)

# %% wrong={"grade_id": "decode_split", "name": "maximum_of_all_heads", "misconception": "one maximum serves all heads", "keeps": 7}
#-    corrections = np.exp(m - m.max(axis=0))
#+    corrections = np.exp(m - m.max())

# %% wrong={"grade_id": "decode_split", "name": "begins_at_a_whole_tile", "misconception": "keys of the chunk before do no harm if they are masked", "keeps": 5}
#-    for start in range(s * CHUNK, end, BN):
#+    for start in range(s * CHUNK // BN * BN, end, BN):

#-        scores = tl.where(at[None, :] < end, scale * tl.dot(queries, tl.trans(keys)), -float("inf"))
#+        mine = (at[None, :] >= s * CHUNK) & (at[None, :] < end)
#+        scores = tl.where(mine, scale * tl.dot(queries, tl.trans(keys)), -float("inf"))

# %% wrong={"grade_id": "flash_wmma", "name": "unpadded", "misconception": "shared memory is fast, however it is read", "keeps": 10}
#-    constexpr int ROW = 72;  // 36 words: eight rows begin in banks 0, 4, 8, ... 28
#+    constexpr int ROW = 64;

# %% wrong={"grade_id": "flash_wmma", "name": "padded_by_a_bank_of_rows", "misconception": "any padding will do", "keeps": 10}
#-    constexpr int ROW = 72;  // 36 words: eight rows begin in banks 0, 4, 8, ... 28
#+    constexpr int ROW = 80;

# %% wrong={"grade_id": "flash_wmma", "name": "waits_for_the_wrong_batch", "misconception": "two buffers are two batches under way", "keeps": 6}
#-        __pipeline_wait_prior(1);  // all batches but the newest are here
#+        __pipeline_wait_prior(2);

# %% wrong={"grade_id": "flash_wmma", "name": "commits_full_batches_only", "misconception": "an empty batch is not worth a commit", "keeps": 6}
#-        }
#-        __pipeline_commit();  // in the last turn an empty batch
#+            __pipeline_commit();
#+        }

# %% wrong={"grade_id": "flash_wmma", "name": "one_buffer", "misconception": "a copy that was started later arrives later", "keeps": 0}
#-        int now = t % 2;
#+        int now = 0;

#-            copy_tile(k_tile[1 - now][0], ROW, k + (t + 1) * T * D);
#-            copy_tile(v_tile[1 - now][0], ROW, v + (t + 1) * T * D);
#+            copy_tile(k_tile[now][0], ROW, k + (t + 1) * T * D);
#+            copy_tile(v_tile[now][0], ROW, v + (t + 1) * T * D);

# %% wrong={"grade_id": "flash_wmma", "name": "keys_not_transposed", "misconception": "a tile is a tile: S = Q K", "keeps": 0}
#-        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> key;
#+        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> key;

# %% wrong={"grade_id": "flash_wmma", "name": "forgets_the_sums", "misconception": "each tile of values makes an output of its own", "keeps": 3}
#-            wmma::load_matrix_sync(sum, &o[0][c], 72, wmma::mem_row_major);
#+            wmma::fill_fragment(sum, 0.0f);

# %% wrong={"grade_id": "flash_wmma", "name": "no_barrier_at_the_end", "misconception": "lanes of a warp are always in step", "keeps": 6}
#-        __syncwarp();  // nobody reads these tiles any more
