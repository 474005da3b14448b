"""How far two encoders are apart: parameters, what hiding a piece changes, which vectors are nearest (A14, A16).

Axes: S vectors of one document   R of another   D width   C scores of both, S + R
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...encoders.slots import matrices
from ...encoders.stack import Stack
from ...errors import DataError

__all__ = ["GROUPS", "Perturbation", "change", "paragraph_similarity", "perturbation", "window_length"]

TIED = 1e-6
"""Cosines nearer than this are equal: a piece that stands twice is as similar at both places, up to rounding."""

GROUPS = ("query", "key", "value", "dense")
"""Figure 2's groups of weight matrices: a slot of a block is in the group of its name, every other one is dense."""


def change(before: Stack, after: Stack) -> dict[str, tuple[float, float]]:
    """Per group r1 = sum |W' - W| / sum |W| and r2 = |sum |W'| - sum |W|| / sum |W|, over the matrices of the blocks.

    The paper's wording fits both; r2 can vanish where all weights changed. "all" is over every matrix of the groups.
    DataError where the two have other shapes.
    """
    sums = {key: np.zeros(3) for key in (*GROUPS, "all")}
    one, two = (matrices(stack.blocks, stack.paths) for stack in (before, after))
    if [(slot, w.shape) for slot, w in one] != [(slot, w.shape) for slot, w in two]:
        shapes = [f"{s.n_blocks} blocks of width {s.width} ({type(s).__name__})" for s in (after, before)]
        raise DataError(f"{shapes[0]} beside {shapes[1]}: weights are compared where one was trained from the other.")
    for (slot, old), (_, new) in zip(one, two, strict=True):
        was, now = old.double(), new.double()
        row = np.array([(now - was).abs().sum(), now.abs().sum(), was.abs().sum()], np.float64)
        for key in (slot if slot in GROUPS else "dense", "all"):
            sums[key] = sums[key] + row
    return {key: (float(moved / was), float(abs(now - was) / was)) for key, (moved, now, was) in sums.items()}


def window_length(one: Float[np.ndarray, "S D"], two: Float[np.ndarray, "R D"]) -> float:
    """Mean of 1 + |i - j| over the vectors i of one document, j being the most similar (cosine) of the other; of
    equally similar ones the nearest, so that a document is 1 from itself whatever is repeated in it."""
    cosines = _cosines(one, two)
    best = cosines >= cosines.max(1, keepdims=True) - TIED
    distance = np.abs(np.arange(len(one))[:, None] - np.arange(len(two))[None])
    return float(np.mean(1 + np.where(best, distance, len(one) + len(two)).min(1)))


def paragraph_similarity(one: Float[np.ndarray, "S D"], two: Float[np.ndarray, "R D"]) -> Float[np.ndarray, " C"]:
    """For each paragraph of both documents the cosine with the most similar one of the other (appendix G.4, Q1)."""
    cosines = _cosines(one, two)
    return np.concatenate([cosines.max(1), cosines.max(0)])


def _cosines(one: Float[np.ndarray, "S D"], two: Float[np.ndarray, "R D"]) -> Float[np.ndarray, "S R"]:
    """DataError where a document has no vector."""
    if not len(one) or not len(two):
        raise DataError(f"documents of {len(one)} and {len(two)} vectors are compared: both need one.")
    wide = [vectors.astype(np.float64) for vectors in (one, two)]
    unit = [v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in wide]
    return unit[0] @ unit[1].T


@dataclass(frozen=True)
class Perturbation:
    """Spearman's correlation over all differences pooled, and that of each sentence; sentences that were skipped
    because they have one piece, or no differences to rank."""

    pooled: float
    of_sentences: tuple[float, ...]
    skipped: int

    @property
    def by_sentence(self) -> float:
        """The mean over sentences."""
        return float(np.mean(self.of_sentences))


def perturbation(one: Iterable[Sequence[float]], two: Iterable[Sequence[float]]) -> Perturbation:
    """Of what hiding each other piece changes in the probability of a hidden one, in two models: the same sentences,
    targets and pieces. DataError where lengths differ or nothing is left."""
    from scipy.stats import rankdata

    def spearman(first: Sequence[float], second: Sequence[float]) -> float:
        ranks = rankdata(first), rankdata(second)
        return float(np.corrcoef(*ranks)[0, 1])

    pairs = list(zip(map(list, one), map(list, two), strict=True))
    if any(len(a) != len(b) for a, b in pairs):
        raise DataError("two models must be asked about the same pieces: a sentence has other lengths in each.")
    used = [(a, b) for a, b in pairs if len(set(a)) > 1 and len(set(b)) > 1]
    if not used:
        raise DataError(f"none of {len(pairs)} sentences has two pieces to compare.")
    pooled = spearman([x for a, _ in used for x in a], [x for _, b in used for x in b])
    return Perturbation(pooled, tuple(spearman(a, b) for a, b in used), len(pairs) - len(used))
