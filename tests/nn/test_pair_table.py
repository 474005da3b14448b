"""Tables of pairs against one pair after the other, and their gradients against autograd's."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu, layer_norm, linear

from encodeonce.nn import pair_kernel, pair_table
from encodeonce.nn.pair_table import Cells, PairTable

WIDTH, OUTPUTS = 5, 3
COUNTS = (3, 1, 6)
LENGTHS = (5, 3, 9)
WORDS = torch.tensor([1, 2, 3, 6, 9, 10, 12, 13, 14, 15])


def made(dropout: float = 0.0) -> PairTable:
    table = PairTable(WIDTH, OUTPUTS, dropout).double()
    torch.nn.init.normal_(table.norm.weight)
    torch.nn.init.normal_(table.norm.bias)
    return table


def pair(table: PairTable, own: Tensor, shared: Tensor, row: int, column: int, rows: slice) -> Tensor:
    """The paper's formula for one pair of rows of one item."""
    most = torch.tanh(table.whole(torch.cat([shared[rows], own[rows]], 1))).max(0).values
    joined = torch.cat([own[row], own[column], most])
    normed = layer_norm(table.pair(joined), (WIDTH,), table.norm.weight, table.norm.bias, table.norm.eps)
    return linear(elu(normed), table.out.weight, table.out.bias)


def one_by_one(table: PairTable, own: Tensor, shared: Tensor, cells: Cells) -> Tensor:
    item = np.repeat(np.arange(3), COUNTS)
    ends = np.cumsum(LENGTHS)
    scores = []
    for row, column in zip(cells.row, cells.column, strict=True):
        assert item[row] == item[column]
        rows = slice(ends[item[row]] - LENGTHS[item[row]], ends[item[row]])
        scores.append(pair(table, own, shared, int(WORDS[row]), int(WORDS[column]), rows))
    return torch.stack(scores)


@pytest.mark.parametrize("longest", [None, 1, 2, 6])
@pytest.mark.parametrize("at_once", [1, 7, 512])
def test_A9_scores_and_gradients_equal_one_pair_after_the_other(
    monkeypatch: pytest.MonkeyPatch, longest: int | None, at_once: int
) -> None:
    monkeypatch.setattr(pair_table, "AT_ONCE", at_once)
    table, cells = made(), Cells.of(COUNTS, longest)
    own, shared = torch.randn(2, sum(LENGTHS), WIDTH, dtype=torch.float64).requires_grad_().unbind(0)
    ours, theirs = table(own, shared, LENGTHS, WORDS, COUNTS, cells), one_by_one(table, own, shared, cells)
    torch.testing.assert_close(ours, theirs)
    weight = torch.randn_like(ours)
    wanted = [own, shared, *table.parameters()]
    mine = torch.autograd.grad((ours * weight).sum(), wanted)
    other = torch.autograd.grad((theirs * weight).sum(), wanted)
    for one, two in zip(mine, other, strict=True):
        torch.testing.assert_close(one, two, atol=1e-10, rtol=1e-7)


@pytest.mark.parametrize("longest", [None, 1, 2, 4, 99])
@pytest.mark.parametrize("counts", [(), (0,), (1,), (3, 0, 5), (40, 2)])
def test_every_pair_of_an_item_has_one_cell(counts: tuple[int, ...], longest: int | None) -> None:
    cells = Cells.of(counts, longest)
    item = np.repeat(np.arange(len(counts)), counts)
    wanted = {
        (i, j)
        for i in range(len(item))
        for j in range(len(item))
        if item[i] == item[j] and (longest is None or 0 <= j - i < longest)
    }
    inside = cells.inside
    found = list(zip(cells.row[inside].tolist(), cells.column[inside].tolist(), strict=True))
    assert len(found) == len(wanted)
    assert set(found) == wanted
    assert sum(block.size for block in cells.blocks) == len(cells.row)
    if wanted:
        row, column = np.array(sorted(wanted)).T
        at = cells.at(row, column)
        assert cells.row[at].tolist() == row.tolist()
        assert cells.column[at].tolist() == column.tolist()


def test_pairs_outside_the_band_have_no_cell() -> None:
    assert Cells.of((5,), 2).at(np.array([2, 2, 2]), np.array([1, 3, 4])).tolist() == [-1, *Cells.of((5,), 2).at(
        np.array([2]), np.array([3])
    ).tolist(), -1]  # fmt: skip


def test_dropout_masks_what_is_normed_and_the_way_back_uses_the_same_mask() -> None:
    table = made(0.5).train()
    own, shared = torch.randn(2, 2, WIDTH, dtype=torch.float64)
    cells, words = Cells.of((2,)), torch.tensor([0, 1])
    torch.manual_seed(4)
    mask = table.dropout.factors(4, WIDTH)
    assert mask is not None
    assert mask.unique().tolist() == [0, 2]
    most = torch.tanh(table.whole(torch.cat([shared, own], 1))).max(0).values
    joined = torch.stack([torch.cat([own[i], own[j], most]) for i in (0, 1) for j in (0, 1)])
    normed = layer_norm(table.pair(joined), (WIDTH,), table.norm.weight, table.norm.bias, table.norm.eps)
    theirs = table.out(elu(normed * mask.double()))
    torch.manual_seed(4)
    ours = table(own, shared, (2,), words, (2,), cells)
    torch.testing.assert_close(ours, theirs)
    mine = torch.autograd.grad(ours.square().sum(), list(table.parameters()))
    other = torch.autograd.grad(theirs.square().sum(), list(table.parameters()))
    for one, two in zip(mine, other, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("width", [1, 15, 16, 37, 300])
def test_the_compiled_kernel_equals_tensor_operations(
    monkeypatch: pytest.MonkeyPatch, width: int, dropout: float
) -> None:
    """Scores and all gradients in fp32; a machine without a compiler compares tensor operations with themselves."""
    table = PairTable(width, OUTPUTS, dropout)
    torch.nn.init.normal_(table.norm.weight)
    own, shared = torch.randn(2, sum(LENGTHS), width, requires_grad=True).unbind(0)
    found = []
    for usable in (True, False):
        if not usable:
            monkeypatch.setattr(pair_kernel, "usable", lambda *tensors: False)
        torch.manual_seed(0)
        scores = table(own, shared, LENGTHS, WORDS, COUNTS, Cells.of(COUNTS))
        found.append((scores, *torch.autograd.grad(scores.sin().sum(), [own, shared, *table.parameters()])))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=2e-4)
