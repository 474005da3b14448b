"""The named settings: which blocks are trained, on what, with or without low-rank terms (spec A6)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...adapters import Adapter
from ...adapters.adapted import Adapted
from ...adapters.aggregation import Aggregation
from ...adapters.linear import Linear
from ...adapters.normed import Normed
from ...errors import ConfigError
from ...nn.linear import COMPUTE
from ...resolve import nearest
from ...types import Spec

__all__ = ["ENCODER_RATES", "OVER", "TUNINGS", "Plan", "Tuning"]

TUNINGS: Mapping[str, tuple[int | None, int]] = {
    "finetune": (None, 0),
    "top1": (1, 0),
    "top2": (2, 0),
    "lora": (None, 8),
    "live_mix": (2, 0),
}
"""Name -> how many blocks are live (None: all), rank of the low-rank terms (0: none)."""

ENCODER_RATES: Mapping[str, float] = {"finetune": 2e-4, "top1": 1e-3, "top2": 1e-3, "live_mix": 1e-3}
"""Name -> peak rate of its pre-trained weights: the best of those tried in `experiments/live_blocks` (MiniLM, EWT)."""

OVER = ("linear", "agg", "adapted")
"""What may mix the stored views under the live blocks of "live_mix"."""


@dataclass(frozen=True)
class Plan:
    """What a Tuning comes to for one encoder: trained `blocks`, those of them that are attention alone, and the views
    that are read, none for piece ids."""

    blocks: tuple[int, ...]
    layers: tuple[int, ...]
    final: bool
    mixed: bool
    attention_only: tuple[int, ...] = ()

    @property
    def pieces(self) -> bool:
        """Whether it starts from piece ids, embeddings trained too."""
        return not self.layers


@dataclass(frozen=True)
class Tuning:
    """Settings of the method. A name ignores what is not among its `uses`.

    "finetune" trains everything, embeddings included, and reads no store; "top1" and "top2" train the last blocks on
    the stored view below them; "lora" trains low-rank terms of query and value in all blocks on stored view 0 (A-09).
    `live` changes how many blocks, 0 being Frozen, and `lora` the rank (0: none).

    "live_mix" mixes all stored views by `over` ("linear", or "agg" and "adapted", which take `key_width` and
    `n_heads`), runs the trained `blocks` over the mix, by default `live` neighbours just below the middle of the
    encoder, and adds the mix to what comes out unless `residual=False`. Blocks that are `attention_only` run without
    their feed-forward network, most of a block's cost and the least of its use here; -1 is the last of them.
    `pre_norm_layers` puts a LayerNorm without parameters on every view first (A-01).

    `dropout` is the rate of adapter and head; the blocks drop as their checkpoint says. `compute` is the number type of
    matrix products. With `shared` all tasks train one trunk under their heads, their losses added.
    """

    name: str = "live_mix"
    live: int | None = None
    blocks: Sequence[int] = ()
    attention_only: Sequence[int] = ()
    over: str = "agg"
    key_width: int = 64
    n_heads: int = 4
    residual: bool = True
    pre_norm_layers: bool = False
    lora: int | None = None
    lora_alpha: float = 16.0
    dropout: float = 0.1
    compute: str = "fp32"
    shared: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        object.__setattr__(self, "attention_only", tuple(self.attention_only))
        for what, value, names in (
            ("method", self.name, list(TUNINGS)),
            ("over", self.over, list(OVER)),
            ("compute", self.compute, list(COMPUTE)),
        ):
            if value not in names:
                raise ConfigError(
                    f"{what} {value!r} is not known. There is: {', '.join(names)}.{nearest(value, names)}"
                )
        if self.blocks and self.name != "live_mix":
            raise ConfigError(f"blocks={list(self.blocks)} is a setting of live_mix; {self.name} takes live=N blocks.")
        if self.attention_only and self.name != "live_mix":
            raise ConfigError(
                f"attention_only={list(self.attention_only)} is a setting of live_mix, not of {self.name}."
            )
        if self.live is not None and self.live < (1 if self.name == "live_mix" else 0):
            raise ConfigError(f"live={self.live} must be 0 or more, and at least 1 for live_mix.")
        if self.blocks and self.live not in (None, len(self.blocks)):
            raise ConfigError(
                f"live={self.live} and blocks={list(self.blocks)} do not agree on how many blocks are trained; set one."
            )
        if self.rank < 0 or not self.lora_alpha > 0:
            raise ConfigError(
                f"lora={self.lora} must be 0 (no low-rank terms) or a rank of at least 1, and "
                f"lora_alpha={self.lora_alpha} greater than 0."
            )
        if self.live == 0 and self.rank:
            raise ConfigError(
                f"live=0 leaves {self.name} no block for low-rank terms of rank {self.rank}: nothing but a head would "
                "be trained. Set live to 1 or more, lora=0, or method='frozen'."
            )

    @property
    def rank(self) -> int:
        """Of the low-rank terms; 0 where whole blocks are trained."""
        return TUNINGS[self.name][1] if self.lora is None else self.lora

    @property
    def uses(self) -> tuple[str, ...]:
        """The settings that make a difference under this name and rank, and over this mix."""
        all_ = ("live", "lora", "dropout", "compute", "shared", *(("lora_alpha",) if self.rank else ()))
        if self.name != "live_mix":
            return all_
        mixing = (*all_, "blocks", "attention_only", "over", "residual", "pre_norm_layers")
        return mixing if self.over == "linear" else (*mixing, "key_width", "n_heads")

    @property
    def trains_blocks(self) -> bool:
        """Whether pre-trained weights are trained, which have a rate of their own; else there are none but new ones."""
        return not self.rank and self.live != 0

    def plan(self, spec: Spec) -> Plan:
        """For an encoder and what its store holds. ConfigError where there are fewer blocks, or a view is missing."""
        total, live = spec.n_blocks, TUNINGS[self.name][0] if self.live is None else self.live
        live = total if live is None else live
        if live > total:
            raise ConfigError(f"live={live} must lie between 0 and {total}, the encoder's blocks.")
        if self.name == "live_mix":
            first = max(0, (total - live - 1) // 2)
            blocks = tuple(self.blocks) or tuple(range(first, first + live))
            if max(blocks) >= total or min(blocks) < 0:
                raise ConfigError(f"blocks={list(blocks)} must name blocks from 0 to {total - 1}.")
            alone = tuple(blocks[at] if -len(blocks) <= at < 0 else at for at in self.attention_only)
            if not set(alone) <= set(blocks):
                raise ConfigError(
                    f"attention_only={list(self.attention_only)} must be among the live blocks, {list(blocks)}, or "
                    f"count them from the last, which is -1."
                )
            return Plan(blocks, spec.layers, final=False, mixed=True, attention_only=alone)
        blocks = tuple(range(total - live, total))
        if live == total and not self.rank:
            return Plan(blocks, (), final=True, mixed=False)
        below = total - live
        if below not in spec.layers:
            raise ConfigError(
                f"{self.name} with {live} live blocks reads view {below}; the store holds {list(spec.layers)}. "
                f"Encode with layers='all', or with layers=[{below}]."
            )
        return Plan(blocks, (below,), final=live > 0, mixed=False)

    def mix(self, spec: Spec) -> Adapter:
        """The adapter under the live blocks."""
        made: Adapter
        if self.over == "linear":
            made = Linear(len(spec.layers))
        elif self.over == "agg":
            made = Aggregation(spec.width, self.key_width, self.n_heads)
        else:
            made = Adapted(spec.width, self.key_width, self.n_heads, self.dropout, compute=self.compute)
        return Normed(made) if self.pre_norm_layers else made

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "blocks": list(self.blocks), "attention_only": list(self.attention_only)}
