"""From vectors to predictions in three verbs: scores, loss, decode. One class a file, each final.

Axes: R rows (the words of all items, end to end)   D width   C classes
"""

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

__all__ = ["IGNORE", "Head"]

IGNORE = -100
"""Gold id of a word that counts for nothing: unlabelled, or labelled with something training never saw."""


class Head(nn.Module, ABC):
    """`lengths` says how many rows each item has; rows of an item are neighbours and in order."""

    @abstractmethod
    def forward(self, vectors: Float[Tensor, "R D"]) -> Float[Tensor, "R C"]:
        """Scores."""

    @abstractmethod
    def loss(self, scores: Float[Tensor, "R C"], gold: Int[Tensor, " R"]) -> Float[Tensor, ""]:
        """The SUM of the losses of all rows whose gold is not IGNORE. The method divides, by a constant (see train)."""

    @abstractmethod
    def decode(self, scores: Float[Tensor, "R C"], lengths: tuple[int, ...]) -> list[Any]:
        """One prediction an item: a tuple of label strings, one a row."""
