"""Retrieval by one vector a passage and one a question, compared exactly or through an index (`store.Search`).

A vector of length 0 has cosine 0 with every question (case RETR-2); no array that is given is ever changed.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from ..errors import ConfigError, NotStored, SpecMismatch
from ..store import Search, Store, Stored
from ..store.search import Rows
from ..types import Document, Spec
from . import Hit, check_ids, check_k

__all__ = ["Dense", "TextEncoder"]


@runtime_checkable
class TextEncoder(Protocol):
    """What is asked of an encoder here: `encoders.pooled.Pooled` with a row a text."""

    def spec(self, layers: Any = "last", dtype: str = "fp16") -> Spec:
        """What would make its vectors."""

    def cut(self, documents: Sequence[Document]) -> Sequence[Any]:
        """Documents -> pieces."""

    def encode(self, items: Sequence[Any], layers: Any = "last") -> Iterator[tuple[int, np.ndarray]]:
        """`(position, fp32 [L, 1, D])` once a position."""


class Dense:
    """`ids[i]` is the passage of row i. `kind` is "exact", or how an index is chosen (see `Search`).

    Raises ConfigError where rows and ids differ in number, where there is none, and for an id that two rows have.
    """

    def __init__(
        self, rows: Rows, ids: Sequence[str], encoder: TextEncoder, metric: str = "cosine", kind: str = "exact"
    ) -> None:
        if metric not in ("cosine", "ip"):
            raise ConfigError(f"metric={metric!r}: a hit's score is the more the better: 'cosine' or 'ip'.")
        if not ids or len(ids) != rows.shape[0]:
            raise ConfigError(
                f"{rows.shape[0]} vectors for {len(ids)} passages; there must be one each, and at least one."
            )
        check_ids(ids)
        self.ids, self.encoder = list(ids), encoder
        self.layer = encoder.spec().layers[-1]
        self._search = Search(rows, metric, kind)

    @classmethod
    def over(cls, store: Store, documents: Sequence[Document], encoder: TextEncoder, kind: str = "exact") -> "Dense":
        """Over the vectors that a store keeps of passages; SpecMismatch where another encoder made them, NotStored
        where some are lost."""
        asked = encoder.spec(list(store.spec.layers), store.spec.dtype)
        differences = store.spec.differences(asked)
        if differences:
            raise SpecMismatch(
                f"{store.path} was made by {store.spec.encoder}, questions would be encoded by {asked.encoder} (here: "
                f"the store, there: the encoder): {'; '.join(differences)}. Use the encoder that made the vectors."
            )
        keys = store.keys(documents)
        lost = store.missing(keys)
        if lost:
            raise NotStored(
                f"{store.path} lacks the vectors of {len(lost)} of {len(set(keys))} different passages, the first "
                f"{documents[lost[0]].id!r}. Give their files to `encodeonce memory build` (with --vectors ENCODER) or "
                "`add` again: what is lost is encoded anew."
            )
        return cls(Stored(store, keys), [document.id for document in documents], encoder, kind=kind)

    def find(self, questions: Sequence[str], k: int) -> list[list[Hit]]:
        """The k nearest passages; all of them where there are no more (case RETR-1). Equal scores in their order."""
        check_k(k)
        if not questions:
            return []
        found = self._search.find(self._vectors(questions), min(k, len(self.ids)))
        return [
            [Hit(self.ids[i], float(score)) for i, score in zip(ids, scores, strict=True)]
            for ids, scores in zip(found.ids.tolist(), found.scores.tolist(), strict=True)
        ]

    def _vectors(self, questions: Sequence[str]) -> Float[np.ndarray, "Q D"]:
        """A question that is asked twice is encoded once."""
        texts = {text: row for row, text in enumerate(dict.fromkeys(questions))}
        items = self.encoder.cut([Document(f"question {row + 1}", text=text) for text, row in texts.items()])
        vectors = np.empty((len(texts), self._search.width), np.float32)
        for row, views in self.encoder.encode(items, [self.layer]):
            vectors[row] = views[-1, 0]
        return vectors[[texts[text] for text in questions]]
