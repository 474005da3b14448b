"""The decoder of T5 and T5.1.1 (Raffel et al. 2020) with its output head, tied or not, scaled or not (spec B8).

Axes: B items   T pieces   S pieces, those in a cache too   V vocabulary
"""

import copy
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from .decoder import Decoder
from .loading import load_model

__all__ = ["T5Decoder"]


class T5Decoder(Decoder):
    """A trained copy of a `T5ForConditionalGeneration`'s decoder. Where the head is tied, T5 v1.0 multiplies the states
    by width^-0.5 before it; v1.1 has a head of its own and does not."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        config = model.config
        self.start, self.end = int(config.decoder_start_token_id), int(config.eos_token_id)
        self.pieces = int(config.vocab_size)
        self.tied = model.lm_head.weight is model.shared.weight
        self.scale = config.d_model**-0.5 if config.scale_decoder_outputs else 1.0
        self.body: Any = copy.deepcopy(model.decoder)
        self.table: nn.Module | None = copy.deepcopy(model.shared)
        self.body.embed_tokens = nn.Identity()  # piece vectors are given as vectors, by whichever table is trained
        self.head = None if self.tied else copy.deepcopy(model.lm_head)
        self.requires_grad_(True)
        self.train()

    @classmethod
    def load(cls, folder: Path) -> "T5Decoder":
        """From a local checkpoint; EncoderError where it lacks weights of the decoder."""
        return cls(load_model("T5ForConditionalGeneration", folder))

    def shares(self, table: nn.Embedding) -> None:
        self.table = None
        object.__setattr__(self, "_shared", table)  # no module of this one: its owner saves and trains it

    def logits(
        self, ids: Int[Tensor, "B T"], real: Bool[Tensor, "B S"] | None, given: dict[str, Any]
    ) -> Float[Tensor, "B T V"]:
        table: Any = self._shared if self.table is None else self.table
        states = self.body(inputs_embeds=table(ids), **given).last_hidden_state * self.scale
        return states @ table.weight.T if self.head is None else self.head(states)

    def named_weights(self) -> dict[str, Tensor]:
        """The weights under the names that `T5ForConditionalGeneration` gives them; a shared table is its owner's."""
        named = {f"decoder.{name}": weight.detach() for name, weight in self.body.named_parameters()}
        if isinstance(self.table, nn.Embedding):
            named["shared.weight"] = self.table.weight.detach()
        if self.head is not None:
            named["lm_head.weight"] = self.head.weight.detach()
        return named

    def fresh(self) -> list[nn.Parameter]:
        return []

    @staticmethod
    def shaped(folder: Path, seed: int = 0, **sizes: Any) -> None:
        """Save a T5 of random weights into `folder`, for training from scratch.

        T5.1.1 unless `sizes` say otherwise: gated GELU, and a head of its own, drawn at width^-0.5 and not scaled.
        """
        from transformers import T5Config, T5ForConditionalGeneration

        settings = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = T5ForConditionalGeneration(T5Config(**{**settings, **sizes}))
            if not model.config.scale_decoder_outputs:
                untie(model)
        model.save_pretrained(folder)


def untie(model: Any) -> None:
    """Give a fresh v1.1 model the head of its own that `transformers` builds it without."""
    width, size = model.config.d_model, model.config.vocab_size
    model.lm_head.weight = nn.Parameter(torch.randn(size, width) * width**-0.5)
    model.config.tie_word_embeddings = False
