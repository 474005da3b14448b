"""Extrapolation from timed parts, with a clock that runs by the work done: the truth is then known.

Axes: L views   T rows of one item   P rows in all   D width
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encodeonce.cli import calibration
from encodeonce.cli.calibration import Items, Shown, cached_seconds, encoding_seconds, live_seconds
from encodeonce.costs import encoder_products, forward_macs
from encodeonce.encoders.encode import batches, jobs_of
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.aggregate import Variant
from encodeonce.tasks.tagging import Tagging
from encodeonce.train.settings import Settings
from encodeonce.types import Document, Pieces, Spec

from .conftest import LEXICON

WORDS = [word for group in LEXICON.values() for word in group]
RATE = 1e-7
"""Seconds a multiply-accumulate of the clock that follows the work."""


class WorkClock:
    """Stands still but for the work that it is told of."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def items() -> list[Document]:
    """120 sentences of 1 to 60 words, most of them short."""
    rng = random.Random(3)
    lengths = [min(60, 1 + int(rng.expovariate(1 / 8))) for _ in range(120)]
    words = [tuple(rng.choice(WORDS) for _ in range(n)) for n in lengths]
    return [Document(str(i), own, columns={"tag": own}) for i, own in enumerate(words)]


def shown_of(model: Pretrained, items: Sequence[Document]) -> tuple[Shown, list[Pieces]]:
    pieces = model.cut(items)
    jobs = [job for one in pieces for job in jobs_of(0, one)]
    missing = np.arange(len(jobs)) % 2 == 0
    return Shown(jobs, np.ones(len(jobs)), missing), pieces


def test_encoding_is_extrapolated_by_work_and_what_is_missing_is_its_part(tiny: Path, items: list[Document]) -> None:
    model = Pretrained(tiny, batch_pieces=64)
    spec, clock = model.spec(), WorkClock()
    shown, _ = shown_of(model, items)

    def macs(lengths: Sequence[int]) -> int:
        pieces = max(lengths) * len(lengths)
        return forward_macs(encoder_products(model.shape, pieces, pieces * max(lengths)))

    def encode(pieces: Sequence[Pieces], layers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        clock.now += RATE * macs([len(one) for one in pieces])
        for i, one in enumerate(pieces):
            yield i, np.full((len(layers), len(one), spec.width), -3.0, np.float32)

    model.encode = encode  # type: ignore[method-assign, assignment]
    found = encoding_seconds(model, spec, shown, 1e-9, np.random.default_rng(0), clock)
    lengths = shown.lengths
    true = RATE * sum(macs([lengths[i] for i in batch]) for batch in batches(lengths, 64))
    assert found.whole.value == pytest.approx(true)
    assert (found.whole.low, found.whole.high) == (pytest.approx(true), pytest.approx(true))
    own = np.array(lengths, float) * model.shape.linear + np.array(lengths, float) ** 2 * model.shape.quadratic
    assert found.missing.value == pytest.approx(true * own[shown.missing].sum() / own.sum(), rel=0.1)
    assert found.rows.shape[::2] == (len(spec.layers), spec.width)
    assert found.rows.dtype == np.float16
    assert found.largest == 3.0


def test_items_of_a_sample_stand_for_as_many_as_their_weights_say(tiny: Path, items: list[Document]) -> None:
    model = Pretrained(tiny, batch_pieces=64)
    shown, _ = shown_of(model, items)
    heavy = replace(shown, weight=np.full(len(shown.jobs), 3.0), missing=np.ones(len(shown.jobs), bool))
    clock = WorkClock()
    real = model.encode

    def encode(pieces: Sequence[Pieces], layers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        clock.now += RATE * sum(map(len, pieces))
        return real(pieces, layers)

    model.encode = encode  # type: ignore[method-assign, assignment]
    one = encoding_seconds(model, model.spec(), shown, 1e-9, np.random.default_rng(0), clock)
    three = encoding_seconds(model, model.spec(), heavy, 1e-9, np.random.default_rng(0), clock)
    assert three.whole.value == pytest.approx(3 * one.whole.value)
    assert three.missing.value == pytest.approx(three.whole.value)


@pytest.mark.parametrize("name", ["frozen", "adapted"])
def test_a_cached_step_is_the_mean_over_fresh_samples(
    tiny: Path, items: list[Document], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock ticks once a reading; a step of n batches therefore takes 1/n of a tick, whatever the machine."""
    model = Pretrained(tiny)
    pieces = model.cut(items)
    task = Tagging("tag").learn(items)
    ticks = iter(range(10**9))
    monkeypatch.setattr(calibration, "SAMPLED_BATCHES", 5)
    settings = Settings(per_device_train_batch_size=8)
    rows = np.random.default_rng(0).normal(size=(3, 40, 16)).astype(np.float16)
    found = cached_seconds(
        Variant(name, key_width=4),
        model.spec(),
        [task],
        Items(items, pieces, np.ones(len(items))),
        rows,
        settings,
        0.5,
        np.random.default_rng(0),
        lambda: float(next(ticks)),
    )
    assert found.value == pytest.approx(1 / 5)
    assert found.low == pytest.approx(found.high)


def test_live_steps_train_the_top_blocks_alone_and_depths_between_are_between(
    tiny: Path, items: list[Document]
) -> None:
    import time

    model = Pretrained(tiny)
    step = calibration._LiveStep(model, 1, Settings(), time.perf_counter)
    trained = {name for name, parameter in step.stack.named_parameters() if parameter.requires_grad}
    assert trained
    assert all("encoder.layer.1." in name for name in trained)
    whole = calibration._LiveStep(model, 2, Settings(), time.perf_counter)
    assert all(parameter.requires_grad for parameter in whole.stack.parameters())
    before = {name: parameter.detach().clone() for name, parameter in step.stack.named_parameters()}
    step([job for one in model.cut(items[:4]) for job in jobs_of(0, one)])
    moved = {name for name, p in step.stack.named_parameters() if not bool((p == before[name]).all())}
    assert moved == trained
    settings = Settings(per_device_train_batch_size=8)
    chosen = Items(items, model.cut(items), np.full(len(items), 2.0))
    found = live_seconds(model, chosen, settings, 0.1, np.random.default_rng(0), time.perf_counter)
    assert list(found) == [1, 2]
    assert all(0 <= one.low <= one.value <= one.high for one in found.values())
    third = calibration._between({1: found[1], 3: found[2]}, 2, 3)
    assert third.value == pytest.approx((found[1].value + found[2].value) / 2)


def test_a_part_of_a_batch_keeps_its_padding(tiny: Path, items: list[Document]) -> None:
    model = Pretrained(tiny)
    jobs = [job for one in model.cut(items) for job in jobs_of(0, one)]
    longest = max(len(job.ids) for job in jobs)
    part = calibration._part(jobs, 0.25, np.random.default_rng(0))
    assert max(len(job.ids) for job in part) == longest
    assert len(part) == round(0.25 * len(jobs))
    assert len({id(job) for job in part}) == len(part)
    assert calibration._part(jobs, 1.0, np.random.default_rng(0)) == jobs


def test_views_kept_for_training_are_what_the_store_would_take(tiny: Path) -> None:
    model = Pretrained(tiny)
    for dtype, kind in (("fp32", np.float32), ("fp16", np.float16), ("bf16", np.float16), ("int8", np.float16)):
        spec: Spec = replace(model.spec(), dtype=dtype)
        kept = calibration._Kept(spec)
        kept.put(np.random.default_rng(0).normal(size=(3, 5, 16)).astype(np.float32))
        assert kept.rows().dtype == kind
        assert kept.rows().shape == (3, 5, 16)
