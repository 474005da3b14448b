"""What a pass over a corpus needs beside the states, read once and kept as arrays: nothing is looked up per step.

Axes: N items   T rows of one item (pieces)   W words of all items, end to end   P rows of all items, end to end
G gold rows of all items, end to end
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ..errors import DataError, StoreError
from ..nn.packed import Packed
from ..types import Document, Spec

__all__ = ["Examples", "Source", "Supervised", "Units", "WordTable"]

log = logging.getLogger("encodeonce")


@runtime_checkable
class Source(Protocol):
    """Where the states are read: a store, or a store with a live encoder behind it."""

    spec: Spec

    def index(self, keys: Sequence[str]) -> np.ndarray:
        """Int64 [N] of the items with these keys; NotStored where one is missing."""

    def rows(self, index: np.ndarray) -> np.ndarray:
        """Number of rows T of each item."""

    def word(self, position: int) -> np.ndarray:
        """Int32 [T]: the word of each row, -1 for a special piece."""

    def batch(
        self,
        index: np.ndarray,
        layers: Sequence[int] | None = None,
        *,
        dtype: torch.dtype | None = torch.float32,
        out: Tensor | None = None,
    ) -> Packed:
        """The items' views; into `out` [L, P, D] where it is given."""

    def prefetch(self, index: np.ndarray, layers: Sequence[int] | None = None) -> None:
        """A hint that these items are read next."""


@runtime_checkable
class Marked(Protocol):
    """A source that gives more than its Spec and the items' keys say."""

    def fingerprint(self) -> dict[str, str]:
        """What a resumed run compares beside them."""


