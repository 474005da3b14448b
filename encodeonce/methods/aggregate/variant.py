"""The named variants: which adapter, made how, over which stored views (spec A4, A6)."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...adapters import Adapter
from ...adapters.adapted import Adapted
from ...adapters.aggregation import Aggregation
from ...adapters.fusion import Fusion
from ...adapters.last import Last
from ...adapters.linear import Linear
from ...adapters.normed import Normed
from ...errors import ConfigError
from ...resolve import nearest
from ...types import Spec

__all__ = ["VARIANTS", "Variant"]

VARIANTS: Mapping[str, Callable[["Variant", int, int], Adapter]] = {
    "frozen": lambda v, width, n_views: Last(),
    "linear": lambda v, width, n_views: Linear(n_views),
    "fusion": lambda v, width, n_views: Fusion(width, n_views),
    "agg": lambda v, width, n_views: Aggregation(width, v.key_width, v.n_heads),
    "agg_tailor": lambda v, width, n_views: Adapted(
        width, v.key_width, v.n_heads, v.dropout, residual=False, compute=v.compute
    ),
    "adapted": lambda v, width, n_views: Adapted(
        width, v.key_width, v.n_heads, v.dropout, residual=True, compute=v.compute
    ),
}
"""Name -> adapter of (settings, width, number of views)."""


@dataclass(frozen=True)
class Variant:
    """Settings of the method; the defaults are the paper's. A variant ignores what is not among its `uses`.

    `dropout` is the rate in the adapter and in the head. `include_embeddings=False` leaves view 0 out,
    `pre_norm_layers=True` puts a LayerNorm without parameters on every view (A-01). `compute` is the number type of the
    wide matrix products, "fp32" or "bf16".
    """

    name: str = "adapted"
    key_width: int = 16
    n_heads: int = 2
    dropout: float = 0.1
    include_embeddings: bool = True
    pre_norm_layers: bool = False
    compute: str = "fp32"

    def __post_init__(self) -> None:
        if self.name not in VARIANTS:
            names = list(VARIANTS)
            raise ConfigError(
                f"method {self.name!r} is not known. There is: {', '.join(names)}.{nearest(self.name, names)}"
            )

    @property
    def uses(self) -> tuple[str, ...]:
        """The settings that make a difference to this variant, beside its name."""
        all_ = ("dropout", "compute", "pre_norm_layers")
        if self.name == "frozen":
            return all_
        mixing = (*all_, "include_embeddings")
        return mixing if self.name in ("linear", "fusion") else (*mixing, "key_width", "n_heads")

    def layers(self, spec: Spec) -> tuple[int, ...]:
        """The views to read from a store: the last block alone for "frozen", else all that are stored.

        Raises ConfigError where the store lacks the last block, or has nothing but the embeddings that are left out.
        """
        if self.name == "frozen":
            if spec.layers[-1] != spec.n_blocks:
                raise ConfigError(
                    f"method 'frozen' reads view {spec.n_blocks}, the last block; the store holds {list(spec.layers)}. "
                    "Encode with layers='all' or layers='last'."
                )
            return (spec.n_blocks,)
        layers = tuple(layer for layer in spec.layers if layer > 0 or self.include_embeddings)
        if not layers:
            raise ConfigError("include_embeddings=False leaves no view of a store that holds view 0 only.")
        return layers

    def adapter(self, spec: Spec) -> Adapter:
        """A new adapter for states of this Spec."""
        made = VARIANTS[self.name](self, spec.width, len(self.layers(spec)))
        return Normed(made) if self.pre_norm_layers else made

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)
