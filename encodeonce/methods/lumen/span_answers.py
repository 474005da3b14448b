"""The extractive reader: a span of one of the passages, with its place.

Axes: R rows of all pairs   D width
"""

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from ...heads.span_reader import Found, SpanReader
from ...types import Answer
from .batch import ReadingBatch

__all__ = ["SpanAnswers"]


class SpanAnswers(nn.Module):
    """A `SpanReader` over the live states of all passages of a question; answers have at most `longest` pieces."""

    def __init__(self, width: int, dropout: float, longest: int) -> None:
        super().__init__()
        self.head, self.longest = SpanReader(width, dropout), longest

    def loss(self, states: Float[Tensor, "R D"], batch: ReadingBatch) -> Float[Tensor, ""]:
        """The sum over the batch's questions."""
        return self.head.loss(self.head(states, batch.pairs), batch.gold())

    def answers(self, states: Float[Tensor, "R D"], batch: ReadingBatch) -> list[Answer]:
        """One a question."""
        characters, given = batch.examples.characters, batch.examples.of_question
        allowed = [characters[i][:, 0] >= 0 for item in batch.items for i in given[item]]
        found = self.head.decode(
            self.head(states, batch.pairs), np.concatenate([*allowed, np.zeros(0, bool)]), self.longest
        )
        return [_answer(batch, one) for one in found]


def _answer(batch: ReadingBatch, found: Found) -> Answer:
    """A span of rows as the passage's own characters."""
    if found.pair < 0:
        return Answer("", score=found.score)
    owner = batch.pairs.owner
    place = found.pair - int(np.searchsorted(owner, owner[found.pair]))
    number = batch.examples.of_question[batch.items[owner[found.pair]]][place]
    passage, characters = batch.examples.passages[number], batch.examples.characters[number]
    start, end = int(characters[found.first, 0]), int(characters[found.first : found.last + 1, 1].max())
    return Answer(passage.text[start:end], passage.id, start, end, found.score)
