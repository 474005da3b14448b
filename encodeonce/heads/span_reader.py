"""An answer as a span of one of several passages, all of a question's passages weighed together.

score of a piece j as start of the answer = z_j (M q + w), q the question's own rows pooled by attention; ends likewise.
One softmax over all pieces of all passages of a question and "no answer", so that passages compete; the gold is a set
of spans, each right, and the loss is minus the log of their probability together (Clark and Gardner 2018).

Axes: R rows of all pairs   D width   N pairs of question and passage   B questions   S rows of passages   M the most
rows that a question has
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..nn.dropout import Dropout
from ..nn.item_blocks import ItemBlocks

__all__ = ["Found", "PairRows", "SpanReader", "SpanScores"]

LONGEST = 30
"""Pieces of the longest span that is looked for."""


@dataclass(frozen=True, eq=False)
class PairRows:
    """Pair n has `question[n]` rows of its question, then `passage[n]` of its passage (0: there is none).

    `owner[n]` is the pair's question, ascending: the passages of a question are neighbours.
    """

    question: tuple[int, ...]
    passage: tuple[int, ...]
    owner: Int[np.ndarray, " N"]
    n_questions: int

    @cached_property
    def in_question(self) -> Bool[np.ndarray, " R"]:
        """Which rows are a question's."""
        kinds = np.tile([True, False], len(self.owner))
        return np.repeat(kinds, np.stack([self.question, self.passage], 1).ravel())

    @cached_property
    def pair(self) -> Int[np.ndarray, " S"]:
        """The pair of every row of a passage."""
        return np.repeat(np.arange(len(self.owner)), self.passage)

    @cached_property
    def rows(self) -> Int[np.ndarray, " B"]:
        """How many rows of passages each question has."""
        return np.bincount(self.owner, weights=self.passage, minlength=self.n_questions).astype(np.int64)


@dataclass(frozen=True, eq=False)
class SpanScores:
    """A score for every row of a passage as start and as end, and for every question that there is no answer."""

    ends: Float[Tensor, "2 S"]
    none: Float[Tensor, " B"]
    pairs: PairRows

    def log_probabilities(self) -> tuple[Float[Tensor, "2 B M"], Float[Tensor, "2 B"]]:
        """Of starts and ends, -inf past a question's rows; of no answer."""
        counts = self.pairs.rows
        widest = int(counts.max(initial=0))
        real = np.arange(widest) < counts[:, None]
        lowest = self.ends.new_full((2, *real.shape), -torch.inf)
        filled = lowest.masked_scatter(torch.from_numpy(np.stack([real, real])).to(lowest.device), self.ends)
        together = torch.cat([filled, self.none.expand(2, -1)[..., None]], -1).log_softmax(-1)
        return together[..., :-1], together[..., -1]


@dataclass(frozen=True, slots=True)
class Found:
    """Rows `first` to `last` of the passage of a pair, and the span's probability (`ranked`: its log over that of no
    answer); pair -1: no answer."""

    pair: int
    first: int
    last: int
    score: float


