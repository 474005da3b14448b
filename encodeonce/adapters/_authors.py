"""The layout of checkpoints written by the authors' code (abasirat/llm-adapter), in this library's names (A-06)."""

from collections.abc import Mapping

from torch import Tensor, nn

from ..errors import ConfigError

__all__ = ["load_authors"]

PLAIN = {
    "query_projector": "attention.query.reduce",
    "key_projector": "attention.key.reduce",
    "tailor.FF.0": "tailor.norm",
    "tailor.FF.1": "tailor.feed",
    "tailor.tailor_query_dim_reducer": "tailor.attention.reduce",
}
STACKED = {
    "token_layer_attention": ("attention.query.within", "attention.key.within"),
    "tailor.self_attention": ("tailor.attention.query", "tailor.attention.key"),
}


def load_authors(module: nn.Module, checkpoint: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Copy a checkpoint into an adapter; returns the names left out. ConfigError unless everything fits exactly."""
    ours, left_out = _translated(checkpoint)
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in ours.items()}
    if wanted != given:
        names = sorted(name for name in {**wanted, **given} if wanted.get(name) != given.get(name))
        seen = "; ".join(
            f"{name}: {given.get(name, 'none')} given, {wanted.get(name, 'none')} wanted" for name in names
        )
        raise ConfigError(f"the checkpoint does not fit this adapter. {seen}. Check width, key_width and the variant.")
    module.load_state_dict(ours)
    return left_out


def _translated(checkpoint: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Our names to tensors, and the names left out: dead tensors (the value third, out_proj) and the encoder's own."""
    ours: dict[str, Tensor] = {}
    left_out, unknown = [], []
    for name, tensor in checkpoint.items():
        module, _, kind = name.rpartition(".")
        if module in PLAIN and kind in ("weight", "bias"):
            ours[f"{PLAIN[module]}.{kind}"] = tensor
        elif module in STACKED and kind in ("in_proj_weight", "in_proj_bias"):
            for part, third in zip(STACKED[module], tensor.chunk(3), strict=False):
                ours[f"{part}.{kind.removeprefix('in_proj_')}"] = third
            left_out.append(f"{name}[value]")
        elif name.startswith("encoder.") or module.removesuffix(".out_proj") in STACKED:
            left_out.append(name)
        else:
            unknown.append(name)
    if unknown:
        raise ConfigError(f"these tensors have no place in the adapter: {unknown}; known are {[*PLAIN, *STACKED]}.")
    return ours, tuple(left_out)
