"""DeBERTa-v2 and v3 (He et al. 2021): attention from content to position and back, by relative position.

Axes: B items   T pieces   D width   E width of piece vectors   BH items times heads, or 1
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from .stack import Mask, MaskedPaths, Segments, Stack, distances

__all__ = ["DebertaV2"]


class DebertaV2(Stack):
    """View 0 is the embedding output. In checkpoints with a convolution, block 0 adds it, reading real pieces only."""

    SLOTS: ClassVar = {
        "query": "attention.self.query_proj",
        "key": "attention.self.key_proj",
        "value": "attention.self.value_proj",
        "attention": "attention.output.dense",
        "up": "intermediate.dense",
        "down": "output.dense",
    }
    MASKED: ClassVar = MaskedPaths(
        dense="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        weight="cls.predictions.decoder.weight",
        bias="cls.predictions.decoder.bias",
        tied_bias="cls.predictions.bias",
        activation="cls.predictions.transform.transform_act_fn",
    )

    @classmethod
    def masked_paths(cls, config: Mapping[str, Any]) -> MaskedPaths:
        """The head of `transformers`' own form, or with `legacy=false` the authors', which has no matrix of its own."""
        if config.get("legacy", True):
            return cls.MASKED
        own = "lm_predictions.lm_head"
        return MaskedPaths(
            dense=f"{own}.dense",
            norm=f"{own}.LayerNorm",
            weight="deberta.embeddings.word_embeddings.weight",
            bias=f"{own}.bias",
            activation=f"{own}.transform_act_fn",
        )

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self.model.encoder.layer)

    def tables(self) -> list[nn.Module]:
        encoder = self.model.encoder
        found = [getattr(encoder, name, None) for name in ("rel_embeddings", "LayerNorm")]
        return [table for table in found if table is not None]

    def own(self, index: int) -> list[nn.Module]:
        conv = self.model.encoder.conv
        return [self.blocks[index]] if index or conv is None else [self.blocks[index], conv]

    def embed(
        self, vectors: Float[Tensor, "B T E"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        return self.model.embeddings(inputs_embeds=vectors, position_ids=positions, token_type_ids=segments)

    def context(self, states: Float[Tensor, "B T D"], mask: Mask, positions: Int[Tensor, "#B T"]) -> dict[str, Any]:
        seen = torch.ones(1, 1, dtype=torch.bool, device=states.device) if mask is None else mask
        given = {
            "attention_mask": (seen if seen.dim() == 3 else seen[:, None])[:, None],
            "relative_pos": self._relative(positions),
            "rel_embeddings": self.model.encoder.get_rel_embedding(),
        }
        return {"given": given, "real": None if mask is None else (mask if mask.dim() == 2 else mask.any(1))}

    def block(self, index: int, states: Float[Tensor, "B T D"], context: dict[str, Any]) -> Float[Tensor, "B T D"]:
        after = self.blocks[index](states, **context["given"])[0]
        if index or self.model.encoder.conv is None:
            return after
        return self._convolved(states, after, context["real"])

    def _relative(self, positions: Int[Tensor, "#B T"]) -> Int[Tensor, "1 BH T T"] | None:
        """Bucket of query minus key, once for every head of every item where items differ."""
        from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

        encoder = self.model.encoder
        if not encoder.relative_attention:
            return None
        relative = -distances(positions)
        if encoder.position_buckets > 0 and encoder.max_relative_positions > 0:
            relative = make_log_bucket_position(
                relative, encoder.position_buckets, encoder.max_relative_positions
            ).long()
        if len(relative) > 1:
            relative = relative.repeat_interleave(self.model.config.num_attention_heads, 0)
        return relative[None]

    def _convolved(
        self, states: Float[Tensor, "B T D"], after: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T D"]:
        """Block 0 plus the convolution over its input; real pieces are pushed together, so padding is no neighbour."""
        conv = self.model.encoder.conv
        if real is None:
            return conv(states, after, torch.ones(states.shape[:2], dtype=torch.long, device=states.device))
        order = real.long().argsort(dim=1, descending=True, stable=True)
        together, order = real.gather(1, order), order[:, :, None].expand_as(states)
        packed = conv(states.gather(1, order) * together[:, :, None], after.gather(1, order), together.long())
        return torch.empty_like(packed).scatter_(1, order, packed)
