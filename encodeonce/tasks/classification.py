"""One label a document, single text or pair (spec A7, A-11; scores by A-16)."""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError, DataError
from ..metrics.classification import label_scores
from ..types import IGNORE, Document
from ._document_task import DocumentTask
from ._json_labels import JsonLabel, as_label, kept_as, restored

__all__ = ["Classification"]

log = logging.getLogger("encodeonce")

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Classification(DocumentTask):
    """Labels are the training documents' alone, compared as strings, sorted by value where all are integers.

    Labels that are all numbers, some with a fraction, are a score to be predicted as such: refused by name unless
    `numbers_are_classes` (CLS-2). `positive` is the label whose precision, recall and F1 are reported; of several names
    the one that training has. `kept_as` is learned: what the labels are in JSON (`_json_labels`), so that files get
    back what they had. See `DocumentTask` for the other settings.
    """

    positive: str | tuple[str, ...] = ""
    numbers_are_classes: bool = False
    kept_as: str = "text"

    LEARNED: ClassVar[tuple[str, ...]] = (*DocumentTask.LEARNED, "kept_as")
    kind: ClassVar[str] = "classification"
    head: ClassVar[str] = "classifier"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1", "matthews", "f1", "f1_accuracy")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric in ("f1", "f1_accuracy") and not self.positive:
            raise ConfigError(f"metric={self.metric!r} is of one label: name it with positive=...")

    @property
    def head_options(self) -> dict[str, Any]:
        """None beside width and labels."""
        return {}

    def learned(self, gold: Sequence[str], documents: Sequence[Document]) -> dict[str, Any]:
        """The labels, what they are in JSON, and the one of `positive` that is among them."""
        labels = self._inventory(gold, documents)
        if len(labels) == 1:
            log.warning("task %s: a single label, %r; every prediction will be it", self.name, labels[0])
        kind = kept_as(map(self.read, documents))
        return {"labels": labels, "kept_as": kind, "positive": self._positive(labels)}

    def value(self, document: Document) -> str:
        """The label, as a string (`as_label`)."""
        value = self.read(document)
        if isinstance(value, (str, int, float)):
            return as_label(value)
        raise self.refused(
            document, value, "one label is a string or a number. For several labels there is the task 'multilabel'."
        )

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

    def as_json(self, answer: str) -> JsonLabel:
        """The label as training files had it."""
        return restored(answer, self.kept_as)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    @property
    def _positives(self) -> tuple[str, ...]:
        return ((self.positive,) if self.positive else ()) if isinstance(self.positive, str) else self.positive

    def _inventory(self, gold: Sequence[str], documents: Sequence[Document]) -> tuple[str, ...]:
        labels = set(gold)
        if all(_INTEGER.fullmatch(label) for label in labels):
            return tuple(sorted(labels, key=lambda label: (int(label), label)))
        if all(_NUMBER.fullmatch(label) for label in labels) and not self.numbers_are_classes:
            first = next(i for i, label in enumerate(gold) if not _INTEGER.fullmatch(label))
            raise self.refused(
                documents[first],
                gold[first],
                f"a number with a fraction, as {len(labels)} different ones are here. To predict a number use the task "
                "'regression'; to take each different number as a class, set numbers_are_classes=true.",
            )
        return tuple(sorted(labels))

    def _positive(self, labels: tuple[str, ...]) -> str:
        found = [name for name in self._positives if name in labels]
        if self._positives and not found:
            raise DataError(
                f"task {self.name!r}: no training document has the positive label "
                f"{' or '.join(map(repr, self._positives))}. There is: {', '.join(labels)}."
            )
        return found[0] if found else ""
