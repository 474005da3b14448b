"""bf16 products against fp32 ones."""

import torch

from encodeonce.nn.linear import COMPUTE, Linear, fastest_compute


def test_fp32_is_torchs_linear() -> None:
    ours, theirs, x = Linear(8, 5), torch.nn.Linear(8, 5), torch.randn(3, 8)
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours(x), theirs(x))


def test_bf16_output_and_gradients_are_close_and_fp32() -> None:
    exact, rounded = Linear(64, 32), Linear(64, 32, "bf16")
    rounded.load_state_dict(exact.state_dict())
    results = []
    for layer in (exact, rounded):
        x = torch.linspace(-1, 1, 640).view(10, 64).requires_grad_()
        out = layer(x)
        (out * torch.linspace(0, 1, 320).view(10, 32)).sum().backward()
        results.append([out, x.grad, layer.weight.grad, layer.bias.grad])
    for a, b in zip(*results, strict=True):
        assert b.dtype == torch.float32
        assert (a - b).norm() < 0.01 * a.norm()


def test_no_rows() -> None:
    assert Linear(4, 3, "bf16")(torch.zeros(0, 4)).shape == (0, 3)


def test_fastest_compute_is_one_there_is() -> None:
    assert fastest_compute() in COMPUTE
