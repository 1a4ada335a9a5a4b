"""The capacity of shared memory, and the allocations of one program that need it at the same time."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit.triton_trace.gluon.shared import Allocation
from mlsys_labkit.triton_trace.interpret.run import Refused

CAPACITY = 232448  # bytes that a program may have on an H100. Reference: CUDA C++ Programming Guide, compute 9.0


@dataclass(eq=False)
class _Life:
    """The uses of one allocation, as counts of allocations and bytes.

    Attributes:
        counted: allocations before this place have its bytes in ``together``, or were made before it.
        together: bytes that were live when it was made, as far as uses have shown.
    """

    allocation: Allocation
    counted: int
    together: int = 0


class Capacity:
    """The allocations of one program, and the bytes that are live at once, at least.

    Triton's compiler gives the bytes of an allocation to others after its last use, so the sum of all allocations may
    exceed the capacity. A use shows that an allocation was live at each one made since. The compiler may need more:
    for two partitions, which it cannot let share bytes, and for uses in branches that the program does not take.
    """

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self._lives: dict[Allocation, _Life] = {}

    def add(self, one: Allocation) -> None:
        """Add an allocation. Raises Refused for one that is larger than the capacity."""
        if one.bytes.size > CAPACITY:
            raise Refused(f"{one.bytes.size:,} bytes of shared memory are more than the {CAPACITY:,} of an H100")
        self._lives[one] = _Life(one, len(self.allocations))
        self.allocations.append(one)

    def use(self, one: Allocation) -> None:
        """Note a use. Raises Refused where allocations that are live at once exceed the capacity."""
        life = self._lives[one]
        since, life.counted = self.allocations[life.counted :], len(self.allocations)
        for later in (self._lives[made] for made in since):
            later.together += one.bytes.size
            if later.together > CAPACITY:
                raise Refused(
                    f"the {later.allocation.bytes.size:,} bytes of shared memory of {later.allocation.line} make "
                    f"{later.together:,} that are needed at once, more than the {CAPACITY:,} of an H100"
                )
