"""Whether two lists of seed scores differ: Welch's t-test, two-sided, with means and sample standard deviations."""

from collections.abc import Sequence
from math import isnan
from statistics import fmean, stdev
from warnings import catch_warnings, simplefilter

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
    if len(first) < 2 or len(second) < 2 or (not stdev(first) and not stdev(second)):
        return undefined
    from scipy.stats import ttest_ind  # half a second to import

    with catch_warnings():  # of lost precision, where the seeds of one score alike: that side counts for nothing
        simplefilter("ignore", RuntimeWarning)
        test = ttest_ind(first, second, equal_var=False)
    if isnan(test.pvalue):
        return undefined
    return {"difference": difference, "t": float(test.statistic), "df": float(test.df), "p": float(test.pvalue)}
