"""Timed training steps: what they train, what they read, and how an epoch follows from them.

Axes: L views   P rows in all   D width
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encodeonce.cli import rehearsal as module
from encodeonce.cli.rehearsal import Items, Rehearsal
from encodeonce.cli.sampling import equal_shares
from encodeonce.costs import Amount, encoder_products, step_macs
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import DataError
from encodeonce.methods.aggregate import Variant
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.tasks.tagging import Tagging
from encodeonce.train.optim import count_parameters
from encodeonce.train.settings import Settings
from encodeonce.types import Document

Make = Callable[..., Rehearsal]
MIX, WHOLE = Tuning("live_mix", live=1), Tuning("finetune")
DEPTHS = {MIX: 1, WHOLE: 2}


@pytest.fixture
def make(tiny: Path, uneven: list[Document]) -> Make:
    """A rehearsal of the uneven sentences, each of which stands for two."""

    def build(clock: Callable[[], float] = time.perf_counter) -> Rehearsal:
        model = Pretrained(tiny)
        items = Items(uneven, model.cut(uneven), np.full(len(uneven), 2.0))
        rows = np.random.default_rng(0).normal(size=(3, 40, 16)).astype(np.float16)
        settings = Settings(per_device_train_batch_size=8)
        return Rehearsal(model.spec(), [Tagging("tag").learn(uneven)], items, rows, settings, clock)

    return build


@pytest.mark.parametrize("name", ["frozen", "adapted"])
def test_a_cached_step_is_the_mean_over_fresh_samples(make: Make, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock ticks once a reading, and three times a step: at its beginning, between, and at its end."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(module, "SAMPLED_BATCHES", 5)
    found = make(lambda: float(next(ticks))).cached(Variant(name, key_width=4), 0.5, np.random.default_rng(0))
    assert found.value == pytest.approx((3 * 5 + 1) / 5)
    assert found.low == pytest.approx(found.high)


def test_batches_by_pieces_are_rehearsed_as_they_will_be(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(per_device_train_batch_pieces=100, max_grad_norm=1.0)
    one, sizes = replace(make(), settings=settings), []
    pieces = 2 * int(one.items.lengths.sum())
    assert one.n_batches == -(-pieces // 100)
    assert one.batch_items == round(one.items.total / one.n_batches)
    step = module._Step.__call__
    monkeypatch.setattr(
        module._Step, "__call__", lambda self, batch: sizes.append(sum(batch.packed.lengths)) or step(self, batch)
    )
    one.cached(Variant("frozen"), 0.01, np.random.default_rng(0))
    assert np.mean(sizes) == pytest.approx(100, rel=0.1)


def test_a_sample_follows_the_lengths_of_all(make: Make) -> None:
    items = make().items
    assert items.total == 2 * len(items.documents)
    means = [items.lengths[items.drawn(40, np.random.default_rng(seed))].mean() for seed in range(50)]
    assert np.mean(means) == pytest.approx(items.lengths.mean(), rel=0.02)
    assert np.std(means) < 0.5 * items.lengths.std() / np.sqrt(40)


def test_live_steps_train_what_they_say(make: Make, tiny: Path) -> None:
    """One block and the mix, or everything; the model itself stays as it is."""
    one = make()
    model = Pretrained(tiny)
    before = {name: parameter.clone() for name, parameter in model.stack().named_parameters()}
    for tuning, depth in DEPTHS.items():
        step = module._LiveStep(one, model, tuning)
        ((method, alike),) = [(trunk.method, trunk.alike) for trunk in step.trunks]
        assert alike == 1
        start = {name: p.detach().clone() for name, p in method.named_parameters() if p.requires_grad}
        passes, update, macs = step(np.arange(6))
        assert passes > 0
        assert update > 0
        moved = {name for name, p in method.named_parameters() if name in start and bool((p != start[name]).any())}
        assert len(moved) > 0.8 * len(start)
        assert any("embeddings" in name for name in start) == (depth == 2)
        lengths = one.items.lengths[:6].tolist()
        amount = Amount.of(lengths, lengths)
        assert macs == step_macs(encoder_products(model.shape, amount.pieces, amount.squares, depth))
    assert all(bool((p == before[name]).all()) for name, p in model.stack().named_parameters())


def several(make: Make, clock: Callable[[], float] = time.perf_counter) -> Rehearsal:
    """The rehearsal with three tasks: words, the same again, and whether they are long."""
    one = make(clock)
    documents = [
        replace(document, columns={"tag": own, "again": own, "long": tuple(str(len(word) > 3) for word in own)})
        for document in one.items.documents
        for own in [document.columns["tag"]]
    ]
    tasks = [Tagging(name).learn(documents) for name in ("tag", "again", "long")]
    return replace(one, items=replace(one.items, documents=documents), tasks=tasks)


@pytest.mark.parametrize(
    "tuning",
    [
        *(Tuning(name) for name in ("finetune", "top1", "lora")),
        *(Tuning(name, shared=True) for name in ("finetune", "lora", "live_mix")),
        Tuning("lora", lora=2),
        Tuning("live_mix", blocks=[1], over="adapted", key_width=8, n_heads=2),
        Tuning("live_mix", live=2, lora=4, over="linear"),
    ],
)
def test_a_step_trains_what_training_would_build(make: Make, tiny: Path, tuning: Tuning) -> None:
    """As many weights in as many trunks, of those that are alike one for all."""
    one, model = several(make), Pretrained(tiny)
    step = module._LiveStep(one, model, tuning)
    built = Finetune.build(tuning, model, one.spec, one.tasks)
    assert sum(trunk.alike for trunk in step.trunks) == len({id(part.adapter) for part in built.parts})
    assert [trunk.alike for trunk in step.trunks] == ([1] if tuning.shared else [2, 1])
    trained = sum(trunk.alike * count_parameters(trunk.method)["total"] for trunk in step.trunks)
    assert trained == sum(p.numel() for p in built.parameters() if p.requires_grad)
    groups = [group for trunk in step.trunks for group in trunk.step.optimiser.param_groups]
    assert sum(p.numel() for group in groups for p in group["params"]) == sum(
        count_parameters(trunk.method)["total"] for trunk in step.trunks
    )


@pytest.mark.parametrize(("shared", "passes", "update"), [(False, 3, 3), (True, 1, 1)])
def test_a_step_takes_all_trunks_and_one_read(make: Make, tiny: Path, shared: bool, passes: int, update: int) -> None:
    """The clock ticks once a reading of it: reading, both passes and the update of every timed trunk take one each."""
    ticks = iter(range(10**9))
    one = several(make, lambda: float(next(ticks)))
    step = module._LiveStep(one, Pretrained(tiny), replace(WHOLE, shared=shared))
    assert step(np.arange(6)) == (1 + passes, update, step.macs(np.arange(6)))


def test_an_epoch_of_each_method(make: Make, tiny: Path) -> None:
    model, one = Pretrained(tiny), make()
    found, left_out = one.live(model, DEPTHS, 0.1, np.random.default_rng(0))
    assert list(found) == list(DEPTHS)
    assert all(0 <= epoch.low <= epoch.value <= epoch.high for epoch in found.values())
    assert left_out == 2 * sum(len(piece) > model.window for piece in one.items.pieces) > 0


def test_an_epoch_is_the_work_of_all_items_where_time_follows_work(
    make: Make, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is made to take its MACs, and the update nothing: the epoch is then the MACs of all items."""
    one, model = make(), Pretrained(tiny)

    def step(self: module._LiveStep, chosen: np.ndarray) -> tuple[float, float, float]:
        return 1e-9 * self.macs(chosen), 0.0, self.macs(chosen)

    monkeypatch.setattr(module._LiveStep, "__call__", step)
    found, _ = one.live(model, DEPTHS, 0.1, np.random.default_rng(0))
    lengths = one.items.within(model.window).lengths
    for tuning, epoch in found.items():
        whole = step_macs(encoder_products(model.shape, int(lengths.sum()), int((lengths**2).sum()), DEPTHS[tuning]))
        assert epoch.value == pytest.approx(2e-9 * whole)
        assert epoch.low == pytest.approx(epoch.high)