class SpanReader(nn.Module):
    """`dropout` is on the rows that come in."""

    def __init__(self, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.pool = nn.Linear(width, 2, bias=False)
        self.ask = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.none = nn.Linear(width, 1)
        self.dropout = Dropout(dropout)
        with torch.no_grad():
            for layer in self.ask:
                assert isinstance(layer, nn.Linear)
                layer.weight.mul_(0.1)
                layer.bias.mul_(0.1)

    def forward(self, states: Float[Tensor, "R D"], pairs: PairRows) -> SpanScores:
        """Scores of every row of a passage."""
        states = self.dropout(states)
        asked = torch.from_numpy(pairs.in_question).to(states.device)
        questions, passages = states[asked], states[~asked]
        blocks = ItemBlocks(pairs.question, None)
        pooled = self._pooled(blocks.keys_of(questions), torch.from_numpy(blocks.real).to(states.device))
        wanted = torch.stack([ask(pooled[:, end]) for end, ask in enumerate(self.ask)], -1)
        parts = [rows @ w for rows, w in zip(passages.split(pairs.passage), wanted.unbind(0), strict=True)]
        ends = torch.cat(parts).T if parts else passages.new_zeros(2, 0)
        owner = torch.from_numpy(pairs.owner).to(states.device)
        sums = pooled.new_zeros(pairs.n_questions, pooled.shape[-1]).index_add(0, owner, pooled.mean(1))
        counts = torch.bincount(owner, minlength=pairs.n_questions)[:, None]
        return SpanScores(ends, self.none(sums / counts)[:, 0], pairs)

    def loss(self, scores: SpanScores, gold: Sequence[Int[np.ndarray, "_ 2"] | None]) -> Float[Tensor, ""]:
        """The SUM over questions of -log p(any gold span), p(span) = p(start) p(end); of -log p(no answer) where a
        question's spans are none; None counts for nothing. Rows are counted over all passages of the question."""
        found, none = scores.log_probabilities()
        each = []
        for question, spans in enumerate(gold):
            if spans is None:
                continue
            if not len(spans):
                each.append(-none[:, question].sum())
                continue
            at = torch.from_numpy(spans).to(found.device)
            each.append(-(found[0, question, at[:, 0]] + found[1, question, at[:, 1]]).logsumexp(0))
        return torch.stack(each).sum() if each else scores.none.sum() * 0

    def decode(
        self, scores: SpanScores, allowed: Bool[np.ndarray, " S"], longest: int = LONGEST, forced: bool = False
    ) -> list[Found]:
        """The likeliest span of every question, at most `longest` pieces in one passage, between `allowed` rows; no
        answer where that is likelier, unless `forced`, or where there is nothing to choose."""
        answers = []
        for own, nothing in zip(*self._likeliest(scores, allowed, longest, 1), strict=True):
            if not own or (own[0].score <= nothing and not forced):
                answers.append(Found(-1, -1, -1, float(np.exp(nothing))))
            else:
                answers.append(replace(own[0], score=float(np.exp(own[0].score))))
        return answers

    def ranked(
        self, scores: SpanScores, allowed: Bool[np.ndarray, " S"], longest: int = LONGEST, n: int = 20
    ) -> list[list[Found]]:
        """The n likeliest spans of every question, best first; `score` is log p(span) - log p(no answer), which spans
        of different passages, read apart, can be compared by."""
        found = self._likeliest(scores, allowed, longest, n)
        return [[replace(one, score=one.score - nothing) for one in own] for own, nothing in zip(*found, strict=True)]

    def _likeliest(
        self, scores: SpanScores, allowed: Bool[np.ndarray, " S"], longest: int, n: int
    ) -> tuple[list[list[Found]], list[float]]:
        """Each question's n best spans with their log-probabilities, and that of no answer."""
        found, none = scores.log_probabilities()
        counts, pairs = scores.pairs.rows, scores.pairs
        begins = np.cumsum(counts) - counts
        before = np.cumsum(pairs.passage) - np.asarray(pairs.passage, np.int64)
        answers = []
        for question, count in enumerate(counts):
            rows = slice(begins[question], begins[question] + count)
            start, end = found[:, question, :count].detach().double().cpu().numpy()
            own = pairs.pair[rows]
            answers.append(
                [
                    Found(int(own[first]), first + shift, last + shift, score)
                    for first, last, score in _best(start, end, own, allowed[rows], longest, n)
                    for shift in (int(begins[question] - before[own[first]]),)
                ]
            )
        return answers, none.sum(0).tolist()

    def _pooled(self, blocks: Float[Tensor, "N Q D"], real: Bool[Tensor, "N Q"]) -> Float[Tensor, "N 2 D"]:
        """Two attention-weighted means over the rows of each pair's question."""
        lowest = torch.finfo(blocks.dtype).min
        weights = torch.where(real[..., None], self.pool(blocks), lowest).softmax(1)
        return weights.transpose(1, 2) @ blocks


def _best(
    start: Float[np.ndarray, " S"],
    end: Float[np.ndarray, " S"],
    pair: Int[np.ndarray, " S"],
    allowed: Bool[np.ndarray, " S"],
    longest: int,
    n: int,
) -> list[tuple[int, int, float]]:
    """First row, last row and score of the n best spans, the earlier of equal ones first; none where no row is
    allowed."""
    if not allowed.any():
        return []
    length = len(start)
    reach = min(longest, length)
    last = np.arange(length)[:, None] + np.arange(reach)
    inside = np.minimum(last, length - 1)
    usable = (last < length) & allowed[:, None] & allowed[inside] & (pair[inside] == pair[:, None])
    scores = np.where(usable, start[:, None] + end[inside], -np.inf).ravel()
    if n == 1:
        chosen = np.array([scores.argmax()])
    else:
        lowest = np.partition(scores, -n)[-n] if n < len(scores) else -np.inf
        among = np.flatnonzero(scores >= lowest)
        chosen = among[np.argsort(-scores[among], kind="stable")][:n]
    places = (divmod(int(at), reach) for at in chosen if scores[at] > -np.inf)
    return [(first, first + further, float(scores[first * reach + further])) for first, further in places]
