"""BERT (Devlin et al. 2019): learned positions, post-layer-norm blocks, no final norm.

Axes: B items   T pieces   D width
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from ._bert_blocks import BertBlocks
from .stack import MaskedPaths, Segments

__all__ = ["Bert"]


class Bert(BertBlocks):
    """View 0 is the sum of piece, position and segment-0 vectors after the embedding norm."""

    MASKED: ClassVar = MaskedPaths(
        dense="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        weight="cls.predictions.decoder.weight",
        bias="cls.predictions.decoder.bias",
        tied_bias="cls.predictions.bias",
        activation="cls.predictions.transform.transform_act_fn",
    )

    def embed(
        self, vectors: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        return self.model.embeddings(inputs_embeds=vectors, position_ids=positions, token_type_ids=segments)
