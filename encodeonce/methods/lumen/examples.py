"""Questions with their passages as arrays, made once: pieces, where the passages are read, which characters a piece
stands for, which spans are gold.

Axes: N questions   G different passages   T rows of one passage
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from ...batching import Cut, Source
from ...corpus.text import occurrences
from ...errors import DataError, SpecMismatch
from ...types import Document, Passage, Pieces, Question, Spec
from .design import Design, Plan
from .forms import passage_document, question_document, shift_of

__all__ = ["Cutting", "ReadingExamples", "cut_whole"]

log = logging.getLogger("encodeonce")

Spans = Int[np.ndarray, "_ 3"]
"""Which passage of the question, first and last row in it; one line a span."""


@runtime_checkable
class Cutting(Protocol):
    """What is asked of an encoder here: `encoders.Pretrained`."""

    window: int

    def spec(self, layers: Any = "all", dtype: str = "fp16") -> Spec:
        """What would make its vectors."""

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        """Pieces, by the tokenizer only."""

    def spans(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Characters of every piece."""

    def spell(self, ids: Sequence[int]) -> str:
        """Pieces as text."""


@dataclass(frozen=True)
class ReadingExamples:
    """`passages` are the different ones of all questions, `of_question[n]` their numbers in the question's order.

    `index` says where each stands in `source`, `lengths` its rows, `characters` int [T, 2] what its rows stand for in
    the passage's own text (-1: nothing of it). `spans[n]` are gold rows, empty where no passage holds an answer, None
    where the question has no gold. `gold["answer"]` are the answers' texts.

    `written[n]` are pieces of each answer with the end of an output, where answers are to be written; `spell` makes
    text of pieces. `scored` is the mean number of units a question that the loss counts.
    """

    source: Source
    questions: tuple[Question, ...]
    passages: tuple[Passage, ...]
    question_ids: tuple[Int[np.ndarray, " _"], ...]
    of_question: tuple[Int[np.ndarray, " _"], ...]
    index: Int[np.ndarray, " G"]
    lengths: Int[np.ndarray, " G"]
    characters: tuple[Int[np.ndarray, "_ 2"], ...]
    spans: tuple[Spans | None, ...]
    gold: Mapping[str, tuple[Any, ...]]
    spell: Callable[[Sequence[int]], str]
    written: tuple[tuple[tuple[int, ...], ...], ...] = ()

    @classmethod
    def read(
        cls,
        questions: Sequence[Question],
        encoder: Cutting,
        design: Design,
        plan: Plan,
        store: Source | None,
        form: str = "plain",
    ) -> "ReadingExamples":
        """Examples of questions whose passages are in `store`; without one, the passages' pieces are read.

        Questions over `question_pieces` are cut there, and counted in a warning, as are those whose every answer is
        over `longest_answer`. Raises NotStored for a passage that is not in the store, SpecMismatch for a store that
        holds passages at another place of the input, DataError for a passage too long to be read whole where it is not
        stored.
        """
        numbers: dict[tuple[str, str], int] = {}
        passages: list[Passage] = []
        of_question = []
        for question in questions:
            own = []
            for passage in question.passages:
                document = passage_document(passage, form)
                if (passage.id, document.key) not in numbers:
                    numbers[passage.id, document.key] = len(passages)
                    passages.append(passage)
                own.append(numbers[passage.id, document.key])
            of_question.append(np.array(own, np.int64))
        documents = [passage_document(passage, form) for passage in passages]
        source = _stored(store, encoder, plan) if plan.stored else cut_whole(documents, encoder)
        index = source.index([document.key for document in documents])
        lengths = np.asarray(source.rows(index), np.int64)
        characters = _characters(passages, documents, lengths, encoder, form)
        found = [
            _gold(question, [passages[i] for i in own], [characters[i] for i in own], design.targets)
            for question, own in zip(questions, of_question, strict=True)
        ]
        generated = design.reader == "generate"
        _report(questions, found, None if generated else design.longest)
        answers = tuple(tuple(answer.text for answer in question.answers) for question in questions)
        return cls(
            source=source,
            questions=tuple(questions),
            passages=tuple(passages),
            question_ids=_question_ids(questions, encoder, design.question_pieces, form),
            of_question=tuple(of_question),
            index=index,
            lengths=lengths,
            characters=characters,
            spans=tuple(found),
            gold={"answer": answers} if any(answers) else {},
            spell=encoder.spell,
            written=_written(answers, encoder, design.longest) if generated else (),
        )

    def __len__(self) -> int:
        return len(self.questions)

    @cached_property
    def scored(self) -> float:
        """Questions count as one unit, written answers by their pieces."""
        lengths = [len(ids) for own in self.written for ids in own]
        return float(np.mean(lengths)) if lengths else 1.0

    def chosen(self, order: np.random.Generator | None) -> Int[np.ndarray, " N"]:
        """Which answer of each question is to be written in this pass: any of them (Izacard and Grave 2021), or the
        first where there is no order; -1 where there is none."""
        counts = np.array([len(own) for own in self.written] or [0] * len(self), np.int64)
        if order is None or not counts.any():
            return np.minimum(counts, 1) - 1
        return np.floor(order.random(len(counts)) * counts).astype(np.int64) - (counts == 0)

    def place(self, number: int) -> str:
        """Where a question comes from, for messages."""
        question = self.questions[number]
        return f"{question.place} ({question.id})" if question.place else question.id

    def fingerprint(self) -> dict[str, Any]:
        """What a resumed run compares: name -> value or SHA-256, and what the store's Spec compares."""

        def digest(value: object) -> str:
            return hashlib.sha256(repr(value).encode()).hexdigest()

        return {
            "questions": str(len(self)),
            "texts": digest([question.text for question in self.questions]),
            "passages": digest([(p.title, p.text) for p in self.passages]),
            "given": digest([own.tolist() for own in self.of_question]),
            "gold": digest([None if spans is None else spans.tolist() for spans in self.spans] + [self.gold]),
            "store": self.source.spec.compared(),
        }


