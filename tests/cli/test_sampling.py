"""Samples by length against full counts, over many draws.

Axes: N items   R draws
"""

import numpy as np
import pytest

from encodeonce.cli.sampling import (
    SURELY,
    Estimate,
    equal_shares,
    evenly,
    extrapolated,
    in_two,
    rounded,
    spread,
    stratified,
)


def skewed(n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Sizes as texts have them, a few a hundred times the median; and a value that grows faster than the size."""
    rng = np.random.default_rng(5)
    sizes = np.maximum(1, rng.lognormal(2.5, 1.2, n)).astype(np.int64)
    return sizes, sizes * rng.uniform(1, 2, n) + 0.01 * sizes.astype(float) ** 2


def test_a_stratified_total_is_unbiased_on_a_skewed_corpus_and_its_interval_holds_it() -> None:
    sizes, values = skewed()
    true, found, held = values.sum(), [], 0
    for seed in range(200):
        sample = stratified(sizes, 400, np.random.default_rng(seed))
        total = sample.total(values[sample.index])
        found.append(total.value)
        held += total.low <= true <= total.high
        assert sample.weight.sum() == pytest.approx(len(sizes))
        assert len(np.unique(sample.index)) == len(sample.index) <= 440
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert abs(np.mean(found) - true) < 3 * error
    assert held >= 180  # 95 % of 200, less what is chance
    plain = [4000 * values[np.random.default_rng(s).permutation(4000)[:400]].mean() for s in range(200)]
    assert np.std(found) < 0.25 * np.std(plain)


def test_a_part_of_the_corpus_is_estimated_from_the_same_sample() -> None:
    sizes, values = skewed()
    part = np.arange(len(sizes)) % 3 == 0
    found = []
    for seed in range(200):
        sample = stratified(sizes, 600, np.random.default_rng(seed))
        found.append(sample.total(values[sample.index], part[sample.index]).value)
    assert abs(np.mean(found) - values[part].sum()) < 3 * np.std(found, ddof=1) / np.sqrt(len(found))


def test_a_small_corpus_is_counted() -> None:
    sizes, values = skewed(300)
    sample = stratified(sizes, 300, np.random.default_rng(0))
    total = sample.total(values)
    assert sample.exact
    assert (total.low, total.value, total.high) == (total.value, pytest.approx(values.sum()), total.value)


def test_the_longest_are_chosen_surely() -> None:
    sizes, _ = skewed()
    sample = stratified(sizes, 400, np.random.default_rng(0))
    longest = np.argsort(sizes, kind="stable")[-SURELY:]
    assert set(longest) <= set(sample.index[sample.weight == 1])
    assert not sample.exact


@pytest.mark.parametrize("count", [1, 3, 7, 50])
def test_shares_are_neighbours_and_cover_everything(count: int) -> None:
    costs = np.sort(np.random.default_rng(1).lognormal(0, 2, 40))
    strata = equal_shares(costs, count)
    assert np.concatenate(strata).tolist() == list(range(40))
    assert 1 <= len(strata) <= count
    sums = [costs[stratum].sum() for stratum in strata]
    assert max(sums) <= costs.sum() / count + costs.max()


def test_even_steps_choose_in_proportion_to_weight() -> None:
    weights, counts = np.array([1.0, 4.0, 1.0, 2.0]), np.zeros(4)
    for seed in range(2000):
        np.add.at(counts, evenly(weights, 2, np.random.default_rng(seed)), 1)
    np.testing.assert_allclose(counts / 2000, 2 * weights / weights.sum(), atol=0.04)


def test_even_steps_over_all_items_choose_each_once() -> None:
    for seed in range(20):
        assert evenly(np.ones(9), 100, np.random.default_rng(seed)).tolist() == list(range(9))


def test_seconds_that_follow_the_costs_are_extrapolated_exactly() -> None:
    totals, rates = [100.0, 900.0], [2.0, 3.0]
    rounds = [
        [(rate * part, part) for rate, part in zip(rates, parts, strict=True)] for parts in ([1.0, 5.0], [4.0, 9.0])
    ]
    found = extrapolated(totals, rounds, constant=7.0)
    assert (found.low, found.value, found.high) == (pytest.approx(2907), pytest.approx(2907), pytest.approx(2907))


def test_an_interval_over_rounds_is_students() -> None:
    from scipy import stats

    values = np.array([9.0, 10.0, 12.0, 10.5])
    low, high = stats.t.interval(0.95, 3, np.median(values), stats.sem(values))
    found = spread(values)
    assert (found.low, found.value, found.high) == (pytest.approx(low), pytest.approx(10.25), pytest.approx(high))
    assert spread(values[:1]) == Estimate.exactly(9.0)
    assert spread(np.array([0.1, 5.0])).low == 0.0


def test_one_delayed_round_moves_no_estimate() -> None:
    assert spread(np.array([2.0, 2.0, 9.0])).value == 2.0


def test_estimates_scale_and_shift() -> None:
    one = Estimate(2.0, 1.0, 4.0)
    assert one.times(3.0).plus(1.0) == Estimate(7.0, 4.0, 13.0)
    assert one.to_json() == {"value": 2.0, "low": 1.0, "high": 4.0}
    assert rounded({"a": [1.23456789, (2, "x")], "b": None}) == {"a": [1.23457, [2, "x"]], "b": None}


@pytest.mark.parametrize("n_first", [0, 3, 1000, 3997, 4000])
def test_both_parts_of_a_corpus_are_in_the_sample_however_few_one_has(n_first: int) -> None:
    sizes, values = skewed()
    first = np.random.default_rng(3).permutation(len(sizes)) < n_first
    sample = in_two(sizes, first, 400, np.random.default_rng(1))
    own = first[sample.index]
    assert own.sum() >= min(n_first, 190)
    assert (~own).sum() >= min(len(sizes) - n_first, 190)
    assert len(set(sample.index.tolist())) == len(sample.index) <= 480
    for part in (own, ~own):
        assert sample.weight[part].sum() == pytest.approx((first if part is own else ~first).sum())
    total = sample.total(values[sample.index])
    assert total.low < values.sum() < total.high


def test_both_parts_of_a_small_corpus_are_counted() -> None:
    sizes = np.arange(1, 9)
    sample = in_two(sizes, sizes > 6, 8, np.random.default_rng(0))
    assert sorted(sample.index.tolist()) == list(range(8))
    assert sample.exact
