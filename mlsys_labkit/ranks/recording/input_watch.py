"""A watch over the inputs of an asynchronous collective, which must stay as they are until its wait has returned.

The watch reads torch's version counter, which every operation in place increases. All views of a tensor share one
counter, so for a part of a larger tensor the contents must differ as well. It cannot see writes that go around the
counter (``x.data``, an array of numpy on the same memory), and it cannot see reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch


class InputWatch:
    """The state of some tensors at one moment.

    Args:
        tensors: those that must not change.
        contents: compare the contents of views, too. Without it, views are not watched: use this where the backend
            itself may write to them meanwhile.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], contents: bool) -> None:
        plain = [one for one in tensors if type(one) in (torch.Tensor, torch.nn.Parameter) and not one.is_inference()]
        watched = [one for one in plain if contents or not _is_part(one)]
        self._kept = [(one, one._version, _digest(one) if _is_part(one) else b"") for one in watched]

    @property
    def changed(self) -> bool:
        """True if a tensor was written to since."""
        return any(
            one._version != version and (not digest or _digest(one) != digest) for one, version, digest in self._kept
        )


def _is_part(tensor: torch.Tensor) -> bool:
    return tensor.nbytes < tensor.untyped_storage().nbytes()


def _digest(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().reshape(-1).contiguous().view(torch.uint8)
    return hashlib.blake2b(flat.cpu().numpy().tobytes(), digest_size=16).digest()
