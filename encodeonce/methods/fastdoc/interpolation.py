"""Part of the way back: weights between those that training began with and the trained ones (WiSE-FT).

Document-level and masked-language training at a rate that teaches the domain also wears off what an encoder knew.
Weights on the line between start and end keep much of both (Wortsman et al. 2022, "Robust fine-tuning of zero-shot
models", eq. 1; there a fine-tuned image classifier, here an encoder that is fine-tuned afterwards).
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from .fastdoc import FastDoc

__all__ = ["interpolate", "pretrained_weights"]


def pretrained_weights(method: FastDoc) -> dict[str, Tensor]:
    """Copies of what was pre-trained and is trained: blocks, masked-language head, a sentence encoder that is trained
    too. Of low-rank terms those that begin at zero: with these alone drawn back, the sums they stand for are."""
    return {name: parameter.detach().clone() for name, parameter in _pretrained(method)}


def interpolate(method: FastDoc, start: Mapping[str, Tensor], share: float) -> None:
    """Replace the method's weights, in place, by start + share * (weights - start): 0 gives `start` back, 1 changes
    nothing. What training began anew (classification heads, a projection) stays as it is."""
    with torch.no_grad():
        for name, parameter in _pretrained(method):
            parameter.copy_(start[name].lerp(parameter, share))


def _pretrained(method: FastDoc) -> Iterator[tuple[str, nn.Parameter]]:
    for part in ("blocks", "lower", "head"):
        module = getattr(method, part)
        for name, parameter in () if module is None else module.named_parameters():
            if parameter.requires_grad and ".lora_A." not in name:
                yield f"{part}.{name}", parameter
