"""The encoder of T5 and T5.1.1 (Raffel et al. 2020): no absolute positions, pre-norm blocks, a final RMS norm.

Axes: B items   T pieces   D width
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from .stack import Mask, Segments, Stack, additive, distances

__all__ = ["T5"]

ATTENTION, FORWARD = "layer.0.SelfAttention", "layer.1.DenseReluDense"


class T5(Stack):
    """View 0 is the bare lookup. One bias table, kept in block 0, serves every block, so it is computed once a run and
    handed to whichever blocks run (spec L-03): a block left alone would silently use zeros.
    """

    AUTO = "T5EncoderModel"
    LIMITED = False
    SLOTS: ClassVar = {
        "query": f"{ATTENTION}.q",
        "key": f"{ATTENTION}.k",
        "value": f"{ATTENTION}.v",
        "attention": f"{ATTENTION}.o",
        "down": f"{FORWARD}.wo",
    }

    @property
    def paths(self) -> Mapping[str, str]:
        up = (
            {"gate": f"{FORWARD}.wi_0", "up": f"{FORWARD}.wi_1"}
            if self.model.config.is_gated_act
            else {"up": f"{FORWARD}.wi"}
        )
        return {**self.SLOTS, **up}

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self.model.encoder.block)

    def entrance(self) -> list[nn.Module]:
        return [self.model.get_input_embeddings(), self.model.encoder.dropout]

    def tables(self) -> list[nn.Module]:
        return [self.model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias]

    def closing(self) -> list[nn.Module]:
        return [self.model.encoder.final_layer_norm, self.model.encoder.dropout]

    def embed(
        self, vectors: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        return self.model.encoder.dropout(vectors)

    def context(self, states: Float[Tensor, "B T D"], mask: Mask, positions: Int[Tensor, "#B T"]) -> dict[str, Any]:
        attention = self.model.encoder.block[0].layer[0].SelfAttention
        buckets = attention._relative_position_bucket(
            distances(positions),
            bidirectional=True,
            num_buckets=attention.relative_attention_num_buckets,
            max_distance=attention.relative_attention_max_distance,
        )
        bias = attention.relative_attention_bias(buckets).permute(0, 3, 1, 2).contiguous()
        return {"position_bias": bias if mask is None else bias + additive(mask, states.dtype)}

    def block(self, index: int, states: Float[Tensor, "B T D"], context: dict[str, Any]) -> Float[Tensor, "B T D"]:
        return self.blocks[index](states, **context)[0]

    def finish(self, states: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.model.encoder.dropout(self.model.encoder.final_layer_norm(states))
