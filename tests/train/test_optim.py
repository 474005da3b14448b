"""The schedule against spec A11's numbers and a closed form."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from encodeonce.errors import ConfigError
from encodeonce.train.optim import optimiser_and_schedule, total_steps
from encodeonce.train.settings import Settings


def course(steps: int, **changes: float) -> tuple[list[float], list[float]]:
    """Learning rate and first beta of each optimiser step."""
    weight = nn.Parameter(torch.ones(2))
    optimiser, schedule = optimiser_and_schedule(
        [([weight], changes.get("learning_rate", 2e-3))], steps, Settings(**changes)
    )  # type: ignore[arg-type]
    rates, betas = [], []
    for _ in range(steps):
        rates.append(optimiser.param_groups[0]["lr"])
        betas.append(optimiser.param_groups[0]["betas"][0])
        weight.grad = torch.ones(2)
        optimiser.step()
        schedule.step()
    return rates, betas


def test_CA20_start_peak_end() -> None:
    rates, betas = course(100, learning_rate=1e-3)
    assert rates[0] == pytest.approx(1e-3 / 25, rel=1e-12)
    assert max(rates) == pytest.approx(1e-3, rel=1e-12)
    assert rates.index(max(rates)) == 29  # the 30th of 100 steps
    assert rates[-1] == pytest.approx(1e-3 / 25 / 1e4, rel=1e-9)
    assert (betas[0], betas[29], betas[-1]) == pytest.approx((0.95, 0.85, 0.95))


def test_A11_both_phases_are_cosines() -> None:
    rates, betas = course(50, learning_rate=2e-3)
    peak_at = 0.3 * 50 - 1

    def between(a: float, b: float, share: float) -> float:
        return b + (a - b) / 2 * (1 + math.cos(math.pi * share))

    for step in range(50):
        if step <= peak_at:
            rate, beta = between(8e-5, 2e-3, step / peak_at), between(0.95, 0.85, step / peak_at)
        else:
            share = (step - peak_at) / (49 - peak_at)
            rate, beta = between(2e-3, 8e-9, share), between(0.85, 0.95, share)
        assert rates[step] == pytest.approx(rate, rel=1e-6)
        assert betas[step] == pytest.approx(beta, rel=1e-6)


def test_A14_each_group_has_its_own_peak_under_one_schedule() -> None:
    slow, fast = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimiser, schedule = optimiser_and_schedule([([slow], 1e-4), ([fast], 2e-3)], 20, Settings(adam_beta2=0.9))
    seen = []
    for _ in range(20):
        seen.append([group["lr"] for group in optimiser.param_groups])
        assert {group["betas"][1] for group in optimiser.param_groups} == {0.9}
        optimiser.step()
        schedule.step()
    assert max(pair[0] for pair in seen) == pytest.approx(1e-4)
    assert all(pair[1] == pytest.approx(20 * pair[0]) for pair in seen)


@pytest.mark.parametrize("steps", range(1, 12))
@pytest.mark.parametrize("warmup", [0.1, 0.2, 0.25, 0.3, 0.5])
def test_short_runs_have_a_schedule_too(steps: int, warmup: float) -> None:
    rates, _ = course(steps, warmup_ratio=warmup)
    assert all(0 < rate <= 2e-3 + 1e-12 for rate in rates)


def test_steps_count_the_last_partial_batch() -> None:
    assert total_steps(392, Settings(num_train_epochs=10)) == 3920
    assert total_steps(7, Settings(num_train_epochs=3, gradient_accumulation_steps=2)) == 12
    assert total_steps(1, Settings(num_train_epochs=1, gradient_accumulation_steps=4)) == 1


def test_adam_equals_plain_python() -> None:
    weight = nn.Parameter(torch.tensor([0.5, -1.0], dtype=torch.float64))
    optimiser, schedule = optimiser_and_schedule([([weight], 2e-3)], 5, Settings())
    w, m, v = [0.5, -1.0], [0.0, 0.0], [0.0, 0.0]
    b1_power = b2_power = 1.0
    for step in range(5):
        group = optimiser.param_groups[0]
        b1, b2 = group["betas"]
        gradient = [x * (step + 1) for x in w]
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        rate = group["lr"]
        optimiser.step()
        schedule.step()
        # torch corrects the bias with the current beta to the power of the step, also while beta moves
        b1_power, b2_power = b1 ** (step + 1), b2 ** (step + 1)
        for i in range(2):
            m[i] = b1 * m[i] + (1 - b1) * gradient[i]
            v[i] = b2 * v[i] + (1 - b2) * gradient[i] ** 2
            w[i] -= rate * (m[i] / (1 - b1_power)) / (math.sqrt(v[i] / (1 - b2_power)) + 1e-8)
        assert weight.tolist() == pytest.approx(w, rel=1e-9)


def linear(steps: int, warmup: float, **changes: Any) -> list[float]:
    settings = Settings(lr_scheduler_type="linear", warmup_ratio=warmup, **changes)
    optimiser, schedule = optimiser_and_schedule([([nn.Parameter(torch.ones(2))], 1.0)], steps, settings)
    rates = []
    for _ in range(steps):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    return [*rates, optimiser.param_groups[0]["lr"]]


@pytest.mark.parametrize(("steps", "warmup"), [(10, 0.0), (10, 0.3), (7, 0.25), (1, 0.0)])
def test_the_linear_schedule_is_transformers(steps: int, warmup: float) -> None:
    from transformers import get_linear_schedule_with_warmup

    other = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=1.0)
    schedule = get_linear_schedule_with_warmup(other, math.ceil(steps * warmup), steps)
    theirs = []
    for _ in range(steps + 1):
        theirs.append(other.param_groups[0]["lr"])
        other.step()
        schedule.step()
    assert linear(steps, warmup) == theirs


def test_the_constant_schedule_and_fixed_betas() -> None:
    settings = Settings(lr_scheduler_type="constant", adam_beta2=0.98)
    optimiser, schedule = optimiser_and_schedule([([nn.Parameter(torch.ones(2))], 3e-4)], 5, settings)
    for _ in range(5):
        assert optimiser.param_groups[0]["lr"] == 3e-4
        assert optimiser.param_groups[0]["betas"] == (0.9, 0.98)
        optimiser.step()
        schedule.step()
    _, betas = course(20, adam_beta1=0.9)
    assert set(betas) == {0.9}


def test_decay_leaves_out_what_has_one_axis() -> None:
    matrix, bias = nn.Parameter(torch.full((2, 2), 3.0)), nn.Parameter(torch.full((2,), 3.0))
    settings = Settings(optim="adamw", weight_decay=0.1, lr_scheduler_type="constant")
    optimiser, _ = optimiser_and_schedule([([bias, matrix], 0.01)], 3, settings)
    matrix.grad, bias.grad = torch.zeros(2, 2), torch.zeros(2)
    optimiser.step()
    assert torch.equal(bias, torch.full((2,), 3.0))
    assert torch.allclose(matrix, torch.full((2, 2), 3.0 * (1 - 0.01 * 0.1)))


def test_B5_an_adafactor_step_by_hand() -> None:
    start, gradient = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.1, 0.2], [0.3, -0.4]])
    weight = nn.Parameter(start.clone())
    settings = Settings(optim="adafactor", lr_scheduler_type="constant", learning_rate=1e-2)
    optimiser, _ = optimiser_and_schedule([([weight], 1e-2)], 3, settings)
    weight.grad = gradient.clone()
    optimiser.step()
    squares = gradient.double() ** 2  # the first step's decay is 1 - 1 ** -0.8 = 0: its own moments alone
    rows, columns = squares.mean(1, keepdim=True), squares.mean(0, keepdim=True)
    update = gradient.double() / (rows * columns / rows.mean()).sqrt()
    update /= max(1.0, update.pow(2).mean().sqrt().item())
    rate = 1e-2 * start.double().pow(2).mean().sqrt()
    assert torch.allclose(weight.double(), start.double() - rate * update, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optim": "lion"}, "optim='lion' must be one of adam, adamw, adafactor"),
        ({"lr_scheduler_type": "step"}, "lr_scheduler_type='step' must be one of one_cycle, linear, constant"),
        ({"weight_decay": 0.1}, "weight_decay=0.1 must be 0 with optim='adam'"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps=0 must be at least 1"),
        ({"adam_beta1": 1.0}, "adam_beta1=1.0 must be at least 0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be greater than 0"),
        ({"num_train_epochs": 0}, "num_train_epochs=0 must be at least 1"),
        ({"warmup_ratio": 1.0}, "warmup_ratio=1.0 must be between 0 and 1"),
        ({"early_stopping_patience": -1}, "early_stopping_patience=-1 must be 0 or more"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(**change)  # type: ignore[arg-type]
