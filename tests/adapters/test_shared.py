"""Checks that every file of adapters/ must pass.   Axes: L views  P rows  R chosen rows  D width"""

import inspect

import pytest
import torch

from encodeonce.adapters import Adapter
from encodeonce.adapters.adapted import Adapted
from encodeonce.adapters.fusion import Fusion
from encodeonce.nn.packed import Packed
from encodeonce.resolve import available, resolve

WIDTH, N_VIEWS = 16, 4


def made(name: str) -> Adapter:
    """The adapter of a file, with every argument it asks for that has no default."""
    known = {"width": WIDTH, "n_views": N_VIEWS, "adapter": Fusion(WIDTH, N_VIEWS)}
    cls = resolve("adapters", name)
    wanted = [p.name for p in inspect.signature(cls).parameters.values() if p.default is p.empty]
    adapter = cls(**{argument: known[argument] for argument in wanted})
    for parameter in adapter.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return adapter.eval()


def items(*lengths: int) -> list[torch.Tensor]:
    return [torch.randn(N_VIEWS, length, WIDTH) for length in lengths]


every_adapter = pytest.mark.parametrize("name", available("adapters"))


@every_adapter
def test_alone_equals_in_company(name: str) -> None:
    """CA7 in packed form: an item's vectors do not depend on its batch mates."""
    adapter, parts = made(name), items(5, 1, 7)
    together = adapter(Packed.of(parts))
    alone = torch.cat([adapter(Packed.of([part])) for part in parts])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-5)


@every_adapter
def test_chosen_rows_equal_all_rows_indexed(name: str) -> None:
    adapter, batch = made(name), Packed.of(items(5, 1, 7))
    for rows in (torch.tensor([0, 3, 5, 6, 12]), torch.tensor([12, 0, 9, 1]), torch.tensor([2]), torch.arange(13)):
        torch.testing.assert_close(adapter(batch, rows), adapter(batch)[rows], atol=1e-6, rtol=1e-5)
        weights = adapter.layer_weights(batch, rows)
        torch.testing.assert_close(weights, adapter.layer_weights(batch)[rows], atol=1e-6, rtol=1e-5)


@every_adapter
def test_layer_weights_are_distributions(name: str) -> None:
    weights = made(name).layer_weights(Packed.of(items(4, 2)))
    assert weights.shape == (6, N_VIEWS)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(6), atol=1e-6, rtol=0)


@every_adapter
def test_half_precision_in_single_precision_out(name: str) -> None:
    adapter, batch = made(name), Packed.of(items(4, 2))
    for dtype in (torch.float16, torch.bfloat16):
        halved = Packed(batch.views.to(dtype), batch.lengths)
        same_values = Packed(halved.views.float(), batch.lengths)
        out = adapter(halved)
        assert out.dtype == torch.float32
        torch.testing.assert_close(out, adapter(same_values))


@every_adapter
def test_every_parameter_gets_a_gradient(name: str) -> None:
    adapter, batch = made(name), Packed.of(items(5, 3))
    (adapter(batch, torch.tensor([1, 4, 6])) * torch.randn(3, WIDTH)).sum().backward() if len(
        list(adapter.parameters())
    ) else None
    inert = {"attention.key.reduce.bias", "attention.key.within.bias", "tailor.attention.key.bias"}
    for path, parameter in adapter.named_parameters():
        assert parameter.grad is not None, path
        assert path in inert or parameter.grad.abs().max() > 1e-6, path


@every_adapter
def test_gradients_reach_the_views_and_equal_finite_differences(name: str) -> None:
    """A live encoder can stand below any adapter."""
    adapter = made(name).double()
    views = torch.randn(N_VIEWS, 5, WIDTH, dtype=torch.float64, requires_grad=True)
    rows = torch.tensor([0, 2, 4])
    assert torch.autograd.gradcheck(lambda x: adapter(Packed(x, (3, 2)), rows), views)


@every_adapter
def test_no_rows_give_no_vectors(name: str) -> None:
    adapter, batch = made(name), Packed.of(items(4, 2))
    assert adapter(batch, torch.zeros(0, dtype=torch.int64)).shape == (0, WIDTH)


@every_adapter
def test_training_is_repeatable_from_the_generator_state(name: str) -> None:
    adapter, batch = made(name).train(), Packed.of(items(4, 2))
    state = torch.get_rng_state()
    first = adapter(batch)
    torch.set_rng_state(state)
    assert torch.equal(first, adapter(batch))


def test_adapted_dropout_is_active_in_training_only() -> None:
    adapter, batch = Adapted(WIDTH, dropout=0.5), Packed.of(items(4, 2))
    assert not torch.equal(adapter(batch), adapter(batch))
    adapter.eval()
    assert torch.equal(adapter(batch), adapter(batch))
