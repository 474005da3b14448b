"""The bi-level search: identities 28-30 of the spec, second order, a planted problem, and going on after a stop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fusion_world import FAMILIES, WIDTH, K, World, documents, stopping
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from encodeonce.batching import Batch, Cut
from encodeonce.methods.refusion import FUSINGS, Fusing, Refusion, Retrieved, refusion
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.train.upper import Upper
from encodeonce.types import Document


@pytest.fixture(scope="module", params=FAMILIES)
def world(request: pytest.FixtureRequest, checkpoint: Callable[..., Path]) -> World:
    return World(checkpoint(request.param))


@pytest.fixture(scope="module")
def small(checkpoint: Callable[..., Path]) -> World:
    return World(checkpoint("bert"))


def rates_of(method: Refusion, *rates: float) -> dict[Tensor, float]:
    """These rates in turn, a group each."""
    groups = method.groups(method.name).values()
    return {weight: rates[i % len(rates)] for i, own in enumerate(groups) for weight in own}


def test_I28_the_architecture_step_leaves_no_gradient_at_any_weight(world: World) -> None:
    for order in (1, 2):
        method = world.made(Fusing(k=K, order=order))
        method.train()
        train, dev = (world.batch(method, world.near(), n=n) for n in (6, 11))
        (gradient,) = method.upper_gradients(dev, train, rates_of(method, 1e-3))
        assert gradient is not None
        assert gradient.any()
        assert all(parameter.grad is None for parameter in method.parameters())
        before = [parameter.detach().clone() for parameter in method.parameters()]
        method.upper_gradients(dev, train, rates_of(method, 1e-3))
        assert all(torch.equal(a, b) for a, b in zip(before, method.parameters(), strict=True))


def test_I28_a_weight_step_leaves_the_architecture_alone(world: World) -> None:
    method = world.made(Fusing(k=K))
    method.train()
    method.loss(world.batch(method, world.near())).backward()
    assert method.fusion.architecture is not None
    assert method.fusion.architecture.grad is None
    assert method.fusion.rank is not None
    assert method.fusion.rank.grad is not None


def test_I28_the_release_leaks_dev_gradients_and_never_moves(world: World) -> None:
    release = FUSINGS["release"].to_json()
    method = world.made(Fusing(**{**release, "k": K}))
    method.train()
    dev = world.batch(method, world.near())
    assert method.upper_gradients(dev, dev, {}) == [None]
    trained = [parameter for own in method.groups(method.name).values() for parameter in own]
    assert all(parameter.grad is not None for parameter in trained)
    assert method.fusion.architecture is not None
    assert method.fusion.architecture.grad is None
    assert method.fusion.architecture.abs().max() > 0.1


@pytest.mark.parametrize("leak", [True, False])
def test_I28_a_weight_step_of_the_release_has_the_dev_gradients_too(leak: bool, small: World) -> None:
    """In the loop: what stands at the weights when the train loss is taken is the dev loss's gradient, or nothing."""
    settings = FUSINGS["release"].to_json() if leak else {}
    method = small.made(Fusing(**{**settings, "k": K, "schemes": ["identity", "reranker"]}))
    examples = method.read(Retrieved(small.cut, small.near()), small.documents, [small.task])
    head = next(iter(method.groups(method.name)["head"]))
    step, losses, left, met = method.upper_gradients, method.losses, [], []

    def upper_gradients(*given: Any) -> Any:
        found = step(*given)
        left.append(None if head.grad is None else head.grad.clone())
        return found

    def of_the_loop(batch: Batch, names: Any) -> Any:
        if left and len(met) < len(left):
            met.append(None if head.grad is None else head.grad.clone())
        return losses(batch, names)

    method.upper_gradients, method.losses = upper_gradients, of_the_loop  # type: ignore[method-assign]
    one = Settings(num_train_epochs=1, per_device_train_batch_size=6, learning_rate=1e-9)
    fit(method, examples, {"classification": small.task}, one, upper=Upper(examples, batch_size=11))
    assert len(left) == len(met) == 2
    for own, found in zip(left, met, strict=True):
        if leak:
            assert own.any()
            assert torch.equal(own, found)
        else:
            assert own is found is None


def test_I29_one_candidate_has_no_architecture_and_no_dev_pass(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    method = world.made(Fusing(k=K, schemes=["reranker"]))
    assert method.fusion.architecture is None
    assert method.upper_parameters() == []
    examples = method.read(Retrieved(world.cut, world.near()), world.documents, [world.task])
    asked = []
    true = Refusion.batches
    monkeypatch.setattr(Refusion, "batches", lambda self, e, **o: asked.append(o["size"]) or true(self, e, **o))
    settings = Settings(num_train_epochs=1, per_device_train_batch_size=4, learning_rate=1e-4)
    fit(method, examples, {"classification": world.task}, settings, upper=Upper(examples, batch_size=5))
    assert 5 not in asked
    searching = world.made(Fusing(k=K))
    fit(searching, examples, {"classification": world.task}, settings, upper=Upper(examples, batch_size=5))
    assert 5 in asked
    asked.clear()
    fit(world.made(Fusing(k=K)), examples, {"classification": world.task}, settings, upper=Upper(examples))
    assert set(asked) == {4}


@pytest.mark.parametrize("rate", [0.0, 1e-7])
def test_I30_second_order_is_first_order_as_the_rate_goes_to_0(rate: float, world: World) -> None:
    """At exactly 0 there is nothing to compute; near it the whole finite difference is computed, and weighs nothing."""
    first, second = (world.made(Fusing(k=K, order=order)) for order in (1, 2))
    second.load_state_dict(first.state_dict())
    gradients = []
    for method in (first, second):
        method.eval()
        batch = world.batch(method, world.near())
        (gradient,) = method.upper_gradients(batch, batch, rates_of(method, rate))
        assert gradient is not None
        gradients.append(gradient)
    assert rate or torch.equal(*gradients)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6 * float(gradients[0].abs().max()))


