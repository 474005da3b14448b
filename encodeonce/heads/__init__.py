"""From vectors to predictions in three verbs: scores, loss, decode. One class a file, each final.

Axes: R rows of all items, end to end   D width   G gold rows of all items, end to end
"""

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from ..errors import ConfigError
from ..nn.rows import Rows
from ..types import IGNORE

__all__ = ["IGNORE", "Head"]


class Head(nn.Module, ABC):
    """Made from a width, labels and its own options; `Rows` says whose the rows are. Tensors may be any dataclass."""

    @abstractmethod
    def forward(self, vectors: Float[Tensor, "R D"], rows: Rows) -> Any:
        """Scores, of whatever form `loss` and `decode` take."""

    @abstractmethod
    def loss(self, scores: Any, gold: Shaped[Tensor, "G ..."], counts: tuple[int, ...]) -> Float[Tensor, ""]:
        """The SUM of the losses of all units that count, `counts[b]` rows of `gold` being item b's (`Task.ids`).

        IGNORE counts for nothing. The method divides, by a constant (see train).
        """

    @abstractmethod
    def decode(self, scores: Any, rows: Rows) -> list[Any]:
        """One prediction an item, of the form that the task's gold has."""

    def probabilities(self, scores: Any, rows: Rows) -> list[dict[str, float]]:
        """For each item the probability of every label. ConfigError where the head's predictions are no such labels."""
        raise ConfigError(
            f"the head {type(self).__name__.lower()!r} gives no probabilities of an item's labels. Ask for predictions "
            "alone, or of a run whose tasks all have labels (classification, multilabel)."
        )
