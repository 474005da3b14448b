"""One label a row, each on its own (Basirat 2024; A7, A-10).

Axes: R rows   D width   C labels
"""

from collections.abc import Sequence
from itertools import accumulate

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..errors import ConfigError
from ..nn.dropout import Dropout
from ..nn.linear import Linear
from ..nn.rows import Rows
from ..nn.tanh_layers import tanh_layers
from . import IGNORE, Head

__all__ = ["Tagger"]


class Tagger(Head):
    """Dropout, Linear(D, D), tanh, Dropout, Linear(D, C); `inner_width` is that of the layer between (0: D).

    `reference=True` is the authors' demonstration head: Dropout, Linear(D, 256), Linear(256, C), no tanh.
    `compute` is the number type of its matrix products (`nn.linear`).
    ConfigError where labels are missing or repeat.
    """

    def __init__(
        self,
        width: int,
        labels: Sequence[str],
        dropout: float = 0.1,
        reference: bool = False,
        compute: str = "fp32",
        inner_width: int = 0,
    ) -> None:
        super().__init__()
        repeated = sorted({label for label in labels if list(labels).count(label) > 1})
        if not labels or repeated:
            seen = f"repeated: {repeated}" if repeated else "there is none"
            raise ConfigError(f"a tagger needs at least one label and each once; {seen}.")
        self.labels = tuple(labels)
        wide = 256 if reference else inner_width or width
        self.reference = reference
        self.dropout = Dropout(dropout)
        self.inner = Linear(width, wide, compute)
        self.outer = Linear(wide, len(labels), compute)

    def forward(self, vectors: Float[Tensor, "R D"], rows: Rows | None = None) -> Float[Tensor, "R C"]:
        """A logit for every label."""
        if self.reference:
            return self.outer(self.inner(self.dropout(vectors)))
        return tanh_layers(vectors, self.inner, self.outer, self.dropout)

    def loss(
        self, scores: Float[Tensor, "R C"], gold: Int[Tensor, " R"], counts: tuple[int, ...] = ()
    ) -> Float[Tensor, ""]:
        """Cross-entropy in nats, SUMMED over the rows whose gold is not IGNORE."""
        return cross_entropy(scores, gold, ignore_index=IGNORE, reduction="sum")

    def decode(self, scores: Float[Tensor, "R C"], rows: Rows) -> list[tuple[str, ...]]:
        """The label of the highest score of every row, one tuple an item."""
        best = [self.labels[index] for index in scores.argmax(-1).tolist()]
        ends = list(accumulate(rows.lengths))
        return [tuple(best[end - length : end]) for end, length in zip(ends, rows.lengths, strict=True)]
