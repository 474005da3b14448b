"""The one loop. It knows of a method what `Trainee` says, and of a task what `Scorer` says."""

from collections.abc import Collection, Iterator, Mapping, Sequence, Sized
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

__all__ = ["Described", "Scorer", "Serialised", "SizedByPieces", "SplitExamples", "Traced", "Trainee", "TwoLevel"]


@runtime_checkable
class SplitExamples(Sized, Protocol):
    """The examples of a split, made by the method."""

    @property
    def gold(self) -> Mapping[str, Sequence[Any]]:
        """Task name -> gold of each example."""

    def fingerprint(self) -> Mapping[str, Any]:
        """What a resumed run compares: name -> value or hash, as JSON."""


@runtime_checkable
class Trainee(Protocol):
    """A method whose tasks are trained side by side: each has its own parameters, loss and best epoch."""

    def modules_of(self) -> dict[str, nn.Module]:
        """What is trained by itself, by name: a task's own parameters, or those that several tasks share."""

    def tasks_of(self, name: str) -> Sequence[str]:
        """The tasks that one of `modules_of` answers."""

    def groups(self, name: str) -> Mapping[str, Sequence[nn.Parameter]]:
        """A module's trained parameters by their learning rate: "encoder" what was pre-trained, "inside" what a method
        adds inside the encoder, "head" all else."""

    def losses(self, batch: Any, names: Collection[str]) -> dict[str, Tensor]:
        """A scalar to go down for each of these modules."""

    def predict(self, batch: Any) -> list[dict[str, Any]]:
        """For each example of the batch, in order, a prediction a task."""

    def batches(self, examples: Any, *, size: int, order: np.random.Generator | None) -> Iterator[Any]:
        """All examples once. The order is drawn before the first batch and from nothing but `order`."""

    def train(self, mode: bool = True) -> Any:
        """Dropout on."""

    def eval(self) -> Any:
        """Dropout off."""


@runtime_checkable
class SizedByPieces(Protocol):
    """A method that can also size its batches by the pieces they hold (`Settings.per_device_train_batch_pieces`)."""

    def count_of_pieces(self, examples: Any, pieces: int) -> int:
        """How many batches an epoch has: the same in every one."""

    def batches_of_pieces(self, examples: Any, *, pieces: int, order: np.random.Generator) -> Iterator[Any]:
        """All examples once, about `pieces` pieces a batch; the order is drawn as in `Trainee.batches`."""


@runtime_checkable
class Described(Protocol):
    """A method that says how it was made: two can have the same weights by name and shape, and still be two methods."""

    def described(self) -> Mapping[str, Any]:
        """Its settings as plain JSON values, which a resumed run compares."""


@runtime_checkable
class Traced(Protocol):
    """A method that notes what it sees while it is trained: a resumed run goes on with the notes of before."""

    trace: list[dict[str, float]]


@runtime_checkable
class TwoLevel(Protocol):
    """A method with parameters of an upper level, which the loop's own optimiser never sees (`train.upper`)."""

    def batches(self, examples: Any, *, size: int, order: np.random.Generator | None) -> Iterator[Any]:
        """As `Trainee.batches`."""

    def upper_parameters(self) -> Sequence[nn.Parameter]:
        """Those of the upper level; none: there is nothing to choose."""

    def upper_gradients(self, batch: Any, lower: Any, rates: Mapping[Tensor, float]) -> Sequence[Tensor | None]:
        """A gradient of each on a `batch` of the upper examples. `lower` is the batch that the lower level learns from
        next, each of its parameters at its rate. Leaves no gradient at any parameter."""


@runtime_checkable
class Scorer(Protocol):
    """How a task's predictions are scored; `metric` is the score that chooses between epochs, higher is better."""

    @property
    def metric(self) -> str:
        """The name of that score."""

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float | None]:
        """Scores by name; None where undefined."""


@runtime_checkable
class Serialised(Protocol):
    """A scorer that says how it was made, such as every `tasks.Task`."""

    def to_json(self) -> Mapping[str, Any]:
        """Its settings and labels as plain JSON values, which a resumed run compares."""
