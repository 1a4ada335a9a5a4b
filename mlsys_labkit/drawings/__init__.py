"""Drawings of structure, made from data: each function returns a :class:`Drawing`, shown as inline SVG."""

from __future__ import annotations

from mlsys_labkit.drawings.clusters import (
    node as node,
    rack as rack,
    rdma as rdma,
    superpod as superpod,
)
from mlsys_labkit.drawings.compilation import (
    block_scaled as block_scaled,
    compiler_levels as compiler_levels,
    fusion as fusion,
    rotation as rotation,
    softmax_graph as softmax_graph,
    thread_layout as thread_layout,
    who_decides as who_decides,
)
from mlsys_labkit.drawings.drawing import Drawing as Drawing
from mlsys_labkit.drawings.exchanges import (
    context_parallel as context_parallel,
    node_limited_dispatch as node_limited_dispatch,
    ulysses as ulysses,
)
from mlsys_labkit.drawings.foundations import (
    matrix_vector as matrix_vector,
    projection as projection,
    system_stack as system_stack,
    two_times as two_times,
)
from mlsys_labkit.drawings.hopper import (
    matrix_operands as matrix_operands,
    mbarrier_phases as mbarrier_phases,
    swizzle as swizzle,
    warp_roles as warp_roles,
)
from mlsys_labkit.drawings.kernels import (
    banks as banks,
    copy_pipeline as copy_pipeline,
    grid as grid,
    streams as streams,
    tensor_core_tile as tensor_core_tile,
    tiled_product as tiled_product,
    warp_request as warp_request,
    waves as waves,
)
from mlsys_labkit.drawings.machine import (
    fpga as fpga,
    gpu_chip as gpu_chip,
    memory_hierarchy as memory_hierarchy,
    streaming_multiprocessor as streaming_multiprocessor,
)
from mlsys_labkit.drawings.model import (
    attention_tiles as attention_tiles,
    shared_heads as shared_heads,
    sparse_attention as sparse_attention,
    training_memory as training_memory,
    transformer_block as transformer_block,
)
from mlsys_labkit.drawings.requests import (
    adapters as adapters,
    agent_turns as agent_turns,
    cache_tiers as cache_tiers,
    engine_processes as engine_processes,
    littles_law as littles_law,
    speculation as speculation,
    token_mask as token_mask,
)
from mlsys_labkit.drawings.schedules import dual_pipe as dual_pipe, rl_placements as rl_placements
from mlsys_labkit.drawings.serving import (
    disaggregation as disaggregation,
    input_pipeline as input_pipeline,
    kv_cache as kv_cache,
    paged_cache as paged_cache,
    prefix_tree as prefix_tree,
    price_of_token as price_of_token,
    serving_path as serving_path,
)
from mlsys_labkit.drawings.training import (
    expert_exchange as expert_exchange,
    expert_load as expert_load,
    networks as networks,
    pipeline_stages as pipeline_stages,
    ring_all_reduce as ring_all_reduce,
    ring_of_sequences as ring_of_sequences,
    sharded_states as sharded_states,
    tensor_parallel as tensor_parallel,
)
