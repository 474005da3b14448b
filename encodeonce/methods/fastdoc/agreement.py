"""Whether two sets of vectors of the same documents say the same (relative representations; spec A16, number 3).

Axes: N documents   D width   E another width   C pairs of documents, N (N - 1) / 2
"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float, Int

from ...errors import DataError

__all__ = ["Agreement", "adjusted_rand", "agreement", "linear_cka"]

PERMUTATIONS = 999
NEAREST = 5


@dataclass(frozen=True)
class Agreement:
    """`pearson` and `spearman` over the cosines of all pairs of documents, `p` how often documents in a drawn order
    agree as much (a permutation test), `cka` linear CKA, `neighbours` the share of the five nearest that are common.

    With groups: `groups_pearson` over the cosines of group means, and the adjusted Rand index of k-means with as many
    clusters as groups: between the two sides (`clusters`), and of each side with the groups. None without, or where a
    value is undefined.
    """

    documents: int
    pearson: float | None
    spearman: float | None
    p: float | None
    cka: float
    neighbours: float
    groups_pearson: float | None = None
    clusters: float | None = None
    groups_of_first: float | None = None
    groups_of_second: float | None = None

    def to_json(self) -> dict[str, int | float | None]:
        """Plain values."""
        return asdict(self)


def agreement(
    one: Float[np.ndarray, "N D"], two: Float[np.ndarray, "N E"], groups: Sequence[str] = (), seed: int = 0
) -> Agreement:
    """Of vectors of the same documents in the same order. DataError for fewer than four documents."""
    if len(one) != len(two) or len(one) < 4 or (groups and len(groups) != len(one)):
        raise DataError(f"vectors of {len(one)} and of {len(two)} documents, {len(groups)} groups: at least 4 of each.")
    near = [_cosines(vectors) for vectors in (one, two)]
    upper = np.triu_indices(len(one), 1)
    pearson = _pearson(near[0][upper], near[1][upper])
    rng, above = np.random.default_rng(seed), 0
    for _ in range(PERMUTATIONS if pearson is not None else 0):
        order = rng.permutation(len(two))
        drawn = _pearson(near[0][upper], near[1][np.ix_(order, order)][upper])
        above += drawn is not None and drawn >= (pearson or 0.0)
    ranked = _pearson(*(_ranks(side[upper]) for side in near))
    common = [len(set(a) & set(b)) for a, b in zip(*(_nearest(side) for side in near), strict=True)]
    found = Agreement(
        len(one),
        pearson,
        ranked,
        None if pearson is None else (1 + above) / (1 + PERMUTATIONS),
        linear_cka(one, two),
        float(np.mean(common)) / min(NEAREST, len(one) - 1),
    )
    return _with_groups(found, one, two, groups, seed) if len(set(groups)) > 1 else found


def linear_cka(one: Float[np.ndarray, "N D"], two: Float[np.ndarray, "N E"]) -> float:
    """Kornblith et al. 2019: |Y'X|^2 / (|X'X| |Y'Y|) of centred vectors, Frobenius norms; 0 where one side is flat."""
    x, y = (vectors - vectors.mean(0) for vectors in (one.astype(np.float64), two.astype(np.float64)))
    below = float(np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    return float(np.linalg.norm(y.T @ x) ** 2) / below if below else 0.0


def adjusted_rand(one: Int[np.ndarray, " N"], two: Int[np.ndarray, " N"]) -> float:
    """Hubert and Arabie 1985: 1 for equal partitions, about 0 for unrelated ones."""
    table = np.zeros((int(one.max()) + 1, int(two.max()) + 1))
    np.add.at(table, (one, two), 1)
    both, rows, columns, pairs = (
        float((n * (n - 1) / 2).sum()) for n in (table, table.sum(1), table.sum(0), np.array([float(len(one))]))
    )
    chance, most = rows * columns / pairs, (rows + columns) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)


def _with_groups(found: Agreement, one: np.ndarray, two: np.ndarray, groups: Sequence[str], seed: int) -> Agreement:
    names = sorted(set(groups))
    own = np.array([names.index(group) for group in groups])
    means = [np.stack([vectors[own == g].mean(0) for g in range(len(names))]) for vectors in (one, two)]
    upper = np.triu_indices(len(names), 1)
    first, second = (_clusters(vectors, len(names), seed) for vectors in (one, two))
    return Agreement(
        found.documents,
        found.pearson,
        found.spearman,
        found.p,
        found.cka,
        found.neighbours,
        _pearson(*(_cosines(side)[upper] for side in means)),
        adjusted_rand(first, second),
        adjusted_rand(first, own),
        adjusted_rand(second, own),
    )


def _clusters(vectors: Float[np.ndarray, "N D"], k: int, seed: int) -> Int[np.ndarray, " N"]:
    """The tightest of ten k-means over vectors of length 1. Of fewer different vectors some clusters stay empty."""
    from scipy.cluster.vq import kmeans2

    unit, rng = _unit(vectors), np.random.default_rng(seed)
    best, least = np.zeros(len(unit), np.int64), np.inf
    for _ in range(10):
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.filterwarnings("ignore", "One of the clusters is empty", UserWarning)
            centres, labels = kmeans2(unit, k, minit="++", seed=rng, missing="warn")
        spread = float(((unit - centres[labels]) ** 2).sum())
        if spread < least:
            best, least = labels.astype(np.int64), spread
    return best


def _unit(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    wide = vectors.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)


def _cosines(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N N"]:
    unit = _unit(vectors)
    return unit @ unit.T


def _nearest(cosines: Float[np.ndarray, "N N"]) -> list[list[int]]:
    own = cosines.copy()
    np.fill_diagonal(own, -np.inf)
    return [row[: min(NEAREST, len(own) - 1)].tolist() for row in np.argsort(-own, axis=1, kind="stable")]


def _ranks(values: Float[np.ndarray, " C"]) -> Float[np.ndarray, " C"]:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), np.float64)


def _pearson(one: Float[np.ndarray, " C"], two: Float[np.ndarray, " C"]) -> float | None:
    """None where a side does not vary, or there are fewer than two values."""
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(two) == 0:
        return None
    return float(np.corrcoef(one, two)[0, 1])
