"""Answers as stretches of a passage, extractive question answering (Rajpurkar et al. 2016; spec B13).

A document's text is the question, its second text the passage.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError, DataError
from ..metrics.qa import answer_scores
from ..resolve import nearest
from ..types import Document
from . import Task
from ._document_task import place_of

__all__ = ["AnswerSpans", "MarkedAnswers"]

WORD = re.compile(r"\S+")
PIECE = "document-pieces"
METRICS = ("f1", "exact_match")


@dataclass(frozen=True)
class MarkedAnswers:
    """The words of a passage, its answers, and first and last word of each different one; no answer: none of either."""

    words: tuple[str, ...]
    answers: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]

    def said(self, span: Sequence[int]) -> str:
        """The words of a predicted span; "" for none."""
        return " ".join(self.words[span[0] : span[1] + 1]) if len(span) else ""


@dataclass(frozen=True)
class AnswerSpans(Task):
    """`column` is the field with a question's answers, `starts` that with the character each begins at; an empty list
    is a question without an answer. Predictions are the first and last word of the passage, () for no answer.

    `longest` is the most pieces of a predicted span. `unanswerable` is learned: whether training has such questions,
    else every question is given a span. `labels` are the two ends of a span.
    """

    column: str = "answers"
    starts: str = "answer_starts"
    longest: int = 30
    metric: str = "f1"
    piece: str = PIECE
    called: str = "answer_spans"
    unanswerable: bool = False
    labels: tuple[str, ...] = ()

    LEARNED: ClassVar[tuple[str, ...]] = ("labels", "unanswerable", "called")
    head: ClassVar[str] = "answer_span"
    kind: ClassVar[str] = "answer_spans"

    def __post_init__(self) -> None:
        if self.metric not in METRICS or self.longest < 1 or self.piece != PIECE:
            raise ConfigError(
                f"metric={self.metric!r}, longest={self.longest}, piece={self.piece!r}: the metric is one of "
                f"{', '.join(METRICS)}, the longest span has at least 1 piece, and the head reads {PIECE!r}."
            )

    @property
    def name(self) -> str:
        """As in settings."""
        return self.called

    @property
    def head_options(self) -> dict[str, Any]:
        """Of the head."""
        return {"longest": self.longest, "unanswerable": self.unanswerable}

    def learn(self, documents: Sequence[Document]) -> "AnswerSpans":
        """Whether some questions have no answer. DataError where there is no example."""
        gold = self.gold(documents)
        if not gold:
            raise DataError(f"task {self.name!r}: no examples.")
        return replace(self, unanswerable=any(not one.spans for one in gold), labels=("first", "last"))

    def gold(self, documents: Sequence[Document]) -> list[MarkedAnswers]:
        """Each question's. DataError with the place of one whose answers are missing or do not stand where it says."""
        for document in documents:
            self.check(document)
        return [self._marked(document) for document in documents]

    def check(self, document: Document) -> None:
        """DataError for an item that is no pair of a question and a passage."""
        if not document.text.strip() or not document.pair.strip():
            raise DataError(
                f"{place_of(document)}: task {self.name!r} reads a question as text and a passage as pair; this item"
                f" has no {'question' if document.pair.strip() else 'passage'}."
            )

    def _marked(self, document: Document) -> MarkedAnswers:
        for column in (self.column, self.starts):
            if column not in document.meta:
                there = sorted(document.meta)
                raise DataError(
                    f"{place_of(document)}: task {self.name!r} reads {column!r}, and there is "
                    f"{', '.join(there) or 'no such value'}.{nearest(column, there)}"
                )
        answers, starts = list(document.meta[self.column]), list(document.meta[self.starts])
        if len(answers) != len(starts):
            raise DataError(f"{place_of(document)}: {len(answers)} answers begin at {len(starts)} places.")
        places = [match.span() for match in WORD.finditer(document.pair)]
        spans = []
        for answer, start in zip(answers, starts, strict=True):
            found = document.pair[start : start + len(answer)]
            inside = [n for n, (begin, end) in enumerate(places) if begin < start + len(answer) and end > start]
            if found != answer or not inside:
                raise DataError(
                    f"{place_of(document)}: the answer {answer!r} does not stand at character {start} of the passage"
                    f" ({found!r} does). Count characters of the text as it is given."
                )
            spans.append((inside[0], inside[-1]))
        words = tuple(document.pair.split())
        return MarkedAnswers(words, tuple(answers), tuple(dict.fromkeys(spans)))

    def ids(self, gold: MarkedAnswers) -> Int[np.ndarray, "_ 2"]:
        """First and last word of each answer; no row where there is none."""
        return np.array(gold.spans, np.int64).reshape(-1, 2)

    def scored(self, ids: Int[np.ndarray, "_ 2"]) -> int:
        """One: the question."""
        return 1

    def unseen(self, gold: MarkedAnswers) -> Iterable[str]:
        """There are no labels."""
        return ()

    def score(self, gold: Sequence[MarkedAnswers], predicted: Sequence[Sequence[int]]) -> dict[str, float | None]:
        """exact_match and f1 over the words, per cent, and what else `metrics.qa.answer_scores` gives."""
        said = [one.said(span) for one, span in zip(gold, predicted, strict=True)]
        return answer_scores([one.answers or ("",) for one in gold], said)

    def columns(
        self, documents: Sequence[Document], predicted: Sequence[Sequence[int] | None]
    ) -> dict[str, Sequence[Any]]:
        """The answer as it stands in the passage and the character it begins at, in lists as gold has them."""
        found = []
        for document, span in zip(documents, predicted, strict=True):
            places = [match.span() for match in WORD.finditer(document.pair)]
            found.append([(places[span[0]][0], places[span[1]][1])] if span else [])
        return {
            self.column: [tuple(d.pair[a:b] for a, b in own) for d, own in zip(documents, found, strict=True)],
            self.starts: [tuple(begin for begin, _ in own) for own in found],
        }

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"kind": self.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}}
