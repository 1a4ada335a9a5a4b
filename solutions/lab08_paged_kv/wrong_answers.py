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

# %% wrong={"grade_id": "attend", "name": "mask_from_the_left", "misconception": "new position j sees positions 0 to j, wherever it stands", "keeps": 0}
#-    seen = torch.ones(new, total, dtype=torch.bool, device=queries.device).tril(total - new)
#+    seen = torch.ones(new, total, dtype=torch.bool, device=queries.device).tril()

# %% wrong={"grade_id": "attend", "name": "heads_in_turn", "misconception": "query heads take turns with the key-value heads", "keeps": 0}
def attend(queries, keys, values):
    heads, new, width = queries.shape
    kv_heads, total, _ = keys.shape
    keys, values = keys.repeat(heads // kv_heads, 1, 1), values.repeat(heads // kv_heads, 1, 1)
    scores = queries @ keys.transpose(-1, -2) / width**0.5
    seen = torch.ones(new, total, dtype=torch.bool).tril(total - new)
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ values

# %% wrong={"grade_id": "attend", "name": "no_mask", "misconception": "the cache holds only the past, so nothing can be seen too early", "keeps": 0}
#-    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
#+    weights = scores.softmax(-1)

# %% wrong={"grade_id": "attend", "name": "no_scale", "misconception": "softmax normalises anyway", "keeps": 0}
#-    scores = grouped @ keys.unsqueeze(1).transpose(-1, -2) / width**0.5
#+    scores = grouped @ keys.unsqueeze(1).transpose(-1, -2)

# %% wrong={"grade_id": "attend", "name": "not_itself", "misconception": "a new position sees only the positions before it", "keeps": 0}
#-    seen = torch.ones(new, total, dtype=torch.bool, device=queries.device).tril(total - new)
#+    seen = torch.ones(new, total, dtype=torch.bool, device=queries.device).tril(total - new - 1)

# %% wrong={"grade_id": "attend", "name": "scaled_by_the_model_width", "misconception": "the scale is the width of all heads together", "keeps": 0}
#-    scores = grouped @ keys.unsqueeze(1).transpose(-1, -2) / width**0.5
#+    scores = grouped @ keys.unsqueeze(1).transpose(-1, -2) / (heads * width) ** 0.5

# %% wrong={"grade_id": "attend", "name": "zero_for_masked_scores", "misconception": "a masked score of 0 gets no weight", "keeps": 0}
#-    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
#+    weights = (scores * seen).softmax(-1)

# %% wrong={"grade_id": "attend", "name": "scales_in_place", "misconception": "the caller does not need its queries any more", "keeps": 6}
#-    grouped = queries.view(kv_heads, heads // kv_heads, new, width)
#-    scores = grouped @ keys.unsqueeze(1).transpose(-1, -2) / width**0.5
#+    grouped = queries.div_(width**0.5).view(kv_heads, heads // kv_heads, new, width)
#+    scores = grouped @ keys.unsqueeze(1).transpose(-1, -2)

# %% wrong={"grade_id": "step_work", "name": "weights_for_each_sequence", "misconception": "every sequence of the batch reads the weights for itself", "keeps": 0}
#-        bytes_read=itemsize * weights + sequences * past * per_token,
#+        bytes_read=sequences * (itemsize * weights + past * per_token),

# %% wrong={"grade_id": "step_work", "name": "cache_of_all_heads", "misconception": "the cache holds keys and values of every query head", "keeps": 0}
#-    per_token = config.cache_bytes_per_token(itemsize)
#+    per_token = 2 * config.layers * config.heads * config.head_width * itemsize

# %% wrong={"grade_id": "step_work", "name": "no_itself", "misconception": "a token looks at those before it only", "keeps": 0}
#-    pairs = new * past + new * (new + 1) // 2
#+    pairs = new * past + new * (new - 1) // 2

# %% wrong={"grade_id": "step_work", "name": "sees_the_future", "misconception": "every new token meets all the new ones", "keeps": 2}
#-    pairs = new * past + new * (new + 1) // 2
#+    pairs = new * (past + new)

# %% wrong={"grade_id": "step_work", "name": "half_of_attention", "misconception": "attention is one product, of queries and keys", "keeps": 0}
#-        flops=sequences * (2 * weights * new + 4 * config.layers * config.heads * config.head_width * pairs),
#+        flops=sequences * (2 * weights * new + 2 * config.layers * config.heads * config.head_width * pairs),

# %% wrong={"grade_id": "step_work", "name": "reads_the_new_tokens", "misconception": "the keys and values of the new tokens are read back from memory", "keeps": 0}
#-        bytes_read=itemsize * weights + sequences * past * per_token,
#+        bytes_read=itemsize * weights + sequences * (past + new) * per_token,

# %% wrong={"grade_id": "step_work", "name": "always_two_bytes", "misconception": "a number of a model has two bytes", "keeps": 3}
#-        bytes_read=itemsize * weights + sequences * past * per_token,
#+        bytes_read=2 * weights + sequences * past * per_token,

# %% wrong={"grade_id": "step_work", "name": "one_layer", "misconception": "attention is computed once per pass", "keeps": 3}
#-        flops=sequences * (2 * weights * new + 4 * config.layers * config.heads * config.head_width * pairs),
#+        flops=sequences * (2 * weights * new + 4 * config.heads * config.head_width * pairs),

# %% wrong={"grade_id": "waste", "name": "always_one_more", "misconception": "whole blocks, and one for the rest, even if there is no rest", "keeps": 1}
#-    return (tokens + block - 1) // block
#+    return tokens // block + 1

# %% wrong={"grade_id": "waste", "name": "through_a_float", "misconception": "a division and a ceil are exact", "keeps": 5}
#-    return (tokens + block - 1) // block
#+    return int(np.ceil(tokens / block))

# %% wrong={"grade_id": "waste", "name": "mean_of_the_shares", "misconception": "the waste of all is the mean of everybody's", "keeps": 4}
#-    reserved = sum(blocks_for(length, block) for length in lengths) * block
#-    return 1 - sum(lengths) / reserved if reserved else 0.0
#+    shares = [1 - length / (blocks_for(length, block) * block) for length in lengths if length]
#+    return sum(shares) / len(shares) if shares else 0.0

# %% wrong={"grade_id": "waste", "name": "partial_block_counts_as_full", "misconception": "a block that has a token is used", "keeps": 4}
#-    reserved = sum(blocks_for(length, block) for length in lengths) * block
#-    return 1 - sum(lengths) / reserved if reserved else 0.0
#+    used = sum(blocks_for(length, block) for length in lengths)
#+    full = sum(length // block for length in lengths)
#+    return 1 - full / used if used else 0.0

# %% wrong={"grade_id": "waste", "name": "divides_by_nothing", "misconception": "there is always a sequence", "keeps": 5}
#-    return 1 - sum(lengths) / reserved if reserved else 0.0
#+    return 1 - sum(lengths) / reserved

# %% wrong={"grade_id": "pool", "name": "dropped_is_free", "misconception": "who drops a block frees it, whoever else holds it", "keeps": 3}
#-        self._count[block] -= 1
#-        if self._count[block] == 0:
#-            self._idle.append(block)
#+        self._count[block] = 0
#+        self._idle.append(block)

# %% wrong={"grade_id": "pool", "name": "double_drop_passes", "misconception": "dropping a free block does no harm", "keeps": 7}
#-        if self.holders(block) == 0:
#-            raise ValueError(f"block {block} is free: nobody is left to drop it")
#-        self._count[block] -= 1
#+        self._count[block] = max(0, self.holders(block) - 1)

# %% wrong={"grade_id": "pool", "name": "last_in_first_out", "misconception": "any free block is as good as another", "keeps": 3}
#-        self._idle = collections.deque(range(size))
#+        self._idle = list(range(size))[::-1]

#-        block = self._idle.popleft()
#+        block = self._idle.pop()

# %% wrong={"grade_id": "pool", "name": "counts_from_the_end", "misconception": "a list refuses numbers that it does not have", "keeps": 8}
#-        if not 0 <= block < self.size:
#-            raise ValueError(f"there is no block {block} in a pool of {self.size}")
#-        return self._count[block]
#+        try:
#+            return self._count[block]
#+        except IndexError:
#+            raise ValueError(f"there is no block {block} in a pool of {self.size}") from None

# %% wrong={"grade_id": "pool", "name": "free_may_be_shared", "misconception": "sharing is taking for the second time", "keeps": 7}
#-        self._count[block] = 1
#+        self._count[block] += 1

#-        if self.holders(block) == 0:
#-            raise ValueError(f"block {block} is free; only a block that is held can be shared")
#-        self._count[block] += 1
#+        self._count[block] = self.holders(block) + 1

# %% wrong={"grade_id": "pool", "name": "any_error_will_do", "misconception": "an empty queue refuses by itself", "keeps": 7}
#-        if not self._idle:
#-            raise OutOfBlocks(f"all {self.size} blocks are held")

# %% wrong={"grade_id": "pool", "name": "lowest_number_first", "misconception": "the free block with the lowest number is given out", "keeps": 3}
#-        block = self._idle.popleft()
#+        block = min(self._idle)
#+        self._idle.remove(block)

# %% wrong={"grade_id": "table", "name": "slot_one_off", "misconception": "the new token's slot is that of the length after it", "keeps": 2}
#-        if self.length == len(self.blocks) * self.block:
#+        self.length += 1
#+        if self.length // self.block >= len(self.blocks):
#             self.blocks += [self.pool.take()]
#-        self.length += 1
#-        return self.slot(self.length - 1)
#+        return self.blocks[self.length // self.block], self.length % self.block

# %% wrong={"grade_id": "table", "name": "counted_before_there_is_room", "misconception": "the length can be raised before the block is there", "keeps": 8}
#-        if self.length == len(self.blocks) * self.block:
#+        self.length += 1
#+        if self.length > len(self.blocks) * self.block:
#             self.blocks += [self.pool.take()]
#-        self.length += 1

# %% wrong={"grade_id": "table", "name": "keeps_what_it_gave_back", "misconception": "a released table may keep its list of blocks", "keeps": 6}
#             self.pool.drop(block)
#-        self.blocks, self.length = [], 0
#+        self.length = 0

# %% wrong={"grade_id": "table", "name": "counts_from_the_end", "misconception": "a list refuses positions that it does not have", "keeps": 8}
#-        if not 0 <= position < self.length:
#-            raise IndexError(f"position {position} of a sequence of {self.length} tokens")

# %% wrong={"grade_id": "table", "name": "heads_reshaped", "misconception": "a reshape swaps two axes", "keeps": 7}
#-    return cache[blocks].flatten(0, 1)[:length].transpose(0, 1)
#+    return cache[blocks].flatten(0, 1)[:length].reshape(cache.shape[2], length, cache.shape[3])

# %% wrong={"grade_id": "table", "name": "blocks_in_memory_order", "misconception": "the order of a sequence is that of memory", "keeps": 7}
#-    return cache[blocks].flatten(0, 1)[:length].transpose(0, 1)
#+    return cache[sorted(blocks)].flatten(0, 1)[:length].transpose(0, 1)

# %% wrong={"grade_id": "table", "name": "last_block_read_whole", "misconception": "the last block is full", "keeps": 7}
#-    return cache[blocks].flatten(0, 1)[:length].transpose(0, 1)
#+    return cache[blocks].flatten(0, 1).transpose(0, 1)

# %% wrong={"grade_id": "table", "name": "blocks_are_neighbours", "misconception": "the blocks of a sequence lie in a row", "keeps": 7}
#-    return cache[blocks].flatten(0, 1)[:length].transpose(0, 1)
#+    return cache[blocks[0] :].flatten(0, 1)[:length].transpose(0, 1)

# %% wrong={"grade_id": "fork", "name": "count_not_raised", "misconception": "a copied list of blocks is a fork", "keeps": 0}
#-    for block in child.blocks:
#-        table.pool.share(block)

# %% wrong={"grade_id": "fork", "name": "same_list", "misconception": "both tables may have the same list, since it has the same blocks", "keeps": 2}
#-    child.blocks, child.length = list(table.blocks), table.length
#+    child.blocks, child.length = table.blocks, table.length

# %% wrong={"grade_id": "fork", "name": "writes_without_a_copy", "misconception": "the new slot is free, so writing to it disturbs nobody", "keeps": 3}
#-    if table.length < len(table.blocks) * table.block and table.pool.holders(table.blocks[-1]) > 1:
#-        copy, shared = table.pool.take(), table.blocks[-1]
#-        for cache in caches:
#-            cache[copy] = cache[shared]
#-        table.pool.drop(shared)
#-        table.blocks[-1] = copy

# %% wrong={"grade_id": "fork", "name": "copies_at_once", "misconception": "a fork copies the half-full block right away", "keeps": 3}
def fork(table):
    child = BlockTable(table.pool, table.block)
    child.blocks, child.length = list(table.blocks), table.length
    for block in table.blocks[: table.length // table.block]:
        table.pool.share(block)
    if table.length % table.block:
        child.blocks[-1] = table.pool.take()
    return child


def append_own(table, caches):
    return table.append()

# %% wrong={"grade_id": "fork", "name": "keys_only", "misconception": "copying the first cache is copying the block", "keeps": 4}
#-        for cache in caches:
#-            cache[copy] = cache[shared]
#+        caches[0][copy] = caches[0][shared]

# %% wrong={"grade_id": "fork", "name": "drops_before_it_has", "misconception": "the shared block can be given up before there is a copy", "keeps": 8}
#-        copy, shared = table.pool.take(), table.blocks[-1]
#+        shared = table.blocks.pop()
#+        table.pool.drop(shared)
#+        copy = table.pool.take()

#-        table.pool.drop(shared)
#-        table.blocks[-1] = copy
#+        table.blocks.append(copy)

# %% wrong={"grade_id": "fork", "name": "copies_full_blocks", "misconception": "a shared last block is always copied, full or not", "keeps": 8}
#-    if table.length < len(table.blocks) * table.block and table.pool.holders(table.blocks[-1]) > 1:
#+    if table.blocks and table.pool.holders(table.blocks[-1]) > 1:

# %% wrong={"grade_id": "prefix", "name": "no_parent", "misconception": "the same tokens are the same block", "keeps": 2}
#-        key = hashlib.sha256(key + np.asarray(tokens[end - block : end], dtype=np.int64).tobytes()).digest()
#+        key = hashlib.sha256(np.asarray(tokens[end - block : end], dtype=np.int64).tobytes()).digest()

# %% wrong={"grade_id": "prefix", "name": "partial_block_has_a_key", "misconception": "the last block has a key, full or not", "keeps": 2}
#-    for end in range(block, len(tokens) + 1, block):
#+    for end in range(block, len(tokens) + block, block):

# %% wrong={"grade_id": "prefix", "name": "nothing_left", "misconception": "what is known need not be computed, down to the last token", "keeps": 3}
#-    for key in block_keys(tokens[:-1], block):
#+    for key in block_keys(tokens, block):

# %% wrong={"grade_id": "prefix", "name": "over_a_hole", "misconception": "a known block can be used even if one before it is missing", "keeps": 3}
#-            break
#+            continue

# %% wrong={"grade_id": "prefix", "name": "sum_of_tokens", "misconception": "any number made from the tokens is a key", "keeps": 4}
#-        key = hashlib.sha256(key + np.asarray(tokens[end - block : end], dtype=np.int64).tobytes()).digest()
#+        key = sum(tokens[:end])

# %% wrong={"grade_id": "prefix", "name": "tokens_as_one_text", "misconception": "tokens written one after another tell them apart", "keeps": 7}
#-        key = hashlib.sha256(key + np.asarray(tokens[end - block : end], dtype=np.int64).tobytes()).digest()
#+        key = "".join(map(str, tokens[:end]))

# %% wrong={"grade_id": "prefix", "name": "weighted_sum", "misconception": "a sum with weights tells any tokens apart", "keeps": 7}
#-    keys, key = [], b""
#+    keys, key = [], 0

#-        key = hashlib.sha256(key + np.asarray(tokens[end - block : end], dtype=np.int64).tobytes()).digest()
#+        key = 31 * key + sum(token * 7**place for place, token in enumerate(tokens[end - block : end]))

# %% wrong={"grade_id": "prefix", "name": "block_zero_is_nothing", "misconception": "a block number that was found counts as true", "keeps": 3}
#-        if key not in known:
#+        if not known.get(key):

# %% wrong={"grade_id": "prefix", "name": "only_the_block_before", "misconception": "the tokens of the block before stand for everything before", "keeps": 3}
#-        key = hashlib.sha256(key + np.asarray(tokens[end - block : end], dtype=np.int64).tobytes()).digest()
#+        key = tuple(tokens[max(0, end - 2 * block) : end])

# %% wrong={"grade_id": "paged", "name": "sums_without_rescaling", "misconception": "each block's softmax can be added to the last one's", "keeps": 0}
#-        now = torch.maximum(largest[here], score.amax(-1))
#-        shrink, weight = (largest[here] - now).exp(), (score - now[..., None]).exp()
#+        weight = (score - score.amax(-1, keepdim=True)).exp()
#         value = value.masked_fill(~filled[:, :, None, None], 0.0)  # 0 · NaN would be NaN
#-        total[here] = total[here] * shrink + weight.sum(-1)
#-        mixed[here] = mixed[here] * shrink[..., None] + torch.einsum("bkgs,bskh->bkgh", weight, value)
#-        largest[here] = now
#+        total[here] += weight.sum(-1)
#+        mixed[here] += torch.einsum("bkgs,bskh->bkgh", weight, value)

# %% wrong={"grade_id": "paged", "name": "values_not_rescaled", "misconception": "only the sum of weights depends on the maximum", "keeps": 0}
#-        mixed[here] = mixed[here] * shrink[..., None] + torch.einsum("bkgs,bskh->bkgh", weight, value)
#+        mixed[here] += torch.einsum("bkgs,bskh->bkgh", weight, value)

# %% wrong={"grade_id": "paged", "name": "gathers_everything", "misconception": "collecting the blocks first costs nothing", "keeps": 7}
def paged_attention(q, keys, values, tables, lengths):
    sequences, heads, width = q.shape
    block, kv_heads = keys.shape[1:3]
    filled = torch.arange(tables.shape[1] * block) < lengths[:, None]
    key = keys[tables.clamp(min=0)].flatten(1, 2)
    value = values[tables.clamp(min=0)].flatten(1, 2).masked_fill(~filled[:, :, None, None], 0.0)
    grouped = q.view(sequences, kv_heads, heads // kv_heads, width) / width**0.5
    score = torch.einsum("bkgh,bskh->bkgs", grouped, key).masked_fill(~filled[:, None, None], float("-inf"))
    return torch.einsum("bkgs,bskh->bkgh", score.softmax(-1), value).reshape(sequences, heads, width)

# %% wrong={"grade_id": "paged", "name": "one_sequence_gathered", "misconception": "one sequence at a time is little enough", "keeps": 7}
def paged_attention(q, keys, values, tables, lengths):
    block, group = keys.shape[1], q.shape[1] // keys.shape[2]
    out = torch.empty_like(q)
    for row, length in enumerate(lengths.tolist()):
        mine = tables[row, : -(-length // block)]
        key, value = (cache[mine].flatten(0, 1)[:length].repeat_interleave(group, dim=1) for cache in (keys, values))
        weight = (torch.einsum("ih,sih->is", q[row], key) / q.shape[2] ** 0.5).softmax(-1)
        out[row] = torch.einsum("is,sih->ih", weight, value)
    return out

# %% wrong={"grade_id": "paged", "name": "last_block_is_full", "misconception": "a block in the table is full", "keeps": 1}
#-        here = torch.nonzero(lengths > j * block).flatten()  # the sequences that reach into their block number j
#-        filled = j * block + torch.arange(block, device=q.device) < lengths[here, None]
#-        key, value = keys[tables[here, j]], values[tables[here, j]]
#-        score = torch.einsum("bkgh,bskh->bkgs", grouped[here], key).masked_fill(~filled[:, None, None], float("-inf"))
#+        here = torch.nonzero(tables[:, j] >= 0).flatten()
#+        key, value = keys[tables[here, j]], values[tables[here, j]].nan_to_num()
#+        score = torch.einsum("bkgh,bskh->bkgs", grouped[here], key).nan_to_num()

#-        value = value.masked_fill(~filled[:, :, None, None], 0.0)  # 0 · NaN would be NaN

# %% wrong={"grade_id": "paged", "name": "zero_weight_times_nan", "misconception": "a weight of zero makes any value zero", "keeps": 0}
#-        value = value.masked_fill(~filled[:, :, None, None], 0.0)  # 0 · NaN would be NaN

# %% wrong={"grade_id": "paged", "name": "no_running_maximum", "misconception": "exponentials of scores never overflow", "keeps": 9}
#-        now = torch.maximum(largest[here], score.amax(-1))
#-        shrink, weight = (largest[here] - now).exp(), (score - now[..., None]).exp()
#+        weight = score.exp()
#         value = value.masked_fill(~filled[:, :, None, None], 0.0)  # 0 · NaN would be NaN
#-        total[here] = total[here] * shrink + weight.sum(-1)
#-        mixed[here] = mixed[here] * shrink[..., None] + torch.einsum("bkgs,bskh->bkgh", weight, value)
#-        largest[here] = now
#+        total[here] += weight.sum(-1)
#+        mixed[here] += torch.einsum("bkgs,bskh->bkgh", weight, value)

# %% wrong={"grade_id": "paged", "name": "maximum_starts_at_0", "misconception": "a maximum starts at 0, as a sum does", "keeps": 9}
#-    largest = torch.full_like(grouped[..., 0], float("-inf"))
#+    largest = torch.zeros_like(grouped[..., 0])

# %% wrong={"grade_id": "paged", "name": "heads_in_turn", "misconception": "query heads take turns with the key-value heads", "keeps": 1}
#-    grouped = q.view(sequences, kv_heads, heads // kv_heads, width) / width**0.5
#+    grouped = q.view(sequences, heads // kv_heads, kv_heads, width).transpose(1, 2) / width**0.5

#-    return (mixed / total[..., None]).view(sequences, heads, width)
#+    return (mixed / total[..., None]).transpose(1, 2).reshape(sequences, heads, width)

# %% wrong={"grade_id": "paged", "name": "no_scale", "misconception": "softmax normalises anyway", "keeps": 0}
#-    grouped = q.view(sequences, kv_heads, heads // kv_heads, width) / width**0.5
#+    grouped = q.view(sequences, kv_heads, heads // kv_heads, width)

# %% wrong={"grade_id": "paged", "name": "full_blocks_only", "misconception": "a length is a number of full blocks", "keeps": 1}
#-        here = torch.nonzero(lengths > j * block).flatten()  # the sequences that reach into their block number j
#+        here = torch.nonzero(lengths // block > j).flatten()

# %% wrong={"grade_id": "paged_kernel", "name": "a_head_at_a_time", "misconception": "query heads are independent, so each loads its keys", "keeps": 6}
@triton.jit
def paged_decode(q, keys, values, tables, lengths, out, scale, most_blocks, H: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, shared = tl.program_id(0), tl.program_id(1)
    lanes, offsets = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    length = tl.load(lengths + row)
    for g in range(H // K):
        head = shared * (H // K) + g
        query = tl.load(q + (row * H + head) * WIDTH + lanes).to(tl.float32) * scale
        largest = tl.full([1], float("-inf"), dtype=tl.float32)
        total = tl.zeros([1], dtype=tl.float32)
        mixed = tl.zeros([WIDTH], dtype=tl.float32)
        for j in range(tl.cdiv(length, BLOCK)):
            block = tl.load(tables + row * most_blocks + j)
            filled = j * BLOCK + offsets < length
            slots = ((block * BLOCK + offsets) * K + shared)[:, None] * WIDTH + lanes[None, :]
            key = tl.load(keys + slots, mask=filled[:, None], other=0.0).to(tl.float32)
            value = tl.load(values + slots, mask=filled[:, None], other=0.0).to(tl.float32)
            score = tl.where(filled, tl.sum(query[None, :] * key, axis=1), float("-inf"))
            now = tl.maximum(largest, tl.max(score, axis=0))
            shrink = tl.exp(largest - now)
            weight = tl.exp(score - now)
            total = total * shrink + tl.sum(weight, axis=0)
            mixed = mixed * shrink + tl.sum(weight[:, None] * value, axis=0)
            largest = now
        tl.store(out + (row * H + head) * WIDTH + lanes, mixed / total)

# %% wrong={"grade_id": "paged_kernel", "name": "loads_whole_blocks", "misconception": "a block is loaded whole, and the scores are masked", "keeps": 7}
#-        key = tl.load(keys + slots, mask=filled[:, None], other=0.0).to(tl.float32)
#-        value = tl.load(values + slots, mask=filled[:, None], other=0.0).to(tl.float32)
#+        key = tl.load(keys + slots).to(tl.float32)
#+        value = tl.where(filled[:, None], tl.load(values + slots).to(tl.float32), 0.0)

# %% wrong={"grade_id": "paged_kernel", "name": "walks_over_the_padding", "misconception": "every entry of the table is a block", "keeps": 1}
#-    for j in range(tl.cdiv(length, BLOCK)):
#+    for j in range(most_blocks):

#-        key = tl.load(keys + slots, mask=filled[:, None], other=0.0).to(tl.float32)
#-        value = tl.load(values + slots, mask=filled[:, None], other=0.0).to(tl.float32)
#+        key = tl.load(keys + slots).to(tl.float32)
#+        value = tl.where(filled[:, None], tl.load(values + slots).to(tl.float32), 0.0)

# %% wrong={"grade_id": "paged_kernel", "name": "mixed_not_rescaled", "misconception": "only the sum of weights depends on the maximum", "keeps": 0}
#-        mixed = mixed * shrink[:, None] + tl.sum(weight[:, :, None] * value[None, :, :], axis=1)
#+        mixed += tl.sum(weight[:, :, None] * value[None, :, :], axis=1)

# %% wrong={"grade_id": "paged_kernel", "name": "zeros_for_scores", "misconception": "a masked load gives a score that counts nothing", "keeps": 0}
#-        score = tl.where(filled[None, :], score, float("-inf"))

# %% wrong={"grade_id": "paged_kernel", "name": "one_turn_too_many", "misconception": "a length that is a multiple of the block needs one block more", "keeps": 4}
#-    for j in range(tl.cdiv(length, BLOCK)):
#+    for j in range(length // BLOCK + 1):

# %% wrong={"grade_id": "paged_kernel", "name": "keys_not_masked", "misconception": "only the values need a mask", "keeps": 7}
#-        key = tl.load(keys + slots, mask=filled[:, None], other=0.0).to(tl.float32)
#+        key = tl.load(keys + slots).to(tl.float32)

# %% wrong={"grade_id": "paged_kernel", "name": "heads_in_turn", "misconception": "query heads take turns with the key-value heads", "keeps": 0}
#-    heads = shared * (H // K) + tl.arange(0, H // K)
#+    heads = shared + K * tl.arange(0, H // K)

# %% wrong={"grade_id": "paged_kernel", "name": "no_scale", "misconception": "softmax normalises anyway", "keeps": 0}
#-    query = tl.load(q + at).to(tl.float32) * scale
#+    query = tl.load(q + at).to(tl.float32)

# %% wrong={"grade_id": "paged_kernel", "name": "not_divided", "misconception": "the weights of a softmax already add up to one", "keeps": 0}
#-    tl.store(out + at, mixed / total[:, None])
#+    tl.store(out + at, mixed)

# %% wrong={"grade_id": "paged_kernel", "name": "all_columns_of_the_table", "misconception": "a block without tokens costs nothing", "keeps": 9}
#-    for j in range(tl.cdiv(length, BLOCK)):
#+    for j in range(most_blocks):

# %% wrong={"grade_id": "paged_kernel", "name": "one_maximum_for_all_heads", "misconception": "any number may be subtracted before the exponential", "keeps": 9}
#-        now = tl.maximum(largest, tl.max(score, axis=1))
#+        now = tl.maximum(largest, tl.max(score))

# %% wrong={"grade_id": "paged_kernel", "name": "maximum_starts_at_0", "misconception": "a maximum starts at 0, as a sum does", "keeps": 9}
#-    largest = tl.full([H // K], float("-inf"), dtype=tl.float32)
#+    largest = tl.zeros([H // K], dtype=tl.float32)

# %% wrong={"grade_id": "scheduler", "name": "loses_its_tokens", "misconception": "a preempted request starts again from its prompt", "keeps": 1}
#                     youngest.table.release()
#+                    youngest.produced = []

# %% wrong={"grade_id": "scheduler", "name": "to_the_end_of_the_queue", "misconception": "who is preempted queues up again behind everybody", "keeps": 1}
#-                    self.waiting.appendleft(youngest)
#+                    self.waiting.append(youngest)

# %% wrong={"grade_id": "scheduler", "name": "small_ones_overtake", "misconception": "whoever fits may come in", "keeps": 6}
#-        while self.waiting:
#-            job = self.waiting[0]
#+        for job in list(self.waiting):
#             if blocks_for(len(job.tokens), self.block) > self.pool.free:
#-                break
#-            self.running.append(self.waiting.popleft())
#+                continue
#+            self.waiting.remove(job)
#+            self.running.append(job)

# %% wrong={"grade_id": "scheduler", "name": "the_oldest_goes", "misconception": "the one who has run longest makes room", "keeps": 1}
#-                    youngest = self.running.pop()
#-                    youngest.table.release()
#-                    self.waiting.appendleft(youngest)
#+                    oldest = self.running.pop(0)
#+                    oldest.table.release()
#+                    plan = [entry for entry in plan if entry.name != oldest.name]
#+                    self.waiting.appendleft(oldest)

# %% wrong={"grade_id": "scheduler", "name": "reserves_the_worst_case", "misconception": "room for the whole answer must be there before a request may start", "keeps": 1}
#-            if blocks_for(len(job.tokens), self.block) > self.pool.free:
#+            most = [blocks_for(len(one.prompt) + one.new_tokens - 1, self.block) for one in (job, *self.running)]
#+            if sum(most) > self.blocks:

# %% wrong={"grade_id": "scheduler", "name": "leaks_when_done", "misconception": "who is done only has to leave the batch", "keeps": 0}
#-            job.table.release()

# %% wrong={"grade_id": "scheduler", "name": "room_for_one_token_too_many", "misconception": "the last token needs a place in the cache, too", "keeps": 5}
#-        needed = blocks_for(len(prompt) + new_tokens - 1, self.block)
#+        needed = blocks_for(len(prompt) + new_tokens, self.block)

# %% wrong={"grade_id": "scheduler", "name": "room_for_the_prompt_only", "misconception": "a request that comes back needs room for its prompt", "keeps": 4}
#-            if blocks_for(len(job.tokens), self.block) > self.pool.free:
#+            if blocks_for(len(job.prompt), self.block) > self.pool.free:

# %% wrong={"grade_id": "scheduler", "name": "keeps_its_blocks", "misconception": "a preempted request may keep its blocks until it comes back", "keeps": 1}
#-                    youngest.table.release()

# %% wrong={"grade_id": "scheduler", "name": "recomputes_the_prompt_only", "misconception": "the tokens that a request has produced need not go through the model again", "keeps": 1}
#-            plan.append(Entry(job.name, job.tokens, 0, list(job.table.blocks)))
#+            plan.append(Entry(job.name, job.prompt, 0, list(job.table.blocks)))

# %% wrong={"grade_id": "latency", "name": "divided_by_n", "misconception": "n tokens have n gaps", "keeps": 1}
#-    return times[0] - arrival, (times[-1] - times[0]) / gaps if gaps else 0.0
#+    return times[0] - arrival, (times[-1] - times[0]) / len(times)

# %% wrong={"grade_id": "latency", "name": "from_the_arrival", "misconception": "time per token is the whole time over the tokens", "keeps": 0}
#-    return times[0] - arrival, (times[-1] - times[0]) / gaps if gaps else 0.0
#+    return times[0] - arrival, (times[-1] - arrival) / len(times)

# %% wrong={"grade_id": "latency", "name": "either_limit", "misconception": "a request that keeps one of the limits was served well", "keeps": 0}
#-        kept += ttft <= most_ttft and tpot <= most_tpot
#+        kept += ttft <= most_ttft or tpot <= most_tpot

# %% wrong={"grade_id": "latency", "name": "the_mean_request", "misconception": "goodput is throughput if the mean request keeps the limits", "keeps": 0}
#-    kept = 0
#-    for name, times in token_seconds.items():
#-        ttft, tpot = ttft_tpot(arrivals[name], times)
#-        kept += ttft <= most_ttft and tpot <= most_tpot
#+    pairs = np.array([ttft_tpot(arrivals[name], times) for name, times in token_seconds.items()])
#+    kept = float(np.all(pairs.mean(0) <= (most_ttft, most_tpot))) * len(pairs)

# %% wrong={"grade_id": "latency", "name": "no_gap_no_answer", "misconception": "every answer has two tokens", "keeps": 2}
#-    return times[0] - arrival, (times[-1] - times[0]) / gaps if gaps else 0.0
#+    return times[0] - arrival, (times[-1] - times[0]) / gaps

# %% wrong={"grade_id": "latency", "name": "must_be_below", "misconception": "a limit has to be undercut", "keeps": 4}
#-        kept += ttft <= most_ttft and tpot <= most_tpot
#+        kept += ttft < most_ttft and tpot < most_tpot

# %% wrong={"grade_id": "latency", "name": "order_of_the_dict", "misconception": "the requests of a dict are in order of time", "keeps": 1}
#-    return kept / (max(times[-1] for times in token_seconds.values()) - min(arrivals.values()))
#+    return kept / (list(token_seconds.values())[-1][-1] - next(iter(arrivals.values())))

# %% wrong={"grade_id": "latency", "name": "until_the_last_good_token", "misconception": "requests that were late do not count, and neither does their time", "keeps": 0}
#-    kept = 0
#+    kept, last = 0, []

#-        kept += ttft <= most_ttft and tpot <= most_tpot
#-    return kept / (max(times[-1] for times in token_seconds.values()) - min(arrivals.values()))
#+        if ttft <= most_ttft and tpot <= most_tpot:
#+            kept += 1
#+            last.append(times[-1])
#+    return kept / (max(last) - min(arrivals.values())) if last else 0.0

# %% wrong={"grade_id": "speculate", "name": "rejects_below", "misconception": "a token that the target finds less likely than the draft is always rejected", "keeps": 2}
#-        if uniform >= min(1.0, p[token] / q[token]):
#+        if p[token] < q[token]:

# %% wrong={"grade_id": "speculate", "name": "draws_from_the_target_again", "misconception": "after a rejection the target draws as ever", "keeps": 1}
#-            missing = np.maximum(p - q, 0.0)
#-            return [*kept, pick(missing / missing.sum(), uniforms[-1])]
#+            return [*kept, pick(p, uniforms[-1])]

# %% wrong={"grade_id": "speculate", "name": "not_renormalised", "misconception": "what is left of the target is a distribution already", "keeps": 1}
#-            return [*kept, pick(missing / missing.sum(), uniforms[-1])]
#+            return [*kept, pick(missing, uniforms[-1])]

# %% wrong={"grade_id": "speculate", "name": "next_uniform", "misconception": "the token in place of a rejected one takes the next uniform number", "keeps": 4}
#-            return [*kept, pick(missing / missing.sum(), uniforms[-1])]
#+            return [*kept, pick(missing / missing.sum(), uniforms[len(kept) + 1])]

# %% wrong={"grade_id": "speculate", "name": "no_bonus", "misconception": "k drafted tokens give at most k", "keeps": 0}
#-    return [*kept, pick(target[-1], uniforms[-1])]
#+    return kept

# %% wrong={"grade_id": "speculate", "name": "goes_on_after_a_rejection", "misconception": "a rejected token is replaced and the others are still good", "keeps": 0}
#-            return [*kept, pick(missing / missing.sum(), uniforms[-1])]
#+            token = pick(missing / missing.sum(), uniforms[-1])

# %% wrong={"grade_id": "speculate", "name": "ratio_upside_down", "misconception": "the probability to keep a token is q / p", "keeps": 0}
#-        if uniform >= min(1.0, p[token] / q[token]):
#+        if uniform * p[token] >= q[token]:

# %% wrong={"grade_id": "speculate", "name": "absolute_difference", "misconception": "where p and q differ, the draft was wrong", "keeps": 1}
#-            missing = np.maximum(p - q, 0.0)
#+            missing = np.abs(p - q)

# %% wrong={"grade_id": "speculate", "name": "keeps_what_it_rejects", "misconception": "the corrected token comes after the rejected one", "keeps": 0}
#-            return [*kept, pick(missing / missing.sum(), uniforms[-1])]
#+            return [*kept, token, pick(missing / missing.sum(), uniforms[-1])]
