"""A launch on a GPU: its time by events, and copies of its arguments that can be interpreted as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from mlsys_labkit.errors import require
from mlsys_labkit.timing import bench


@dataclass(frozen=True)
class LaunchArguments:
    """Arguments of a launch, positional and named."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def on_gpu(self) -> bool:
        return any(True for _ in self._tensors())

    @property
    def on_host(self) -> bool:
        """Return True if there are arrays, and all of them are in the CPU's memory."""
        values = (*self.args, *self.kwargs.values())
        arrays = [one for one in values if hasattr(one, "data_ptr") or hasattr(one, "__array_interface__")]
        return bool(arrays) and not self.on_gpu

    @property
    def bytes(self) -> int:
        """Return the bytes of the allocations behind the tensors on the GPU, each counted once."""
        storages = [tensor.untyped_storage() for tensor in self._tensors()]
        return sum({one.data_ptr(): int(one.nbytes()) for one in storages}.values())

    def on_cpu(self) -> LaunchArguments:
        """Return copies in the CPU's memory."""
        return self._copied(lambda storage: storage.cpu())

    def cloned(self) -> LaunchArguments:
        """Return copies on the GPU, so that repeated launches do not change the caller's tensors."""
        return self._copied(lambda storage: storage.clone())

    def launch(self, kernel: Any, grid: Any) -> None:
        kernel[grid](*self.args, **self.kwargs)

    def _tensors(self) -> Iterator[Any]:
        for value in (*self.args, *self.kwargs.values()):
            for part in value if isinstance(value, tuple) else (value,):
                tensor = part.base if _is_descriptor(part) else part
                if _is_on_gpu(tensor):
                    yield tensor

    def _copied(self, copy: Callable[[Any], Any]) -> LaunchArguments:
        """Copy whole allocations, because a kernel gets the tensors' strides and the copies must have the same."""
        torch = require("torch", "torch")
        copies: dict[int, Any] = {}

        def copied(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(copied(part) for part in value)
            if _is_descriptor(value):
                return replace(value, base=copied(value.base))
            if not _is_on_gpu(value):
                return value
            storage = value.untyped_storage()
            if storage.data_ptr() not in copies:
                copies[storage.data_ptr()] = copy(storage)
            target = copies[storage.data_ptr()]
            empty = torch.empty(0, dtype=value.dtype, device=target.device)
            return empty.set_(target, value.storage_offset(), value.shape, value.stride())

        return LaunchArguments(
            tuple(map(copied, self.args)), {name: copied(value) for name, value in self.kwargs.items()}
        )


def timed(kernel: Any, grid: Any, arguments: LaunchArguments) -> tuple[str, float]:
    """Return the GPU's name and the median seconds of a launch, by events; ``arguments`` hold the results."""
    again = arguments.cloned()
    timing = bench(lambda: again.launch(kernel, grid), device="cuda", name=str(getattr(kernel, "__name__", "kernel")))
    arguments.launch(kernel, grid)
    return gpu_name(), timing.median


def gpu_name() -> str:
    return str(require("torch", "torch").cuda.get_device_name())


def _is_on_gpu(value: Any) -> bool:
    return hasattr(value, "data_ptr") and getattr(getattr(value, "device", None), "type", "cpu") != "cpu"


def _is_descriptor(value: Any) -> bool:
    return is_dataclass(value) and hasattr(value, "block_shape")
