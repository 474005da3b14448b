"""Questions answered from a memory of passages, with their sources.

A retriever finds the passages that a question is answered from, a reader answers from them, and the answer says where
it stands: in which passage, at which characters, and at which characters of the text that the passage was cut from.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..corpus.windows import in_source
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, DataError, SpecMismatch
from ..memory import Memory
from ..retrieval import Hit, Retriever
from ..retrieval.bm25 import BM25
from ..retrieval.dense import Dense
from ..types import Answer, Passage, Question, Spec
from .folder import encoder_for
from .reader_run import load_reader
from .reading import MemoryReader

__all__ = ["Answered", "Answerer", "Reader", "finder", "pooled_for"]

log = logging.getLogger("encodeonce")


@runtime_checkable
class Reader(Protocol):
    """Answers from the passages that each question brings."""

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """One a question, in order; the empty text where the passages hold none."""


@dataclass(frozen=True, slots=True)
class Answered:
    """`answer` stands in `passage` (None: "no answer", or a text of the reader's own making), `whole` in the text that
    this was cut from. `question.passages` are those that were read, and `hits` how they were found, best first."""

    question: Question
    answer: Answer
    whole: Answer
    passage: Passage | None
    hits: tuple[Hit, ...]

    @property
    def text(self) -> str:
        """The answer itself; "" where there is none."""
        return self.answer.text

    def to_json(self) -> dict[str, Any]:
        """Plain values: the answer, where it stands, and what was read."""
        answer, passage, whole = self.answer, self.passage, self.whole
        source = None
        if passage is not None:
            source = {"passage": passage.id, "title": passage.title, "start": answer.start, "end": answer.end}
            if passage.source:
                source |= {"text": whole.passage, "start_in_text": whole.start, "end_in_text": whole.end}
        titles = {one.id: one.title for one in self.question.passages}
        read = [{"passage": hit.passage, "title": titles[hit.passage], "score": hit.score} for hit in self.hits]
        own = {"id": self.question.id, "question": self.question.text, "answer": answer.text, "score": answer.score}
        return {**own, "source": source, "read": read}


class Answerer:
    """`k` passages are read for a question. The memory counts what was found and what answered.

    One that was loaded makes its retriever anew when the passages of its memory have changed; a retriever that is given
    finds what it was made over.
    """

    def __init__(self, reader: Reader, memory: Memory, retriever: Retriever, k: int = 10) -> None:
        self.reader, self.memory, self.retriever, self.k = reader, memory, retriever, k
        self._finder: Callable[[], Retriever] | None = None
        self._revision = memory.revision

    @classmethod
    def load(
        cls,
        run: str | Path,
        memory: str | Path | None = None,
        *,
        encoder: str | None = None,
        vectors: str | None = None,
        retriever: str = "auto",
        k: int = 10,
        size: int = 8,
    ) -> "Answerer":
        """A saved reader over its memory (by default RUN/memory), ready to answer; everything is loaded.

        `encoder` and `vectors` say where the encoders of the reader and of the memory's vectors are now (`pooled_for`).
        `retriever` is "dense", "bm25" or "auto": dense where the memory has vectors. Raises RunError for what is no
        saved reader, SpecMismatch naming each difference where the memory was made by another model or revision.
        """
        held = load_reader(run, encoder)
        opened = Memory.open(Path(run) / "memory" if memory is None else memory, held.spec)
        if opened.form != held.method.form:
            raise SpecMismatch(
                f"{opened.path} shows passages as {opened.form!r}, the reader was trained on {held.method.form!r}. "
                "Build the memory from this run."
            )
        states = opened.states if held.method.plan.stored else None
        found = partial(finder, opened, retriever, vectors, held.encoder)
        own = cls(MemoryReader(held.method, held.encoder, states, size), opened, found(), k)
        own._finder = found
        return own

    def ask(self, question: str | Question) -> Answered:
        """One question."""
        return self.ask_all([question])[0]

    def ask_all(self, questions: Sequence[str | Question]) -> list[Answered]:
        """Many questions, in order. Passages that a question already has are not read; DataError for one that is empty
        or no Unicode, and for a single question in place of many."""
        if isinstance(questions, str | Question):
            raise DataError(f"{questions!r:.60} is one question, and ask_all takes many. Give a list, or use ask.")
        asked = [_question(one, number) for number, one in enumerate(questions, 1)]
        self._follow()
        found = self.retriever.find([question.text for question in asked], self.k)
        lost = [question.text for question, hits in zip(asked, found, strict=True) if not hits]
        if lost:
            log.warning(
                "%d of %d questions share no word with any passage, so none is read for them, the first %r. A memory "
                "with vectors finds what words do not: memory build --vectors.",
                *(len(lost), len(asked), lost[0]),
            )
        given = [
            replace(question, passages=tuple(self.memory[hit.passage] for hit in hits))
            for question, hits in zip(asked, found, strict=True)
        ]
        answers = self.reader.answers(given)
        return [self._answered(*one) for one in zip(given, answers, map(tuple, found), strict=True)]

    def _follow(self) -> None:
        """After a change of the memory, what `load` made over it is made anew."""
        if self._finder is None or self._revision == self.memory.revision:
            return
        self.retriever = self._finder()
        if isinstance(self.reader, MemoryReader) and self.reader.states is not None:
            self.reader.states = self.memory.states
        self._revision = self.memory.revision

    def _answered(self, question: Question, answer: Answer, hits: tuple[Hit, ...]) -> Answered:
        passage = self.memory[answer.passage] if answer.passage else None
        self.memory.count([hit.passage for hit in hits], answer.passage)
        return Answered(question, answer, answer if passage is None else in_source(answer, passage), passage, hits)


def finder(
    memory: Memory, name: str = "auto", encoder: str | None = None, beside: Pretrained | None = None
) -> Retriever:
    """The retriever called `name` over all passages of a memory; `encoder` and `beside` as `pooled_for`.

    ConfigError for "dense" or an encoder of vectors where it has none, and for a memory without a passage; CorruptStore
    where its vectors were lost, unless the retriever is "bm25".
    """
    if name != "bm25":
        memory.refuse_lost("vectors")
    if encoder is not None and not memory.has_vectors:
        raise ConfigError(f"vectors={encoder!r}: {memory.path} has none that an encoder could have made. Leave it out.")
    if name not in ("auto", "dense", "bm25"):
        raise ConfigError(f"retriever={name!r} is not known. There is: auto, dense, bm25.")
    if not len(memory):
        raise ConfigError(
            f"{memory.path} holds no passage to answer from. Add some: encodeonce memory add {memory.path} FILE..."
        )
    if name == "bm25" or (name == "auto" and memory.vectors is None):
        return BM25(memory.passages, kept=memory.path / "bm25.safetensors")
    if memory.vectors is None:
        raise ConfigError(f"{memory.path} has no vectors. Use retriever='bm25', or build it with vectors.")
    spec = memory.vectors.spec
    return Dense.over(memory.vectors, memory.documents(memory.passages), pooled_for(spec, encoder, beside))


def pooled_for(spec: Spec, name: str | None = None, beside: Pretrained | None = None) -> Pooled:
    """The encoder that made vectors of this Spec, by this name; by default where `beside` is, if that has the same
    weights, else by the name it had. No weights are loaded."""
    if name is None and beside is not None and beside.spec().weights == spec.weights:
        name = beside.name
    pooling, _, scaled = spec.pooling.partition("+")
    return Pooled(encoder_for(spec, name), spec.unit, pooling, normalize=bool(scaled))


def _question(one: str | Question, number: int) -> Question:
    question = Question(f"question {number}", one) if isinstance(one, str) else one
    if not question.text.strip():
        raise DataError(f"{question.place or question.id}: the question is empty. Give it a text, or leave it out.")
    try:
        question.text.encode()
    except UnicodeEncodeError as problem:
        raise DataError(
            f"{question.place or question.id}: {question.text[problem.start]!a} is no character. Give the question in "
            "UTF-8."
        ) from None
    return question
