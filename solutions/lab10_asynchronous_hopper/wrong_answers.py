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

# %% wrong={"grade_id": "in_flight", "name": "rounds_down", "misconception": "what is left over does not matter", "keeps": 0}
#-    return -(-rate // nano), -(-rate // (nano * sms)), -(-rate // (nano * sms * stage_bytes))
#+    return rate // nano, rate // (nano * sms), rate // (nano * sms * stage_bytes)

# %% wrong={"grade_id": "in_flight", "name": "latency_in_microseconds", "misconception": "a nanosecond is 1e-6 seconds", "keeps": 0}
#-    nano = 10**9
#+    nano = 10**6

# %% wrong={"grade_id": "in_flight", "name": "stages_of_the_whole_gpu", "misconception": "a stage belongs to the GPU", "keeps": 0}
#-    return -(-rate // nano), -(-rate // (nano * sms)), -(-rate // (nano * sms * stage_bytes))
#+    return -(-rate // nano), -(-rate // (nano * sms)), -(-rate // (nano * stage_bytes))

# %% wrong={"grade_id": "reverse_tile", "name": "nobody_waits", "misconception": "the copy is over when it has been started", "keeps": 0}
#-    bar.wait_parity(0);

# %% wrong={"grade_id": "reverse_tile", "name": "waits_for_parity_one", "misconception": "the first phase has parity 1", "keeps": 0}
#-    bar.wait_parity(0);
#+    bar.wait_parity(1);

# %% wrong={"grade_id": "reverse_tile", "name": "one_thread_waits", "misconception": "who starts the copy waits for it", "keeps": 0}
#-    bar.wait_parity(0);
#+    if (t == 0) bar.wait_parity(0);

# %% wrong={"grade_id": "reverse_tile", "name": "no_fence", "misconception": "the barrier is in shared memory, so that all see it", "keeps": 4}
#-        cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);

# %% wrong={"grade_id": "reverse_tile", "name": "nobody_meets_after_init", "misconception": "a barrier can be used as soon as it is declared", "keeps": 4}
#-    __syncthreads();

# %% wrong={"grade_id": "reverse_tile", "name": "expects_floats", "misconception": "a size is a number of elements", "keeps": 0}
#-        (void)cuda::device::barrier_arrive_tx(bar, 1, sizeof s);
#+        (void)cuda::device::barrier_arrive_tx(bar, 1, 256);

# %% wrong={"grade_id": "reverse_tile", "name": "all_arrive", "misconception": "who waits has to arrive", "keeps": 0}
#-        init(&bar, 1);
#+        init(&bar, 256);

# %% wrong={"grade_id": "reverse_tile", "name": "threads_carry_the_tile", "misconception": "a tile is filled by its threads", "keeps": 8}
#-    if (t == 0) {
#-        cuda::device::memcpy_async_tx(s, x + 256 * blockIdx.x, cuda::aligned_size_t<16>(sizeof s), bar);
#-        (void)cuda::device::barrier_arrive_tx(bar, 1, sizeof s);
#-    }
#-    bar.wait_parity(0);
#+    s[t] = x[256 * blockIdx.x + t];
#+    __syncthreads();

# %% wrong={"grade_id": "ring", "name": "never_turns", "misconception": "a phase has the parity of its stage", "keeps": 0}
#-    parity = i // stages % 2
#+    parity = i % stages % 2

# %% wrong={"grade_id": "ring", "name": "turns_with_every_tile", "misconception": "the parity turns from tile to tile", "keeps": 0}
#-    parity = i // stages % 2
#+    parity = i % 2

# %% wrong={"grade_id": "ring", "name": "same_parity_for_empty", "misconception": "both waits are for the same phase", "keeps": 0}
#-    return i % stages, parity, 1 - parity
#+    return i % stages, parity, parity

# %% wrong={"grade_id": "reverse_two", "name": "nobody_meets_after_init", "misconception": "a barrier can be used as soon as it is declared", "keeps": 4}
#-    __syncthreads();

# %% wrong={"grade_id": "reverse_two", "name": "parity_of_the_tile", "misconception": "the parity turns with every tile", "keeps": 0}
#-        full[stage].wait_parity(i / 2 % 2);
#+        full[stage].wait_parity(i % 2);

# %% wrong={"grade_id": "reverse_two", "name": "parity_never_turns", "misconception": "each stage has one parity", "keeps": 2}
#-        full[stage].wait_parity(i / 2 % 2);
#+        full[stage].wait_parity(0);

# %% wrong={"grade_id": "reverse_two", "name": "no_meeting_after_the_reads", "misconception": "who has waited for the copy may start the next one", "keeps": 6}
#-        __syncthreads();  // all have read the stage

