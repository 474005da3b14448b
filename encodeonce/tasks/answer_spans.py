"""Answers as stretches of passages, extractive question answering (Rajpurkar et al. 2016; specs B13 and A12).

A document's text is the question, its second text the passage; or a file of questions brings one or many passages
(`corpus.question_files`). Passages that do not fit the encoder beside the question are read in windows that overlap;
the spans found in all windows of all passages of a question compete.
"""

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from ..corpus.windows import HasPieces, windows
from ..errors import ConfigError, DataError
from ..resolve import nearest
from ..types import Answer, Document, Passage, Question
from . import Task
from ._answer_scores import SCORINGS, Answered
from ._document_task import place_of
from ._pairs import Rooms, fitting

__all__ = ["AnswerSpans", "MarkedAnswers"]

log = logging.getLogger("encodeonce")

WORD = re.compile(r"\S+")
PIECE = "document-pieces"
STEP = 16
"""Windows are of a multiple of so many pieces, so that questions of like length share them."""

Candidates = Sequence[tuple[int, int, float]]
"""First word, last word, log p(span) - log p(no answer), best first: the head's prediction for a passage or window."""


@dataclass(frozen=True)
class MarkedAnswers:
    """What a question has in one passage, or in a window of it that begins at character `start`.

    `due` are the question's answers wherever they stand (the empty text: that it has none), `spans` first and last word
    of each different one that stands whole in `text`.
    """

    question: str
    due: tuple[Answer, ...]
    passage: str
    start: int
    spans: tuple[tuple[int, int], ...]
    asks: str = field(default="", repr=False)
    text: str = field(default="", repr=False)


