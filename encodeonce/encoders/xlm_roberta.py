"""XLM-R (Conneau et al. 2020): RoBERTa's arithmetic for a hundred languages, under its own modules.

Axes: B items   T pieces   D width
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from .stack import Stack

__all__ = ["XlmRoberta"]


class XlmRoberta(Stack):
    """Views as BERT's. The first position is row pad_token_id + 1 of the table (case LONG-2)."""

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
        first = self.model.embeddings.padding_idx + 1
        return self.model.embeddings(inputs_embeds=vectors, position_ids=positions + first)
