"""What an estimator learns from: texts as documents, their stored vectors, and which unlabelled texts are copies.

Axes: N items   M unlabelled items   C classes
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..errors import DataError
from ..methods.fewshot.features import Vectors
from ..methods.refusion.near import same
from ..store import Store
from ..types import Document, Spec

__all__ = ["Material", "TextVectors", "as_documents", "content", "copies"]


class TextVectors:
    """Pooled views of texts, each text encoded once: into the store at `path`, or where it is None into memory.

    The vectors are fp32 in both, so that an answer does not depend on where they are kept.
    """

    def __init__(self, model: Pretrained, path: Path | None = None) -> None:
        self.pooled = Pooled(model, "text")
        self.spec: Spec = self.pooled.spec("all", "fp32")
        self.store = None if path is None else Store.open(path, self.spec)
        self._held: dict[str, Float[np.ndarray, "L D"]] = {}

    def __call__(self, documents: Sequence[Document]) -> Vectors:
        """Of each document; the two texts of a pair each by itself."""
        first = [Document(d.id, text=d.text, place=d.place) for d in documents]
        if not documents or not documents[0].pair:
            return Vectors(self._views(first))
        second = [Document(d.id, text=d.pair, place=d.place) for d in documents]
        both = self._views([*first, *second])
        return Vectors(both[: len(first)], both[len(first) :])

    def stored(self, documents: Sequence[Document]) -> int:
        """How many documents the store at `path` holds, of pairs both texts."""
        if self.store is None:
            return 0
        texts = [[Document("", text=text).key_in("text") for text in filter(None, (d.text, d.pair))] for d in documents]
        keys = [key for own in texts for key in own]
        lacking = {keys[place] for place in self.store.missing(keys)}
        return sum(lacking.isdisjoint(own) for own in texts)

    def last(self, texts: Sequence[str]) -> Float[np.ndarray, "N D"]:
        """The last view of each text."""
        return self._views([Document(f"text {row}", text=text) for row, text in enumerate(texts, 1)])[:, -1]

    def _views(self, documents: Sequence[Document]) -> Float[np.ndarray, "N L D"]:
        keys = [document.key_in("text") for document in documents]
        if self.store is not None:
            self.store.fill(documents, self.pooled)
            return self.store.batch(self.store.index(keys)).views.numpy().transpose(1, 0, 2)
        lacking = {key: document for key, document in zip(keys, documents, strict=True) if key not in self._held}
        new = list(lacking)
        for position, views in self.pooled.encode(self.pooled.cut(list(lacking.values())), "all"):
            self._held[new[position]] = views[:, 0]
        return np.stack([self._held[key] for key in keys])


@dataclass(frozen=True)
class Material:
    """Labelled items, their one-hot `targets`, and for each the places of its copies among the unlabelled ones."""

    documents: Sequence[Document]
    vectors: Vectors
    targets: Float[np.ndarray, "N C"]
    exclude: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.documents)

    def take(self, items: Int[np.ndarray, " K"]) -> "Material":
        """These items."""
        return Material(
            [self.documents[i] for i in items],
            self.vectors.take(items),
            self.targets[items],
            [self.exclude[i] for i in items],
        )


def as_documents(texts: Iterable[str | tuple[str, str]], what: str) -> list[Document]:
    """Texts, or pairs of texts, as documents named "WHAT 1", "WHAT 2", ...

    Raises DataError for one text or a table in place of many texts, for what is neither, for an empty text, and where
    single texts and pairs are mixed.
    """
    if isinstance(texts, str):
        raise DataError(f"{what}s: {texts!r} is one string. Give a list of strings, or of pairs of strings.")
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):  # their names would be read as texts
        raise DataError(
            f"{what}s: {type(texts).__name__} is a table. Give one column's values, such as table['text'], or pairs of "
            "them: list(zip(table['first'], table['second']))."
        )
    texts = list(texts)
    for place, one in enumerate(texts, 1):
        parts = (one,) if isinstance(one, str) else one
        if not isinstance(parts, (tuple, list, np.ndarray)) or not all(isinstance(part, str) for part in parts):
            raise DataError(f"{what} {place} is {one!r}: give a string, or a pair of strings.")
        if not isinstance(one, str) and len(parts) != 2:
            raise DataError(f"{what} {place} is {len(parts)} strings: give a string, or a pair of strings.")
    shown = [(one, "") if isinstance(one, str) else (one[0], one[1]) for one in texts]
    pairs = [not isinstance(one, str) for one in texts]
    if len(set(pairs)) > 1:
        raise DataError(f"{what} {pairs.index(not pairs[0]) + 1}: single texts and pairs of texts cannot be mixed.")
    for place, (text, pair) in enumerate(shown):
        if not text.strip() or (pairs[place] and not pair.strip()):
            raise DataError(f"{what} {place + 1} is empty. Give it a text, or leave it out.")
    return [Document(f"{what} {place + 1}", text=text, pair=pair) for place, (text, pair) in enumerate(shown)]


def content(document: Document) -> str:
    """A key that documents share whose texts are `same`, of a pair both."""
    return Document("", text=same(document.text), pair=same(document.pair)).key


def copies(documents: Sequence[Document], corpus: Sequence[str]) -> list[list[int]]:
    """For each document the places in `corpus`, documents by `content`, that hold the same."""
    places = defaultdict(list)
    for place, key in enumerate(corpus):
        places[key].append(place)
    return [places.get(content(document), []) for document in documents]
