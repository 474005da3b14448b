"""ModernBERT (Warner et al. 2024): rotary positions, full attention in some blocks and local in the others.

Axes: B items   T pieces   D width
"""

from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from .stack import Mask, MaskedPaths, Segments, Stack, additive, distances

__all__ = ["ModernBert"]


class ModernBert(Stack):
    """View 0 is the piece vector after its norm. Distances, rotary and local, count real pieces only. Slot "up" is the
    fused output of input and gate.
    """

    SLOTS: ClassVar = {
        "query": "attn.Wqkv/0",
        "key": "attn.Wqkv/1",
        "value": "attn.Wqkv/2",
        "attention": "attn.Wo",
        "up": "mlp.Wi",
        "down": "mlp.Wo",
    }
    MASKED: ClassVar = MaskedPaths(
        dense="head.dense", norm="head.norm", weight="decoder.weight", bias="decoder.bias", activation="head.act"
    )

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self.model.layers)

    def closing(self) -> list[nn.Module]:
        return [self.model.final_norm]

    def embed(
        self, vectors: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        return self.model.embeddings(inputs_embeds=vectors)

    def context(self, states: Float[Tensor, "B T D"], mask: Mask, positions: Int[Tensor, "#B T"]) -> dict[str, Any]:
        reach = self.model.config.sliding_window
        near = distances(positions).abs() <= reach
        if near.all():
            local = mask
        else:
            local = near if mask is None else near & (mask if mask.dim() == 3 else mask[:, None])
        return {
            kind: {
                "attention_mask": None if seen is None else additive(seen, states.dtype),
                "position_embeddings": self.model.rotary_emb(states, positions, kind),
            }
            for kind, seen in (("full_attention", mask), ("sliding_attention", local))
            if kind in self.model.config.layer_types
        }

    def block(self, index: int, states: Float[Tensor, "B T D"], context: dict[str, Any]) -> Float[Tensor, "B T D"]:
        block = self.model.layers[index]
        return block(states, **context[block.attention_type])

    def finish(self, states: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.model.final_norm(states)
