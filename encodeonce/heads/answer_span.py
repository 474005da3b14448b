"""The stretch of a pair's second text that answers the first (Rajpurkar et al. 2016), read by `SpanReader`.

All rows of a pair are pieces: those up to the special pieces between its texts are the question's, the rest the
passage's. A span starts and ends at words.

Axes: R rows of all pairs   D width   B pairs   S rows of passages   G gold spans of all pairs
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import DataError
from ..nn.rows import Rows
from . import Head
from .span_reader import LONGEST, PairRows, SpanReader, SpanScores

__all__ = ["AnswerSpan", "InPassages"]


@dataclass(frozen=True, eq=False)
class InPassages:
    """The reader's scores, and for every row of a passage its word, counted in the passage (-1: a special piece)."""

    scores: SpanScores
    word: Int[np.ndarray, " S"]


class AnswerSpan(Head):
    """Gold is first and last word of the passage; none where it has no answer. A prediction is the `n_best` likeliest
    spans, best first: first word, last word, and log p(span) - log p(no answer). `longest` is the most pieces of a
    span; products are fp32."""

    def __init__(
        self,
        width: int,
        labels: Sequence[str] = (),
        dropout: float = 0.1,
        compute: str = "fp32",
        longest: int = LONGEST,
        n_best: int = 20,
    ) -> None:
        super().__init__()
        self.reader = SpanReader(width, dropout)
        self.longest, self.n_best = longest, n_best

    def forward(self, vectors: Float[Tensor, "R D"], rows: Rows) -> InPassages:
        """A score for every row of a passage, as start and as end."""
        parts = _parts(rows.word, rows.lengths)
        starts = [_passage(word) for word in parts]
        words = [np.where(word[at:] < 0, -1, word[at:] - word[at]) for word, at in zip(parts, starts, strict=True)]
        n = len(starts)
        pairs = PairRows(tuple(starts), tuple(map(len, words)), np.arange(n), n)
        return InPassages(self.reader(vectors.float(), pairs), np.concatenate(words))

    def loss(self, scores: InPassages, gold: Int[Tensor, "G 2"], counts: tuple[int, ...]) -> Float[Tensor, ""]:
        """Minus the log of a pair's gold spans' probability together (without one, of no answer), SUMMED over pairs."""
        passages, spans = _parts(scores.word, scores.scores.pairs.passage), _parts(gold.cpu().numpy(), counts)
        at = [_rows(word, own) for word, own in zip(passages, spans, strict=True)]
        return self.reader.loss(scores.scores, at)

    def decode(self, scores: InPassages, rows: Rows) -> list[tuple[tuple[int, int, float], ...]]:
        """The likeliest spans of every pair; spans of the same words, by other pieces, count once."""
        found = self.reader.ranked(scores.scores, scores.word >= 0, self.longest, self.n_best)
        begins = np.cumsum(scores.scores.pairs.rows) - scores.scores.pairs.rows
        answers = []
        for own, begin in zip(found, begins, strict=True):
            words: dict[tuple[int, int], float] = {}
            for one in own:
                span = int(scores.word[begin + one.first]), int(scores.word[begin + one.last])
                words.setdefault(span, one.score)
            answers.append(tuple((*span, score) for span, score in words.items()))
        return answers


def _parts(values: np.ndarray, lengths: Sequence[int]) -> list[np.ndarray]:
    """Each item's own."""
    return np.split(values, np.cumsum(lengths)[:-1])


def _passage(word: Int[np.ndarray, " T"]) -> int:
    """The first row of the second text's: past the special pieces after the first text's words."""
    real = word >= 0
    begins = np.flatnonzero(real[1:] & ~real[:-1]) + 1
    begins = begins[word[begins] > 0]  # the first text's words begin at 0
    if not len(begins):
        raise DataError(
            "an item has no special piece between two texts, so there is no telling question from passage. Give pairs"
            " of texts, and an encoder whose tokenizer divides them."
        )
    return int(begins[0])


def _rows(word: Int[np.ndarray, " T"], spans: Int[np.ndarray, "_ 2"]) -> Int[np.ndarray, "_ 2"]:
    """Spans of words as spans of rows: the first row of the first word, the last row of the last."""
    return np.array(
        [[np.flatnonzero(word == first)[0], np.flatnonzero(word == last)[-1]] for first, last in spans], np.int64
    ).reshape(-1, 2)
