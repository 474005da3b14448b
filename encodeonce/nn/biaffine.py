"""Biaffine scores of pairs (Dozat and Manning 2017; spec A8): s_c(x, y) = [x; 1]^T W_c [y; 1].

[x; 1]^T W_c is an ordinary linear map with a bias, so it is computed as one for all c, once a row; what is left is a
product with [y; 1], for the pairs that are asked for.

Axes: R rows   D width   C outputs   B items of a group   n, m padded rows of an item
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import ConfigError
from .linear import Linear

__all__ = ["Biaffine"]


class Biaffine(nn.Module):
    """`n_outputs` scores a pair; `bias_y=False` leaves the 1 beside y out (A8: arcs). All weights start at zero.

    `compute` is the number type of the linear map's product.
    """

    def __init__(self, width: int, n_outputs: int = 1, bias_y: bool = True, compute: str = "fp32") -> None:
        super().__init__()
        if width < 1 or n_outputs < 1:
            raise ConfigError(f"width={width} and n_outputs={n_outputs} must be at least 1.")
        self.width, self.n_outputs, self.bias_y = width, n_outputs, bias_y
        self.inner = Linear(width, n_outputs * (width + bias_y), compute)
        nn.init.zeros_(self.inner.weight)
        nn.init.zeros_(self.inner.bias)

    def at(self, x: Float[Tensor, "R D"], y: Float[Tensor, "R D"]) -> Float[Tensor, "R C"]:
        """Scores of row r of x with row r of y."""
        inner = self.inner(x).view(len(x), self.n_outputs, self.width + self.bias_y)
        found = torch.bmm(inner[:, :, : self.width], y[:, :, None])[:, :, 0]
        return found + inner[:, :, self.width] if self.bias_y else found

    def between(self, inner: Float[Tensor, "B n _"], y: Float[Tensor, "B m D"]) -> Float[Tensor, "B n m"]:
        """Scores of every x of an item with every y of it, for one output; `inner` is what `self.inner` made of x."""
        found = torch.bmm(inner[:, :, : self.width], y.transpose(1, 2))
        return found + inner[:, :, self.width :] if self.bias_y else found
