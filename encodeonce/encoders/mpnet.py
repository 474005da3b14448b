"""MPNet (Song et al. 2020): BERT's blocks with one relative position bias for all of them.

Axes: B items   T pieces   D width
"""

from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from .stack import Mask, MaskedPaths, Segments, Stack, distances

__all__ = ["MPNet"]


class MPNet(Stack):
    """Positions are absolute (from row 2 of the table) and relative; the bias is computed once a run."""

    SLOTS: ClassVar = {
        "query": "attention.attn.q",
        "key": "attention.attn.k",
        "value": "attention.attn.v",
        "attention": "attention.attn.o",
        "up": "intermediate.dense",
        "down": "output.dense",
    }
    MASKED: ClassVar = MaskedPaths(
        dense="lm_head.dense",
        norm="lm_head.layer_norm",
        weight="lm_head.decoder.weight",
        bias="lm_head.decoder.bias",
        tied_bias="lm_head.bias",
    )

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self.model.encoder.layer)

    def tables(self) -> list[nn.Module]:
        return [self.model.encoder.relative_attention_bias]

    def embed(
        self, vectors: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        first = self.model.embeddings.padding_idx + 1
        return self.model.embeddings(inputs_embeds=vectors, position_ids=positions + first)

    def context(self, states: Float[Tensor, "B T D"], mask: Mask, positions: Int[Tensor, "#B T"]) -> dict[str, Any]:
        encoder = self.model.encoder
        bias = encoder.relative_attention_bias(encoder.relative_position_bucket(distances(positions), num_buckets=32))
        return {**super().context(states, mask, positions), "position_bias": bias.permute(0, 3, 1, 2)}

    def block(self, index: int, states: Float[Tensor, "B T D"], context: dict[str, Any]) -> Float[Tensor, "B T D"]:
        return self.blocks[index](states, **context)[0]
