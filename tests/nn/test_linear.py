"""bf16 products against fp32 ones."""

import numpy as np
import pytest
import torch

from encodeonce.nn import linear
from encodeonce.nn.linear import Linear, fastest_compute, product16


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


@pytest.mark.parametrize("units", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_fastest_arithmetic_by_what_there_is(units: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "has_bf16_units", lambda: units)
    monkeypatch.setattr(linear, "usable", lambda: compiled)
    assert fastest_compute() == ("bf16" if units else "fp32")
    assert fastest_compute(live=True) == ("bf16" if units or compiled else "fp32")


@pytest.mark.parametrize("units", [True, False])
def test_a_bf16_product_is_the_same_with_and_without_instructions_for_it(
    units: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "has_bf16_units", lambda: units)
    x, y = torch.randn(70, 600).bfloat16(), torch.randn(40, 600).bfloat16()
    exact = x.double().numpy() @ y.double().numpy().T
    found = product16(x, y.T)
    assert found.dtype == torch.bfloat16
    step = np.exp2(np.floor(np.log2(np.abs(exact) + 1e-3)) - 7)  # between a bf16 and the next
    assert np.all(np.abs(found.double().numpy() - exact) <= 0.5 * step + 1e-4)  # sums are fp32: rounded once


def test_a_sum_of_ones_does_not_stop_at_256() -> None:
    ones = torch.ones(1, 4096, dtype=torch.bfloat16)
    assert product16(ones, ones.T).item() == 4096


def test_products_of_other_types_are_torchs() -> None:
    x, y = torch.randn(3, 5, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    assert torch.equal(product16(x, y), x @ y)
