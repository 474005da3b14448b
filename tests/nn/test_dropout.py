"""Pooled dropout keeps dropout's promises."""

import pytest
import torch

from encodeonce.errors import ConfigError
from encodeonce.nn.dropout import Dropout


def test_rate_mean_and_values() -> None:
    out = Dropout(0.25)(torch.ones(400, 500))
    assert (out == 0).float().mean() == pytest.approx(0.25, abs=0.005)
    assert out.mean() == pytest.approx(1, abs=0.01)
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])


def test_masks_differ_and_are_uncorrelated() -> None:
    dropout, ones = Dropout(0.5), torch.ones(300, 100)
    a, b = dropout(ones) - 1, dropout(ones) - 1
    assert abs((a * b).mean()) < 0.02
    assert abs((a[1:] * a[:-1]).mean()) < 0.02


def test_the_generator_state_is_all_there_is_to_save() -> None:
    dropout, x = Dropout(0.1), torch.randn(50, 20)
    dropout(x)
    state = torch.get_rng_state()
    first = [dropout(x) for _ in range(3)]
    torch.set_rng_state(state)
    assert all(torch.equal(mask, dropout(x)) for mask in first)


def test_gradient_flows_through_kept_values_only() -> None:
    x = torch.ones(1000, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_larger_than_the_smallest_pool() -> None:
    assert (Dropout(0.1)(torch.ones(3_000_000)) == 0).float().mean() == pytest.approx(0.1, abs=0.002)


def test_identity_in_eval_mode_and_at_rate_zero() -> None:
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5)(x[:0]).shape == (0,)


def test_a_rate_outside_is_named() -> None:
    with pytest.raises(ConfigError, match=r"dropout=-0.1 must lie in \[0, 1\)"):
        Dropout(-0.1)
