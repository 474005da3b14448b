"""Attention of the encoding copy: the compiled kernel where it is made for the case, else torch's own.

`transformers` looks attention up by a name in the model's config; this adds one name to its table.

Axes: B items   H heads   T queries   S keys   D depth of a head
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from ..nn.frozen_attention import attend, attends
from .stack import Stack

__all__ = ["NAME", "quicken_attention"]

NAME = "encodeonce"


def quicken_attention(stack: Stack) -> None:
    """From now on the stack attends by `attention`, where its family lets attention be chosen (not MPNet, DeBERTa)."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if stack.model.config._attn_implementation == "sdpa":
        ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
        stack.model.config._attn_implementation = NAME


def attention(
    module: Any,
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    attention_mask: Float[Tensor, "#B #H #T S"] | None,
    scaling: float | None = None,
    position_bias: Float[Tensor, "#B H T S"] | None = None,
    **rest: Any,
) -> tuple[Float[Tensor, "B T H D"], None]:
    """What `transformers` asks of an attention function; families state causality in the mask."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if position_bias is not None:
        attention_mask = position_bias if attention_mask is None else position_bias + attention_mask
    if attends(query, key, value, attention_mask):
        return attend(query, key, value, attention_mask, scaling), None
    rest = {**rest, "dropout": 0.0, "is_causal": False}
    wide = (each.float() for each in (query, key, value))  # products may hand over bfloat16
    output, _ = sdpa_attention_forward(module, *wide, attention_mask, scaling=scaling, **rest)
    return output, None
