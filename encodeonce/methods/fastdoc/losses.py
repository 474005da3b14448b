"""The losses over document vectors (FastDoc, eqs. 1 to 3; spec A6).

Axes: K documents of a tuple (anchor, positive, negative; or anchor, near, far, negative)   B tuples   D width
H levels   C classes of a level, 0 the null class
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

__all__ = ["Hierarchy", "distances", "triplet_loss", "tuple_loss"]


def distances(one: Float[Tensor, "*B D"], two: Float[Tensor, "*B D"]) -> Float[Tensor, "*B"]:
    """Euclidean, torch's: 1e-6 is added to every difference, so a vector is 1e-6 sqrt(D) from itself and the gradient
    there is finite."""
    return nn.functional.pairwise_distance(one, two)


def triplet_loss(
    anchor: Float[Tensor, "*B D"], positive: Float[Tensor, "*B D"], negative: Float[Tensor, "*B D"], margin: float = 1.0
) -> Float[Tensor, ""]:
    """Eq. 1: mean over B of max(|a - p| - |a - n| + margin, 0); distances are not squared, vectors not normalised."""
    return (distances(anchor, positive) - distances(anchor, negative) + margin).clamp(min=0).mean()


def tuple_loss(vectors: Float[Tensor, "K *B D"], margin: float = 1.0, far: float = 0.1) -> Float[Tensor, ""]:
    """Eq. 1 for three documents; for four eq. 3, the near positive's loss plus `far` times the far positive's."""
    near = triplet_loss(vectors[0], vectors[1], vectors[-1], margin)
    if len(vectors) == 3:
        return near
    return near + far * triplet_loss(vectors[0], vectors[2], vectors[-1], margin)


class Hierarchy(nn.Module):
    """One classification head a level over document vectors, the same for all documents of a tuple.

    `hidden` puts a Linear and GELU of that width before each head. Eq. 2 sums the cross-entropies over documents and
    levels, each a mean over the batch; `mean=True` divides by their number.
    """

    def __init__(self, width: int, n_classes: tuple[int, ...], hidden: int = 0, mean: bool = False) -> None:
        super().__init__()
        self.mean = mean
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, n)) if hidden else nn.Linear(width, n)
            for n in n_classes
        )

    def forward(self, vectors: Float[Tensor, "K B D"], labels: Int[Tensor, "K B H"]) -> Float[Tensor, ""]:
        """Eq. 2. Null classes count like any other."""
        losses = [
            nn.functional.cross_entropy(head(one), own[:, level])
            for one, own in zip(vectors, labels, strict=True)
            for level, head in enumerate(self.heads)
        ]
        return torch.stack(losses).mean() if self.mean else torch.stack(losses).sum()
