"""Names that C++ reserves for compilers and libraries; graded kernels may use those that CUDA documents."""

from __future__ import annotations

import re

_RESERVED = re.compile(r"__|_[A-Z]|\w*__")

# CUDA C++ programming guide, "C++ language extensions", and CUDA math API, "Intrinsics".
_CUDAS = re.compile(
    r"""__(?:global|device|host|shared|constant|managed|grid_constant|cluster_dims
            |launch_bounds|maxnreg|forceinline|noinline|inline_hint
           |align|restrict|func|FUNCTION|LINE|FILE)__
      | __restrict
      | __syncthreads(?:_count|_and|_or)? | __syncwarp | __barrier_sync(?:_count)?
      | __(?:any|all|ballot|match_any|match_all|shfl|shfl_up|shfl_down|shfl_xor)(?:_sync)? | __activemask
      | __reduce_(?:add|min|max|and|or|xor)_sync
      | __threadfence(?:_block|_system)? | __nanosleep | __trap | __assert_fail
      | __ld(?:g|cg|ca|cs|lu|cv) | __st(?:wb|cg|cs|wt)
      | __pipeline_(?:memcpy_async|commit|wait_prior)
      | __(?:clz|clzll|brev|brevll|ffs|ffsll|popc|popcll|byte_perm|funnelshift_(?:l|lc|r|rc)|mul24|umul24|mulhi|umulhi
            |mul64hi|umul64hi|sad|usad|hadd|rhadd|uhadd|urhadd|dp2a_(?:lo|hi)|dp4a|fns)
      | __(?:sinf|cosf|sincosf|tanf|expf|exp10f|logf|log2f|log10f|powf|saturatef|fdividef|tanhf)
      | __(?:f|d)(?:add|sub|mul|maf|ma|div|sqrt|rcp|rsqrt)_r[nzud] | __fma(?:f)?(?:_ieee)?_r[nzud] | __fsqrt_r[nzud]
      | __(?:float|double|int|uint|ll|ull|short|ushort|char|uchar|longlong)_as_(?:float|double|int|uint|longlong)
      | __(?:float|double|int|uint|ll|ull|short|ushort|half|half2|bfloat16|bfloat162|low|high|lows|highs|floats
            |low2|high2)(?:2|_as_)\w+
      | __(?:half|half2|half_raw|half2_raw|nv_bfloat16|nv_bfloat162|nv_bfloat16_raw|nv_bfloat162_raw)
      | __h(?!as_)\w+ | __(?:lows|highs|low|high)2\w+ | __halves2\w+ | __lowhigh2highlow
      | __make_bfloat162 | __make_half2
      | __(?:CUDA_ARCH|CUDACC|NVCC|cplusplus) | __CUDA_ARCH__ | __CUDACC__ | __NVCC__ | __VA_ARGS__ | __VA_OPT__
      | __v\w+[24]
    """,
    re.VERBOSE,
)


def is_reserved(name: str) -> bool:
    """Return whether only compilers and their libraries may define this name. Reference: C++17, [lex.name]."""
    return _RESERVED.match(name) is not None


def is_cudas(name: str) -> bool:
    """Return whether CUDA documents the name.

    Example:
        >>> is_cudas("__syncthreads"), is_cudas("__attribute__"), is_cudas("__hadd")
        (True, False, True)
    """
    return _CUDAS.fullmatch(name) is not None
