"""Logistic regression against torch's autograd, the conditions of an optimum, and symmetric data.   Axes: N D C"""

import numpy as np
import pytest
import torch

from encodeonce.errors import ConfigError
from encodeonce.nn.logistic import logistic


def problem(n: int, width: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    targets = generator.dirichlet(np.ones(classes), n)
    return generator.normal(size=(n, width)), targets, generator.uniform(0.2, 2.0, n)


@pytest.mark.parametrize(("n", "width"), [(12, 40), (40, 12)])
def test_the_gradient_is_zero_at_the_optimum(n: int, width: int) -> None:
    rows, targets, weights = problem(n, width)
    found = logistic(rows, targets, ridge=0.3, weights=weights)
    weight, bias = (torch.tensor(part, requires_grad=True) for part in (found.weight, found.bias))
    logs = (torch.tensor(rows) @ weight + bias).log_softmax(1)
    loss = -(torch.tensor(targets * weights[:, None]) * logs).sum() + 0.15 * weight.square().sum()
    loss.backward()
    assert weight.grad is not None
    assert bias.grad is not None
    assert float(weight.grad.abs().max()) < 1e-3
    assert float(bias.grad.abs().max()) < 1e-3


def test_in_the_span_or_in_all_columns_the_optimum_is_the_same() -> None:
    rows, targets, _ = problem(10, 11)
    wide = np.concatenate([rows, np.zeros((10, 30))], axis=1)
    tall = np.concatenate([rows, rows]), np.concatenate([targets, targets])
    narrow = logistic(rows, targets, 0.5)
    np.testing.assert_allclose(logistic(wide, targets, 0.5).weight[:11], narrow.weight, atol=1e-4)
    np.testing.assert_allclose(logistic(*tall, ridge=1.0).weight, narrow.weight, atol=1e-4)


def test_weights_count_rows() -> None:
    rows, targets, _ = problem(9, 4)
    twice = logistic(np.concatenate([rows, rows[:3]]), np.concatenate([targets, targets[:3]]), 0.2)
    weighted = logistic(rows, targets, 0.2, np.array([2.0] * 3 + [1.0] * 6))
    np.testing.assert_allclose(weighted.weight, twice.weight, atol=1e-4)


def test_probabilities_sum_to_one_and_a_strong_ridge_gives_class_shares() -> None:
    rows, _, _ = problem(8, 3)
    found = logistic(rows, np.eye(2)[[0] * 6 + [1] * 2], ridge=1e9)
    np.testing.assert_allclose(found.probabilities(rows), np.tile([0.75, 0.25], (8, 1)), atol=1e-4)


def test_what_has_no_optimum_is_refused() -> None:
    with pytest.raises(ConfigError, match="ridge=0"):
        logistic(np.ones((2, 2)), np.eye(2), ridge=0.0)
    with pytest.raises(ConfigError, match="no row"):
        logistic(np.empty((0, 2)), np.empty((0, 2)))
