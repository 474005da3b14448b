"""Labels of BIO or BIOES spans: the tagger's scores, read as the best well-formed sequence.

Axes: R rows   D width   C labels
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..nn.rows import Rows
from ..nn.span_transitions import SpanTransitions
from ..nn.viterbi import viterbi
from ._over_tagger import OverTagger

__all__ = ["SpanTagger"]


class SpanTagger(OverTagger):
    """Scores and loss are the tagger's; `constrained=True` decodes by Viterbi over well-formed sequences only.

    Where none exists (such as one row when only B-x and E-x are known) the sequence with the fewest breaks is returned.
    ConfigError names a label that is neither BIO nor BIOES, unless `constrained=False`, which decodes row by row.
    """

    def __init__(self, width: int, labels: Sequence[str], constrained: bool = True, **layers: Any) -> None:
        super().__init__(width, labels, **layers)
        self.transitions = SpanTransitions.of(labels) if constrained else None

    def decode(self, scores: Float[Tensor, "R C"], rows: Rows) -> list[tuple[str, ...]]:
        """The labels of every item: its best well-formed sequence, or each row's best label where unconstrained."""
        if self.transitions is None:
            return self.tagger.decode(scores, rows)
        rules = self.transitions
        items = torch.split(scores.detach().double().cpu(), list(rows.lengths))
        paths = [viterbi(item.numpy(), rules.start, rules.step, rules.end) for item in items]
        return [tuple(self.labels[index] for index in path) for path in paths]
