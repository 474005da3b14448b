"""A checkpoint's config as the few numbers that its cost depends on."""

from collections.abc import Mapping
from typing import Any

from ..costs import Shape
from .checkpoint import n_blocks, width

__all__ = ["shape_of"]

NORM_FIRST = frozenset({"gpt2", "modernbert", "t5"})
"""Families whose blocks begin with a norm."""


def shape_of(config: Mapping[str, Any]) -> Shape:
    """The encoder's `Shape`, without its weights.

    Left out: DeBERTa's projection of its relative positions, once a batch whatever it holds, and the convolution that
    some of its checkpoints have in block 0. A config that names no inner width gets the usual four times the width.
    """
    wide = width(config)
    return Shape(
        n_blocks=n_blocks(config),
        width=wide,
        attention=_heads(config, wide),
        feed=_first(config, "intermediate_size", "d_ff", "n_inner", "hidden_dim") or 4 * wide,
        matrices=3 if _gated(config) else 2,
        embedding=_projected(config, wide),
        relative=_relative(config),
        norm_first=config.get("model_type") in NORM_FIRST,
    )


def _first(config: Mapping[str, Any], *names: str) -> int:
    return next((int(config[name]) for name in names if config.get(name) is not None), 0)


def _heads(config: Mapping[str, Any], wide: int) -> int:
    """Width of all heads together; T5's is its own."""
    return _first(config, "d_kv") * _first(config, "num_heads") or wide


def _gated(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == "modernbert" or str(config.get("feed_forward_proj", "")).startswith("gated")


def _projected(config: Mapping[str, Any], wide: int) -> int:
    """Width of piece vectors that are projected to the blocks' width; 0 where they have it."""
    own = _first(config, "embedding_size")
    return own if own not in (0, wide) else 0


def _relative(config: Mapping[str, Any]) -> int:
    """Relative positions a piece is multiplied with in one block: DeBERTa's, for each kind of attention it has."""
    if not config.get("relative_attention"):
        return 0
    kinds = config.get("pos_att_type") or ()
    names = kinds.split("|") if isinstance(kinds, str) else kinds
    buckets = _first(config, "position_buckets")
    span = buckets if buckets > 0 else max(_first(config, "max_relative_positions"), 0)
    span = span or _first(config, "max_position_embeddings")
    return 2 * span * sum(kind in ("c2p", "p2c") for kind in names)
