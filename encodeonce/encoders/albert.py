"""ALBERT (Lan et al. 2020): one block, or one a group, run again and again.

Axes: B items   T pieces   D width   E width of piece vectors
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from .stack import MaskedPaths, PostNormPaths, Segments, Stack

__all__ = ["Albert"]


class Albert(Stack):
    """View 0 is the embedding after its projection to D. Every run of a shared block counts as a block."""

    SLOTS: ClassVar = {
        "query": "attention.query",
        "key": "attention.key",
        "value": "attention.value",
        "attention": "attention.dense",
        "up": "ffn",
        "down": "ffn_output",
    }
    POST_NORM: ClassVar = PostNormPaths(
        norms=("attention.LayerNorm", "full_layer_layer_norm"),
        drop=("attention.attention_dropout", "attention.output_dropout", ""),
    )
    MASKED: ClassVar = MaskedPaths(
        dense="predictions.dense",
        norm="predictions.LayerNorm",
        weight="predictions.decoder.weight",
        bias="predictions.decoder.bias",
        tied_bias="predictions.bias",
        activation="predictions.activation",
    )

    @property
    def blocks(self) -> list[nn.Module]:
        config, groups = self.model.config, self.model.encoder.albert_layer_groups
        runs = config.num_hidden_layers
        turns = [int(run / (runs / config.num_hidden_groups)) for run in range(runs)]
        return [block for turn in turns for block in groups[turn].albert_layers]

    def entrance(self) -> list[nn.Module]:
        return [self.model.embeddings, self.model.encoder.embedding_hidden_mapping_in]

    def embed(
        self, vectors: Float[Tensor, "B T E"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        placed = self.model.embeddings(inputs_embeds=vectors, position_ids=positions, token_type_ids=segments)
        return self.model.encoder.embedding_hidden_mapping_in(placed)
