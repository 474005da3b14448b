"""Labels of BIO or BIOES spans: the tagger's scores, read as the best well-formed sequence.

Axes: R rows   D width   C labels
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..nn.rows import Rows
from ..nn.span_transitions import SpanTransitions
from ..nn.viterbi import viterbi
from . import Head
from .tagger import Tagger

__all__ = ["SpanTagger"]


class SpanTagger(Head):
    """Scores and loss are the tagger's; `constrained=True` decodes by Viterbi over well-formed sequences only.

    Where none exists (such as one row when only B-x and E-x are known) the sequence with the fewest breaks is returned.
    ConfigError names a label that is neither BIO nor BIOES, unless `constrained=False`, which decodes row by row.
    """

    def __init__(
        self,
        width: int,
        labels: Sequence[str],
        constrained: bool = True,
        dropout: float = 0.1,
        reference: bool = False,
        compute: str = "fp32",
    ) -> None:
        super().__init__()
        self.tagger = Tagger(width, labels, dropout, reference, compute)
        self.transitions = SpanTransitions.of(labels) if constrained else None

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of every score."""
        return self.tagger.labels

    def forward(self, vectors: Float[Tensor, "R D"], rows: Rows | None = None) -> Float[Tensor, "R C"]:
        """A logit for every label."""
        return self.tagger(vectors)

    def loss(
        self, scores: Float[Tensor, "R C"], gold: Int[Tensor, " R"], counts: tuple[int, ...] = ()
    ) -> Float[Tensor, ""]:
        """Cross-entropy in nats, SUMMED over the rows whose gold is not IGNORE; the constraints take no part."""
        return self.tagger.loss(scores, gold)

    def decode(self, scores: Float[Tensor, "R C"], rows: Rows) -> list[tuple[str, ...]]:
        """The labels of every item: its best well-formed sequence, or each row's best label where unconstrained."""
        if self.transitions is None:
            return self.tagger.decode(scores, rows)
        rules = self.transitions
        items = torch.split(scores.detach().double().cpu(), list(rows.lengths))
        paths = [viterbi(item.numpy(), rules.start, rules.step, rules.end) for item in items]
        return [tuple(self.labels[index] for index in path) for path in paths]
