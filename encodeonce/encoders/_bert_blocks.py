"""The blocks that BERT, RoBERTa, XLM-R and ELECTRA share: post-layer-norm, no final norm."""

from typing import ClassVar

from torch import nn

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
