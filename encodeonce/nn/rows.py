"""The rows that a head sees: how many each item has, and which word each of them is.

Axes: B items   R rows of all items, end to end
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

__all__ = ["Rows"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Item b has `lengths[b]` rows, neighbours and in order; `word[r]` is row r's word inside its item.

    A row that is no word (a special piece, a sentence's root, a whole document) has word -1. Where the rows are pieces,
    those of one word share its number.
    """

    lengths: tuple[int, ...]
    word: Int[np.ndarray, " R"]

    @classmethod
    def of(cls, lengths: Sequence[int] | Int[np.ndarray, " B"]) -> "Rows":
        """A row a word, `lengths[b]` words an item."""
        counts = np.asarray(lengths, dtype=np.int64)
        word = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return cls(tuple(int(count) for count in counts), word)
