"""Budgets of `pretrain`: what they read, and that they buy as much as fits, against adding up one by one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from encodeonce.cli.pretrain_costs import Budget, Prices, encoding, fitting, masking, training
from encodeonce.costs import Shape
from encodeonce.encoders.live import LiveBlocks
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError

SHAPE = Shape(n_blocks=2, width=4, attention=4, feed=8)


@pytest.mark.parametrize(
    ("text", "amount", "of_flops"),
    [("90s", 90.0, False), ("5m", 300.0, False), (" 1.5 h ", 5400.0, False), ("44TFLOP", 44e12, True)],
)
def test_a_budget_is_seconds_or_flops(text: str, amount: float, of_flops: bool) -> None:
    assert Budget.read(text) == Budget(amount, of_flops)


@pytest.mark.parametrize("text", ["5", "m", "0m", "-1s", "5 minutes", "1e3s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write it as 90s, 5m"):
        Budget.read(text)


def test_flops_by_hand() -> None:
    """One text of 3 pieces: 2 blocks of 4 x 4 x 4 + 2 x 4 x 8 products a piece, 2 x 4 a pair; training thrice that;
    the head reads int(0.5 x 3) = 1 piece: 4 x 4 + 4 x 10 products, thrice."""
    forward = 2 * (3 * (4 * 4 * 4 + 2 * 4 * 8) + 9 * 2 * 4)
    assert encoding(SHAPE, [3]) == 2 * forward
    assert training(SHAPE, [3]) == 3 * 2 * forward
    assert masking(SHAPE, [3], 0.5, 10) == 3 * 2 * forward + 2 * 3 * (16 + 40)
    assert encoding(SHAPE, [3, 5]) == encoding(SHAPE, [3]) + encoding(SHAPE, [5])


@pytest.mark.parametrize("lora", [0, 2])
def test_training_costs_what_torch_counts(tiny: Path, lora: int) -> None:
    """A step over two items, counted product by product; low-rank terms take about two thirds of it."""
    base = Pretrained(tiny)
    stack, found = base.stack(), 0
    blocks = LiveBlocks(
        stack, range(stack.n_blocks), final=True, embeddings=True, lora=(lora, 4.0) if lora else None
    ).train()
    for length in (9, 5):
        with FlopCounterMode(display=False) as counted:
            blocks(blocks.place(torch.randn(length, 16), (length,)), (length,)).square().mean().backward()
        found += counted.get_total_flops()
    assert training(base.shape, [9, 5], lora=lora) == found
    head = masking(base.shape, [9, 5], 0.5, 10, lora) - found
    assert head == 2 * 3 * 7 * (16 * 16 + 16 * 10)


def bought(amount: float, prices: Prices, tuples: np.ndarray | None) -> int:
    """Tuple by tuple, again and again, as long as there is money; documents are paid once."""
    spent, met, count = prices.fixed, set(), 0
    while True:
        row = [] if tuples is None else tuples[count % len(tuples)].tolist()
        spent += float(sum(prices.documents[d] for d in set(row) - met)) + float(prices.each[count % len(prices.each)])
        if spent > amount:
            return count
        met |= set(row)
        count += 1


@pytest.mark.parametrize("with_tuples", [True, False])
def test_as_many_are_bought_as_one_by_one(with_tuples: bool) -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        tuples = rng.integers(0, 12, (9, 3)) if with_tuples else None
        prices = Prices(rng.integers(0, 5, 12).astype(float), np.full(9, 2.0), float(rng.integers(0, 4)))
        amount = float(rng.integers(20, 90))
        least = bought(amount, prices, tuples)
        if least:
            assert fitting(Budget(amount, True), prices, tuples, 1) == least


def test_less_than_a_batch_is_an_error_that_says_what_one_costs() -> None:
    prices = Prices(np.array([10.0, 10.0, 10.0]), np.array([1.0]))
    with pytest.raises(ConfigError, match=r"a budget of 33 s does not pay for one batch: 34 s"):
        fitting(Budget(33.0, False), prices, np.array([[0, 1, 2]]), 4)
    assert fitting(Budget(34.0, False), prices, np.array([[0, 1, 2]]), 4) == 4


@pytest.mark.parametrize("budget", [Budget(123.25, False), Budget(3.5e8, True), Budget(44e12, True)])
def test_a_budget_is_read_back_from_its_text(budget: Budget) -> None:
    assert Budget.read(budget.text) == budget
