"""GPT-2 (Radford et al. 2019) as an encoder: causal, pre-norm blocks, a final norm.

Axes: B items   T pieces   D width
"""

from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .stack import Mask, Segments, Stack, additive

__all__ = ["GPT2"]


class GPT2(Stack):
    """View 0 is piece plus position vector, without a norm; a piece reads only those before it."""

    SLOTS: ClassVar = {
        "query": "attn.c_attn/0",
        "key": "attn.c_attn/1",
        "value": "attn.c_attn/2",
        "attention": "attn.c_proj",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    }

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self.model.h)

    def entrance(self) -> list[nn.Module]:
        return [self.model.wte, self.model.wpe, self.model.drop]

    def closing(self) -> list[nn.Module]:
        return [self.model.ln_f]

    def embed(
        self, vectors: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        return self.model.drop(vectors + self.model.wpe(positions))

    def context(self, states: Float[Tensor, "B T D"], mask: Mask, positions: Int[Tensor, "#B T"]) -> dict[str, Any]:
        if mask is None and self.model.config._attn_implementation == "sdpa":
            return {"attention_mask": None}  # its kernel is causal by itself
        length = states.shape[1]
        causal = torch.ones(1, length, length, dtype=torch.bool, device=states.device).tril()
        if mask is not None:
            causal = causal & (mask if mask.dim() == 3 else mask[:, None])
        return {"attention_mask": additive(causal, states.dtype)}

    def finish(self, states: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.model.ln_f(states)
