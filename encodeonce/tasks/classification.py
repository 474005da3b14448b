"""One label a document, single text or pair (spec A7, A-11; scores by A-16).

Axes: C labels
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError, DataError
from ..metrics.classification import label_scores
from ..types import IGNORE, Document
from . import Task
from ._documents import PIECES, check_choice, check_text, place_of, value_of

__all__ = ["Classification"]

log = logging.getLogger("encodeonce")

METRICS = ("accuracy", "macro_f1", "matthews", "f1", "f1_accuracy")
"""Scores that may choose between epochs."""

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Classification(Task):
    """`column` is the field or table column with the label.

    Labels are the training documents' alone, compared as strings, and kept in the order of their numbers where all are
    integers, of the alphabet otherwise. Labels that are all numbers, some with a fraction, are a score to be predicted
    as such: refused by name unless `numbers_are_classes` (CLS-2). `positive` is the label whose precision, recall and
    F1 are reported; of several names the one that training has. `metric` chooses between epochs.
    """

    column: str = "label"
    piece: str = "document"
    metric: str = "accuracy"
    positive: str | tuple[str, ...] = ""
    numbers_are_classes: bool = False
    called: str = "classification"
    labels: tuple[str, ...] = ()

    head: ClassVar[str] = "classifier"

    def __post_init__(self) -> None:
        check_choice("piece", self.piece, PIECES)
        check_choice("metric", self.metric, METRICS)
        if self.metric in ("f1", "f1_accuracy") and not self.positive:
            raise ConfigError(f"metric={self.metric!r} is of one label: name it with positive=...")

    @property
    def name(self) -> str:
        """As in settings."""
        return self.called

    @property
    def head_options(self) -> dict[str, Any]:
        """None beside width and labels."""
        return {}

    def learn(self, documents: Sequence[Document]) -> "Classification":
        """With the labels of these documents, and the one of `positive` that is among them."""
        gold = self.gold(documents)
        if not gold:
            raise DataError(f"task {self.name!r}: no examples.")
        labels = self._inventory(gold, documents)
        if len(labels) == 1:
            log.warning("task %s: a single label, %r; every prediction will be it", self.name, labels[0])
        return replace(self, labels=labels, positive=self._positive(labels))

    def gold(self, documents: Sequence[Document]) -> list[str]:
        """The label of each document, as a string."""
        return [self._label(document) for document in documents]

    def ids(self, gold: str) -> Int[np.ndarray, " 1"]:
        """Int64 [1]; IGNORE for an unseen label."""
        return np.array([self._ids.get(gold, IGNORE)], dtype=np.int64)

    def unseen(self, gold: str) -> Iterable[str]:
        """The label, where training never saw it."""
        return () if gold in self._ids else (gold,)

    def score(self, gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float | None]:
        """accuracy, macro_f1, matthews, n; with `positive` precision, recall, f1 and f1_accuracy (`label_scores`).

        Labels are compared by name, so the order of a saved run's labels and of a data set's do not matter (CLS-2).
        """
        return label_scores(gold, predicted, positive=next(iter(self._positives), None))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        fields = ("column", "piece", "metric", "positive", "numbers_are_classes", "called")
        plain = {"kind": "classification", **{name: getattr(self, name) for name in fields}}
        return {**plain, "labels": list(self.labels)}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    @property
    def _positives(self) -> tuple[str, ...]:
        return ((self.positive,) if self.positive else ()) if isinstance(self.positive, str) else self.positive

    def _label(self, document: Document) -> str:
        check_text(document, self.name)
        value = value_of(document, self.column, self.name)
        if isinstance(value, bool):
            return str(value).lower()  # as JSON writes it
        if isinstance(value, (str, int, float)):
            return str(value)
        raise DataError(
            f"{place_of(document)}: task {self.name!r}: {self.column!r} is a {type(value).__name__}; one label is a "
            "string or a number. For several labels a document there is the task 'multilabel'."
        )

    def _inventory(self, gold: Sequence[str], documents: Sequence[Document]) -> tuple[str, ...]:
        labels = set(gold)
        if all(_INTEGER.fullmatch(label) for label in labels):
            return tuple(sorted(labels, key=lambda label: (int(label), label)))
        if all(_NUMBER.fullmatch(label) for label in labels) and not self.numbers_are_classes:
            first = next(i for i, label in enumerate(gold) if not _INTEGER.fullmatch(label))
            raise DataError(
                f"{place_of(documents[first])}: task {self.name!r}: {self.column!r} holds numbers with fractions, such "
                f"as {gold[first]!r}: {len(labels)} different ones. To predict a number use the task 'regression'; to "
                "take each different number as a class of its own, set numbers_are_classes=true."
            )
        return tuple(sorted(labels))

    def _positive(self, labels: tuple[str, ...]) -> str:
        names = self._positives
        found = [name for name in names if name in labels]
        if names and not found:
            raise DataError(
                f"task {self.name!r}: no training document has the positive label {' or '.join(map(repr, names))}. "
                f"There is: {', '.join(labels)}."
            )
        return found[0] if found else ""