@pytest.mark.parametrize(("strata", "part", "within"), [(1, 0.3, 1e-9), (3, 1.0, 1e-9), (1, 1.0, 0.1)])
def test_an_epoch_has_what_a_step_takes_whatever_it_holds(
    make: Make, tiny: Path, monkeypatch: pytest.MonkeyPatch, strata: int, part: float, within: float
) -> None:
    """As above with a second of every step that no work explains, timed in parts of batches, in whole ones beside a
    half, or in whole ones alone, of which each stands for a mean one."""
    one, model = make(), Pretrained(tiny)

    def step(self: module._LiveStep, chosen: np.ndarray) -> tuple[float, float, float]:
        return 1.0 + 1e-9 * self.macs(chosen), 0.25, self.macs(chosen)

    monkeypatch.setattr(module._LiveStep, "__call__", step)
    monkeypatch.setattr(module, "_affordable", lambda _, __, work, ___: (equal_shares(work, strata), part))
    monkeypatch.setattr(module, "enough", lambda part, n, length: max(2, round(part * n)))
    items = one.items.within(model.window)
    found, _ = one.live(model, DEPTHS, 0.1, np.random.default_rng(0))
    n_batches = -(-items.total // one.batch_items)
    for tuning, epoch in found.items():
        pieces, squares = int(items.lengths.sum()), int((items.lengths**2).sum())
        whole = step_macs(encoder_products(model.shape, pieces, squares, DEPTHS[tuning]))
        assert epoch.value == pytest.approx(2e-9 * whole + 1.25 * n_batches, rel=within)


def test_a_round_costs_what_small_steps_of_all_methods_say(
    make: Make, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mean batch takes half a second with each of two methods, the update a quarter: 1.5 s in all. Three
    rounds are asked for and what comes before them, and half a part beside each part."""
    one, model = make(lambda: 0.0), Pretrained(tiny)
    one = replace(one, items=one.items.within(model.window))
    plan = list(np.arange(len(one.items.pieces)).reshape(-1, 2))
    timers = [module._LiveStep(one, model, tuning) for tuning in DEPTHS]

    def step(self: module._LiveStep, chosen: np.ndarray) -> tuple[float, float, float]:
        mean = float(np.mean([self.macs(batch) for batch in plan]))
        return 0.5 * self.macs(chosen) / mean, 0.25, self.macs(chosen)

    monkeypatch.setattr(module._LiveStep, "__call__", step)
    for rounds, strata, part in ((9.0, 3, 1.0), (3.0, 1, 1.0), (1.0, 1, 1 / 3 / 1.5)):
        found, share = module._affordable(timers, plan, np.ones(len(plan)), rounds * 1.5 / 0.75)
        assert (len(found), share) == (strata, pytest.approx(part))


def test_where_the_line_from_half_a_part_begins() -> None:
    rounds = [[(3.0, 10.0), (5.0, 20.0)], [(3.0, 10.0), (5.0, 20.0)], [(9.0, 10.0), (9.0, 20.0)]]
    assert module._start(rounds, [(2.0, 5.0), (2.0, 5.0), (2.0, 5.0)]) == pytest.approx(1.0)  # the median round
    assert module._start(rounds, []) == 0.0
    assert module._start(rounds, [(1.0, 5.0)] * 3) == 0.0  # below nothing is nothing


def test_a_part_of_a_batch_is_some_of_its_items(make: Make) -> None:
    one = make()
    batch = np.arange(50)
    small = one.part(batch, 0.0, np.random.default_rng(0))
    assert int(one.items.lengths[small].sum()) >= 128
    assert set(one.part(batch, 1.0, np.random.default_rng(0))) == set(batch)
    assert len(one.part(batch, 0.8, np.random.default_rng(0))) == 40
    assert len(set(small)) == len(small) < 50


def test_items_that_are_all_too_long_are_refused(make: Make) -> None:
    with pytest.raises(DataError, match="every training item is longer than 2 pieces"):
        make().items.within(2)
