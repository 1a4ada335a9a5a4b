"""Multi-head latent attention: queries, keys and values from short vectors."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit.planner.errors import PlanError


@dataclass(frozen=True)
class LatentAttention:
    """Sizes of multi-head latent attention (MLA).

    Args:
        query_rank: width of the short vector that queries come from.
        kv_rank: width of the short vector that keys and values come from, and that a serving engine caches.
        no_rope_width, rope_width: numbers of a head's query and key without and with RoPE. The part with RoPE is the
            same for all heads.
        value_width: numbers of a head's value.

    Raises PlanError for a size that cannot be.

    Example:
        >>> LatentAttention().cached_width
        576

    Reference: DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434, sec. 2.1; defaults: "DeepSeek-V3", arXiv:2412.19437,
    sec. 4.2.
    """

    query_rank: int = 1536
    kv_rank: int = 512
    no_rope_width: int = 128
    rope_width: int = 64
    value_width: int = 128

    def __post_init__(self) -> None:
        for size, value in vars(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise PlanError(f"{size} must be a whole number from 1 up, got {value!r}")

    @property
    def query_head_width(self) -> int:
        """Numbers of a head's query, and of its key."""
        return self.no_rope_width + self.rope_width

    @property
    def cached_width(self) -> int:
        """Numbers of a token and layer in the cache of a serving engine."""
        return self.kv_rank + self.rope_width

    def shared(self, width: int) -> int:
        """Return the parameters that every tensor-parallel rank holds: into the short vectors, and their norms."""
        return width * (self.query_rank + self.cached_width) + self.query_rank + self.kv_rank

    def matrices(self, width: int, heads: int) -> int:
        """Return the parameters of all matrices."""
        head = self.query_rank * self.query_head_width + self.kv_rank * (self.no_rope_width + self.value_width)
        return width * (self.query_rank + self.cached_width) + heads * (head + self.value_width * width)

    def parameters(self, width: int, heads: int) -> int:
        """Return the parameters of one layer: the matrices, and a norm of each short vector."""
        return self.matrices(width, heads) + self.query_rank + self.kv_rank
