"""numpy arrays and torch tensors of the notebook as one thing: bytes in a row, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.errors import CudaArgumentError


@dataclass(frozen=True)
class HostArray:
    """Memory of the notebook.

    Attributes:
        raw: its bytes, shape (nbytes,): the memory itself.
        dtype: what they mean; the string ``"bfloat16"`` for torch's, which numpy does not have.
        is_writable: whether the caller let go of it to be written.
    """

    raw: NDArray[np.uint8]
    dtype: np.dtype[Any] | str
    is_writable: bool

    @property
    def address(self) -> int:
        return int(self.raw.__array_interface__["data"][0])

    @property
    def nbytes(self) -> int:
        return self.raw.nbytes


def as_host_array(label: str, argument: Any) -> HostArray | None:
    """Return the array, None for anything else. Raises CudaArgumentError if its elements are not in a row."""
    if isinstance(argument, np.ndarray):
        return _from_numpy(label, argument)
    if type(argument).__module__.split(".")[0] == "torch" and hasattr(argument, "data_ptr"):
        return _from_torch(label, argument)
    return None


def _from_numpy(label: str, array: NDArray[Any]) -> HostArray:
    if array.dtype.hasobject:
        raise CudaArgumentError(
            f"{label} is an array of Python objects; pass numbers, such as array.astype(np.float32)"
        )
    if not array.dtype.isnative:
        raise CudaArgumentError(
            f"{label} has the bytes of its numbers swapped; pass array.astype(array.dtype.newbyteorder('='))"
        )
    if not array.flags.c_contiguous:
        raise CudaArgumentError(
            f"{label} has shape {array.shape} and strides {array.strides}: its elements are not in a row, "
            "as the kernel's pointer says; pass np.ascontiguousarray(array)"
        )
    plain = np.asarray(array).reshape(-1)
    raw = plain.view(np.uint8) if plain.dtype.itemsize else np.empty(0, np.uint8)
    return HostArray(raw, array.dtype, bool(array.flags.writeable))


def _from_torch(label: str, tensor: Any) -> HostArray:
    import torch

    if tensor.layout is not torch.strided:
        raise CudaArgumentError(f"{label} is a sparse tensor; pass tensor.to_dense()")
    if tensor.device.type != "cpu":
        raise CudaArgumentError(
            f"{label} is on {tensor.device}, and this kernel runs in the simulator; pass tensor.cpu(), "
            "or compile the kernel with backend='gpu'"
        )
    if not tensor.is_contiguous():
        raise CudaArgumentError(
            f"{label} has shape {tuple(tensor.shape)} and strides {tensor.stride()}: its elements are not in a row, "
            "as the kernel's pointer says; pass tensor.contiguous()"
        )
    flat = tensor.detach().reshape(-1)
    if tensor.dtype is torch.bfloat16:
        return HostArray(flat.view(torch.int16).numpy().view(np.uint8), "bfloat16", True)
    try:
        array = flat.numpy()
    except (TypeError, RuntimeError):
        raise CudaArgumentError(
            f"{label} is a tensor of {tensor.dtype}, which no kernel parameter stands for"
        ) from None
    return HostArray(array.view(np.uint8), array.dtype, True)