@dataclass(frozen=True)
class AnswerSpans(Task):
    """`column` is the field with a question's answers, `starts` that with the character each begins at; an empty list
    is a question without an answer. What the head predicts for a passage are its `n_best` spans.

    `longest` is the most pieces of a span. Windows move on by `stride` pieces and keep at most `question_pieces` of the
    question; in training, windows without an answer are `negatives` times those with one, drawn by content (0: all).
    `scoring` is whose scores: "squad", "techqa" or "cuad"; `metric`, one of them, chooses between epochs.
    `unanswerable` is learned: whether training has questions without an answer, else every one gets its best span.
    `labels` are the two ends of a span.
    """

    column: str = "answers"
    starts: str = "answer_starts"
    longest: int = 30
    metric: str = ""
    piece: str = PIECE
    called: str = "answer_spans"
    unanswerable: bool = False
    labels: tuple[str, ...] = ()
    scoring: str = "squad"
    stride: int = 128
    question_pieces: int = 200
    negatives: float = 0.0
    n_best: int = 20

    LEARNED: ClassVar[tuple[str, ...]] = ("labels", "unanswerable", "called")
    head: ClassVar[str] = "answer_span"
    kind: ClassVar[str] = "answer_spans"

    def __post_init__(self) -> None:
        if self.scoring not in SCORINGS:
            raise ConfigError(f"scoring={self.scoring!r} is not known. There is: {', '.join(SCORINGS)}.")
        metrics = SCORINGS[self.scoring].metrics
        object.__setattr__(self, "metric", self.metric or metrics[0])
        if self.metric not in metrics or self.piece != PIECE:
            raise ConfigError(
                f"metric={self.metric!r}, piece={self.piece!r}: the metric of {self.scoring!r} is one of "
                f"{', '.join(metrics)}, and the head reads {PIECE!r}."
            )
        least = min(self.longest, self.stride, self.question_pieces, self.n_best)
        if least < 1 or self.negatives < 0:
            raise ConfigError(
                f"longest={self.longest}, stride={self.stride}, question_pieces={self.question_pieces}, "
                f"n_best={self.n_best} must be at least 1, and negatives={self.negatives} 0 (all) or more."
            )

    @property
    def name(self) -> str:
        """As in settings."""
        return self.called

    @property
    def head_options(self) -> dict[str, Any]:
        """Of the head."""
        return {"longest": self.longest, "n_best": self.n_best}

    def learn(self, documents: Sequence[Document]) -> "AnswerSpans":
        """Whether some questions have no answer. DataError where there is no example, or none with an answer."""
        due = [self._answers(document, self.asked(document)) for document in documents]
        if not any(answer.text for own in due for answer in own):
            raise DataError(f"task {self.name!r}: no examples with an answer.")
        without = any(not any(answer.text for answer in own) for own in due)
        return replace(self, unanswerable=without, labels=("first", "last"))

    def check(self, document: Document) -> None:
        """DataError for an item that is no question with a passage."""
        asked = document.meta.get("asked")
        passages = [document.pair] if asked is None or "window" in document.meta else [p.text for p in asked.passages]
        if not document.text.strip() or not any(text.strip() for text in passages):
            lacks = "passage" if document.text.strip() else "question"
            raise DataError(
                f"{place_of(document)}: task {self.name!r} reads a question as text and a passage as pair, or a file of"
                f" questions with passages; this item has no {lacks}."
            )

    def asked(self, document: Document) -> Question:
        """The document as a question. DataError where its answers do not stand where they should."""
        self.check(document)
        known = document.meta.get("asked")
        if isinstance(known, Question):
            return known
        passage = Passage(document.id, text=document.pair)
        if self._missing(document):  # only to be answered
            return Question(document.id, document.text, (), (passage,), {}, document.place)
        texts = self._listed(document, self.column, str, "texts")
        starts = self._listed(document, self.starts, int, "numbers of characters")
        if len(texts) != len(starts):
            raise DataError(f"{place_of(document)}: {len(texts)} answers begin at {len(starts)} places.")
        for text, start in zip(texts, starts, strict=True):
            found = passage.text[start : start + len(text)] if start >= 0 else ""
            if found != text or not text.strip():
                raise DataError(
                    f"{place_of(document)}: the answer {text!r} does not stand at character {start} of the passage"
                    f" ({found!r} does). Count characters of the text as it is given."
                )
        answers = tuple(Answer(t, passage.id, s, s + len(t)) for t, s in zip(texts, starts, strict=True))
        return Question(document.id, document.text, answers or (Answer(""),), (passage,), {}, document.place)

    def shown(
        self, documents: Sequence[Document], pieces: HasPieces, window: int, training: bool = False
    ) -> list[list[Document]]:
        """The windows of each question's passages, `Document`s again, in training of those not given too. Windows of
        one word that is longer than the room beside the question are cut to its beginning, which is logged."""
        asked = [document if "window" in document.meta else self.asked(document) for document in documents]
        questions = [one for one in asked if isinstance(one, Question)]
        rooms = Rooms(pieces, window, [one.text for one in questions], self.question_pieces, STEP)
        cut = self._windows(questions, rooms, pieces, training)
        found = []
        for document, one in zip(documents, asked, strict=True):
            if not isinstance(one, Question):
                found.append([document])
                continue
            text, room = rooms.shown[one.text]
            found.append(
                [
                    Document(
                        document.id,
                        text=text,
                        pair=part.text,
                        meta={**document.meta, "asked": one, "window": (passage.id, part.start)},
                        place=document.place,
                    )
                    for passage in _read(one, training)
                    for part in cut[passage, room]
                ]
            )
        return self._sampled(found) if training and self.negatives else found

    def _windows(
        self, questions: Sequence[Question], rooms: Rooms, pieces: HasPieces, training: bool
    ) -> Mapping[tuple[Passage, int], list[Passage]]:
        """Every different passage cut to every room that it is read in."""
        wanted: dict[int, dict[Passage, None]] = defaultdict(dict)
        for one in questions:
            wanted[rooms.shown[one.text][1]].update(
                dict.fromkeys(passage for passage in _read(one, training) if passage.text.strip())
            )
        found: dict[tuple[Passage, int], list[Passage]] = defaultdict(list)
        for room, passages in wanted.items():
            overlap = max(0, room - self.stride)
            for n, passage in enumerate(passages):
                bare = replace(passage, id=f"{n}", source="", start=0)
                own = windows([bare], room, overlap, pieces=pieces)
                alone = [part for part in own if len(part.text.split(maxsplit=1)) == 1]
                shown = [text for text, _ in fitting(pieces, [part.text for part in alone], room)]
                long = {part.id: text for part, text in zip(alone, shown, strict=True) if text != part.text}
                if long:
                    log.warning(
                        "%s: of %d words that fit in no window the beginning alone is read",
                        *(passage.place or passage.id, len(long)),
                    )
                cut = [replace(part, text=long.get(part.id, part.text)) for part in own]
                found[passage, room] = [part for part in cut if part.text]
        return found

    def _sampled(self, found: list[list[Document]]) -> list[list[Document]]:
        """All windows with an answer, and of the others so many times as many, by content."""
        marked = [[bool(gold.spans) for gold in self.gold(own)] for own in found]
        n = sum(map(sum, marked))
        places = [(i, j) for i, own in enumerate(marked) for j, has in enumerate(own) if not has]
        order = sorted(places, key=lambda at: (found[at[0]][at[1]].key, found[at[0]][at[1]].place))
        kept = set(order[: round(self.negatives * n)])
        log.info("%s: %d windows with an answer, %d of %d without", self.name, n, len(kept), len(places))
        return [[one for j, one in enumerate(own) if marked[i][j] or (i, j) in kept] for i, own in enumerate(found)]

    def gold(self, documents: Sequence[Document]) -> list[MarkedAnswers]:
        """Each passage's or window's. DataError with the place of one whose answers are not known or stand nowhere, and
        for a question with several passages, of which `shown` makes windows."""
        return [self._marked(document) for document in documents]

    def _answers(self, document: Document, asked: Question) -> tuple[Answer, ...]:
        if not asked.answers:
            missing, there = self._missing(document), sorted(document.meta)
            what = f"reads {missing!r}, and there is {', '.join(there) or 'no such value'}.{nearest(missing, there)}"
            raise DataError(
                f"{place_of(document)}: task {self.name!r} {what if missing else 'needs the answers; none is known.'}"
            )
        lost = next((answer for answer in asked.answers if answer.text and not answer.located), None)
        if lost is not None:
            raise DataError(
                f"{place_of(document)}: task {self.name!r}: it is not said where the answer {lost.text!r} stands. Give "
                "answers with their places."
            )
        return asked.answers

    def _listed(self, document: Document, column: str, kind: type, said: str) -> list[Any]:
        """A field of gold. DataError where it is no list of this kind of values."""
        values = document.meta[column]
        if not isinstance(values, (list, tuple)) or any(type(value) is not kind for value in values):
            raise DataError(
                f"{place_of(document)}: task {self.name!r}: {column!r} is {values!r:.60}; it must be a list of {said}, "
                "empty for a question without an answer."
            )
        return list(values)

    def _missing(self, document: Document) -> str:
        """The first column of gold that a pair of texts has not; "" where it has both, or is a question of a file."""
        columns = () if "asked" in document.meta else (self.column, self.starts)
        return next((column for column in columns if column not in document.meta), "")

    def _marked(self, document: Document) -> MarkedAnswers:
        asked = self.asked(document)
        due = self._answers(document, asked)
        if "window" not in document.meta and len(asked.passages) != 1:
            raise DataError(
                f"{place_of(document)}: {len(asked.passages)} passages; gold is of windows, which `shown` makes."
            )
        passage, start = _where(document, asked)
        text = document.pair or asked.passages[0].text
        inside = [a for a in due if a.passage == passage and start <= a.start and a.end <= start + len(text)]
        words = [match.span() for match in WORD.finditer(text)] if inside else []
        spans = []
        for answer in inside:
            first, last = answer.start - start, answer.end - start
            own = [n for n, (begin, end) in enumerate(words) if begin < last and end > first]
            if own:
                spans.append((own[0], own[-1]))
        name = f"{document.place} {asked.id}"
        return MarkedAnswers(name, due, passage, start, tuple(dict.fromkeys(spans)), asked.text, text)

    def ids(self, gold: MarkedAnswers) -> Int[np.ndarray, "_ 2"]:
        """First and last word of each answer; no row where there is none."""
        return np.array(gold.spans, np.int64).reshape(-1, 2)

    def scored(self, ids: Int[np.ndarray, "_ 2"]) -> int:
        """One: the question."""
        return 1

    def unseen(self, gold: MarkedAnswers) -> Iterable[str]:
        """There are no labels."""
        return ()

    def score(self, gold: Sequence[MarkedAnswers], predicted: Sequence[Candidates]) -> dict[str, float | None]:
        """Over questions, each with the candidates of all its windows. `_answer_scores` says what."""
        asked: dict[str, MarkedAnswers] = {}
        found: dict[str, list[Answer]] = defaultdict(list)
        for one, own in zip(gold, predicted, strict=True):
            asked.setdefault(one.question, one)
            found[one.question] += _answers_of(one.text, one.passage, one.start, own)
        rows = [Answered(one.asks, one.due, self._ranked(found[name])) for name, one in asked.items()]
        return SCORINGS[self.scoring].score(rows, not self.unanswerable)

    def joined(self, parts: Sequence[Document], predicted: Sequence[Candidates]) -> tuple[Answer, ...]:
        """The candidates of all windows of a document, best first, with their places in the passages."""
        found: list[Answer] = []
        for part, own in zip(parts, predicted, strict=True):
            found += _answers_of(part.pair, *_where(part, self.asked(part)), own)
        return self._ranked(found)

    def _ranked(self, found: Iterable[Answer]) -> tuple[Answer, ...]:
        """Different places, best first."""
        best: dict[tuple[str, int, int], Answer] = {}
        for one in sorted(found, key=lambda answer: -answer.score):
            best.setdefault((one.passage, one.start, one.end), one)
        return tuple(best.values())[: self.n_best]

    def columns(
        self, documents: Sequence[Document], predicted: Sequence[tuple[Answer, ...] | None]
    ) -> dict[str, Sequence[Any]]:
        """Of what `joined` gives: the answer as it stands in the passage and the character it begins at, in lists as
        gold has them, empty for none; of questions of a file, "answer_passages" too."""
        said = [(own or ())[: 1 if own and (own[0].score > 0 or not self.unanswerable) else 0] for own in predicted]
        columns: dict[str, Sequence[Any]] = {
            self.column: [tuple(answer.text for answer in own) for own in said],
            self.starts: [tuple(answer.start for answer in own) for own in said],
        }
        if any("asked" in document.meta for document in documents):
            columns["answer_passages"] = [tuple(answer.passage for answer in own) for own in said]
        return columns

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"kind": self.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}}


def _read(asked: Question, training: bool) -> tuple[Passage, ...]:
    """The passages a question is put to; one that was not given is learned from only."""
    return (*asked.passages, *asked.unlisted) if training else asked.passages


def _where(document: Document, asked: Question) -> tuple[str, int]:
    """The passage that a document is of, and at which character of it its own begins."""
    passage, start = document.meta.get("window", (asked.passages[0].id, 0))
    return passage, start


def _answers_of(text: str, passage: str, start: int, candidates: Candidates) -> Iterator[Answer]:
    """Spans of words as answers."""
    places = [match.span() for match in WORD.finditer(text)] if candidates else []
    for first, last, score in candidates:
        begin, end = places[first][0], places[last][1]
        yield Answer(text[begin:end], passage, start + begin, start + end, score)
