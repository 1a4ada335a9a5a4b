"""The ``__device__`` variables of one source: one value of each, whichever build runs, in whichever worker."""

from __future__ import annotations

from pathlib import Path

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.gcc.symbols import device_variables
from mlsys_labkit.cuda.kernel.simulator import protocol
from mlsys_labkit.cuda.kernel.simulator.client import DeviceBuffer, Simulator, Variable

_ALIGNMENT = 16


class KeptVariables:
    """The device memory that holds their values between launches. Zeros are initial values (``runtime/variables.cpp``).

    The build that comes first decides: a variable that another one lacks is not used there.
    """

    def __init__(self, simulator: Simulator, path: Path) -> None:
        self.simulator = simulator
        self._places: dict[str, tuple[int, int]] = {}  # name -> place in the buffer, bytes
        self._buffer: DeviceBuffer | None = None
        end = 0
        for symbol in device_variables(path):
            self._places[symbol.name] = (end, symbol.nbytes)
            end += -(-symbol.nbytes // _ALIGNMENT) * _ALIGNMENT
        if len(self._places) > protocol.MOST_VARIABLES:
            raise CudaError(
                f"the simulator keeps {protocol.MOST_VARIABLES:,} __device__ variables of one source, and this one has "
                f"{len(self._places):,}; put some into an array"
            )
        if end:
            self._buffer = simulator.allocate(end)
            self._buffer.view()[:] = 0

    def of(self, path: Path) -> tuple[Variable, ...]:
        """Return the variables of a build, each with its place in device memory."""
        if self._buffer is None:
            return ()
        found = []
        for symbol in device_variables(path):
            place, nbytes = self._places.get(symbol.name, (0, 0))
            if nbytes == symbol.nbytes:
                found.append(Variable(symbol.value, nbytes, self._buffer.offset + place))
        return tuple(found)
