"""Welch's test against its formula (Welch, 1947) and Student's distribution by numerical integration."""

from math import gamma, pi, sqrt

import numpy as np
import pytest

from encodeonce.errors import ConfigError
from encodeonce.metrics.significance import mean_sd, welch


def tail(t: float, df: float) -> float:
    """Two-sided p of Student's t by the trapezoid rule."""
    x = np.linspace(0, abs(t), 200_001)
    density = gamma((df + 1) / 2) / (sqrt(df * pi) * gamma(df / 2)) * (1 + x * x / df) ** (-(df + 1) / 2)
    return 1 - 2 * float(((density[1:] + density[:-1]) / 2 * np.diff(x)).sum())


def test_welch_equals_its_formula() -> None:
    a, b = [96.0, 96.2, 96.1, 95.9, 96.3], [95.2, 95.9, 95.4, 95.0]
    va, vb = np.var(a, ddof=1) / 5, np.var(b, ddof=1) / 4
    t = (np.mean(a) - np.mean(b)) / sqrt(va + vb)
    df = (va + vb) ** 2 / (va**2 / 4 + vb**2 / 3)
    ours = welch(a, b)
    assert ours["t"] == pytest.approx(t)
    assert ours["df"] == pytest.approx(df)
    assert ours["p"] == pytest.approx(tail(t, df), abs=1e-8)
    assert ours["difference"] == pytest.approx(np.mean(a) - np.mean(b))
    assert welch(b, a)["p"] == pytest.approx(ours["p"])


def test_seeds_that_all_score_alike_are_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    """By hand: t = -0.5 / sqrt(0.5 / 2) = -1 with one degree of freedom, Cauchy's, half of which lies beyond 1."""
    assert welch([80.0, 80.0], [80.0, 81.0]) == {"difference": -0.5, "t": -1.0, "df": 1.0, "p": pytest.approx(0.5)}
    welch([80.1] * 3, [80.0, 81.0, 82.0])
    assert not recwarn.list


def test_undefined_tests_are_none() -> None:
    for one, other in (([1.0], [2.0, 3.0]), ([1.0, 1.0], [2.0, 2.0])):
        result = welch(one, other)
        assert result["p"] is None
        assert result["difference"] < 0


def test_mean_and_deviation() -> None:
    assert mean_sd([1.0, 2.0, 4.0]) == (pytest.approx(7 / 3), pytest.approx(np.std([1, 2, 4], ddof=1)))
    assert mean_sd([3.0]) == (3.0, None)
    with pytest.raises(ConfigError, match="no scores"):
        mean_sd([])
