"""Places of elements in shared memory, as a shared layout gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.gluon.inference import LayoutInference

Places = NDArray[np.int64]


@dataclass(eq=False)
class SharedEncoding:
    """A shared layout of a tile of ``rank`` dimensions; dimensions before them are copies of the tile, in a row.

    Attributes:
        attribute: the layout in the compiler's words; None for a padded one.
        bases: of a padded layout: the element that each bit of the place stands for.
        padding: (interval, elements that follow each interval) of a padded layout.
    """

    inference: LayoutInference
    rank: int
    attribute: Any = None
    bases: Any = ()
    padding: tuple[tuple[int, int], ...] = ()

    @cached_property
    def _known(self) -> dict[tuple[int, ...], Places]:
        return {}

    def places(self, shape: tuple[int, ...]) -> Places:
        """Return the place of each element of a block of ``shape``, in elements."""
        if shape not in self._known:
            copies, tile = shape[: len(shape) - self.rank], shape[len(shape) - self.rank :]
            one = self._tile(tile)
            size = self.extent(math.prod(tile))
            self._known[shape] = np.arange(math.prod(copies)).reshape((*copies, *(1 for _ in tile))) * size + one
        return self._known[shape]

    def extent(self, elements: int) -> int:
        """Return the elements that so many need, with their padding; none follows the last one."""
        return self._padded(elements - 1) + 1 if elements else 0

    def _padded(self, place: Any) -> Any:
        return place + sum(place // interval * more for interval, more in self.padding)

    def _tile(self, tile: tuple[int, ...]) -> Places:
        count = math.prod(tile)
        if count == 1:
            return np.zeros(tile, np.int64)
        bases = self.bases or self.inference.builder.to_linear_layout(self.attribute, list(tile)).offset_bases
        at = np.zeros((1, len(tile)), np.int64)
        for basis in bases:
            at = np.concatenate([at, at ^ np.array(basis, np.int64)])
        found = np.zeros(tile, np.int64)
        found[tuple(at.T)] = self._padded(np.arange(len(at)))
        return found
