"""Some of the batches of an encoding pass, really encoded, and what they say of the whole. Nothing is written.

Axes: L views   P rows in all   D width   B windows
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xxhash
from jaxtyping import Bool, Float, Int

from ..costs import Shape, encoder_products, forward_macs
from ..encoders.encode import Job, batches
from ..encoders.pretrained import Pretrained
from ..store.quantise import calibrate, stored_bytes
from ..types import Pieces, Spec
from .sampling import Estimate, equal_shares, extrapolated

__all__ = [
    "MOST_ROUNDS",
    "Clock",
    "Encoded",
    "Shown",
    "affordable",
    "encoding_seconds",
    "enough",
    "rounds_until",
]

Clock = Callable[[], float]
"""Seconds: `time.perf_counter`, or `time.process_time` where other work takes turns with this process."""
KEPT_BYTES = 256 * 2**20
"""Views that are kept for the timed training steps: more than a processor's cache holds."""
MOST_ROUNDS, FEWEST_ROUNDS = 8, 3
STRATA = 5
ROWS = 256
"""Pieces that a timed part of a batch has at least: products of fewer rows are slower a row."""
BRIEF = 0.1
"""Seconds of two windows below which a whole batch is timed before the parts are chosen."""


@dataclass(frozen=True)
class Shown:
    """The windows that an encoder is shown: their ids, how often each stands in the corpus, and which are missing."""

    jobs: Sequence[Job]
    weight: Float[np.ndarray, " B"]
    missing: Bool[np.ndarray, " B"]

    @property
    def lengths(self) -> list[int]:
        return [len(job.ids) for job in self.jobs]


@dataclass(frozen=True)
class Encoded:
    """Seconds of encoding everything and of what is missing, without loading; seconds of loading; and the views of what
    was encoded, [L, P, D] in fp16 or fp32, with their largest absolute value."""

    whole: Estimate
    missing: Estimate
    load: float
    rows: np.ndarray
    largest: float


def encoding_seconds(
    model: Pretrained, spec: Spec, shown: Shown, budget: float, order: np.random.Generator, clock: Clock
) -> Encoded:
    """Batches as a real pass makes them, some of each length, encoded and brought into the stored type.

    It takes about `budget` seconds beside loading, and three rounds in any case (`affordable`). Extrapolated by
    multiply-accumulates, attention's square included.
    """
    shape, kept = model.shape, _Kept(spec)
    plan = [np.array(batch) for batch in batches(shown.lengths, model.batch_pieces)]
    lengths = np.array(shown.lengths)
    costs = np.array([_macs(shape, lengths[batch]) for batch in plan])
    weight = np.array([shown.weight[batch].mean() for batch in plan])

    def timed(batch: np.ndarray) -> tuple[float, float]:
        pieces = [_one_window(shown.jobs[i]) for i in batch]
        began = clock()
        for _, views in model.encode(pieces, spec.layers):
            kept.put(views)
        return clock() - began, _macs(shape, lengths[batch])

    middle = plan[len(plan) // 2]
    first, _ = timed(middle[:2])
    seconds, cost = timed(middle[:2])
    load, until = max(0.0, first - seconds), clock() + budget
    if seconds < BRIEF:
        seconds, cost = timed(middle)
    strata, part = affordable(costs * weight, seconds / cost * float(costs.mean()), until - clock(), STRATA)
    rounds = []
    for _ in rounds_until(until, clock):
        chosen = [plan[order.choice(stratum)] for stratum in strata]
        rounds.append([timed(batch[: enough(part, len(batch), int(lengths[batch[0]]))]) for batch in chosen])
    totals = [float((costs[stratum] * weight[stratum]).sum()) for stratum in strata]
    absent = [_share(shown, lengths, shape, np.concatenate([plan[b] for b in stratum])) for stratum in strata]
    missing = extrapolated([total * share for total, share in zip(totals, absent, strict=True)], rounds)
    return Encoded(extrapolated(totals, rounds), missing, load, kept.rows(), kept.largest)


def affordable(
    work: Float[np.ndarray, " _"], per_batch: float, left: float, most: int
) -> tuple[list[Int[np.ndarray, " _"]], float]:
    """The strata of a round, at most so many, and the part of a batch, that let enough rounds end in the time `left`.

    Items of a part take longer than those of a whole batch, so strata are given up first. A batch is whole where two
    thirds of it are affordable: `per_batch` seconds are of a small part, and say too much.
    """
    batches = left / FEWEST_ROUNDS / per_batch if per_batch > 0 else math.inf
    count = next((count for count in range(most, 1, -1) if batches / count >= 2 / 3), 1)
    part = max(0.0, batches / count)
    return equal_shares(work, count), 1.0 if part >= 2 / 3 else part


def enough(part: float, n_windows: int, length: int) -> int:
    """How many windows a part of a batch has."""
    return min(n_windows, max(round(part * n_windows), -(-ROWS // length)))


def rounds_until(until: float, clock: Clock) -> Iterator[int]:
    """Round numbers: the fewest in any case, then on until the time is over or there are enough."""
    for number in range(MOST_ROUNDS):
        if number >= FEWEST_ROUNDS and clock() >= until:
            return
        yield number


def _macs(shape: Shape, lengths: Int[np.ndarray, " B"]) -> float:
    """A frozen pass over one padded batch."""
    pieces = int(lengths.max()) * len(lengths)
    return float(forward_macs(encoder_products(shape, pieces, pieces * int(lengths.max()))))


def _share(shown: Shown, lengths: Int[np.ndarray, " B"], shape: Shape, windows: Int[np.ndarray, " _"]) -> float:
    """How much of the work of these windows is still to be done."""
    own = lengths[windows].astype(np.float64)
    cost = shown.weight[windows] * (own * shape.linear + own**2 * shape.quadratic)
    return float(cost[shown.missing[windows]].sum() / cost.sum())


def _one_window(job: Job) -> Pieces:
    """A window as an item of its own, which an encoder then sees as it is."""
    n = len(job.ids)
    return Pieces("0" * 64, job.ids, np.full(n, -1, np.int32), 0, ((0, n, 0, n),), segments=job.segments)


class _Kept:
    """What a store would do with each item before its bytes go to the disk; some of the views are kept."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.largest = spec, 0.0
        self._kind = np.float32 if spec.dtype == "fp32" else np.float16
        self._rows: list[np.ndarray] = []
        self._bytes = 0

    def put(self, views: np.ndarray) -> None:
        block = torch.from_numpy(np.ascontiguousarray(views))
        low, high = torch.aminmax(block)
        self.largest = max(self.largest, float(-low), float(high))
        rms = calibrate([block]) if self.spec.dtype == "int8" else None
        values, _ = stored_bytes(block, self.spec.dtype, rms, "the sample")
        for layer in values:
            xxhash.xxh3_64_intdigest(layer.data)
        if self._bytes < KEPT_BYTES:
            self._rows.append(views.astype(self._kind))
            self._bytes += self._rows[-1].nbytes

    def rows(self) -> np.ndarray:
        """[L, P, D]."""
        return np.concatenate(self._rows, axis=1)
