"""The generative reader: a decoder that attends to the live states of all passages of a question at once.

Axes: R rows of all pairs   D width   B questions   M memory rows of a question   F pieces of a prefix   T pieces of an
answer   V vocabulary
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ...encoders.decoder import Decoder, write
from ...types import IGNORE, Answer
from .batch import ReadingBatch

__all__ = ["Generator"]


class Generator(nn.Module):
    """`decoder_question` says how the decoder sees the question (spec L-07): its rows in the memory once a passage,
    once in all, not at all, or its pieces before the output. `z_loss` is T5X's weight of log^2 of the normaliser.
    """

    def __init__(
        self,
        decoder: Decoder,
        decoder_question: str,
        longest: int = 32,
        n_beams: int = 1,
        length_penalty: float = 1.0,
        z_loss: float = 0.0,
    ) -> None:
        super().__init__()
        self.decoder, self.decoder_question = decoder, decoder_question
        self.longest, self.n_beams, self.length_penalty, self.z_loss = longest, n_beams, length_penalty, z_loss

    def loss(self, states: Float[Tensor, "R D"], batch: ReadingBatch) -> Float[Tensor, ""]:
        """The sum over the batch's target pieces; questions without gold count for nothing."""
        labels = batch.labels()
        logits = self.logits(states, batch, labels)
        counted = labels != IGNORE
        log_z = logits[counted].logsumexp(-1)
        gold = logits[counted].gather(-1, labels[counted][:, None])[:, 0]
        return (log_z - gold + self.z_loss * log_z.square()).sum()

    def logits(
        self, states: Float[Tensor, "R D"], batch: ReadingBatch, labels: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T V"]:
        """Of each piece of the labels, given those before it."""
        memory, readable = self.memory(states, batch)
        starts = labels.new_full((len(labels), 1), self.decoder.start)
        ids = torch.cat([starts, labels[:, :-1].clamp(min=0)], 1)
        prefix, real = self.prefix(batch)
        if prefix is None or real is None:
            return self.decoder(ids, memory, readable)
        known = torch.cat([real, torch.ones_like(ids, dtype=torch.bool)], 1)
        return self.decoder(torch.cat([prefix, ids], 1), memory, readable, known)[:, prefix.shape[1] :]

    def answers(self, states: Float[Tensor, "R D"], batch: ReadingBatch) -> list[Answer]:
        """One a question, written out; an empty output is "no answer". Its score is the probability of all its
        pieces and the end."""
        memory, readable = self.memory(states, batch)
        prefix, real = self.prefix(batch)
        written = write(
            self.decoder,
            memory,
            readable,
            longest=self.longest,
            n_beams=self.n_beams,
            length_penalty=self.length_penalty,
            prefix=prefix,
            real=real,
        )
        return [Answer(batch.examples.spell(one.ids), score=float(np.exp(one.log_probability))) for one in written]

    def memory(
        self, states: Float[Tensor, "R D"], batch: ReadingBatch
    ) -> tuple[Float[Tensor, "B M D"], Bool[Tensor, "B M"]]:
        """What the decoder reads, a question a line, and which rows of it are real."""
        pairs = batch.pairs
        first = np.diff(pairs.owner, prepend=-1) > 0
        alone = np.asarray(pairs.passage) == 0
        asked = {"in_memory_each": True, "in_memory_once": first}.get(self.decoder_question, False) | alone
        kinds = np.stack([asked, ~alone], 1).ravel()
        counts = np.stack([pairs.question, pairs.passage], 1).ravel()
        rows = np.flatnonzero(np.repeat(kinds, counts))
        of_pair = (kinds * counts).reshape(-1, 2).sum(1)
        sizes = np.bincount(pairs.owner, weights=of_pair, minlength=pairs.n_questions).astype(np.int64)
        real = np.arange(sizes.max(initial=1)) < sizes[:, None]
        places = np.zeros(real.shape, np.int64)
        places[real] = rows
        picked = states.index_select(0, torch.from_numpy(places.ravel()).to(states.device))
        return picked.view(*real.shape, -1), torch.from_numpy(real).to(states.device)

    def prefix(self, batch: ReadingBatch) -> tuple[Int[Tensor, "B F"] | None, Bool[Tensor, "B F"] | None]:
        """Pieces of the questions, padded at the left, where they stand before the output."""
        if self.decoder_question != "prefix":
            return None, None
        lengths = np.asarray(batch.question_lengths)
        real = torch.from_numpy(np.arange(lengths.max(), 0, -1) <= lengths[:, None])
        ids = torch.zeros(real.shape, dtype=torch.long)
        ids[real] = batch.question_ids
        return ids, real