def test_second_order_equals_the_derivative_through_the_virtual_step(checkpoint: Callable[..., Path]) -> None:
    """d/da L_dev(w - rate dL_train/dw(w, a), a) by double backward, against the finite difference; two rates."""
    world = World(checkpoint("bert"))
    method = world.made(Fusing(k=K, order=2, schemes=["identity", "reranker"], scale="convex"))
    method.eval().double()
    train, dev = (world.batch(method, world.near(), n=n) for n in (6, 11))
    for batch in (train, dev):
        object.__setattr__(batch.packed, "near", batch.packed.near.double())
    rates = rates_of(method, 0.1, 0.02)
    (found,) = method.upper_gradients(dev, train, rates)
    (first_order,) = method.upper_gradients(dev, train, {})
    weights = {name: p for name, p in method.named_parameters() if not name.endswith("architecture")}
    (alpha,) = method.upper_parameters()

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = method

        def forward(self, batch: Batch) -> Tensor:
            return self.inner.loss(batch)

    loss = Loss()
    with method.fusion.searching(), sdpa_kernel(SDPBackend.MATH):
        slopes = torch.autograd.grad(loss(train), list(weights.values()), create_graph=True, allow_unused=True)
        moved = {
            f"inner.{name}": weight if slope is None else weight - rates[weight] * slope
            for (name, weight), slope in zip(weights.items(), slopes, strict=True)
        }
        (expected,) = torch.autograd.grad(torch.func.functional_call(loss, moved, (dev,)), alpha)
    assert (found - expected).norm() < 0.05 * (expected - first_order).norm()


PLANTED = {"add": ("identity", "add"), "mask": Fusing().schemes, "identity": ("identity", "add")}
"""The right scheme -> the candidates. Of neighbours that are all alike a mask adds more than ranks over k do."""


@pytest.mark.parametrize(
    ("right", "family"), [("add", "bert"), ("identity", "bert"), *(("mask", family) for family in FAMILIES)]
)
def test_the_architecture_finds_the_scheme_of_a_planted_problem(
    right: str, family: str, checkpoint: Callable[..., Path]
) -> None:
    """Texts say nothing and the neighbours everything; or neighbours say in training what is wrong on dev."""
    world = World(checkpoint(family), documents(48))
    labels = np.arange(48) % 2
    ids = np.repeat(labels[:, None, None], K, 2)
    if right == "identity":
        ids[24:] = 1 - ids[24:]
        marked = [
            Document(d.id, text=f"{'cat' if i % 2 else 'river'} {d.text}", meta=d.meta)
            for i, d in enumerate(world.documents)
        ]
        world.documents = marked
        world.cut = Cut(world.model.spec(), world.model.cut(marked))
    corpus = np.zeros((50, WIDTH), np.float32)
    corpus[0], corpus[1] = 3.0, -3.0
    corpus[:2, ::2] *= -1
    method = refusion(world.plain(), Fusing(k=K, slots=["value"], blocks=[1, 2], schemes=PLANTED[right]), WIDTH)
    source = Retrieved(world.cut, world.near(ids, corpus))
    train, dev = (method.read(source, part, [world.task]) for part in (world.documents[:24], world.documents[24:]))
    settings = Settings(
        num_train_epochs=20, per_device_train_batch_size=12, learning_rate=2e-3, lr_scheduler_type="constant"
    )
    upper = Upper(dev, batch_size=24, learning_rate=0.05, weight_decay=0.0, warmup=2)
    fit(method, train, {"classification": world.task}, settings, upper=upper)
    decisions = method.architecture()
    assert method.fusion.architecture is not None
    assert method.fusion.architecture.abs().max() > 0.2
    assert {decision.chosen for decision in decisions} == {right}, decisions
    assert sum(decision.shares[right] for decision in decisions) / 2 > 0.1 + 1 / len(PLANTED[right])
    fixed = Fusing(k=K, slots=["value"], blocks=[1, 2], choice=method.choice())
    again = refusion(world.plain(), fixed, WIDTH)
    assert again.upper_parameters() == []
    assert [decision.chosen for decision in again.architecture()] == [right, right]


def test_a_search_that_was_stopped_goes_on_bit_by_bit(small: World, tmp_path: Path) -> None:
    settings = Settings(
        num_train_epochs=3, per_device_train_batch_size=4, learning_rate=1e-3, inside_learning_rate=1e-2, save_steps=1
    )

    def run(folder: Path | None, stop: int = 0) -> Refusion:
        torch.manual_seed(5)
        method = small.made(Fusing(k=K))
        examples = method.read(Retrieved(small.cut, small.near()), small.documents, [small.task])
        upper = Upper(examples, batch_size=3, learning_rate=0.1, every=2)
        stopping(method, stop)
        fit(method, examples, {"classification": small.task}, settings, folder=folder, upper=upper)
        return method

    whole = run(None)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", stop=8)
    resumed = run(tmp_path / "run")
    for (name, a), b in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert whole.fusion.architecture is not None
    assert whole.fusion.architecture.any()


def test_rates_of_what_is_inside(small: World) -> None:
    method = small.made(Fusing(k=K))
    groups = method.groups(method.name)
    assert set(groups) == {"head", "encoder", "inside"}
    inside = {id(parameter) for parameter in groups["inside"]}
    assert inside == {id(method.fusion.rank), id(method.fusion.chain)}
    assert id(method.fusion.architecture) not in {id(p) for own in groups.values() for p in own}
