"""RoBERTa (Liu et al. 2019): BERT's blocks, positions numbered from pad_token_id + 1.

Axes: B items   T pieces   D width
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from ._bert_blocks import BertBlocks
from .stack import MaskedPaths, Segments

__all__ = ["Roberta"]


class Roberta(BertBlocks):
    """Views as BERT's. The first position is row pad_token_id + 1 of the table (case LONG-2)."""

    MASKED: ClassVar = MaskedPaths(
        dense="lm_head.dense",
        norm="lm_head.layer_norm",
        weight="lm_head.decoder.weight",
        bias="lm_head.decoder.bias",
        tied_bias="lm_head.bias",
    )

    def embed(
        self, vectors: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        first = self.model.embeddings.padding_idx + 1
        return self.model.embeddings(inputs_embeds=vectors, position_ids=positions + first, token_type_ids=segments)
