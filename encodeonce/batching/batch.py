"""One minibatch: states, the rows that heads see, gold.

Axes: L views   P rows of all items   D width   B items   W words of all items, end to end   R rows of one choice
S packed rows that a choice reads   G gold rows of all items
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional

from ..nn.packed import Packed
from ..nn.rows import Rows
from ..types import APART
from .examples import Examples

__all__ = ["PIECES", "Batch", "Choice", "collated"]

PIECES = ("first", "last", "mean", "root+mean", "pieces", "document", "document-words", "document-pieces", APART)
"""What may stand for an item: a piece of each word or their mean; the same after the item's root, its first special
piece; all rows as they are, of items with words or ("document-pieces") of any; one row, the mean over all rows (spec
A-11) or over those of words only; or one row that compares the two texts of a pair read apart (`Choice.seen`)."""


@dataclass(frozen=True, eq=False)
class Choice:
    """`packed` are the packed rows that are read; `sizes[r]` neighbours of them are averaged to the head's row r
    (None: each is a row itself), or with `apart` to a text, two of which are a row. `rows` describes the head's rows.
    """

    packed: Int[Tensor, " S"]
    sizes: Int[Tensor, " R"] | None
    rows: Rows
    apart: bool = False

    def pooled(self, vectors: Float[Tensor, "S D"]) -> Float[Tensor, "R D"]:
        """Vectors of `packed` -> one a row of the head; where two texts are `apart`, the mean of theirs."""
        if self.sizes is None:
            return vectors
        means = self._means(vectors)
        return means.unflatten(0, (-1, 2)).mean(1) if self.apart else means

    def seen(self, vectors: Float[Tensor, "S D"]) -> Float[Tensor, "R _"]:
        """Vectors of `packed` -> what the head sees: `pooled`, or of two texts apart u, v, |u - v| and u v, each of
        width D, with u and v the means over each text's rows scaled to length sqrt(D) (features of Conneau et al. 2017
        over vectors compared by their direction, as sentence encoders' are)."""
        if not self.apart:
            return self.pooled(vectors)
        u, v = (
            functional.normalize(self._means(vectors), dim=1)
            .mul(vectors.shape[1] ** 0.5)
            .unflatten(0, (-1, 2))
            .unbind(1)
        )
        return torch.cat([u, v, (u - v).abs(), u * v], 1)

    def _means(self, vectors: Float[Tensor, "S D"]) -> Float[Tensor, "M D"]:
        assert self.sizes is not None
        owner = torch.repeat_interleave(self.sizes)
        sums = vectors.new_zeros(len(self.sizes), vectors.shape[1]).index_add(0, owner, vectors)
        return sums / self.sizes[:, None]


@dataclass(frozen=True, eq=False)
class Batch:
    """`choices[piece]` says which rows stand for words, items or documents.

    `gold[task]` holds the items' gold arrays end to end, `counts[task]` how many of its rows each item has.
    `scale[task]` is what the task's summed loss is multiplied by: a constant of the epoch, 1 / (batch size x mean
    scored units an item), never of the batch (design/performance.md, section 4).
    """

    examples: Examples
    items: Int[np.ndarray, " B"]
    packed: Packed
    choices: Mapping[str, Choice]
    gold: Mapping[str, Shaped[Tensor, "G ..."]]
    counts: Mapping[str, tuple[int, ...]]
    scale: Mapping[str, float]

    @property
    def places(self) -> list[str]:
        """Where each item comes from, for messages."""
        return [self.examples.places[i] for i in self.items]


def collated(
    examples: Examples, items: Int[np.ndarray, " B"], packed: Packed, pieces: frozenset[str], scale: Mapping[str, float]
) -> Batch:
    """Everything of a batch beside the states, by array arithmetic over what `examples` keeps."""
    counts = {name: gold.counts[items] for name, gold in examples.units.items()}
    choices = {piece: _choice(examples, packed, items, piece) for piece in pieces}
    if APART in pieces:  # what all tasks of a batch read then: to adapters each text is an item
        texts = choices[APART].sizes
        assert texts is not None
        packed = replace(packed, lengths=tuple(texts.tolist()))
    return Batch(
        examples=examples,
        items=items,
        packed=packed,
        choices=choices,
        gold={
            name: torch.from_numpy(gold.values[_runs(gold.ends, counts[name], items)])
            for name, gold in examples.units.items()
        },
        counts={name: tuple(count.tolist()) for name, count in counts.items()},
        scale=scale,
    )


def _choice(examples: Examples, packed: Packed, items: Int[np.ndarray, " B"], piece: str) -> Choice:
    words = examples.words
    starts, lengths = packed.starts, np.asarray(packed.lengths, dtype=np.int64)
    n_words, own = words.words_of_item[items], words.pieces_of_item[items]
    if piece in ("pieces", "document-pieces"):
        word = words.word[_runs(words.row_ends, lengths, items)].astype(np.int64)
        return Choice(torch.arange(len(word)), None, Rows(packed.lengths, word))
    if piece == "document":
        return Choice(torch.arange(int(lengths.sum())), torch.from_numpy(lengths), _documents(len(items)))
    if piece == APART:
        second = examples.second[items]
        texts = torch.from_numpy(np.stack([second, lengths - second], 1).reshape(-1))
        return Choice(torch.arange(int(lengths.sum())), texts, _documents(len(items)), apart=True)
    at = _runs(words.word_ends, n_words, items)
    if piece in ("first", "last"):
        chosen = (words.first if piece == "first" else words.last)[at] + np.repeat(starts, n_words)
        return Choice(torch.from_numpy(chosen), None, Rows.of(n_words))
    chosen = words.pieces[_runs(words.piece_ends, own, items)] + np.repeat(starts, own)
    if piece == "document-words":
        return Choice(torch.from_numpy(chosen), torch.from_numpy(own), _documents(len(items)))
    sizes, rows = words.pieces_of_word[at], Rows.of(n_words)
    if piece == "root+mean":
        chosen = np.insert(chosen, np.cumsum(own) - own, words.root[items] + starts)
        before = np.cumsum(n_words) - n_words
        sizes = np.insert(sizes, before, 1)
        rows = Rows(tuple((n_words + 1).tolist()), np.insert(rows.word, before, -1))
    return Choice(torch.from_numpy(chosen), torch.from_numpy(sizes), rows)


def _documents(n: int) -> Rows:
    return Rows((1,) * n, np.full(n, -1))


def _runs(
    ends: Int[np.ndarray, " N"], counts: Int[np.ndarray, " B"], items: Int[np.ndarray, " B"]
) -> Int[np.ndarray, " W"]:
    """Positions of the items' runs in an array of run after run; a run has `counts` entries and stops at `ends`."""
    shift = np.repeat(ends[items] - np.cumsum(counts), counts)
    return np.arange(len(shift)) + shift
