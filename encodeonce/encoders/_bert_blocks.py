"""The blocks that BERT, RoBERTa, XLM-R and ELECTRA share: post-layer-norm, no final norm."""

from typing import ClassVar

from torch import nn

from .stack import Stack

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

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self.model.encoder.layer)
