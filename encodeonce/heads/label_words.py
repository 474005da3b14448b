"""A label is the word that fills a gap: a masked-language-model head over the label words only (spec B7, B10).

Axes: B items, a row each: the gap's   D width   C labels
"""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..errors import ConfigError
from ..nn.rows import Rows
from . import IGNORE, Head

__all__ = ["LabelWords"]


class LabelWords(Head):
    """`words` is a pre-trained module from rows to a logit for the word of each label, in the order of `labels`.

    The softmax runs over the label words, not over the vocabulary.
    """

    def __init__(self, words: nn.Module, labels: Sequence[str]) -> None:
        super().__init__()
        if len(labels) < 2 or len(set(labels)) != len(labels):
            raise ConfigError(f"labels={list(labels)}: a prompt needs at least two labels, each once.")
        self.labels = tuple(labels)
        self.words = words

    def forward(self, vectors: Float[Tensor, "B D"], rows: Rows | None = None) -> Float[Tensor, "B C"]:
        """A logit for every label's word."""
        logits: Tensor = self.words(vectors)
        return logits

    def loss(
        self, scores: Float[Tensor, "B C"], gold: Int[Tensor, " B"], counts: tuple[int, ...] = ()
    ) -> Float[Tensor, ""]:
        """Cross-entropy in nats, SUMMED over the items whose gold is not IGNORE."""
        return cross_entropy(scores, gold, ignore_index=IGNORE, reduction="sum")

    def decode(self, scores: Float[Tensor, "B C"], rows: Rows) -> list[str]:
        """The label of the highest score of every item."""
        return [self.labels[index] for index in scores.argmax(-1).tolist()]

    def probabilities(self, scores: Float[Tensor, "B C"], rows: Rows) -> list[dict[str, float]]:
        """Softmax over the label words."""
        return [dict(zip(self.labels, line, strict=True)) for line in scores.double().softmax(-1).tolist()]
