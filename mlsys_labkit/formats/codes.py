"""The range check of codes that all formats share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mlsys_labkit.formats.errors import FormatError


def checked_codes(name: str, codes: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    """Return ``codes`` as int64. Raises FormatError unless they are integers from 0 to ``count`` - 1."""
    code = np.asarray(codes)
    if code.size and (not np.issubdtype(code.dtype, np.integer) or code.min() < 0 or code.max() >= count):
        raise FormatError(f"{name} has the codes 0 to {count - 1}; got {code.reshape(-1)[:4].tolist()}")
    return code.astype(np.int64)
