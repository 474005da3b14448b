"""The passages that each question is to be read with: those that hold its answer, and others that a retriever finds."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..corpus.text import occurrences
from ..errors import ConfigError, DataError
from ..types import Passage, Question
from . import Retriever, check_k

__all__ = ["pool_of", "with_passages"]

log = logging.getLogger("encodeonce")


def pool_of(questions: Sequence[Question], passages: Sequence[Passage] = ()) -> dict[str, Passage]:
    """Every different passage by id, those of the questions first; DataError where one id has two texts."""
    pool: dict[str, Passage] = {}
    for passage in [*(one for question in questions for one in question.passages), *passages]:
        held = pool.setdefault(passage.id, passage)
        if (held.title, held.text) != (passage.title, passage.text):
            raise DataError(
                f"{passage.place or passage.id}: the passage {passage.id!r} has another text than the one at "
                f"{held.place or held.id}. Give each text an id of its own."
            )
    return pool


def with_passages(
    questions: Sequence[Question], pool: Mapping[str, Passage], retriever: Retriever, k: int
) -> list[Question]:
    """Every question with at most `k` passages of `pool`, in order of their ids: a reader must not learn from the order
    where the answer is.

    First come a question's own passages that hold an answer: those that an answer is said to stand in; else those in
    which an answer's text occurs, and those that are relevant; else, where it has no answer to look for, all of its
    own. Then comes what the retriever finds for it, then the rest of its own, in their order. A warning counts the
    questions that lose some of their own. ConfigError where what is found is no passage of the pool.
    """
    check_k(k)
    found = retriever.find([question.text for question in questions], k)
    other = next((hit.passage for hits in found for hit in hits if hit.passage not in pool), None)
    if other is not None:
        raise ConfigError(
            f"the retriever found the passage {other!r}, which is none of the pool's {len(pool)}. Make it over the "
            "pool's passages."
        )
    given = [
        replace(question, passages=_chosen(question, [pool[hit.passage] for hit in hits], k))
        for question, hits in zip(questions, found, strict=True)
    ]
    lose = [
        question
        for question, own in zip(questions, given, strict=True)
        if not {passage.id for passage in question.passages} <= {passage.id for passage in own.passages}
    ]
    if lose:
        log.warning(
            "%d of %d questions are read without some of their own passages, with at most %d each, the first %s: those "
            "that hold an answer come first, then what is found. Raise data.k, or set it to 0: as the file has them.",
            *(len(lose), len(given), k, lose[0].place or lose[0].id),
        )
    return given


def _chosen(question: Question, found: Sequence[Passage], k: int) -> tuple[Passage, ...]:
    chosen = list({passage.id: passage for passage in _ordered(question, found)}.values())[:k]
    return tuple(sorted(chosen, key=lambda passage: passage.id))


def _ordered(question: Question, found: Sequence[Passage]) -> list[Passage]:
    """A question's own passages and those that were found, the first to be read first; some come twice."""
    own = question.passages
    places = {answer.passage for answer in question.answers if answer.located}
    told = [passage for passage in own if passage.id in places]
    relevant = [one for one in own if one.id in question.relevant]
    if told:
        return [*told, *relevant, *found, *own]
    wanted = [answer.text for answer in question.answers if answer.text.strip()]
    if not wanted:
        return [*own, *found]
    holding = [one for one in own if any(occurrences(one.text, text) for text in wanted)]
    return [*holding, *relevant, *found, *own]
