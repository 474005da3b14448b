"""From stored vectors of whole texts to the rows that a probe reads.

Axes: N items   L views   D width   F features
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ...errors import ConfigError

__all__ = ["FORMS", "Vectors", "features"]

FORMS = ("last", "layers", "cosine")
"""What a probe reads: the last view, all views side by side, or of a pair one number."""


@dataclass(frozen=True)
class Vectors:
    """Pooled views of N texts, in the order of the layers; of pairs, those of each of the two texts."""

    text: Float[np.ndarray, "N L D"]
    pair: Float[np.ndarray, "N L D"] | None = None

    def __post_init__(self) -> None:
        if self.pair is not None and self.pair.shape != self.text.shape:
            raise ConfigError(f"first texts are {self.text.shape} and second texts {self.pair.shape}; give as many.")

    def __len__(self) -> int:
        return len(self.text)

    def take(self, items: Int[np.ndarray, " M"]) -> "Vectors":
        """These items."""
        return Vectors(self.text[items], None if self.pair is None else self.pair[items])


def features(vectors: Vectors, form: str = "layers") -> Float[np.ndarray, "N F"]:
    """Each view scaled to length 1, the views of the form side by side, divided by the root of their number; fp32.

    A pair becomes |u - v|, u * v and cos(u, v) of each view (Conneau et al. 2017, without u and v themselves, which
    say nothing of how the two texts relate); with "cosine" the cosine in the last view alone, which a handful of labels
    can hardly overfit. Raises ConfigError for an unknown form, and for "cosine" of single texts.
    """
    if form not in FORMS:
        raise ConfigError(f"form={form!r} is not known. There is: {', '.join(FORMS)}.")
    if form == "cosine":
        if vectors.pair is None:
            raise ConfigError("form='cosine' compares the two texts of a pair; these are single texts.")
        return _block(vectors, vectors.text.shape[1] - 1)[:, -1:].astype(np.float32)
    n_views = vectors.text.shape[1]
    views = range(n_views) if form == "layers" else range(n_views - 1, n_views)
    blocks = [_block(vectors, view) for view in views]
    return (np.concatenate(blocks, axis=1) / np.sqrt(len(blocks))).astype(np.float32)


def _block(vectors: Vectors, view: int) -> Float[np.ndarray, "N F"]:
    first = unit(vectors.text[:, view])
    if vectors.pair is None:
        return first
    second = unit(vectors.pair[:, view])
    product = first * second
    return np.concatenate([np.abs(first - second), product, product.sum(1, keepdims=True)], axis=1)


def unit(rows: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """Each row over its length, in fp64; rows of length 0 stay."""
    rows = rows.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
