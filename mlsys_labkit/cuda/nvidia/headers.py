"""Headers that kernels often include although device code does not need them, and that NVRTC lacks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.resources import files

PRELUDE = "mlsys_labkit/nvcc.h"
"""Included before every source: what nvcc itself includes."""

# Device code needs none of these: nvcc and NVRTC declare their contents anyway, or nvcc refuses them in a kernel.
_EMPTY = """
cuda.h cuda_runtime.h cuda_runtime_api.h cuda_device_runtime_api.h cuda_profiler_api.h device_launch_parameters.h
device_functions.h device_atomic_functions.h driver_types.h host_config.h host_defines.h builtin_types.h
common_functions.h math_functions.h vector_functions.h sm_20_intrinsics.h sm_30_intrinsics.h sm_60_atomic_functions.h
assert.h ctype.h errno.h inttypes.h math.h memory.h signal.h stdarg.h stdbool.h stddef.h stdio.h stdlib.h string.h
strings.h sys/time.h sys/types.h time.h unistd.h cassert cctype cerrno cinttypes cmath csignal cstdarg cstdbool
cstddef cstdio cstdlib cstring ctime omp.h algorithm any atomic bitset chrono complex condition_variable deque
exception filesystem fstream functional future iomanip ios iosfwd iostream istream iterator list locale map memory
mutex new numeric optional ostream queue random ratio regex set shared_mutex span sstream stack stdexcept streambuf
string string_view system_error thread typeinfo unordered_map unordered_set valarray variant vector
"""

# Device code can use these, and the CUDA C++ library (CCCL) has them.
_FORWARDED = {
    **{name: name for name in ("array", "cfloat", "climits", "cstdint", "initializer_list", "limits", "tuple")},
    **{name: name for name in ("type_traits", "utility")},
    "float.h": "cfloat",
    "limits.h": "climits",
    "stdint.h": "cstdint",
}


@functools.cache
def supplied_headers() -> Mapping[str, str]:
    """Return the text of each header by name, as ``nvrtcCreateProgram`` takes it.

    NVRTC uses these texts and searches no include path for the names.
    """
    headers = {PRELUDE: _own("nvcc.h")} | dict.fromkeys(_EMPTY.split(), "")
    return headers | {name: _forward(to) for name, to in _FORWARDED.items()}


def _forward(name: str) -> str:
    header = f"<cuda/std/{name}>"
    return (
        f"#pragma once\n#if __has_include({header})\n#include {header}\n"
        "namespace cuda { namespace std {} }\nnamespace std { using namespace ::cuda::std; }\n#endif\n"
        + (_own("limits_of_floats.h") if name == "cfloat" else "")
    )


def _own(name: str) -> str:
    return files(__package__).joinpath("headers", name).read_text(encoding="utf-8")
