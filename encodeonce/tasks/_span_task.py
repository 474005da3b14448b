"""Spans of tagged words: what named entities and chunks share. Which piece stands for a word is each one's own (A7)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..types import Document
from . import Task
from ._labels import check_piece, ids_of, inventory
from ._span_column import SpanColumn

__all__ = ["SpanTask"]


@dataclass(frozen=True)
class SpanTask(Task):
    """`column` holds chunk tags (B-X, I-X, O, ...), written in the scheme `source`; `learn` finds it where it is empty.

    `scheme` is what is trained and predicted; `constrained` forbids predictions that break it.
    """

    column: str = "tag"
    piece: str = "first"
    scheme: str = "IOB2"
    source: str = ""
    constrained: bool = False
    called: str = ""
    labels: tuple[str, ...] = ()
    detected: bool = False

    LEARNED: ClassVar[tuple[str, ...]] = ("labels", "detected", "called")
    kind: ClassVar[str]
    """The file that `from_json` finds it by."""
    usual: ClassVar[str]
    """Its name in settings where it is given no other."""
    head: ClassVar[str] = "span_tagger"
    metric: ClassVar[str] = "f1_lenient"

    def __post_init__(self) -> None:
        object.__setattr__(self, "called", self.called or self.usual)
        check_piece(self.piece)
        _ = self._tags  # refuses a scheme that does not exist

    @property
    def name(self) -> str:
        """As in settings."""
        return self.called

    @property
    def head_options(self) -> dict[str, Any]:
        """Whether decoding is constrained."""
        return {"constrained": self.constrained}

    def learn(self, documents: Sequence[Document]) -> "SpanTask":
        """With the scheme and the sorted tags of these documents."""
        source = self.source or self._tags.detected(documents)
        learned = replace(self, source=source, detected=self.detected or not self.source, labels=())
        return replace(learned, labels=inventory(learned.gold(documents), self.name))

    def gold(self, documents: Sequence[Document]) -> list[tuple[str, ...]]:
        """Tags in `scheme`."""
        return self._tags.gold(documents)

    def ids(self, gold: tuple[str, ...]) -> np.ndarray:
        """Int64 [W]; IGNORE for an unseen tag."""
        return ids_of(gold, self._ids)

    def score(self, gold: Sequence[tuple[str, ...]], predicted: Sequence[tuple[str, ...]]) -> dict[str, float | None]:
        """precision, recall and f1, each _lenient and _strict; macro_f1_lenient; n, the gold spans."""
        return self._tags.score(gold, predicted)

    def score_of_pieces(
        self,
        gold: Sequence[tuple[str, ...]],
        predicted: Sequence[tuple[str, ...]],
        pieces: Sequence[Sequence[int]],
    ) -> dict[str, float | None]:
        """`f1_all_pieces`: the lenient F1 of programs that label every piece, with which older values are to be
        compared (spec A12). `pieces` says how many each word has (`Pieces.per_word`)."""
        return {"f1_all_pieces": self._tags.score_of_pieces(gold, predicted, pieces)}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        fields = ("column", "piece", "scheme", "source", "constrained", "called", "detected")
        return {"kind": self.kind, **{name: getattr(self, name) for name in fields}, "labels": list(self.labels)}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    @cached_property
    def _tags(self) -> SpanColumn:
        return SpanColumn(self.name, self.column, self.source, self.scheme, named=not self.detected)