def _stored(store: Source | None, encoder: Cutting, plan: Plan) -> Source:
    """The memory, if it is the one that this encoder would make."""
    if store is None:
        raise DataError(f"this design reads view {list(plan.stored)} of every passage from a store: give one.")
    wanted = encoder.spec(list(store.spec.layers), store.spec.dtype)
    differing = store.spec.differences(wanted)
    missing = [layer for layer in plan.stored if layer not in store.spec.layers]
    if missing:
        differing.append(f"layers: {list(store.spec.layers)} here, {missing} needed")
    if differing:
        raise SpecMismatch(
            f"the store is not the memory of this design and encoder: {'; '.join(differing)}. Encode the passages"
            f" again with Design.encoder and layers={list(plan.stored)}."
        )
    return store


def cut_whole(documents: Sequence[Document], encoder: Cutting) -> Cut:
    """The passages' pieces; DataError naming the first that does not fit the encoder's window."""
    pieces = encoder.cut(documents)
    for document, cut in zip(documents, pieces, strict=True):
        if len(cut.windows) > 1:
            raise DataError(
                f"{document.place or document.id}: {len(cut)} pieces, but a passage that is not read from a store must"
                f" fit the encoder's window behind the question, {encoder.window}. Cut it into shorter passages: less"
                " words a window (--words, data.words)."
            )
    return Cut(encoder.spec(), pieces)


def _question_ids(
    questions: Sequence[Question], encoder: Cutting, longest: int, form: str
) -> tuple[Int[np.ndarray, " _"], ...]:
    """Special pieces around each question; none at its end where the encoder has none at the beginning (T5, L-06)."""
    found, over = [], []
    for question, cut in zip(questions, encoder.cut([question_document(q, form) for q in questions]), strict=True):
        before, after = cut.windows[0][0], len(cut) - cut.windows[-1][1]
        ids = cut.ids.astype(np.int64)
        body, end = ids[: len(ids) - after], ids[len(ids) - after :] if before else ids[:0]
        if len(body) + len(end) > longest:
            over.append(question)
            body = body[: longest - len(end)]
        found.append(np.concatenate([body, end]))
    if over:
        log.warning(
            "%d of %d questions have more than %d pieces and were cut there, the first %s (%s). Raise question_pieces.",
            len(over),
            len(questions),
            longest,
            over[0].id,
            over[0].place or "no place",
        )
    return tuple(found)


