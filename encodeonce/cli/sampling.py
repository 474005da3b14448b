"""Samples by length, and what they say of the whole.

Long items are few and hold much of the work, so every sample here is drawn within strata of like length: an estimate is
then unbiased whatever the lengths are, and spreads little.

Axes: N items   M sampled items or batches   S strata   R rounds
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

__all__ = ["Estimate", "Sample", "equal_shares", "evenly", "extrapolated", "in_two", "stratified"]

SURELY = 32
"""The longest items are in every sample: they decide the sum, and the longest is worth knowing."""
STRATA = 32
LEVEL = 0.975
"""Intervals hold the true value 19 times out of 20."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; equal ends where it was counted."""

    value: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> "Estimate":
        return cls(value, value, value)

    @classmethod
    def around(cls, value: float, half: float) -> "Estimate":
        """`value` give or take `half`, never below 0."""
        return cls(value, max(0.0, value - half), value + half)

    def plus(self, constant: int | float) -> "Estimate":
        return Estimate(self.value + constant, self.low + constant, self.high + constant)

    def times(self, factor: int | float) -> "Estimate":
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def to_json(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Sample:
    """Chosen items `index`, how many items each stands for, and which stratum it is of."""

    index: Int[np.ndarray, " M"]
    weight: Float[np.ndarray, " M"]
    stratum: Int[np.ndarray, " M"]

    @property
    def exact(self) -> bool:
        """Whether every item was chosen."""
        return bool((self.weight == 1).all())

    def total(
        self,
        values: Int[np.ndarray, " M"] | Float[np.ndarray, " M"],
        times: Int[np.ndarray, " M"] | Bool[np.ndarray, " M"] | None = None,
    ) -> Estimate:
        """The sum over all N items of a value that is known of the sample; `times` counts each item so often."""
        values = values.astype(np.float64) if times is None else values * times.astype(np.float64)
        variance = 0.0
        for stratum in np.unique(self.stratum[self.weight > 1]):
            own = values[self.stratum == stratum]
            weight = self.weight[self.stratum == stratum][0]
            drawn = len(own)
            spread = own.var(ddof=1) if drawn > 1 else 0.0
            variance += (weight * drawn) ** 2 * (1 - 1 / weight) * spread / drawn
        return Estimate.around(float((self.weight * values).sum()), 1.96 * math.sqrt(variance))


def stratified(sizes: Int[np.ndarray, " N"], limit: int, order: np.random.Generator) -> Sample:
    """At most about `limit` of the items; all of them where there are no more.

    Strata hold equal shares of the summed sizes and give equally many items each, so that a long item is chosen more
    often than a short one, and each of them stands for fewer. The longest are chosen surely.
    """
    n = len(sizes)
    if n <= limit:
        return Sample(np.arange(n), np.ones(n), np.zeros(n, dtype=np.int64))
    by_size = np.argsort(sizes, kind="stable")
    surely, rest = by_size[n - min(SURELY, limit // 2) :], by_size[: n - min(SURELY, limit // 2)]
    index, weight, stratum = [surely], [np.ones(len(surely))], [np.full(len(surely), -1)]
    left = limit - len(surely)
    strata = equal_shares(sizes[rest] + 1.0, min(STRATA, max(1, left // 2)))
    for number, members in sorted(enumerate(strata), key=lambda pair: len(pair[1])):
        share = max(2, left // max(1, len(strata) - sum(1 for s in stratum if s[0] >= 0)))
        chosen = order.choice(rest[members], min(share, len(members)), replace=False)
        left -= len(chosen)
        index.append(chosen)
        weight.append(np.full(len(chosen), len(members) / len(chosen)))
        stratum.append(np.full(len(chosen), number))
    return Sample(np.concatenate(index), np.concatenate(weight), np.concatenate(stratum))


def in_two(
    sizes: Int[np.ndarray, " N"], first: Bool[np.ndarray, " N"], limit: int, order: np.random.Generator
) -> Sample:
    """`stratified` of the items `first` and of the others apart, so that the fewer are in the sample too: half of
    `limit` for each, and what one does not need for the other."""
    groups = [np.flatnonzero(first), np.flatnonzero(~first)]
    shares = [max(limit // 2, limit - len(other)) for other in reversed(groups)]
    samples = [stratified(sizes[own], share, order) for own, share in zip(groups, shares, strict=True)]
    return Sample(
        np.concatenate([own[one.index] for own, one in zip(groups, samples, strict=True)]),
        np.concatenate([one.weight for one in samples]),
        np.concatenate([one.stratum + at * (STRATA + 1) for at, one in enumerate(samples)]),
    )


def equal_shares(costs: Float[np.ndarray, " N"], count: int) -> list[Int[np.ndarray, " _"]]:
    """Runs of neighbours that hold about equal shares of the summed costs, at most `count`, none empty."""
    until = np.cumsum(costs)
    middle = until - costs / 2
    part = np.minimum((middle / until[-1] * count).astype(np.int64), count - 1)
    return [np.flatnonzero(part == number) for number in np.unique(part)]


def evenly(weights: Float[np.ndarray, " N"], count: int, order: np.random.Generator) -> Int[np.ndarray, " M"]:
    """`count` items at equal steps along the summed weights, from a random start; every item where there are no more.

    Over a list sorted by length this is a stratified sample in which each item is expected `weight` times count / sum.
    """
    until = np.cumsum(weights)
    count = min(count, max(1, round(float(until[-1]))))
    points = (np.arange(count) + order.random()) * until[-1] / count
    return np.minimum(np.searchsorted(until, points, side="right"), len(weights) - 1)


def extrapolated(
    totals: Sequence[float], rounds: Sequence[Sequence[tuple[float, float]]], constant: float = 0.0
) -> Estimate:
    """Seconds of everything from rounds of timed parts.

    `totals` [S] is the cost of each stratum in any unit, `rounds` [R, S] the (seconds, cost) of one part of each. Every
    round is an estimate of its own; the interval is Student's over the rounds, and wide where there are few.
    """
    values = np.array([sum(t * s / c for t, (s, c) in zip(totals, one, strict=True)) for one in rounds])
    return spread(values, constant)


def spread(values: Float[np.ndarray, " R"], constant: float = 0.0) -> Estimate:
    """The median of repeated estimates plus a constant, with Student's interval; one alone has no interval but itself.

    Steps that something else delayed are few and long: the mean of the few rounds that there is time for follows them.
    """
    from scipy.special import stdtrit

    half = 0.0
    if len(values) > 1:
        half = float(stdtrit(len(values) - 1, LEVEL)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate.around(float(np.median(values)), half).plus(constant)


def rounded(value: Any) -> Any:
    """Floats of plain nested values to six digits, for JSON."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, (list, tuple)) else value