# %% wrong={"grade_id": "reverse_two", "name": "always_two_tiles", "misconception": "there are at least two tiles", "keeps": 10}
#-        for (int i = 0; i < 2 && i < tiles; i++) {
#+        for (int i = 0; i < 2; i++) {

# %% wrong={"grade_id": "reverse_two", "name": "one_in_flight", "misconception": "a copy is started when its turn has come", "keeps": 8}
#-        for (int i = 0; i < 2 && i < tiles; i++) {
#+        for (int i = 0; i < 1 && i < tiles; i++) {

#-    for (int i = 0; i < tiles; i++) {
#-        int stage = i % 2;
#+    for (int i = 0; i < tiles; i++) {
#+        int stage = i % 2, other = 1 - stage;

#-        if (t == 0 && i + 2 < tiles) {
#-            cuda::device::memcpy_async_tx(s[stage], x + 256 * (i + 2), cuda::aligned_size_t<16>(sizeof s[stage]), full[stage]);
#-            (void)cuda::device::barrier_arrive_tx(full[stage], 1, sizeof s[stage]);
#+        if (t == 0 && i + 1 < tiles) {
#+            cuda::device::memcpy_async_tx(s[other], x + 256 * (i + 1), cuda::aligned_size_t<16>(sizeof s[other]), full[other]);
#+            (void)cuda::device::barrier_arrive_tx(full[other], 1, sizeof s[other]);

# %% wrong={"grade_id": "reverse_ring", "name": "stage_of_the_tile", "misconception": "stage and parity belong to the tile", "keeps": 8}
#-        full[k % S].wait_parity(k / S % 2);
#-        y[256 * (blockIdx.x + k * gridDim.x) + t] = s[k % S][255 - t];
#+        int tile = blockIdx.x + k * gridDim.x;
#+        full[tile % S].wait_parity(tile / S % 2);
#+        y[256 * tile + t] = s[tile % S][255 - t];

# %% wrong={"grade_id": "reverse_ring", "name": "one_stage_less", "misconception": "the stage that is read cannot be loaded", "keeps": 9}
#-    for (int k = 0; k < S; k++) load(k);
#+    for (int k = 0; k < S - 1; k++) load(k);

#-        __syncthreads();
#-        load(k + S);
#+        __syncthreads();
#+        load(k + S - 1);

# %% wrong={"grade_id": "reverse_ring", "name": "no_guard", "misconception": "all blocks have S tiles", "keeps": 0}
#-        if (t != 0 || tile >= tiles) return;
#+        if (t != 0) return;

# %% wrong={"grade_id": "reverse_ring", "name": "no_meeting_after_the_reads", "misconception": "a deep ring needs no meeting", "keeps": 5}
#-        __syncthreads();
#-        load(k + S);
#+        load(k + S);

# %% wrong={"grade_id": "specialised", "name": "nobody_meets_after_init", "misconception": "a barrier can be used as soon as it is declared", "keeps": 4}
#-    __syncthreads();

# %% wrong={"grade_id": "specialised", "name": "releases_before_it_reads", "misconception": "an arrival says that the tile has come", "keeps": 4}
#-            y[256 * tile + t] = s[stage][255 - t];
#-            (void)empty[stage].arrive();
#+            (void)empty[stage].arrive();
#+            y[256 * tile + t] = s[stage][255 - t];

# %% wrong={"grade_id": "specialised", "name": "one_arrival_per_warp", "misconception": "a warp arrives as one", "keeps": 4}
#-            init(&empty[i], 256);
#+            init(&empty[i], 8);

#-            (void)empty[stage].arrive();
#+            if (t % 32 == 0) (void)empty[stage].arrive();

# %% wrong={"grade_id": "specialised", "name": "whole_block_arrives", "misconception": "all threads of the block take part in a phase", "keeps": 3}
#-            init(&empty[i], 256);
#+            init(&empty[i], 288);

# %% wrong={"grade_id": "specialised", "name": "same_parity_for_both", "misconception": "producer and consumers wait for the same phase", "keeps": 0}
#-            empty[stage].wait_parity(1 - k / S % 2);
#+            empty[stage].wait_parity(k / S % 2);

# %% wrong={"grade_id": "specialised", "name": "nobody_waits_for_empty", "misconception": "three stages are enough", "keeps": 3}
#-            empty[stage].wait_parity(1 - k / S % 2);

