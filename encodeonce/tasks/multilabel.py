"""A set of labels a document, which may be empty: topics, emotions, codes.

Axes: C labels
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ..errors import ConfigError, DataError
from ..metrics.classification import multilabel_scores
from ..types import Document
from . import Task
from ._documents import PIECES, check_choice, check_text, place_of, value_of

__all__ = ["Multilabel"]

METRICS = ("micro_f1", "macro_f1", "exact_match")
"""Scores that may choose between epochs."""


@dataclass(frozen=True)
class Multilabel(Task):
    """`column` is a field with a list of labels, or a table column with labels divided by `separator`.

    An empty list and an empty cell say that the document has none; a field that is missing or null is refused. A label
    is predicted where its probability is above `threshold`. `metric` chooses between epochs.
    """

    column: str = "labels"
    piece: str = "document"
    metric: str = "micro_f1"
    separator: str = "|"
    threshold: float = 0.5
    called: str = "multilabel"
    labels: tuple[str, ...] = ()

    head: ClassVar[str] = "multilabel"

    def __post_init__(self) -> None:
        check_choice("piece", self.piece, PIECES)
        check_choice("metric", self.metric, METRICS)
        if not self.separator:
            raise ConfigError("separator='' divides nothing. Give what stands between two labels, such as '|'.")

    @property
    def name(self) -> str:
        """As in settings."""
        return self.called

    @property
    def head_options(self) -> dict[str, Any]:
        """From which probability on a label is predicted."""
        return {"threshold": self.threshold}

    def learn(self, documents: Sequence[Document]) -> "Multilabel":
        """With the sorted labels of these documents."""
        labels = Counter(label for own in self.gold(documents) for label in own)
        if not labels:
            raise DataError(f"task {self.name!r}: no training document has a label in {self.column!r}.")
        return replace(self, labels=tuple(sorted(labels)))

    def gold(self, documents: Sequence[Document]) -> list[tuple[str, ...]]:
        """The labels of each document, sorted, each once."""
        return [self._labels(document) for document in documents]

    def ids(self, gold: tuple[str, ...]) -> Float[np.ndarray, "1 C"]:
        """Float32 [1, C]: 1 where the document has the label. One that training never saw has no place in it."""
        return np.array([[label in gold for label in self.labels]], dtype=np.float32)

    def scored(self, ids: np.ndarray) -> int:
        """A decision a label: the loss is the mean over them."""
        return ids.size

    def unseen(self, gold: tuple[str, ...]) -> Iterable[str]:
        """Labels that training never saw."""
        return (label for label in gold if label not in self._known)

    def score(self, gold: Sequence[tuple[str, ...]], predicted: Sequence[tuple[str, ...]]) -> dict[str, float | None]:
        """micro_f1, macro_f1, exact_match and n (`multilabel_scores`); an unseen label counts as a miss."""
        return multilabel_scores(gold, predicted)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        fields = ("column", "piece", "metric", "separator", "threshold", "called")
        plain = {"kind": "multilabel", **{name: getattr(self, name) for name in fields}}
        return {**plain, "labels": list(self.labels)}

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.labels)

    def _labels(self, document: Document) -> tuple[str, ...]:
        check_text(document, self.name)
        value = document.meta.get(self.column)
        if value != "":  # an empty cell: no labels
            value = value_of(document, self.column, self.name)
        if isinstance(value, str):
            value = [label for label in map(str.strip, value.split(self.separator)) if label]
        if not isinstance(value, (list, tuple)) or not all(isinstance(label, (str, int)) for label in value):
            raise DataError(
                f"{place_of(document)}: task {self.name!r}: {self.column!r} is {value!r}; it must be a list of labels, "
                f"or a string of labels divided by {self.separator!r}."
            )
        return tuple(sorted({str(label) for label in value}))
