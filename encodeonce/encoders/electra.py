"""ELECTRA's discriminator (Clark et al. 2020): BERT's blocks over narrow piece vectors.

Axes: B items   T pieces   D width   E width of piece vectors
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from ._bert_blocks import BertBlocks
from .stack import MaskedPaths, Segments

__all__ = ["Electra"]


class Electra(BertBlocks):
    """View 0 is the embedding after its projection to D, where E differs from D."""

    MASKED: ClassVar = MaskedPaths(
        dense="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        weight="generator_lm_head.weight",
        bias="generator_lm_head.bias",
    )

    def entrance(self) -> list[nn.Module]:
        own = [self.model.embeddings]
        return [*own, self.model.embeddings_project] if hasattr(self.model, "embeddings_project") else own

    def embed(
        self, vectors: Float[Tensor, "B T E"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        placed = self.model.embeddings(inputs_embeds=vectors, position_ids=positions, token_type_ids=segments)
        return self.model.embeddings_project(placed) if placed.shape[-1] != self.width else placed
