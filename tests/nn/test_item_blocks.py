"""Blocks of chosen rows, in any order, and back."""

import numpy as np
import torch

from encodeonce.nn.item_blocks import ItemBlocks


def test_keys_stay_inside_their_item() -> None:
    blocks = ItemBlocks((3, 1, 2), None)
    assert blocks.keys.tolist() == [[0, 1, 2], [3, 3, 3], [4, 5, 5]]
    assert blocks.real.tolist() == [[True, True, True], [True, False, False], [True, True, False]]
    assert blocks.queries.ravel()[blocks.back].tolist() == list(range(6))


def test_chosen_rows_come_back_in_their_order() -> None:
    x, owner = torch.randn(6, 4), np.array([0, 0, 0, 1, 2, 2])
    for rows in ([0, 2, 3, 5], [5, 2, 0, 3, 4], [4], [1, 1, 3], []):
        blocks = ItemBlocks((3, 1, 2), torch.tensor(rows, dtype=torch.int64))
        assert blocks.queries.ravel()[blocks.back].tolist() == rows
        assert (owner[blocks.queries] == np.arange(3)[:, None]).all()
        assert torch.equal(blocks.out_of(blocks.queries_of(x)), x[rows])
        assert blocks.in_order == (sorted(owner[rows]) == owner[rows].tolist())


def test_even_items_are_not_copied() -> None:
    x, even, uneven = torch.randn(6, 4), ItemBlocks((2, 2, 2), None), ItemBlocks((3, 3), torch.tensor([4, 0]))
    assert torch.equal(even.keys_of(x), x[even.keys])
    assert even.keys_of(x).data_ptr() == even.out_of(even.keys_of(x)).data_ptr() == x.data_ptr()
    assert torch.equal(uneven.out_of(uneven.queries_of(x)), x[[4, 0]])
