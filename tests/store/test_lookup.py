"""Keys found among many, against a dict."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from encodeonce.store.lookup import Lookup


def keys(numbers: list[tuple[int, int]]) -> np.ndarray:
    """Keys with few different heads, so that they collide."""
    made = np.zeros((len(numbers), 32), np.uint8)
    for row, (head, tail) in zip(made, numbers, strict=True):
        row[7], row[31] = head, tail
    return made


pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=30)


@settings(max_examples=200, deadline=None)
@given(stored=pairs, asked=pairs)
def test_lookup_equals_a_dict_of_first_positions(stored: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    first: dict[tuple[int, int], int] = {}
    for position, key in enumerate(stored):
        first.setdefault(key, position)
    lookup = Lookup(keys(stored))
    assert lookup.find(keys(asked)).tolist() == [first.get(key, -1) for key in asked]
    assert lookup.distinct == len(first)
