"""A decoder that starts as an encoder: its blocks made causal, with a new attention to the memory between (B7).

For the families of which `transformers` has a causal model with cross-attention: BERT, RoBERTa, XLM-R, ELECTRA.

Axes: B items   T pieces   S pieces, those in a cache too   V vocabulary
"""

from pathlib import Path
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..errors import EncoderError
from . import checkpoint
from .decoder import Decoder
from .loading import load_and_grow
from .stack import ranks

__all__ = ["WarmDecoder"]

FAMILIES = ("bert", "roberta", "xlm_roberta", "electra")
NEW = ("crossattention", "cls.", "lm_head.", "generator_")
"""Parts that an encoder's checkpoint may lack."""


class WarmDecoder(Decoder):
    """`n_blocks` are the first of the encoder's that it keeps (None: all). `start` and `end` are the pieces that the
    tokenizer puts around a text."""

    def __init__(self, model: Any, start: int, end: int, fresh: frozenset[str]) -> None:
        super().__init__()
        self.start, self.end = start, end
        self.pieces = int(model.config.vocab_size)
        self.model: Any = model.requires_grad_(True)
        self.longest = checkpoint.usable_window(model.config.to_dict())
        self._fresh = fresh
        config = model.config.to_dict()
        self._first = int(config["pad_token_id"]) + 1 if config["model_type"] in checkpoint.AFTER_PADDING else 0
        self.register_state_dict_post_hook(_once)
        self.register_load_state_dict_post_hook(_not_missed)
        self.train()

    @classmethod
    def load(cls, folder: Path, start: int, end: int, n_blocks: int | None = None) -> "WarmDecoder":
        """From an encoder's folder; EncoderError for a family without such a decoder, or with too few blocks."""
        config = checkpoint.read_config(folder)
        family, total = checkpoint.family_file(config, str(folder)), checkpoint.n_blocks(config)
        if family not in FAMILIES:
            raise EncoderError(
                f"{folder}: the family {family!r} has no decoder that starts as an encoder. There is: "
                f"{', '.join(FAMILIES)}, and T5, which brings its own. Give the decoder another checkpoint of the same"
                " width, or use the span reader."
            )
        n_blocks = total if n_blocks is None else n_blocks
        if not 1 <= n_blocks <= total:
            raise EncoderError(f"decoder_blocks={n_blocks} must lie between 1 and {total} ({folder}).")
        options = {"is_decoder": True, "add_cross_attention": True, "num_hidden_layers": n_blocks}
        model, missing = load_and_grow("AutoModelForCausalLM", folder, NEW, **options)
        return cls(model, start, end, frozenset(missing))

    def logits(
        self, ids: Int[Tensor, "B T"], real: Bool[Tensor, "B S"] | None, given: dict[str, Any]
    ) -> Float[Tensor, "B T V"]:
        positions = None if real is None else ranks(real)[:, -ids.shape[1] :] + self._first
        return self.model(input_ids=ids, position_ids=positions, **given).logits

    def fresh(self) -> list[nn.Parameter]:
        return [parameter for name, parameter in self.model.named_parameters() if name in self._fresh]


def _tied(module: nn.Module) -> set[str]:
    """Second names of weights that stand under two: the head's, where it is the piece table."""
    once = {name for name, _ in module.named_parameters()}
    return {name for name, _ in module.named_parameters(remove_duplicate=False)} - once


def _once(module: nn.Module, state: dict[str, Tensor], prefix: str, _: dict[str, Any]) -> None:
    """A weight is saved under its first name alone: a file of tensors holds none twice."""
    for name in _tied(module):
        state.pop(prefix + name, None)


def _not_missed(module: nn.Module, incompatible: Any) -> None:
    tied = tuple(_tied(module))
    incompatible.missing_keys[:] = [key for key in incompatible.missing_keys if not key.endswith(tied)]
