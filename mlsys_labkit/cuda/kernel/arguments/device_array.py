"""Arrays in device memory: what a kernel works on without a copy in and a copy out at every launch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from mlsys_labkit.cuda.errors import CudaError

# Mirrors unset_word in native/runtime/unset_memory.h.
_UNSET_PAGE = np.uint32(0x7FA00000) | (np.arange(1024, dtype=np.uint32) * np.uint32(0x9E3779B1) >> np.uint32(11))
_MOST_UNSET_BYTES = 64 << 20  # of one array; filling more would take longer than it helps


class DeviceArray:
    """A contiguous array in device memory: a GPU's where kernels run on one by themselves, else the simulator's.

    Attributes:
        shape: as numpy's.
        dtype: as numpy's.
        nbytes: of all its elements.
        on_gpu: False for the simulator's memory.

    Example:
        >>> to_device([1.0, 2.0]).numpy()
        array([1., 2.])
    """

    def __init__(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> None:
        from mlsys_labkit.cuda.kernel.simulator.client import Simulator

        self.shape = (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(extent) for extent in shape)
        self.dtype = np.dtype(dtype)
        if min(self.shape, default=0) < 0:
            raise CudaError(f"a device array's extents are 0 or more; got the shape {self.shape}")
        if self.dtype.hasobject:
            raise CudaError(f"device memory holds numbers, not Python objects; got dtype {self.dtype}")
        self.nbytes = (
            int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize if self.shape else self.dtype.itemsize
        )
        gpu = _gpu()
        self._buffer: Any = gpu.allocate(self.nbytes) if gpu else Simulator.current().allocate(self.nbytes)
        self.on_gpu = gpu is not None

    @property
    def address(self) -> int:
        """The address of the first element, as a kernel's pointer has it. Raises CudaError after ``free``."""
        return int(self._buffer.address)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.nbytes // self.dtype.itemsize if self.dtype.itemsize else 0

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a device array without dimensions")
        return self.shape[0]

    def numpy(self) -> NDArray[Any]:
        """Return a copy of the present contents."""
        return self._view() if self.on_gpu else self._view().copy()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def copy_from(self, values: ArrayLike) -> DeviceArray:
        """Overwrite all elements; ``values`` broadcast as in an assignment."""
        view = self._view()
        view[...] = values
        if self.on_gpu:
            self._buffer.write(view.reshape(-1).view(np.uint8))
        return self

    def free(self) -> None:
        """Free the memory; a kernel that still uses the address faults. Freeing twice does nothing."""
        self._buffer.free()

    def lies_on(self, gpu: Any) -> bool:
        """Return True if a kernel that ``gpu`` launches can use the address."""
        return self.on_gpu and self._buffer.gpu is gpu

    def _view(self) -> NDArray[Any]:
        """Return the memory itself; a copy of a GPU's, which this process cannot reach."""
        raw: NDArray[np.uint8] = self._buffer.view()
        return raw.view(self.dtype).reshape(self.shape)

    def _mark_unset(self) -> None:
        """Fill the simulator's memory with the words by which ``check`` recognises what nobody has written."""
        if self.on_gpu:
            return
        words = self._buffer.view()[: min(self.nbytes, _MOST_UNSET_BYTES) // 4 * 4].view(np.uint32)
        words[:] = np.resize(np.roll(_UNSET_PAGE, -(self.address // 4 % _UNSET_PAGE.size)), words.size)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype})"


def _gpu() -> Any:
    """Return the GPU if kernels run on one by default: arrays then lie there, too."""
    from mlsys_labkit.cuda.nvidia.device import the_gpu, why_no_gpu

    return None if why_no_gpu() else the_gpu()


def to_device(values: Any) -> DeviceArray:
    """Return a copy of an array, a list or a torch tensor in device memory.

    Example:
        >>> to_device(np.arange(6).reshape(2, 3)).shape
        (2, 3)
    """
    if type(values).__module__.split(".")[0] == "torch":
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    return DeviceArray(array.shape, array.dtype).copy_from(array)


def empty(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> DeviceArray:
    """Return an array of device memory that is not initialised. ``check`` reports reads of what nobody has written.

    Example:
        >>> empty((4, 4)).nbytes
        64
    """
    array = DeviceArray(shape, dtype)
    array._mark_unset()
    return array


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> DeviceArray:
    """Return an array of zeros in device memory.

    Example:
        >>> zeros(3, np.int32).numpy()
        array([0, 0, 0], dtype=int32)
    """
    return DeviceArray(shape, dtype).copy_from(0)
