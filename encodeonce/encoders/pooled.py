"""One vector a sentence, or one a text: the vectors of an encoder's pieces, pooled.

`mean` is the mean over all pieces of a text, special ones included, as sentence-transformers takes it (Reimers and
Gurevych 2019); `cls` the vector of the first, special piece. A text longer than the window is encoded in windows, like
any item, and pooled over the pieces of all of them: nothing is cut off.

Axes: N items   T rows of an item (its sentences, or 1)   P pieces of one text   L views   D width
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from ..costs import Shape
from ..errors import ConfigError, DataError, EncoderError
from ..types import Document, Pieces, Spec, Texts
from .pretrained import Pretrained

__all__ = ["POOLINGS", "ROW_UNITS", "Pooled"]

ROW_UNITS = ("sentence", "text")
"""What a row can be beside a piece."""

POOLINGS = ("mean", "cls")
"""How the pieces of a row become one vector."""

TOGETHER = 4096
"""Texts that are encoded before their items are given out; equal ones among them are encoded once."""


class Pooled:
    """`model` with a row a sentence of each document (`unit` "sentence"), or with one row an item ("text").

    `normalize` scales every vector to length 1. A source for `Store.fill`, as `Pretrained` is; its items have keys of
    their own (`Document.key_in`). Loads nothing. Raises ConfigError for another unit or pooling.
    """

    def __init__(
        self, model: Pretrained, unit: str = "sentence", pooling: str = "mean", *, normalize: bool = False
    ) -> None:
        if unit not in ROW_UNITS:
            raise ConfigError(f"unit={unit!r} must be one of {', '.join(ROW_UNITS)} (pieces: Pretrained itself).")
        if pooling not in POOLINGS:
            raise ConfigError(f"pooling={pooling!r} must be one of {', '.join(POOLINGS)}.")
        self.model, self.unit, self.pooling, self.normalize = model, unit, pooling, normalize

    @property
    def loaded(self) -> bool:
        """Whether the weights have been read into memory."""
        return self.model.loaded

    @property
    def shape(self) -> Shape:
        """The encoder in numbers, for what it costs."""
        return self.model.shape

    def spec(self, layers: str | int | Sequence[int] = "last", dtype: str = "fp16") -> Spec:
        """`Pretrained.spec` with unit and pooling; every view is pooled by itself, the last alone where none is asked
        for."""
        pooling = f"{self.pooling}+l2" if self.normalize else self.pooling
        return replace(self.model.spec(layers, dtype), unit=self.unit, pooling=pooling)

    def cut(self, documents: Sequence[Document]) -> list[Texts]:
        """The texts of each document, cut into pieces.

        Raises DataError for a document without sentences where rows are sentences, and for a text of white space;
        EncoderError where `cls` is asked for and the tokenizer puts no special piece first.
        """
        if self.unit == "text":
            return [
                Texts(document.key_in("text"), (self._checked(pieces),)) for document, pieces in self._rows(documents)
            ]
        bare = next((document for document in documents if not document.sentences), None)
        if bare is not None:
            raise DataError(
                f"{bare.place or bare.id}: no sentences, so there is no row to encode. Cut texts into sentences with "
                "corpus.text.with_sentences and leave out those without any, or ask for one row a text."
            )
        shown = {
            sentence: Document(document.id, text=sentence, place=f"{document.place or document.id}, sentence {n}")
            for document in reversed(documents)
            for n, sentence in reversed(list(enumerate(document.sentences, 1)))
        }
        known = {document.text: self._checked(pieces) for document, pieces in self._rows(list(shown.values()))}
        return [
            Texts(document.key_in("sentence"), tuple(known[sentence] for sentence in document.sentences))
            for document in documents
        ]

    def _rows(self, documents: Sequence[Document]) -> Iterator[tuple[Document, Pieces]]:
        return zip(documents, self.model.cut(documents), strict=True)

    def _checked(self, pieces: Pieces) -> Pieces:
        if self.pooling == "cls" and pieces.word[0] >= 0:
            raise EncoderError(
                f"{self.model.name}: pooling='cls' takes the special piece before a text, and this tokenizer puts none "
                "there. Use pooling='mean'."
            )
        return pieces

    def encode(
        self, items: Sequence[Texts], layers: str | int | Sequence[int] = "last"
    ) -> Iterator[tuple[int, Float[np.ndarray, "L T D"]]]:
        """Yields `(i, views)` of every item once, in order: row t of [L, T, D] is the pooled text t."""
        chosen = self.model.layers(layers)
        for first, stop in _runs([len(item) for item in items]):
            texts = {text.key: text for item in items[first:stop] for text in item.texts}
            rows = {key: row for row, key in enumerate(texts)}
            vectors = np.empty((len(texts), len(chosen), self.model.width), np.float32)
            for row, views in self.model.encode(list(texts.values()), chosen):
                vectors[row] = self._pool(views)
            for i in range(first, stop):
                own = vectors[[rows[text.key] for text in items[i].texts]]
                yield i, np.ascontiguousarray(own.transpose(1, 0, 2))

    def _pool(self, views: Float[np.ndarray, "L P D"]) -> Float[np.ndarray, "L D"]:
        vectors = views[:, 0] if self.pooling == "cls" else views.mean(axis=1)
        if self.normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return vectors


def _runs(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring items of about TOGETHER texts: (first, one past the last)."""
    first = held = 0
    for i, length in enumerate(lengths):
        held += length
        if held >= TOGETHER:
            yield first, i + 1
            first, held = i + 1, 0
    if first < len(lengths):
        yield first, len(lengths)
