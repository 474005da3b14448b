"""One label a word from any column: part of speech, relation label, one morphological attribute (spec A7, A16)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..errors import ConfigError
from ..metrics.accuracy import accuracy
from ..types import Document
from . import Task
from ._labels import check_piece, column_of, ids_of, inventory, refuse_missing

__all__ = ["Tagging"]

ANNOTATED = frozenset({"upos", "xpos", "deprel", "head"})
"""CoNLL-U columns in which "_" says that nobody annotated the word. Elsewhere it is a value: no features, no note."""


@dataclass(frozen=True)
class Tagging(Task):
    """`column` is a column's name, or "feats:NAME" for one attribute of FEATS, whose absence is the label "_".

    Missing gold is refused by name, never trained on: "_" in UPOS, XPOS, DEPREL and HEAD, an empty string anywhere.
    """

    column: str = "upos"
    piece: str = "last"
    called: str = ""
    labels: tuple[str, ...] = ()

    LEARNED: ClassVar[tuple[str, ...]] = ("labels", "called")
    head: ClassVar[str] = "tagger"
    metric: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "called", self.called or self.column)
        check_piece(self.piece)
        if self.column.startswith("feats:") and not self.column.removeprefix("feats:"):
            raise ConfigError("column='feats:' names no attribute. Write for example 'feats:Number'.")

    @property
    def name(self) -> str:
        """As in settings; the column where it is given no other."""
        return self.called

    @property
    def head_options(self) -> dict[str, Any]:
        """None beside width and labels."""
        return {}

    def learn(self, documents: Sequence[Document]) -> "Tagging":
        """With the sorted labels of these documents."""
        return replace(self, labels=inventory(self.gold(documents), self.name))

    def gold(self, documents: Sequence[Document]) -> list[tuple[str, ...]]:
        """The column's values, or the attribute's."""
        return [self._values(document) for document in documents]

    def ids(self, gold: tuple[str, ...]) -> np.ndarray:
        """Int64 [W]; IGNORE for an unseen label."""
        return ids_of(gold, self._ids)

    def score(self, gold: Sequence[tuple[str, ...]], predicted: Sequence[tuple[str, ...]]) -> dict[str, float | None]:
        """Accuracy over all words, which is also micro F1 of one label a word (A16)."""
        return accuracy(gold, predicted)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        fields = ("column", "piece", "called")
        return {"kind": "tagging", **{name: getattr(self, name) for name in fields}, "labels": list(self.labels)}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    def _values(self, document: Document) -> tuple[str, ...]:
        column, _, attribute = self.column.partition(":") if self.column.startswith("feats:") else (self.column, "", "")
        values = column_of(document, column, self.name)
        refuse_missing(document, values, column, frozenset({"", "_"}) if column in ANNOTATED else frozenset({""}))
        return tuple(_attribute(value, attribute) for value in values) if attribute else values


def _attribute(features: str, name: str) -> str:
    """ "Case=Nom|Number=Sing", "Number" -> "Sing"; "_" where the attribute is absent."""
    for feature in features.split("|"):
        key, _, value = feature.partition("=")
        if key == name:
            return value
    return "_"
