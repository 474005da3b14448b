"""Long texts cut into passages of about as many words each, or of as many pieces as an encoder has room for.

Nothing is lost and nothing moves: a window is the text between its first and its last word as it stands, and knows
where that is in the whole, so that an answer found in a window has a place in its source (`in_source`).
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from ..errors import ConfigError
from ..types import Answer, Document, Passage, Pieces, Question
from .text import MARKS, UNSPACED

__all__ = ["HasPieces", "in_source", "question_windows", "windows"]

log = logging.getLogger("encodeonce")

WORD = re.compile(r"\S+")
"""As encoders count them."""

OR_CHARACTER = re.compile(rf"[{UNSPACED}][{MARKS}]*|[^\s{UNSPACED}]+")
"""The same, with a character of a script that puts no blanks between words, and its marks, as one."""


@runtime_checkable
class HasPieces(Protocol):
    """What is asked of an encoder here: `encoders.Pretrained`."""

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        """Documents -> pieces with words."""


def windows(
    passages: Iterable[Passage], size: int = 100, overlap: int = 0, *, pieces: HasPieces | None = None
) -> list[Passage]:
    """Passages of at most `size` words that share up to `overlap` with the one before; DPR's are 100 and 0. A character
    of a script without blanks between words, such as Chinese, is one.

    With `pieces`, an encoder, size and overlap count its pieces (special ones apart); words stay whole, and one longer
    than `size` is a window of its own, which is logged. A passage that fits stays as it is; of another, window n has
    the id "ID#n", the same title, and its source and start. Raises ConfigError unless 0 <= overlap < size.
    """
    if size < 1:
        raise ConfigError(f"size={size} leaves a window no room for a word; it must be at least 1.")
    if not 0 <= overlap < size:
        raise ConfigError(f"overlap={overlap} must be at least 0 and less than the room for a window, size={size}.")
    whole = list(passages)
    pattern = OR_CHARACTER if pieces is None else WORD
    spans = [[match.span() for match in pattern.finditer(passage.text)] for passage in whole]
    found: list[Passage] = []
    over = 0
    for passage, words, costs in zip(whole, spans, _costs(whole, spans, pieces), strict=True):
        over += int((costs > size).sum())
        if costs.sum() <= size:
            found.append(passage)
            continue
        for number, (first, stop) in enumerate(_runs(costs, size, overlap), 1):
            start, end = words[first][0], words[stop - 1][1]
            found.append(
                replace(
                    passage,
                    id=f"{passage.id}#{number}",
                    text=passage.text[start:end],
                    source=passage.source or passage.id,
                    start=passage.start + start,
                )
            )
    if over:
        log.warning("%d words are longer than a window of %d pieces and have one to themselves", over, size)
    return found


def in_source(answer: Answer, passage: Passage) -> Answer:
    """The answer with its place in the longer text that the passage was cut from; as it is where there is none."""
    if not answer.located or not passage.source:
        return answer
    start, end = passage.start + answer.start, passage.start + answer.end
    return replace(answer, passage=passage.source, start=start, end=end)


def question_windows(questions: Iterable[Question], size: int = 100, overlap: int = 0) -> list[Question]:
    """Questions whose passages are `windows`, with their answers where they stand in these.

    An answer stands in every window that holds it whole; one that no window does keeps its text and has no place. Of
    what is relevant, windows with an answer take the place of the passage, all of its windows where none has one.
    """
    asked = list(questions)
    different = {(one.id, one.title, one.text): one for question in asked for one in question.passages}
    cut: dict[tuple[str, str, str], list[Passage]] = {}
    for key, passage in different.items():
        cut[key] = windows([passage], size, overlap)
    return [_windowed(question, cut) for question in asked]


def _windowed(question: Question, cut: Mapping[tuple[str, str, str], list[Passage]]) -> Question:
    parts = [(one, cut[one.id, one.title, one.text]) for one in question.passages]
    places = {one.id: [(part, part.start - one.start if part is not one else 0) for part in own] for one, own in parts}
    answers: dict[Answer, None] = {}
    for answer in question.answers:
        held = [
            replace(answer, passage=part.id, start=answer.start - before, end=answer.end - before)
            for part, before in places.get(answer.passage, [])
            if before <= answer.start and answer.end <= before + len(part.text)
        ]
        whole = not answer.located or answer.passage not in places
        answers |= dict.fromkeys([answer] if whole else held or [Answer(answer.text, score=answer.score)])
    passages, told = tuple(part for _, own in parts for part in own), {answer.passage for answer in answers}
    relevant: dict[str, None] = {}
    for name in question.relevant:
        own = [part.id for part, _ in places.get(name, [])] or [name]
        relevant |= dict.fromkeys([one for one in own if one in told] or own)
    return replace(question, passages=passages, answers=tuple(answers), relevant=tuple(relevant))


def _costs(
    passages: Sequence[Passage], spans: Sequence[Sequence[tuple[int, int]]], pieces: HasPieces | None
) -> Iterator[np.ndarray]:
    """What each word takes of a window."""
    if pieces is None:
        yield from (np.ones(len(words), np.int64) for words in spans)
        return
    documents = [Document(passage.id, text=passage.text, place=passage.place) for passage in passages]
    for cut in pieces.cut(documents):
        yield cut.per_word


def _runs(costs: np.ndarray, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """(first word, one past the last) of each window: as full as whole words allow, none without a word of its own."""
    until = np.concatenate([[0], np.cumsum(costs)])
    first = 0
    while True:
        stop = max(first + 1, int(np.searchsorted(until, until[first] + size, side="right")) - 1)
        yield first, stop
        if stop == len(costs):
            return
        # as far back as the overlap says, and so near that the next word fits
        first = min(stop, int(np.searchsorted(until, max(until[stop] - overlap, until[stop + 1] - size))))
