"""The recurrence against the paper's formulas step by step in NumPy, and its gradients against autograd's."""

import numpy as np
import pytest
import torch
from torch import Tensor

from encodeonce.errors import ConfigError
from encodeonce.nn.partition_filter import Filtered, PartitionFilter, gates, stepwise

WIDTH, HIDDEN = 6, 5
LENGTHS = (3, 1, 7, 3, 4)


def made(dropconnect: float = 0.1) -> PartitionFilter:
    torch.manual_seed(3)
    return PartitionFilter(WIDTH, HIDDEN, dropconnect).double().eval()


def by_hand(model: PartitionFilter, x: np.ndarray, past: np.ndarray) -> tuple[np.ndarray, ...]:
    """One item [T, D] by the paper's equations, partition by partition; `past` is W_h as it is used."""

    def weights(layer: torch.nn.Linear) -> tuple[np.ndarray, np.ndarray]:
        return layer.weight.detach().numpy(), layer.bias.detach().numpy()

    def rising(z: np.ndarray) -> np.ndarray:
        return np.cumsum(np.exp(z) / np.exp(z).sum())

    (w_in, b_in), (_, b_past), (w_merge, b_merge) = map(weights, (model.input, model.past, model.merge))
    state, cell, kept = np.zeros(HIDDEN), np.zeros(HIDDEN), []
    for row in x:
        c, e1, r1, e2, r2 = np.split(w_in @ row + b_in + past @ state + b_past, 5)
        e_in, r_in, e_c, r_c, c = 1 - rising(e1), rising(r1), 1 - rising(e2), rising(r2), np.tanh(c)
        overlap_in, overlap_c = e_in * r_in, e_c * r_c
        share = overlap_in * cell + overlap_c * c
        c_re = (r_in - overlap_in) * cell + (r_c - overlap_c) * c + share
        c_ner = (e_in - overlap_in) * cell + (e_c - overlap_c) * c + share
        cell = w_merge @ np.concatenate([c_re, c_ner, share]) + b_merge
        state = np.tanh(cell)
        kept.append(np.tanh([c_re, c_ner, share]))
    return tuple(np.array(kept).transpose(1, 0, 2))


@pytest.mark.parametrize("dropconnect", [0.0, 0.1])
def test_A9_the_recurrence_equals_numpy_step_by_step(dropconnect: float) -> None:
    model, x = made(dropconnect), torch.randn(sum(LENGTHS), WIDTH, dtype=torch.float64)
    found = model(x, LENGTHS)
    past = model.past.weight.detach().numpy() * (1 - dropconnect)
    start = 0
    for length in LENGTHS:
        expected = by_hand(model, x[start : start + length].numpy(), past)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours[start : start + length].detach(), theirs, atol=1e-12)
        start += length


def test_A9_one_mask_cuts_the_past_weights_for_a_whole_forward_pass_and_scales_nothing() -> None:
    model, x = made(0.4).train(), torch.randn(5, WIDTH, dtype=torch.float64)
    torch.manual_seed(11)
    kept = (model.dropconnect.factors(*model.past.weight.shape) > 0).double()
    torch.manual_seed(11)
    found = model(x, (5,))
    assert 0.2 < 1 - kept.mean() < 0.6
    expected = by_hand(model, x.numpy(), (model.past.weight * kept).detach().numpy())
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.detach(), theirs, atol=1e-12)


def test_CA19_gates_and_partitions() -> None:
    """The last feature of 1 - cs is 0 and of cs is 1; overlap + rel + ent = e + r - e r; all in [0, 1]."""
    candidate, soft, risen = gates(torch.randn(40, 5 * HIDDEN) * 3)
    torch.testing.assert_close(soft.sum(-1), torch.ones(40, 2, 2))
    entity, relation = risen.unbind(2)
    torch.testing.assert_close(entity[..., -1], torch.zeros(40, 2), atol=3e-7, rtol=0)
    torch.testing.assert_close(relation[..., -1], torch.ones(40, 2), atol=3e-7, rtol=0)
    assert (entity.diff(dim=-1) <= 0).all()
    assert (relation.diff(dim=-1) >= 0).all()
    overlap = entity * relation
    only_relation, only_entity = relation - overlap, entity - overlap
    torch.testing.assert_close(overlap + only_relation + only_entity, entity + relation - entity * relation)
    for part in (overlap, only_relation, only_entity):
        assert part.min() >= -3e-7
        assert part.max() <= 1 + 3e-7
    assert candidate.abs().max() <= 1


def plain(inputs: Tensor, past: Tensor, merge: Tensor, bias: Tensor, length: int) -> list[Tensor]:
    """One item by autograd's own operations."""
    state = cell = inputs.new_zeros(HIDDEN)
    kept = []
    for row in inputs[:length]:
        z = row + past @ state
        c, (e1, r1, e2, r2) = z[:HIDDEN].tanh(), z[HIDDEN:].view(4, HIDDEN).softmax(-1).cumsum(-1)
        told = r1 * cell + r2 * c
        named = (1 - e1) * cell + (1 - e2) * c
        shared = (1 - e1) * r1 * cell + (1 - e2) * r2 * c
        cell = merge @ torch.cat([told, named, shared]) + bias
        state = cell.tanh()
        kept.append(torch.cat([told, named, shared]).tanh())
    return kept


@pytest.mark.parametrize("lengths", [LENGTHS, (1,), (1, 1), (6,), (2, 5)])
def test_gradients_equal_autograd(lengths: tuple[int, ...]) -> None:
    model, x = made(), torch.randn(sum(lengths), WIDTH, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(sum(lengths), 3 * HIDDEN, dtype=torch.float64)
    wanted = [x, *model.parameters()]
    ours = torch.autograd.grad((torch.cat(model(x, lengths), 1) * weight).sum(), wanted)
    inputs, kept, start = model.input(x) + model.past.bias, [], 0
    for length in lengths:
        kept += plain(inputs[start:], 0.9 * model.past.weight, model.merge.weight, model.merge.bias, length)
        start += length
    theirs = torch.autograd.grad((torch.stack(kept) * weight).sum(), wanted, materialize_grads=True)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-11, rtol=1e-9)


def test_A15_an_item_alone_is_the_item_among_others() -> None:
    model = PartitionFilter(WIDTH, HIDDEN).eval()
    x = torch.randn(sum(LENGTHS), WIDTH)
    together, start = model(x, LENGTHS), 0
    for length in LENGTHS:
        alone = model(x[start : start + length], (length,))
        for one, other in zip(alone, together, strict=True):
            torch.testing.assert_close(one, other[start : start + length], atol=1e-6, rtol=0)
        start += length


def test_steps_read_the_longest_items_first() -> None:
    order, back, sizes = stepwise((2, 3, 1))
    assert order.tolist() == [2, 0, 5, 3, 1, 4]
    assert sizes == (3, 2, 1)
    assert order[back].tolist() == list(range(6))


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"dropout=1.0 must lie in \[0, 1\)"):
        PartitionFilter(WIDTH, HIDDEN, 1.0)
    assert isinstance(made()(torch.randn(2, WIDTH, dtype=torch.float64), (2,)), Filtered)