@runtime_checkable
class Supervised(Protocol):
    """What a method knows of a task. See `tasks.Task`, which says what each of these is."""

    @property
    def name(self) -> str: ...
    @property
    def head(self) -> str: ...
    @property
    def head_options(self) -> dict[str, Any]: ...
    @property
    def piece(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    def gold(self, documents: Sequence[Document]) -> list[Any]: ...
    def ids(self, gold: Any) -> np.ndarray: ...
    def scored(self, ids: np.ndarray) -> int: ...
    def unseen(self, gold: Any) -> Iterable[str]: ...


@dataclass(frozen=True)
class WordTable:
    """For every word of every item its first, last and all rows, counted from the item's own first row.

    `word` is the word of every row (-1: none), `root` the first special row of each item (row 0 where there is none).
    """

    word: Int[np.ndarray, " P"]
    root: Int[np.ndarray, " N"]
    first: Int[np.ndarray, " W"]
    last: Int[np.ndarray, " W"]
    pieces: Int[np.ndarray, " _"]
    pieces_of_word: Int[np.ndarray, " W"]
    words_of_item: Int[np.ndarray, " N"]
    pieces_of_item: Int[np.ndarray, " N"]
    rows_of_item: Int[np.ndarray, " N"]

    @cached_property
    def row_ends(self) -> Int[np.ndarray, " N"]:
        """Where each item's rows end in `word`."""
        return np.cumsum(self.rows_of_item)

    @cached_property
    def word_ends(self) -> Int[np.ndarray, " N"]:
        """Where each item's words end in the arrays of words."""
        return np.cumsum(self.words_of_item)

    @cached_property
    def piece_ends(self) -> Int[np.ndarray, " N"]:
        """Where each item's pieces end in `pieces`."""
        return np.cumsum(self.pieces_of_item)

    def second_texts(self, n_first: Sequence[int]) -> Int[np.ndarray, " N"]:
        """The row at which the second text of each item begins, whose first text has so many words (0: there is one
        text, and the row is 0). Both texts end with as many special pieces."""
        counts = np.asarray(n_first, dtype=np.int64)
        there = counts > 0
        rows, starts = np.zeros(len(counts), np.int64), self.word_ends - self.words_of_item
        end_of_words = self.last[(starts + counts)[there] - 1] + 1
        rows[there] = end_of_words + self.rows_of_item[there] - 1 - self.last[self.word_ends[there] - 1]
        return rows

    @classmethod
    def of(cls, words: Sequence[np.ndarray]) -> "WordTable":
        """From each item's word array [T]. The pieces of a word are neighbours."""
        lengths = np.array([len(word) for word in words], dtype=np.int64)
        flat = np.concatenate([*words, np.empty(0, np.int32)])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        row = np.arange(len(flat)) - np.repeat(starts[:-1], lengths)
        item = np.repeat(np.arange(len(lengths)), lengths)
        changes = np.ones(len(flat) + 1, dtype=bool)
        changes[1:-1] = (flat[1:] != flat[:-1]) | (item[1:] != item[:-1])
        real = flat >= 0
        first, last = real & changes[:-1], real & changes[1:]
        special, of_special = np.zeros(len(lengths), dtype=np.int64), np.flatnonzero(~real)[::-1]
        special[item[of_special]] = row[of_special]
        return cls(
            word=flat,
            root=special,
            first=row[first],
            last=row[last],
            pieces=row[real],
            pieces_of_word=row[last] - row[first] + 1,
            words_of_item=np.bincount(item[first], minlength=len(lengths)),
            pieces_of_item=np.bincount(item[real], minlength=len(lengths)),
            rows_of_item=lengths,
        )


@dataclass(frozen=True)
class Units:
    """One task's gold as arrays, all items end to end: item i has `counts[i]` rows of `values`.

    `scored` is the mean number of units an item that the loss counts: what the loss is divided by, a constant of the
    corpus.
    """

    values: Shaped[np.ndarray, "G ..."]
    counts: Int[np.ndarray, " N"]
    scored: float

    @cached_property
    def ends(self) -> Int[np.ndarray, " N"]:
        """Where each item's rows end."""
        return np.cumsum(self.counts)

    @classmethod
    def of(cls, task: "Supervised", gold: Sequence[Any]) -> "Units":
        """From the gold of every item."""
        ids = [task.ids(value) for value in gold]
        counts = np.array([len(one) for one in ids], dtype=np.int64)
        scored = max(1, sum(task.scored(one) for one in ids)) / max(1, len(ids))
        return cls(np.concatenate(ids) if ids else np.empty(0, np.int64), counts, scored)


@dataclass(frozen=True)
class Examples:
    """The items of one split in one store: where they are, how long they are, which rows are words, what is gold.

    `second` is the row at which the second text begins of a pair that is read apart, and 0 for every other item. `gold`
    holds the gold as plain values (for scores), `units` the same as arrays (for the loss); both are empty where the
    documents are only to be predicted.
    """

    source: Source
    places: tuple[str, ...]
    keys: tuple[str, ...]
    index: Int[np.ndarray, " N"]
    lengths: Int[np.ndarray, " N"]
    words: WordTable
    second: Int[np.ndarray, " N"]
    gold: Mapping[str, tuple[Any, ...]]
    units: Mapping[str, Units]

    @classmethod
    def read(
        cls,
        source: Source,
        documents: Sequence[Document],
        tasks: Sequence[Supervised] = (),
        split: str = "these documents",
    ) -> "Examples":
        """Examples of documents that `source` holds. `split` names them in messages.

        Labels that training never saw are listed once, as a warning. Raises NotStored for a document that is not in the
        store, DataError for one without words or without gold, StoreError where the store and a document disagree.
        """
        empty = [document for document in documents if not document.words and not document.text]
        if empty:
            raise DataError(f"{empty[0].place or empty[0].id}: the document has no words, so nothing can be labelled.")
        keys = tuple(document.key for document in documents)
        index = source.index(keys)
        words = WordTable.of([source.word(int(i)) for i in index])
        places = tuple(f"{document.place} ({document.id})" if document.place else document.id for document in documents)
        for place, document, there in zip(places, documents, words.words_of_item.tolist(), strict=True):
            if document.words and document.n_words != there:
                raise StoreError(
                    f"{place}: {document.n_words} words, but the store has pieces for {there} of them. Encode it again."
                )
            if document.pair and any(not task.piece.startswith("document") for task in tasks):
                raise DataError(f"{place}: a pair of texts has no words to label; only tasks of whole items read it.")
        gold = {task.name: tuple(task.gold(documents)) for task in tasks}
        for task in tasks:
            warn_unseen(task, gold[task.name], split)
        units = {task.name: Units.of(task, gold[task.name]) for task in tasks}
        second = words.second_texts([document.n_first if document.apart else 0 for document in documents])
        lengths = np.asarray(source.rows(index), dtype=np.int64)
        return cls(source, places, keys, index, lengths, words, second, gold, units)

    def __len__(self) -> int:
        return len(self.index)

    def fingerprint(self) -> dict[str, Any]:
        """What a resumed run compares: name -> value or SHA-256, and what the store's Spec compares."""
        return {
            "items": str(len(self)),
            "texts": hashlib.sha256("\n".join(self.keys).encode()).hexdigest(),
            **{f"gold {name}": hashlib.sha256(repr(gold).encode()).hexdigest() for name, gold in self.gold.items()},
            "store": self.source.spec.compared(),
            **(self.source.fingerprint() if isinstance(self.source, Marked) else {}),
        }


def warn_unseen(task: Supervised, gold: Sequence[Any], split: str) -> None:
    """One warning that lists the labels of `gold` which the task did not learn, with their counts."""
    unseen = Counter(label for value in gold for label in task.unseen(value))
    if unseen:
        listed = ", ".join(f"{label!r} ({count})" for label, count in sorted(unseen.items()))
        log.warning("task %s: labels of %s that training never saw, so never predicted: %s", task.name, split, listed)
