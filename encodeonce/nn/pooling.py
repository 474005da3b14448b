"""From pieces to words: which rows stand for a word, and the mean of its rows where all of them do (A7).

Axes: T rows of one item   P rows of a packed batch   R chosen rows   W words of all items   D width
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import ConfigError
from .segments import segment_means

__all__ = ["WordRows", "rows_of_words"]


@dataclass(frozen=True)
class WordRows:
    """The rows that stand for the words of a packed batch.

    `rows` are packed row numbers in word order, `counts` how many of them each word has, `lengths` how many words each
    item has. With one row a word `pool` hands its input back.
    """

    rows: Int[Tensor, " R"]
    counts: tuple[int, ...]
    lengths: tuple[int, ...]

    def pool(self, vectors: Float[Tensor, "R D"]) -> Float[Tensor, "W D"]:
        """One vector a word: the mean of the vectors of its rows."""
        return vectors if len(self.counts) == len(self.rows) else segment_means(vectors, self.counts)


def rows_of_words(words: Sequence[np.ndarray], which: str) -> WordRows:
    """Rows of a batch's words, given each item's int [T] array of word numbers (−1: a row of no word).

    Every word 0 ... n−1 must have rows, neighbours and in order; ConfigError names the item where that does not hold.
    """
    if which not in ("first", "last", "mean"):
        raise ConfigError(f"pooling {which!r} is unknown. There is: 'first', 'last', 'mean'.")
    rows, counts, lengths, start = [], [], [], 0
    for index, word in enumerate(words):
        own = np.flatnonzero(word >= 0)
        first = own[np.diff(word[own], prepend=-1) != 0]
        if not np.array_equal(word[first], np.arange(len(first))):
            raise ConfigError(f"item {index} of the batch: its words must be 0, 1, ... along the rows, got {word}.")
        ends = np.searchsorted(own, np.append(first[1:], len(word))) if len(first) else first
        if which == "first":
            own = first
        elif which == "last":
            own = own[ends - 1]
        counts.append(np.diff(ends, prepend=0) if which == "mean" else np.ones(len(first), dtype=np.int64))
        rows.append(own + start)
        lengths.append(len(first))
        start += len(word)
    flat = np.concatenate([*rows, np.zeros(0, dtype=np.int64)])
    return WordRows(torch.from_numpy(flat), tuple(np.concatenate([*counts, flat[:0]]).tolist()), tuple(lengths))
