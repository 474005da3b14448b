"""One minibatch: states, the rows that stand for words, gold ids.

Axes: L views   P rows of all items   D width   B items   W words of all items, end to end   R rows of one choice
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...nn.packed import Packed
from .examples import Examples

__all__ = ["Batch", "collated"]


@dataclass(frozen=True, eq=False)
class Batch:
    """`rows[piece]` are the packed rows of all words ("mean": of all their pieces, `pieces_of_word` to a word).

    `words` counts the words of each item. `scale[task]` is what the task's summed loss is multiplied by: a constant of
    the epoch, 1 / (batch size x mean words an item), never of the batch (design/performance.md, section 4).
    """

    examples: Examples
    items: Int[np.ndarray, " B"]
    packed: Packed
    rows: Mapping[str, Int[Tensor, " R"]]
    pieces_of_word: Int[Tensor, " W"]
    words: tuple[int, ...]
    gold: Mapping[str, Int[Tensor, " W"]]
    scale: Mapping[str, float]

    @property
    def places(self) -> list[str]:
        """Where each item comes from, for messages."""
        return [self.examples.places[i] for i in self.items]

    def word_vectors(self, vectors: Float[Tensor, "R D"], piece: str) -> Float[Tensor, "W D"]:
        """Vectors of `rows[piece]` -> one a word."""
        if piece != "mean":
            return vectors
        owner = torch.repeat_interleave(self.pieces_of_word)
        sums = vectors.new_zeros(len(self.pieces_of_word), vectors.shape[1]).index_add(0, owner, vectors)
        return sums / self.pieces_of_word[:, None]


def collated(
    examples: Examples, items: Int[np.ndarray, " B"], packed: Packed, pieces: frozenset[str], scale: Mapping[str, float]
) -> Batch:
    """Everything of a batch beside the states, by array arithmetic over what `examples` keeps."""
    words = examples.words
    starts = packed.starts
    counts = words.words_of_item[items]
    at = _runs(words.word_ends, counts, items)
    base = np.repeat(starts, counts)
    rows = {}
    for piece in pieces:
        if piece == "mean":
            own = words.pieces_of_item[items]
            rows[piece] = torch.from_numpy(words.pieces[_runs(words.piece_ends, own, items)] + np.repeat(starts, own))
        else:
            rows[piece] = torch.from_numpy((words.first if piece == "first" else words.last)[at] + base)
    return Batch(
        examples=examples,
        items=items,
        packed=packed,
        rows=rows,
        pieces_of_word=torch.from_numpy(words.pieces_of_word[at]),
        words=tuple(counts.tolist()),
        gold={name: torch.from_numpy(ids[at]) for name, ids in examples.ids.items()},
        scale=scale,
    )


def _runs(
    ends: Int[np.ndarray, " N"], counts: Int[np.ndarray, " B"], items: Int[np.ndarray, " B"]
) -> Int[np.ndarray, " W"]:
    """Positions of the items' runs in an array of run after run; a run has `counts` entries and stops at `ends`."""
    shift = np.repeat(ends[items] - np.cumsum(counts), counts)
    return np.arange(len(shift)) + shift
