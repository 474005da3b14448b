"""Mixing the stored views of a frozen encoder into one vector a row. One class a file, each final.

Axes: L views   P rows of a packed batch   D width   R chosen rows
"""

from abc import ABC, abstractmethod

from jaxtyping import Float, Int
from torch import Tensor, nn

from ..nn.packed import Packed

__all__ = ["Adapter"]


class Adapter(nn.Module, ABC):
    """`forward(batch, rows)`: one vector for each chosen row (all rows where `rows` is None)."""

    @abstractmethod
    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """fp32 vectors of the chosen rows. Nothing is computed for other rows unless the mathematics needs them."""

    @abstractmethod
    def layer_weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """How much of each view every chosen row reads; each line sums to 1. For `inspect` and for tests."""