# %% wrong={"grade_id": "specialised", "name": "barriers_in_both_loops", "misconception": "both branches meet at each tile", "keeps": 10}
#-            (void)cuda::device::barrier_arrive_tx(full[stage], 1, sizeof s[0]);
#-        }
#-    } else if (threadIdx.x >= 32) {
#+            (void)cuda::device::barrier_arrive_tx(full[stage], 1, sizeof s[0]);
#+        }
#+        __syncthreads();
#+    } else if (threadIdx.x < 32) {
#+        __syncthreads();
#+    } else {

#-            (void)empty[stage].arrive();
#-        }
#+            (void)empty[stage].arrive();
#+        }
#+        __syncthreads();

# %% wrong={"grade_id": "scale_copies", "name": "no_fence_for_the_data", "misconception": "a barrier of the block makes writes visible", "keeps": 4}
#-        ptx::fence_proxy_async(ptx::space_shared);  // each writer, for what it wrote

# %% wrong={"grade_id": "scale_copies", "name": "does_not_wait_for_the_group", "misconception": "a copy has read its source when it has been started", "keeps": 4}
#-            ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());

# %% wrong={"grade_id": "scale_copies", "name": "group_is_not_closed", "misconception": "waiting closes the group", "keeps": 4}
#-            ptx::cp_async_bulk_commit_group();

# %% wrong={"grade_id": "scale_copies", "name": "no_meeting_before_the_copy", "misconception": "the fence waits for the others", "keeps": 0}
#-        ptx::fence_proxy_async(ptx::space_shared);  // each writer, for what it wrote
#-        __syncthreads();
#+        ptx::fence_proxy_async(ptx::space_shared);

# %% wrong={"grade_id": "scale_copies", "name": "threads_store", "misconception": "threads write the result", "keeps": 8}
#-        s[i % 2][t] *= factor;
#-        ptx::fence_proxy_async(ptx::space_shared);  // each writer, for what it wrote
#-        __syncthreads();
#-        if (t == 0) {
#-            ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, x + 256 * i, s[i % 2], sizeof s[0]);
#-            ptx::cp_async_bulk_commit_group();
#-            ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
#-        }
#+        x[256 * i + t] = s[i % 2][t] * factor;
#+        __syncthreads();

# %% wrong={"grade_id": "cluster_sum", "name": "no_sync_at_the_end", "misconception": "who has no more work may go", "keeps": 4}
#-    cluster.sync();  // and keep them until they have been read

# %% wrong={"grade_id": "cluster_sum", "name": "block_barrier_in_place_of_the_clusters", "misconception": "__syncthreads() waits for all blocks of the cluster", "keeps": 4}
#-    cluster.sync();  // all blocks have their sums
#+    __syncthreads();

# %% wrong={"grade_id": "cluster_sum", "name": "adds_its_own_four_times", "misconception": "a shared variable has one address in all blocks", "keeps": 0}
#-        for (int rank = 0; rank < 4; rank++) sum += *cluster.map_shared_rank(&own, rank);
#+        for (int rank = 0; rank < 4; rank++) sum += own;

# %% wrong={"grade_id": "cluster_sum", "name": "through_global_memory", "misconception": "blocks exchange values by atomics on global memory", "keeps": 0}
#-    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
#-        float sum = 0;
#-        for (int rank = 0; rank < 4; rank++) sum += *cluster.map_shared_rank(&own, rank);
#-        sums[blockIdx.x / 4] = sum;
#-    }
#+    if (threadIdx.x == 0) atomicAdd(&sums[blockIdx.x / 4], own);

# %% wrong={"grade_id": "debug_async", "name": "another_stage", "misconception": "with three stages nobody gets in the way", "keeps": 4}
#-            float sum = s[i % 2][t] + s[i % 2][t + 32];
#-            (void)empty[i % 2].arrive();  // after the reads
#+            (void)empty[i % 2].arrive();
#+            __syncwarp();
#+            float sum = s[i % 2][t] + s[i % 2][t + 32];

# %% wrong={"grade_id": "debug_async", "name": "one_lane_arrives", "misconception": "the first lane arrives for its warp", "keeps": 4}
#-        for (int i = 0; i < 2; i++) { init(&full[i], 1); init(&empty[i], 32); }
#+        for (int i = 0; i < 2; i++) { init(&full[i], 1); init(&empty[i], 1); }

#-            (void)empty[i % 2].arrive();  // after the reads
#+            if (t == 0) (void)empty[i % 2].arrive();

# %% wrong={"grade_id": "debug_async", "name": "tells_each_copy", "misconception": "each copy has an arrival of its own", "keeps": 4}
#-        (void)cuda::device::barrier_arrive_tx(bar, 1, 1024);  // the bytes of both
#+        (void)cuda::device::barrier_arrive_tx(bar, 1, 512);
#+        (void)cuda::device::barrier_arrive_tx(bar, 1, 512);
