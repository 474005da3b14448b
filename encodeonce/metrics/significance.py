"""Whether two lists of seed scores differ: Welch's t-test, two-sided, with means and sample standard deviations."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev, variance

from ..errors import ConfigError

__all__ = ["mean_sd", "welch"]


def mean_sd(scores: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation (ddof = 1) of seed scores; the deviation of a single score is undefined (None)."""
    if not scores:
        raise ConfigError("no scores: a mean needs at least one seed.")
    return fmean(scores), stdev(scores) if len(scores) > 1 else None


def welch(first: Sequence[float], second: Sequence[float]) -> dict[str, float | None]:
    """{"difference": mean(first) − mean(second), "t", "df", "p"} of Welch's two-sided t-test (unequal variances).

    t, df and p are None where the test is undefined: fewer than two seeds on a side, or no spread on either side.
    """
    difference = mean_sd(first)[0] - mean_sd(second)[0]
    undefined: dict[str, float | None] = {"difference": difference, "t": None, "df": None, "p": None}
    if len(first) < 2 or len(second) < 2:
        return undefined
    own, other = variance(first) / len(first), variance(second) / len(second)  # exact: 0 for equal scores
    if not own + other > 0:
        return undefined
    from scipy.special import stdtr  # slow to import

    t, share = difference / sqrt(own + other), own / (own + other)
    df = 1 / (share**2 / (len(first) - 1) + (1 - share) ** 2 / (len(second) - 1))
    return {"difference": difference, "t": t, "df": df, "p": float(2 * stdtr(df, -abs(t)))}
