"""The neighbours of examples among the vectors of a corpus, without the examples themselves (spec B2).

Axes: N examples   S texts of an example (2 where any is a pair)   Q = N S   K neighbours, nearest first   D width
"""

import hashlib
import unicodedata
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ...store.search import Search
from ...types import Document

__all__ = ["Leakage", "Near", "asked", "leakage", "nearest_of", "own_rows", "same", "texts_of"]


@dataclass(frozen=True)
class Near:
    """Neighbours of examples by key: `ids[n, s]` are rows of the corpus for text s of example n, nearest first.

    `search` holds the rows. A single text among pairs stands twice. `own[n]` are the rows that example n may not get,
    its own texts; () where it may get any.
    """

    keys: tuple[str, ...]
    ids: Int[np.ndarray, "N S K"]
    scores: Float[np.ndarray, "N S K"]
    search: Search
    own: Sequence[Sequence[int]] = ()

    def vectors(self, items: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B K D"]:
        """The neighbours' vectors, rank by rank; of a pair the mean of both texts' (spec B2): their mean stays."""
        ids = self.ids[items]
        rows = self.search.vectors(ids[:, 0])
        return rows if ids.shape[1] == 1 else (rows + self.search.vectors(ids[:, 1])) / 2

    @property
    def mark(self) -> str:
        """SHA-256 of keys, ids and some of the vectors: what a resumed run compares."""
        some = self.search.vectors(np.unique(self.ids)[:64])
        return hashlib.sha256("\n".join(self.keys).encode() + self.ids.tobytes() + some.tobytes()).hexdigest()


@dataclass(frozen=True)
class Leakage:
    """Examples of which a text stands word for word in the corpus; `share` of all, and those left without them."""

    examples: int
    found: tuple[int, ...]

    @property
    def share(self) -> float:
        """0 to 1."""
        return len(self.found) / max(1, self.examples)

    @property
    def clean(self) -> tuple[int, ...]:
        """The others, to be scored by themselves as well."""
        leaked = set(self.found)
        return tuple(n for n in range(self.examples) if n not in leaked)


def leakage(documents: Sequence[Document], corpus: Container[str]) -> Leakage:
    """Which documents have a text in the corpus, whose texts are given by `same`."""
    found = [n for n, document in enumerate(documents) if any(same(text) in corpus for text in texts_of(document))]
    return Leakage(len(documents), tuple(found))


def nearest_of(
    documents: Sequence[Document],
    queries: Float[np.ndarray, "Q D"],
    search: Search,
    rows: Mapping[str, int],
    k: int,
    *,
    exclude_same: bool = True,
    allow_fewer: bool = False,
) -> Near:
    """The k nearest rows of every document; `queries` are the vectors of `asked(documents)`, `rows` the row of each
    text of the corpus by `same`. No document gets its own texts or copies of them unless `exclude_same=False`.

    Raises TooFewVectors where fewer are left, unless `allow_fewer`: then all get as many as the poorest has.
    """
    n_texts = len(queries) // len(documents) if documents else 1
    own = own_rows(documents, rows) if exclude_same else ()
    exclude = [left_out for left_out in own for _ in range(n_texts)] if exclude_same else None
    found = search.find(queries, k, exclude=exclude, allow_fewer=allow_fewer)
    shape = (len(documents), n_texts, found.ids.shape[1])
    keys = tuple(document.key for document in documents)
    return Near(keys, found.ids.reshape(shape), found.scores.reshape(shape), search, own)


def own_rows(documents: Sequence[Document], rows: Mapping[str, int]) -> list[list[int]]:
    """For each document the rows of the corpus that are its texts, by `same`."""
    return [[rows[name] for name in {same(text) for text in texts_of(one)} if name in rows] for one in documents]


def asked(documents: Sequence[Document]) -> list[str]:
    """The texts that are searched for, those of a document next to each other: two of each where any is a pair."""
    size = 2 if any(document.pair for document in documents) else 1
    return [text for document in documents for text in (texts_of(document) * size)[:size]]


def same(text: str) -> str:
    """What two texts have in common that count as equal: letters up to case and Unicode form, words up to spacing."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def texts_of(document: Document) -> list[str]:
    """The document's text, or its words with spaces, and the second text of a pair."""
    first = document.text or " ".join(document.words)
    return [first, document.pair] if document.pair else [first]
