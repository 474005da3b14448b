"""Low-rank terms beside frozen projections (LoRA, Hu et al. 2022; spec A-09), by PEFT.

Axes: O output width   I input width
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from ..errors import ConfigError, MissingExtra
from .stack import Stack

__all__ = ["add_lora", "merged", "targets", "weight_of"]

NAME = "lora"


def targets(stack: Stack) -> list[str]:
    """Paths inside a block of its query and value projections; of the fused one in families that fuse them.

    The families say where these are (`Stack.paths`), so none is left to a default that PEFT may not have.
    """
    return sorted({stack.paths[slot].partition("/")[0] for slot in ("query", "value")})


def add_lora(modules: nn.Module, stack: Stack, rank: int, alpha: float) -> None:
    """Freeze `modules` and put a term alpha / rank x B A beside each target inside; B starts at 0, so nothing changes.

    Raises MissingExtra without PEFT, ConfigError for a rank or an alpha that is not positive.
    """
    if rank < 1 or alpha <= 0:
        raise ConfigError(f"LoRA rank={rank}, alpha={alpha}: the rank must be at least 1 and alpha greater than 0.")
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise MissingExtra("LoRA needs PEFT. Install it with: pip install 'encodeonce[lora]'") from None
    from transformers.pytorch_utils import Conv1D

    paths = targets(stack)
    transposed = any(isinstance(stack.blocks[0].get_submodule(path), Conv1D) for path in paths)
    config = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=0.0, bias="none", target_modules=paths, fan_in_fan_out=transposed
    )
    inject_adapter_in_model(config, modules, adapter_name=NAME)
    for name, parameter in modules.named_parameters():
        parameter.requires_grad_(".lora_" in name)


def layers(modules: nn.Module) -> list[Any]:
    """Every projection with a term beside it."""
    return [module for module in modules.modules() if hasattr(module, "lora_A")]


def merged(modules: nn.Module, wanted: bool) -> None:
    """Add every term to its projection's weight, or take it out again."""
    for layer in layers(modules):
        if wanted and not layer.merged:
            layer.merge()
        elif layer.merged and not wanted:
            layer.unmerge()


def weight_of(module: Any) -> tuple[Float[Tensor, "O I"], Float[Tensor, " O"]]:
    """Weight and bias that a linear projection multiplies by, its low-rank term included."""
    if not hasattr(module, "lora_A"):
        return module.weight, module.bias
    base = module.get_base_layer()
    if module.merged:
        return base.weight, base.bias
    term = module.lora_B[NAME].weight @ module.lora_A[NAME].weight
    return base.weight + module.scaling[NAME] * term, base.bias
