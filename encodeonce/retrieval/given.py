"""The passages that each question is to be read with: those that hold its answer, and others that a retriever finds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..errors import ConfigError, DataError
from ..types import Passage, Question
from . import Retriever, check_k

__all__ = ["pool_of", "with_passages"]


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

    First come a question's own passages that hold an answer (all of its own where none is said to), then what the
    retriever finds for it. ConfigError where that is no passage of the pool.
    """
    check_k(k)
    found = retriever.find([question.text for question in questions], k)
    other = next((hit.passage for hits in found for hit in hits if hit.passage not in pool), None)
    if other is not None:
        raise ConfigError(
            f"the retriever found the passage {other!r}, which is none of the pool's {len(pool)}. Make it over the "
            "pool's passages."
        )
    return [
        replace(question, passages=_chosen(question, [pool[hit.passage] for hit in hits], k))
        for question, hits in zip(questions, found, strict=True)
    ]


def _chosen(question: Question, found: Sequence[Passage], k: int) -> tuple[Passage, ...]:
    places = {answer.passage for answer in question.answers if answer.located}
    own = [passage for passage in question.passages if passage.id in places] or question.passages
    chosen = list({passage.id: passage for passage in [*own, *found]}.values())[:k]
    return tuple(sorted(chosen, key=lambda passage: passage.id))
