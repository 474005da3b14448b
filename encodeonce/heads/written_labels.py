"""A label is the words that a decoder writes: T5's way of classifying (Raffel et al. 2020; spec B12).

    score of label c = log p(pieces of c, end | the item's rows),  each piece over the whole vocabulary

The loss is teacher forcing on the gold label's words. Choosing among the labels' scores is generation that can write
nothing but a label.

Axes: R rows of all items, end to end   D width   B items   M rows of the longest item   C labels   T pieces of the
longest label, its end included
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..errors import ConfigError
from ..nn.rows import Rows
from . import IGNORE, Head

__all__ = ["WrittenLabels"]


class WrittenLabels(Head):
    """`decoder(ids, memory, readable)` gives a logit for every next piece; `words[c]` are the pieces of label c without
    the `end`, and an output begins with `start`. ConfigError for labels without words of their own."""

    def __init__(
        self, decoder: nn.Module, labels: Sequence[str], words: Sequence[Sequence[int]], start: int, end: int
    ) -> None:
        super().__init__()
        distinct = {tuple(own) for own in words if len(own)}
        if len(labels) < 2 or len(set(labels)) != len(labels) or len(distinct) != len(labels):
            raise ConfigError(f"labels={list(labels)}: at least two, each once, with words that no other has.")
        self.labels, self.decoder = tuple(labels), decoder
        targets = torch.full((len(words), max(map(len, words)) + 1), IGNORE)
        for line, own in zip(targets, words, strict=True):
            line[: len(own) + 1] = torch.tensor([*own, end])
        self.targets: Int[Tensor, "C T"]
        self.register_buffer("targets", targets, persistent=False)
        self.start = start

    def forward(self, vectors: Float[Tensor, "R D"], rows: Rows) -> Float[Tensor, "B C"]:
        """The log probability of every label's words."""
        memory, readable = self.memory(vectors, rows)
        n_items, (n_labels, _) = len(memory), self.targets.shape
        given = torch.cat([self.targets.new_full((n_labels, 1), self.start), self.targets[:, :-1].clamp(min=0)], 1)
        logits: Tensor = self.decoder(
            given.repeat(n_items, 1), memory.repeat_interleave(n_labels, 0), readable.repeat_interleave(n_labels, 0)
        )
        lost = cross_entropy(
            logits.float().flatten(0, 1),
            self.targets.repeat(n_items, 1).flatten(),
            ignore_index=IGNORE,
            reduction="none",
        )
        return -lost.view(n_items, n_labels, -1).sum(-1)

    @staticmethod
    def memory(vectors: Float[Tensor, "R D"], rows: Rows) -> tuple[Float[Tensor, "B M D"], Bool[Tensor, "B M"]]:
        """What the decoder reads, an item a line, and which of it is real."""
        lengths = torch.tensor(rows.lengths, device=vectors.device)
        longest = max(rows.lengths, default=0)
        readable = torch.arange(longest, device=vectors.device) < lengths[:, None]
        memory = vectors.new_zeros(len(lengths), longest, vectors.shape[-1])
        memory[readable] = vectors
        return memory, readable

    def loss(
        self, scores: Float[Tensor, "B C"], gold: Int[Tensor, " B"], counts: tuple[int, ...] = ()
    ) -> Float[Tensor, ""]:
        """Nats of the gold labels' words, SUMMED over the items whose gold is not IGNORE."""
        known = gold != IGNORE
        return -scores[known].gather(1, gold[known][:, None]).sum()

    def decode(self, scores: Float[Tensor, "B C"], rows: Rows) -> list[str]:
        """The likeliest label of every item."""
        return [self.labels[index] for index in scores.argmax(-1).tolist()]

    def probabilities(self, scores: Float[Tensor, "B C"], rows: Rows) -> list[dict[str, float]]:
        """Of the labels, given that one of them is written."""
        return [dict(zip(self.labels, line, strict=True)) for line in scores.double().softmax(-1).tolist()]
