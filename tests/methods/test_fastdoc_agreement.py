"""Agreement of two sets of vectors, against scipy, scikit-learn and what must not change it."""

import numpy as np
import pytest

from encodeonce.errors import DataError
from encodeonce.methods.fastdoc.agreement import adjusted_rand, agreement, linear_cka

RNG = np.random.default_rng(0)


def test_a_rotation_and_a_scale_agree_in_everything() -> None:
    vectors = RNG.normal(size=(12, 5))
    turn = np.linalg.qr(RNG.normal(size=(5, 5)))[0]
    groups = [f"g{n % 3}" for n in range(12)]
    found = agreement(vectors, 2 * vectors @ turn, groups)
    assert found.pearson == pytest.approx(1)
    assert found.spearman == pytest.approx(1)
    assert found.cka == pytest.approx(1)
    assert (found.neighbours, found.clusters, found.p) == (1.0, pytest.approx(1), pytest.approx(0.001))
    assert found.groups_pearson == pytest.approx(1)


def test_numbers_are_those_of_scipy_and_scikit_learn() -> None:
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import adjusted_rand_score
    from sklearn.metrics.pairwise import cosine_similarity

    one, two = RNG.normal(size=(9, 4)), RNG.normal(size=(9, 6))
    found = agreement(one, two)
    pairs = [cosine_similarity(side)[np.triu_indices(9, 1)] for side in (one, two)]
    assert found.pearson == pytest.approx(pearsonr(*pairs).statistic)
    assert found.spearman == pytest.approx(spearmanr(*pairs).statistic)
    assert found.p is not None
    assert found.p > 0.01
    assert (found.clusters, found.groups_pearson) == (None, None)
    x, y = (side - side.mean(0) for side in (one, two))
    grams = [side @ side.T for side in (x, y)]
    hsic = [np.trace(a @ b) for a, b in ((grams[0], grams[1]), (grams[0], grams[0]), (grams[1], grams[1]))]
    assert linear_cka(one, two) == pytest.approx(hsic[0] / np.sqrt(hsic[1] * hsic[2]))
    for _ in range(5):
        labels = RNG.integers(0, 3, 20), RNG.integers(0, 4, 20)
        assert adjusted_rand(*labels) == pytest.approx(adjusted_rand_score(*labels))


def test_copies_make_fewer_clusters_than_groups() -> None:
    """Two different vectors, four groups of two: {4, 4} beside {2, 2, 2, 2} is (4 - 12 / 7) / (8 - 12 / 7)."""
    vectors = np.repeat(RNG.normal(size=(2, 5)), 4, axis=0)
    found = agreement(vectors, vectors, list("aabbccdd"))
    assert found.groups_of_first == found.groups_of_second == pytest.approx(4 / 11)
    assert found.clusters == 1


def test_flat_vectors_have_no_correlation_and_few_documents_are_refused() -> None:
    found = agreement(np.ones((5, 3)), RNG.normal(size=(5, 3)))
    assert (found.pearson, found.p, found.cka) == (None, None, 0.0)
    with pytest.raises(DataError, match="of 3 and of 3 documents"):
        agreement(np.ones((3, 2)), np.ones((3, 2)))
