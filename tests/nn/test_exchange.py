"""An exchange in which nobody keeps their own, whatever the order they come in."""

import numpy as np
import pytest

from encodeonce.nn.exchange import exchanged


@pytest.mark.parametrize("n", [2, 3, 32])
def test_everyone_is_given_anothers_and_each_once(n: int) -> None:
    for seed in range(20):
        given = exchanged(n, seed)
        assert sorted(given.tolist()) == list(range(n))
        assert not (given == np.arange(n)).any()
        np.testing.assert_array_equal(given, exchanged(n, seed))


def test_items_that_stand_class_by_class_are_given_as_many_of_each_class() -> None:
    """16 of each of two classes: half are given their own class (of 31 others 15), not 15 of 16."""
    own = np.repeat([0, 1], 16)
    same = np.mean([(own[exchanged(32, seed)] == own).mean() for seed in range(200)])
    assert same == pytest.approx(15 / 31, abs=0.02)
