"""One minibatch of questions: their pieces, the memory of their passages read once, and which rows meet.

Axes: B questions   N pairs of question and passage   G different passages   Q rows of all questions   P rows of all
different passages   R rows of all pairs   T pieces of the longest target
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ...heads.span_reader import PairRows
from ...nn.barrier import Barrier
from ...nn.packed import Packed
from ...types import IGNORE
from .examples import ReadingExamples

__all__ = ["ReadingBatch", "collated"]


@dataclass(frozen=True, eq=False)
class ReadingBatch:
    """`memory` holds every different passage of the batch once: a view, several, or piece ids where none is stored.
    `passage[n]` says which of them a pair has, -1 for a question without passages, which is alone in its pair.
    `targets` says which answer of each question is to be written, -1: none.
    """

    examples: ReadingExamples
    items: Int[np.ndarray, " B"]
    question_ids: Int[Tensor, " Q"]
    question_lengths: tuple[int, ...]
    memory: Packed
    passage: Int[np.ndarray, " N"]
    pairs: PairRows
    targets: Int[np.ndarray, " B"]
    scale: float

    @property
    def places(self) -> list[str]:
        """Where each question comes from, for messages."""
        return [self.examples.place(i) for i in self.items]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of each pair."""
        return tuple(q + p for q, p in zip(self.pairs.question, self.pairs.passage, strict=True))

    @cached_property
    def meeting(self) -> Int[Tensor, " R"]:
        """Rows of all pairs, each question's before its passage's, in [questions' rows; different passages' rows]."""
        q_lengths, p_lengths = np.asarray(self.question_lengths), np.asarray(self.memory.lengths, np.int64)
        q_starts = np.cumsum(q_lengths) - q_lengths
        p_starts = np.cumsum(p_lengths) - p_lengths + q_lengths.sum()
        starts = np.stack([q_starts[self.pairs.owner], np.append(p_starts, 0)[self.passage]], 1).ravel()
        return torch.from_numpy(self._from(starts))

    def positions(self, passages: int) -> Int[Tensor, " R"]:
        """Of rows of all pairs in their pair: from 0 in a question, from `passages` on in its passage."""
        return torch.from_numpy(self._from(np.tile([0, passages], len(self.passage))))

    def _from(self, starts: Int[np.ndarray, " _"]) -> Int[np.ndarray, " R"]:
        """Numbers of rows that count on from a start of each question and each passage of the pairs."""
        counts = np.stack([self.pairs.question, self.pairs.passage], 1).ravel()
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(starts, counts) + within

    def barrier(self, attention: str) -> Barrier | None:
        """Who may read whom (spec B4); None where everything may."""
        if attention == "both":
            return None
        return Barrier(self.pairs.question, attention == "no_mem2q", attention == "no_q2mem")

    def labels(self) -> Int[Tensor, "B T"]:
        """Pieces of the answers to be written, the end included; IGNORE after them."""
        written = [self.examples.written[i] for i in self.items]
        chosen = [own[one] if one >= 0 else () for own, one in zip(written, self.targets.tolist(), strict=True)]
        labels = np.full((len(chosen), max(1, max(map(len, chosen)))), IGNORE, np.int64)
        for line, ids in zip(labels, chosen, strict=True):
            line[: len(ids)] = ids
        return torch.from_numpy(labels)

    def gold(self) -> list[Int[np.ndarray, "_ 2"] | None]:
        """Gold spans of each question, rows counted over all its passages."""
        found: list[Int[np.ndarray, "_ 2"] | None] = []
        for item in self.items:
            spans = self.examples.spans[item]
            if spans is None:
                found.append(None)
                continue
            lengths = self.examples.lengths[self.examples.of_question[item]]
            before = np.cumsum(lengths) - lengths
            found.append(spans[:, 1:] + before[spans[:, :1]] if len(spans) else spans[:, 1:])
        return found


def collated(
    examples: ReadingExamples,
    items: Int[np.ndarray, " B"],
    targets: Int[np.ndarray, " B"],
    layers: tuple[int, ...],
    size: int,
    out: Tensor | None,
) -> ReadingBatch:
    """Reads the memory of the questions' passages, each passage once; in `out` where it is given."""
    own = [examples.of_question[i] for i in items]
    different, places = np.unique(np.concatenate(own), return_inverse=True) if own else (np.zeros(0, np.int64), [])
    given = np.split(np.asarray(places, np.int64), np.cumsum([len(one) for one in own])[:-1])
    passage = np.concatenate([one if len(one) else np.array([-1]) for one in given])
    owner = np.repeat(np.arange(len(items)), [max(1, len(one)) for one in given])
    ids = [examples.question_ids[i] for i in items]
    q_lengths = np.array([len(one) for one in ids], np.int64)
    p_lengths = np.append(examples.lengths[different], 0)
    if len(different):
        memory = examples.source.batch(examples.index[different], layers, dtype=torch.float32, out=out)
    else:
        memory = Packed(torch.empty(len(layers), 0, examples.source.spec.width), (), torch.zeros(0, dtype=torch.long))
    return ReadingBatch(
        examples=examples,
        items=items,
        question_ids=torch.from_numpy(np.concatenate(ids)),
        question_lengths=tuple(q_lengths.tolist()),
        memory=memory,
        passage=passage,
        pairs=PairRows(tuple(q_lengths[owner].tolist()), tuple(p_lengths[passage].tolist()), owner, len(items)),
        targets=targets,
        scale=1 / (min(size, len(examples)) * examples.scored),
    )
