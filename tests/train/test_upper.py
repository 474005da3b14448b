"""When the upper level steps, on what, and how it goes on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from encodeonce.errors import ConfigError, DataError
from encodeonce.train.upper import Upper, UpperSteps


class Numbers(list[int]):
    """Examples."""

    gold: dict[str, list[int]] = {}  # noqa: RUF012

    def fingerprint(self) -> dict[str, str]:
        return {"n": str(len(self))}


class Toy:
    """One upper parameter; remembers what it was asked for. Its gradient is 1."""

    def __init__(self, *parameters: float) -> None:
        self.parameters = [nn.Parameter(torch.tensor(value)) for value in parameters]
        self.seen: list[tuple[Any, Any, Mapping[Tensor, float]]] = []

    def batches(self, examples: Any, *, size: int, order: np.random.Generator | None) -> Iterator[Any]:
        assert order is not None
        drawn = [examples[i] for i in order.permutation(len(examples))]
        return (tuple(drawn[at : at + size]) for at in range(0, len(drawn), size))

    def upper_parameters(self) -> Sequence[nn.Parameter]:
        return self.parameters

    def upper_gradients(self, batch: Any, lower: Any, rates: Mapping[Tensor, float]) -> Sequence[Tensor | None]:
        self.seen.append((batch, lower, rates))
        return [torch.tensor(1.0)]


def test_it_steps_after_the_warm_up_before_every_nth_step() -> None:
    toy, rates = Toy(0.0), {torch.zeros(1): 0.5}
    steps = UpperSteps(toy, Upper(Numbers(range(5)), batch_size=2, warmup=3, every=2, learning_rate=0.1), 1, 8)
    for step in range(10):
        steps.before(step, f"train {step}", rates)
    assert [lower for _, lower, _ in toy.seen] == ["train 3", "train 5", "train 7", "train 9"]
    assert all(seen is rates for _, _, seen in toy.seen)
    assert float(toy.parameters[0].detach()) == pytest.approx(-0.4, abs=1e-3)
    assert toy.parameters[0].grad is None


def test_every_pass_over_the_examples_has_an_order_of_its_own_and_can_be_gone_on_with() -> None:
    def made() -> tuple[Toy, UpperSteps]:
        toy = Toy(0.0)
        return toy, UpperSteps(toy, Upper(Numbers(range(5)), batch_size=2), 1, 8)

    whole, steps = made()
    for step in range(9):
        steps.before(step, None, {})
    batches = [batch for batch, _, _ in whole.seen]
    for start in (0, 3, 6):
        assert sorted(number for batch in batches[start : start + 3] for number in batch) == [0, 1, 2, 3, 4]
    assert len({tuple(batches[start : start + 3]) for start in (0, 3, 6)}) > 1
    for stop in (3, 4):
        first, half = made()
        for step in range(stop):
            half.before(step, None, {})
        second, rest = made()
        with torch.no_grad():
            second.parameters[0].copy_(first.parameters[0])
        rest.restore(*half.state())
        for step in range(stop, 9):
            rest.before(step, None, {})
        assert [batch for batch, _, _ in second.seen] == batches[stop:]
        assert torch.equal(second.parameters[0], whole.parameters[0])


def test_without_upper_parameters_nothing_is_read() -> None:
    toy = Toy()
    steps = UpperSteps(toy, Upper(Numbers([1])), 1, 8)
    steps.before(0, None, {})
    assert not toy.seen
    assert steps.state()[1] == {}


def test_a_batch_is_as_large_as_the_loops_unless_it_is_said() -> None:
    for asked, sizes in ((None, [3, 3, 1]), (5, [5, 2])):
        toy = Toy(0.0)
        steps = UpperSteps(toy, Upper(Numbers(range(7)), batch_size=asked), 1, 3)
        for step in range(len(sizes)):
            steps.before(step, None, {})
        assert [len(batch) for batch, _, _ in toy.seen] == sizes


def test_settings_out_of_range() -> None:
    with pytest.raises(DataError, match="no examples for the upper level"):
        Upper(Numbers())
    with pytest.raises(ConfigError, match="batch_size=0 of the upper level must be finite and at least 1"):
        Upper(Numbers([1]), batch_size=0)
    with pytest.raises(ConfigError, match="every=0 of the upper level must be finite and at least 1"):
        Upper(Numbers([1]), every=0)
    with pytest.raises(ConfigError, match="learning_rate=nan of the upper level must be finite"):
        Upper(Numbers([1]), learning_rate=float("nan"))
