"""Weights on the line between the start and the trained ones."""

import pytest
import torch
from torch import Tensor

from encodeonce.encoders.lora import layers, merged
from encodeonce.methods.fastdoc.fastdoc import FastDoc
from encodeonce.methods.fastdoc.interpolation import interpolate, pretrained_weights

from .test_fastdoc import Checkpoint, documents, examples, masked_trainee, trained, trainee, window_list


def state(method: FastDoc) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in method.state_dict().items()}


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_weights_lie_so_far_from_start_to_end(checkpoint: Checkpoint, share: float) -> None:
    """By the sum written out; classification heads stay trained, what was never trained stays bit for bit."""
    method = masked_trainee(checkpoint, "combined")
    start, before = pretrained_weights(method), state(method)
    trained(method, examples(documents(), windows=window_list(checkpoint), windows_per_batch=2))
    after = state(method)
    interpolate(method, start, share)
    moved = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert any(name.startswith("hierarchy.") for name in moved)
    assert any(name.startswith("head.") for name in moved)
    for name, found in state(method).items():
        if name in moved and not name.startswith(("hierarchy.", "seen")):
            due = (1 - share) * before[name].double() + share * after[name].double()
            torch.testing.assert_close(found.double(), due, atol=1e-6, rtol=0)
            assert share not in (0.0, 1.0) or torch.equal(found, before[name] if share == 0 else after[name])
        else:
            assert torch.equal(found, after[name]), name


def test_sums_of_low_rank_terms_lie_there_too(checkpoint: Checkpoint) -> None:
    method = trainee(checkpoint, lora=2)
    start = pretrained_weights(method)

    def sums() -> list[Tensor]:
        merged(method.blocks, True)
        found = [layer.weight.detach().clone() for layer in layers(method.blocks)]
        merged(method.blocks, False)
        return found

    before = sums()
    trained(method, examples(documents()))
    after = sums()
    interpolate(method, start, 0.25)
    found = sums()
    assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True))
    for own, first, last in zip(found, before, after, strict=True):
        torch.testing.assert_close(own, 0.75 * first + 0.25 * last, atol=1e-6, rtol=0)
