"""Python's values as a kernel's arguments: checked against its signature, packed, and brought back after the launch.

Arrays of the notebook are copied into device memory and back. Arrays that share memory share a buffer, so that what the
kernel writes through one pointer is what it reads through the other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.errors import CudaArgumentError
from mlsys_labkit.cuda.kernel.arguments.device_array import DeviceArray
from mlsys_labkit.cuda.kernel.arguments.elements import check_elements
from mlsys_labkit.cuda.kernel.arguments.host_array import HostArray, as_host_array
from mlsys_labkit.cuda.kernel.arguments.parameters import Parameter, signature
from mlsys_labkit.cuda.kernel.arguments.scalars import shown, value_bytes
from mlsys_labkit.cuda.kernel.simulator.client import DeviceBuffer
from mlsys_labkit.cuda.kernel.simulator.decode import NamedRange

LARGEST_BYTES = 32_764  # of all arguments, since CUDA 12.1 on sm_70 and newer
_FIRST_ADDRESS = 1 << 32  # a smaller int is a number, not an address


@dataclass
class BoundArguments:
    """Arguments ready for a launch.

    Attributes:
        packed: the values, each at its offset and in the host's alignment.
        offsets: one an argument.
        arrays: which argument owns which range of device memory.
    """

    packed: bytes
    offsets: tuple[int, ...]
    arrays: tuple[NamedRange, ...]
    _keep: list[Any] = field(default_factory=list)
    _returns: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]] = field(default_factory=list)

    def copy_back(self) -> None:
        """Copy the arrays that the kernel may have written to the caller's arrays."""
        for host, device in self._returns:
            host[...] = device

    def release(self) -> None:
        """Free the buffers that were made for this launch."""
        self._returns.clear()
        for one in self._keep:
            if isinstance(one, DeviceBuffer):
                one.free()
        self._keep.clear()


def bind(
    kernel: str,
    parameters: Sequence[Parameter],
    arguments: Sequence[Any],
    allocate: Callable[[int], DeviceBuffer],
) -> BoundArguments:
    """Check and pack ``arguments``.

    Raises CudaArgumentError that names the argument, what it is and what was expected.
    """
    if len(arguments) != len(parameters):
        raise CudaArgumentError(
            f"{kernel} takes {_counted(len(parameters), 'argument')} and got {len(arguments)}: "
            f"{signature(kernel, parameters)}"
        )
    values: list[Any] = []
    hosts: list[HostArray | None] = []
    for number, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True), start=1):
        label = f"argument {number}" + (f" ({parameter.name})" if parameter.name else "") + f" of {kernel}"
        host = None
        if parameter.kind == "pointer":
            value, host = _pointer(label, parameter, argument)
        else:
            value = value_bytes(label, parameter, argument)
        values.append(value)
        hosts.append(host)
    bound = BoundArguments(b"", (), ())
    arrays = _place(parameters, arguments, hosts, values, bound, allocate)
    bound.arrays = tuple(arrays)
    bound.packed, bound.offsets = _pack(kernel, parameters, values)
    return bound


def _pack(kernel: str, parameters: Sequence[Parameter], values: Sequence[Any]) -> tuple[bytes, tuple[int, ...]]:
    packed = bytearray()
    offsets = []
    for parameter, value in zip(parameters, values, strict=True):
        packed += bytes(-len(packed) % parameter.alignment)
        offsets.append(len(packed))
        packed += struct.pack("<Q", value) if isinstance(value, int) else value
    if len(packed) > LARGEST_BYTES:
        raise CudaArgumentError(
            f"the arguments of {kernel} take {len(packed):,} bytes, and CUDA allows {LARGEST_BYTES:,}; "
            "pass a pointer to a large struct instead"
        )
    return bytes(packed), tuple(offsets)


def _place(
    parameters: Sequence[Parameter],
    arguments: Sequence[Any],
    hosts: Sequence[HostArray | None],
    values: list[Any],
    bound: BoundArguments,
    allocate: Callable[[int], DeviceBuffer],
) -> list[NamedRange]:
    """Give each array of the notebook its place in device memory, overlapping ones a common one; fill in ``values``."""
    arrays = []
    names = [parameter.name or f"argument {number}" for number, parameter in enumerate(parameters, start=1)]
    for index, argument in enumerate(arguments):
        if isinstance(argument, DeviceArray):
            arrays.append(_range(names[index], argument.address, argument.nbytes, parameters[index]))
            bound._keep.append(argument)
    placed = [(host, index) for index, host in enumerate(hosts) if host is not None]
    for group in _overlapping(placed):
        begin = min(host.address for host, _ in group)
        nbytes = max(host.address + host.nbytes for host, _ in group) - begin
        buffer = allocate(nbytes)
        bound._keep.append(buffer)
        device = buffer.view()
        for host, index in group:
            offset = host.address - begin
            mine = device[offset : offset + host.nbytes]
            mine[...] = host.raw
            bound._keep.append(host)
            values[index] = buffer.address + offset
            arrays.append(_range(names[index], values[index], host.nbytes, parameters[index]))
            if not parameters[index].is_const:
                bound._returns.append((host.raw, mine))
    return arrays


def _range(name: str, address: int, nbytes: int, parameter: Parameter) -> NamedRange:
    return NamedRange(name, address, address + nbytes, parameter.element_bytes)


def _overlapping(placed: Sequence[tuple[HostArray, int]]) -> list[list[tuple[HostArray, int]]]:
    groups: list[list[tuple[HostArray, int]]] = []
    end = 0
    for host, index in sorted(placed, key=lambda one: one[0].address):
        if groups and host.nbytes and host.address < end:
            groups[-1].append((host, index))
        else:
            groups.append([(host, index)])
            end = 0
        end = max(end, host.address + host.nbytes)
    return groups


def _pointer(label: str, parameter: Parameter, argument: Any) -> tuple[Any, HostArray | None]:
    """Return a device address, or the host array that gets one."""
    if isinstance(argument, DeviceArray):
        if argument.on_gpu:
            raise CudaArgumentError(
                f"{label} lies on the GPU, and this kernel runs in the simulator; pass its .numpy()"
            )
        check_elements(label, parameter, argument.dtype, argument.nbytes)
        return argument.address, None
    if isinstance(argument, int | np.integer) and not isinstance(argument, bool):
        if argument == 0 or argument >= _FIRST_ADDRESS:
            return int(argument), None
        raise CudaArgumentError(
            f"{label} is the number {argument}, and {parameter.type} wants an array; are the arguments in this order? "
            "(0 is a null pointer)"
        )
    host = as_host_array(label, argument)
    if host is None:
        raise CudaArgumentError(
            f"{label} is {shown(argument)}, and {parameter.type} wants a numpy array, a torch tensor or a device array"
            + ("; a null pointer is written 0" if argument is None else "")
        )
    check_elements(label, parameter, host.dtype, host.nbytes)
    if not parameter.is_const and not host.is_writable:
        raise CudaArgumentError(
            f"{label} is read-only, and the kernel may write through {parameter.type}; pass a copy, "
            f"or declare the parameter const {parameter.element_type}*"
        )
    return 0, host


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)
