"""DistilBERT (Sanh et al. 2019): half of BERT's blocks, no segment vectors.

Axes: B items   T pieces   D width
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from .stack import MaskedPaths, PostNormPaths, Segments, Stack

__all__ = ["DistilBert"]


class DistilBert(Stack):
    """View 0 is the sum of piece and position vectors after the embedding norm."""

    SLOTS: ClassVar = {
        "query": "attention.q_lin",
        "key": "attention.k_lin",
        "value": "attention.v_lin",
        "attention": "attention.out_lin",
        "up": "ffn.lin1",
        "down": "ffn.lin2",
    }
    POST_NORM: ClassVar = PostNormPaths(
        norms=("sa_layer_norm", "output_layer_norm"), drop=("attention.dropout", "", "ffn.dropout")
    )
    MASKED: ClassVar = MaskedPaths(
        dense="vocab_transform",
        norm="vocab_layer_norm",
        weight="vocab_projector.weight",
        bias="vocab_projector.bias",
        activation="activation",
    )

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self.model.transformer.layer)

    def embed(
        self, vectors: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        return self.model.embeddings(input_ids=None, inputs_embeds=vectors, position_ids=positions)
