"""Items of two parts, of which either may be kept from reading the other.

Axes: B items   T rows of the longest
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

__all__ = ["Barrier"]


@dataclass(frozen=True)
class Barrier:
    """Items have two parts, `first[b]` rows and the rest, and not every part may read the other (spec B4)."""

    first: tuple[int, ...]
    first_reads: bool
    second_reads: bool

    def pairs(self, items: Int[np.ndarray, " B"], real: Bool[np.ndarray, "B T"]) -> Bool[np.ndarray, "B T T"]:
        """Which key each query may read, for these items in blocks whose `real` places are their own."""
        first = np.arange(real.shape[1]) < np.asarray(self.first)[items][:, None]
        query, key = first[:, :, None], first[:, None, :]
        closed = (query & ~key & (not self.first_reads)) | (~query & key & (not self.second_reads))
        return real[:, None, :] & ~closed