def _written(
    answers: Sequence[Sequence[str]], encoder: Cutting, longest: int
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Pieces of every answer and the end; an answer over the longest is none that can be written, and is left out."""
    texts = list(dict.fromkeys(text for own in answers for text in own if text.strip())) or ["a"]
    known: dict[str, tuple[int, ...]] = {}
    for text, cut in zip(texts, encoder.cut([Document("", text=text) for text in texts]), strict=True):
        known[text] = tuple(cut.ids[cut.windows[0][0] :].tolist())
        known[""] = tuple(cut.ids[cut.windows[-1][1] :].tolist())
    found = tuple(
        tuple(ids for text in own if len(ids := known[text if text.strip() else ""]) <= longest) for own in answers
    )
    long = sum(bool(own) and not ids for own, ids in zip(answers, found, strict=True))
    if long:
        log.warning(
            "%d of %d questions have no answer of at most %d pieces and are not learned from. Raise longest_answer.",
            long,
            len(answers),
            longest,
        )
    return found


def _characters(
    passages: Sequence[Passage],
    documents: Sequence[Document],
    lengths: Int[np.ndarray, " G"],
    encoder: Cutting,
    form: str,
) -> tuple[Int[np.ndarray, "_ 2"], ...]:
    """Characters in the passage's own text; -1 for special pieces, prefix and title."""
    found = []
    for passage, n_rows, places in zip(
        passages, lengths.tolist(), encoder.spans([document.text for document in documents]), strict=True
    ):
        if len(places) != n_rows:
            raise DataError(
                f"{passage.place or passage.id}: {n_rows} rows are stored, the tokenizer gives {len(places)} pieces."
                " Encode the passage again."
            )
        own = places - shift_of(passage, form)
        own[own[:, 0] < 0] = -1
        found.append(own.astype(np.int32))
    return tuple(found)


def _gold(
    question: Question, passages: Sequence[Passage], characters: Sequence[np.ndarray], targets: str
) -> Spans | None:
    if not question.answers:
        return None
    located = [answer for answer in question.answers if answer.located]
    wanted = [answer for answer in question.answers if answer.text.strip()]
    places: Callable[[Passage], list[tuple[int, int]]]
    if located and targets == "located":

        def places(passage: Passage) -> list[tuple[int, int]]:
            return [(answer.start, answer.end) for answer in located if answer.passage == passage.id]
    else:

        def places(passage: Passage) -> list[tuple[int, int]]:
            return [span for answer in wanted for span in occurrences(passage.text, answer.text)]

    lines = {
        (number, *rows)
        for number, (passage, own) in enumerate(zip(passages, characters, strict=True))
        for span in places(passage)
        if (rows := _rows(own, *span)) is not None
    }
    return np.array(sorted(lines), np.int64).reshape(-1, 3)


def _rows(characters: Int[np.ndarray, "T 2"], start: int, end: int) -> tuple[int, int] | None:
    """First and last row that stands for a character of start:end."""
    inside = np.flatnonzero((characters[:, 0] >= 0) & (characters[:, 0] < end) & (characters[:, 1] > start))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def _report(questions: Sequence[Question], found: Sequence[Spans | None], longest: int | None) -> None:
    answered = [
        (question, len(spans))
        for question, spans in zip(questions, found, strict=True)
        if spans is not None and any(answer.text.strip() for answer in question.answers)
    ]
    lost = [question for question, n in answered if not n]
    if longest is not None and 2 * len(lost) > len(answered):
        log.warning(
            "%d of %d questions that have an answer have it in none of their passages, the first %s (%r): a reader of "
            "spans is told that there is none. Give passages that hold the answers, word for word.",
            *(len(lost), len(answered), lost[0].place or lost[0].id, lost[0].answers[0].text),
        )
    elif lost:
        log.info("%d of %d questions have no answer in any of their passages", len(lost), len(questions))
    shortest = [(spans[:, 2] - spans[:, 1]).min() + 1 for spans in found if spans is not None and len(spans)]
    long = 0 if longest is None else sum(own > longest for own in shortest)
    if long:
        log.warning(
            "%d of %d questions have no answer of at most %d pieces: none is ever given. Raise longest_answer.",
            *(long, len(questions), longest),
        )
