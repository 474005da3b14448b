"""The upper level of bi-level optimisation: other parameters, stepped on other examples between the steps of the loop.

What the loop trains is the lower level. Before a step's own gradients are taken, and after the old ones are dropped,
the method gives gradients of the upper parameters alone; they have an Adam of their own and no schedule.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError, DataError
from . import SplitExamples, TwoLevel
from .optim import moments_of, state_of

__all__ = ["Upper", "UpperSteps"]


@dataclass(frozen=True)
class Upper:
    """Where the upper parameters learn, and how: on `examples`, `batch_size` at a time (None: as many as a batch of the
    loop has examples) in an order of their own; first after `warmup` steps of the loop, then before every `every`-th.
    The other defaults are those of DARTS but for the rate."""

    examples: SplitExamples
    batch_size: int | None = None
    learning_rate: float = 3e-3
    beta1: float = 0.5
    beta2: float = 0.999
    weight_decay: float = 1e-3
    warmup: int = 0
    every: int = 1

    def __post_init__(self) -> None:
        if not len(self.examples):
            raise DataError("no examples for the upper level: give it a dev split.")
        for name, least in (("batch_size", 1), ("every", 1), ("warmup", 0), ("weight_decay", 0), ("learning_rate", 0)):
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ConfigError(f"{name}={value} of the upper level must be finite and at least {least}.")

    def to_json(self) -> dict[str, Any]:
        """Plain values; of the examples their fingerprint."""
        settings = {key: value for key, value in asdict(self).items() if key != "examples"}
        return {**settings, "examples": self.examples.fingerprint()}


class UpperSteps:
    """The loop's side: batches that never end, an optimiser, and all of it to go on from. `batch_size` is the loop's
    own, taken where `upper` names none."""

    def __init__(self, method: TwoLevel, upper: Upper, seed: int, batch_size: int) -> None:
        self.method, self.upper = method, upper
        self.size = batch_size if upper.batch_size is None else upper.batch_size
        self.parameters = list(method.upper_parameters())
        betas = (upper.beta1, upper.beta2)
        self.optimiser = (
            torch.optim.Adam(
                self.parameters, lr=upper.learning_rate, betas=betas, weight_decay=upper.weight_decay, foreach=False
            )
            if self.parameters
            else None
        )
        self.order = np.random.default_rng([seed, 1])
        self.at_epoch = dict(self.order.bit_generator.state)
        self.taken = 0
        self.batches: Iterator[Any] | None = None

    def before(self, step: int, lower: Any, rates: Mapping[Tensor, float]) -> None:
        """Before step number `step` of the loop (from 0), whose first batch is `lower`, at these rates.

        Nothing is read or stepped where the method has no upper parameters.
        """
        late = step - self.upper.warmup
        if self.optimiser is None or late < 0 or late % self.upper.every:
            return
        gradients = self.method.upper_gradients(self._next(), lower, rates)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def _next(self) -> Any:
        while True:
            if self.batches is None:
                self.order.bit_generator.state = self.at_epoch
                every = self.method.batches(self.upper.examples, size=self.size, order=self.order)
                self.batches = itertools.islice(every, self.taken, None)
            batch = next(self.batches, None)
            if batch is not None:
                self.taken += 1
                return batch
            self.at_epoch, self.taken, self.batches = dict(self.order.bit_generator.state), 0, None

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Values and tensors for a checkpoint."""
        tensors = {} if self.optimiser is None else moments_of(self.optimiser)
        return {"at_epoch": self.at_epoch, "taken": self.taken}, tensors

    def restore(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """The inverse of `state`."""
        self.at_epoch, self.taken, self.batches = values["at_epoch"], values["taken"], None
        if self.optimiser is not None:
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state_of(tensors)})
