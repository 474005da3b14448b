"""Extrapolation from timed parts, with a clock that runs by the work done: the truth is then known.

Axes: L views   T rows of one item   P rows in all   D width
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encodeonce.cli import calibration
from encodeonce.cli.calibration import Shown, encoding_seconds
from encodeonce.costs import encoder_products, forward_macs
from encodeonce.encoders.encode import batches, jobs_of
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.types import Document, Pieces, Spec

RATE = 1e-7
"""Seconds a multiply-accumulate of the clock that follows the work."""


class WorkClock:
    """Stands still but for the work that it is told of."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shown_of(model: Pretrained, uneven: Sequence[Document]) -> tuple[Shown, list[Pieces]]:
    pieces = model.cut(uneven)
    jobs = [job for one in pieces for job in jobs_of(0, one)]
    missing = np.arange(len(jobs)) % 2 == 0
    return Shown(jobs, np.ones(len(jobs)), missing), pieces


def test_encoding_is_extrapolated_by_work_and_what_is_missing_is_its_part(tiny: Path, uneven: list[Document]) -> None:
    model = Pretrained(tiny, batch_pieces=64)
    spec, clock = model.spec(), WorkClock()
    shown, _ = shown_of(model, uneven)

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


def test_items_of_a_sample_stand_for_as_many_as_their_weights_say(tiny: Path, uneven: list[Document]) -> None:
    model = Pretrained(tiny, batch_pieces=64)
    shown, _ = shown_of(model, uneven)
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


@pytest.mark.parametrize(
    ("left", "strata", "part"),
    [(100.0, 5, 1.0), (30.0, 5, 1.0), (15.0, 3, 1.0), (4.1, 1, 1.0), (1.5, 1, 0.25), (-1.0, 1, 0.0)],
)
def test_strata_are_given_up_before_batches_are_cut(left: float, strata: int, part: float) -> None:
    """A batch takes 2 s: three rounds of five are 30 s, of which two thirds are enough."""
    found, share = calibration.affordable(np.ones(20), 2.0, left, 5)
    assert (len(found), share) == (strata, pytest.approx(part))
    assert sorted(np.concatenate(found)) == list(range(20))


def test_views_kept_for_training_are_what_the_store_would_take(tiny: Path) -> None:
    model = Pretrained(tiny)
    for dtype, kind in (("fp32", np.float32), ("fp16", np.float16), ("bf16", np.float16), ("int8", np.float16)):
        spec: Spec = replace(model.spec(), dtype=dtype)
        kept = calibration._Kept(spec)
        kept.put(np.random.default_rng(0).normal(size=(3, 5, 16)).astype(np.float32))
        assert kept.rows().dtype == kind
        assert kept.rows().shape == (3, 5, 16)
