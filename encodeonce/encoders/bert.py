"""BERT (Devlin et al. 2019): learned positions, post-layer-norm blocks, no final norm.

Axes: B items   T pieces   D width
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from .stack import Stack

__all__ = ["Bert"]


class Bert(Stack):
    """View 0 is the sum of piece, position and segment-0 vectors after the embedding norm."""

    SLOTS: ClassVar = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "attention": "attention.output.dense",
        "up": "intermediate.dense",
        "down": "output.dense",
    }

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self.model.encoder.layer)

    def embed(self, vectors: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T"]) -> Float[Tensor, "B T D"]:
        return self.model.embeddings(inputs_embeds=vectors, position_ids=positions)
