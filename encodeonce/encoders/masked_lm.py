"""The masked-language-model head of a checkpoint: states of the last view to a logit for each piece of the vocabulary.

All families share one form: logits = norm(activation(dense(states))) W' + b, W being as a rule the table of piece
vectors itself.

Axes: R rows   D width   E width of the piece vectors (D in most families)   V pieces of the vocabulary   K chosen ones
"""

import copy
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from torch import Tensor, nn

from ..errors import ConfigError, EncoderError
from ..resolve import resolve
from . import checkpoint
from .loading import load_and_grow

__all__ = ["MaskedLM"]

AUTO = "AutoModelForMaskedLM"


class MaskedLM(nn.Module):
    """`MaskedLM.load(folder)`: the head as pre-trained, every parameter trainable, in eval and train mode the same.

    `weight` [V E] and `bias` [V] multiply and shift the transformed rows; `bias` may be missing (None). `tied` says
    that in the checkpoint `weight` is the table of piece vectors: training that goes on with both then gives `forward`
    the table that is trained, after `forget_table()`, which drops the head's own copy.
    """

    def __init__(
        self,
        dense: nn.Module,
        activation: nn.Module,
        norm: nn.Module,
        weight: Float[Tensor, "V E"],
        bias: Float[Tensor, " V"] | None,
        *,
        tied: bool = False,
    ) -> None:
        super().__init__()
        self.dense, self.activation, self.norm = dense, activation, norm
        self.weight: nn.Parameter | None = nn.Parameter(weight.detach().clone())
        self.bias: nn.Parameter | None = None if bias is None else nn.Parameter(bias.detach().clone())
        self.tied = tied
        self.requires_grad_(True)

    @classmethod
    def load(cls, folder: Path, *, seed: int | None = None) -> "MaskedLM":
        """The head in a local checkpoint folder. With a `seed` one that the files lack is drawn as its family draws new
        weights; its table is that of the piece vectors where the family ties them.

        Raises EncoderError by name for a family without such a head (T5 fills its sentinels with a decoder, GPT-2
        predicts the next piece), and without a seed for a checkpoint whose files hold none, such as most sentence
        encoders.
        """
        config = checkpoint.read_config(folder)
        family = checkpoint.family_file(config, str(folder))
        paths = resolve("encoders", family).masked_paths(config)
        if paths is None:
            have = [name for name in checkpoint.families() if resolve("encoders", name).MASKED is not None]
            raise EncoderError(
                f"{folder}: the family {family!r} has no masked-language-model head. Families that have: "
                f"{', '.join(have)}."
            )
        held = any(paths.dense in name for name in _names(folder))
        if not held and seed is None:
            raise EncoderError(
                f"{folder}: the files hold no masked-language-model head (no weight named {paths.dense}); config.json "
                f"says {config.get('architectures')}. Take the checkpoint as it was after masked-language pre-training,"
                " or a classification head on its vectors."
            )
        own = (paths.dense, paths.norm, paths.weight, paths.bias, paths.tied_bias or paths.bias)
        with torch.random.fork_rng(devices=[]):
            if seed is not None:
                torch.manual_seed(seed)
            model, _ = load_and_grow(AUTO, folder, () if held else own)
        weight, parameters = model.get_parameter(paths.weight), dict(model.named_parameters(remove_duplicate=False))
        return cls(
            model.get_submodule(paths.dense),
            model.get_submodule(paths.activation) if paths.activation else nn.GELU(),
            model.get_submodule(paths.norm),
            weight,
            parameters.get(paths.bias),
            tied=weight is model.get_input_embeddings().weight,
        )

    def forward(
        self,
        states: Float[Tensor, "R D"],
        columns: Int[Tensor, " K"] | None = None,
        table: Float[Tensor, "V E"] | None = None,
    ) -> Float[Tensor, "R K"]:
        """A logit for each of the pieces `columns`, in their order (None: all V of them).

        `table` takes the place of `weight`. ConfigError where there is neither.
        """
        weight: Any = self.weight if table is None else table
        bias: Any = self.bias
        if weight is None:
            raise ConfigError(
                "this head has forgotten its table: give forward the table of piece vectors it is tied to."
            )
        if columns is not None:
            weight, bias = weight[columns], None if bias is None else bias[columns]
        return nn.functional.linear(self.norm(self.activation(self.dense(states))), weight, bias)

    def only(self, columns: Int[Tensor, " K"]) -> "MaskedLM":
        """A copy with nothing but these pieces' vectors and biases, so that its V is K and little is trained or saved.

        It is no longer tied: its vectors go their own way.
        """
        if self.weight is None:
            raise ConfigError("this head has forgotten its table, so no column can be taken from it.")
        bias = None if self.bias is None else self.bias[columns]
        dense, norm = copy.deepcopy(self.dense), copy.deepcopy(self.norm)
        return MaskedLM(dense, self.activation, norm, self.weight[columns], bias)

    def forget_table(self) -> None:
        """Drop `weight`: from now on `forward` needs a table. ConfigError where the checkpoint's is not tied."""
        if not self.tied:
            raise ConfigError("this checkpoint's head has vectors of its own, which are not the piece vectors.")
        self.weight = None


def _names(folder: Path) -> list[str]:
    """Names of all tensors in the weight files."""
    names: list[str] = []
    for path in checkpoint.weight_files(folder):
        with safe_open(path, framework="pt") as file:
            names += file.keys()
    return names
