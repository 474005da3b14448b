"""The blocks that BERT, RoBERTa, XLM-R and ELECTRA share: post-layer-norm, no final norm.

Axes: B items   T pieces   D width
"""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from ..nn.frozen_linear import together
from .stack import PostNormPaths, Stack

__all__ = ["BertBlocks"]


class BertBlocks(Stack):
    """Where the blocks and their slots are; a family adds where its embeddings are."""

    SLOTS: ClassVar = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "attention": "attention.output.dense",
        "up": "intermediate.dense",
        "down": "output.dense",
    }
    POST_NORM: ClassVar = PostNormPaths(
        norms=("attention.output.LayerNorm", "output.LayerNorm"),
        drop=("attention.self.dropout", "attention.output.dropout", "output.dropout"),
    )

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self.model.encoder.layer)

    def block(self, index: int, states: Float[Tensor, "B T D"], context: dict[str, Any]) -> Float[Tensor, "B T D"]:
        """The block's own modules one by one, to the same bits as its `forward`.

        What `transformers` wraps around each of them costs a sixth of the time of one short text.
        """
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        block = self.model.encoder.layer[index]
        own, after, end = block.attention.self, block.attention.output, block.output
        attend = ALL_ATTENTION_FUNCTIONS.get(own.config._attn_implementation)
        if attend is None:  # "eager", which is each family's own
            return super().block(index, states, context)
        shape = (*states.shape[:-1], -1, own.attention_head_size)
        lines = together(states, (own.query, own.key, own.value))
        query, key, value = (line.view(shape).transpose(1, 2) for line in lines)
        dropout = own.dropout.p if own.training else 0.0
        mask = context["attention_mask"]
        heads, _ = attend(own, query, key, value, mask, dropout=dropout, scaling=own.scaling)
        attended = _dropped(after, after.dense(heads.reshape(states.shape)))
        states = after.LayerNorm(attended + states)
        inner = block.intermediate.intermediate_act_fn(block.intermediate.dense(states))
        return end.LayerNorm(_dropped(end, end.dense(inner)) + states)


def _dropped(part: Any, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    return part.dropout(x) if part.training else x
