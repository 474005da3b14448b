"""ELECTRA's discriminator (Clark et al. 2020): BERT's blocks over narrow piece vectors.

Axes: B items   T pieces   D width   E width of piece vectors
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from .stack import Stack

__all__ = ["Electra"]


class Electra(Stack):
    """View 0 is the embedding after its projection to D, where E differs from D."""

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

    def embed(self, vectors: Float[Tensor, "B T E"], positions: Int[Tensor, "#B T"]) -> Float[Tensor, "B T D"]:
        placed = self.model.embeddings(inputs_embeds=vectors, position_ids=positions)
        return self.model.embeddings_project(placed) if placed.shape[-1] != self.width else placed
