"""Blocks of chosen rows, in any order, and back."""

import torch

from encodeonce.nn.item_blocks import ItemBlocks


def test_keys_stay_inside_their_item() -> None:
    blocks = ItemBlocks.of((3, 1, 2), None, torch.device("cpu"))
    assert blocks.keys.tolist() == [[0, 1, 2], [3, 3, 3], [4, 5, 5]]
    assert blocks.real.tolist() == [[True, True, True], [True, False, False], [True, True, False]]
    assert blocks.queries.flatten()[blocks.back].tolist() == list(range(6))


def test_chosen_rows_come_back_in_their_order() -> None:
    for rows in ([0, 2, 3, 5], [5, 2, 0, 3, 4], [4], [1, 1, 3]):
        blocks = ItemBlocks.of((3, 1, 2), torch.tensor(rows), torch.device("cpu"))
        assert blocks.queries.flatten()[blocks.back].tolist() == rows
        owner = torch.tensor([0, 0, 0, 1, 2, 2])
        assert (owner[blocks.queries] == torch.arange(3)[:, None]).all()
