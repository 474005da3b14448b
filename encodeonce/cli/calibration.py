"""Short, real work on this machine, and what it says of the whole: encoding, a cached step, a live step.

Nothing is written: stored views are kept in memory. A step takes as long whatever numbers the views hold, so training
is timed over views that were encoded for this purpose, cut to the lengths of a sample of the training items.

Axes: L views   T rows of one item   P rows in all   D width   B windows of a batch   R rounds
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xxhash
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..batching import Examples, Memory, planned
from ..costs import Shape, encoder_products, forward_macs, step_macs
from ..encoders.encode import Job, batches, jobs_of
from ..encoders.pretrained import Pretrained
from ..methods.aggregate import Aggregate, Variant
from ..resolve import resolve
from ..store.quantise import calibrate, stored_bytes
from ..tasks import Task
from ..train.optim import one_cycle
from ..train.settings import Settings
from ..types import Document, Encoding, Pieces, Spec
from .sampling import Estimate, equal_shares, evenly, extrapolated, spread

__all__ = ["Clock", "Encoded", "Items", "Shown", "cached_seconds", "encoding_seconds", "live_seconds"]

Clock = Callable[[], float]
"""Seconds: `time.perf_counter`, or `time.process_time` where other work takes turns with this process."""
KEPT_BYTES = 256 * 2**20
"""Views that are kept for the timed training steps: more than a processor's cache holds."""
MOST_ROUNDS, FEWEST_ROUNDS = 8, 3
ENCODING_STRATA, LIVE_STRATA = 5, 3
ROWS = 256
"""Pieces that a timed part of a batch has at least: products of fewer rows are slower a row."""
BRIEF = 0.1
"""Seconds of two windows below which a whole batch is timed before the parts are chosen."""
SAMPLED_BATCHES = 8
"""Batches in one timed round of a cached method; two bucketing pools."""


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
class Items:
    """Training items, cut, and how many items of the training data each stands for."""

    documents: Sequence[Document]
    pieces: Sequence[Pieces]
    weight: Float[np.ndarray, " N"]

    @property
    def total(self) -> int:
        """How many items they all stand for."""
        return round(float(self.weight.sum()))

    def drawn(self, count: int, order: np.random.Generator) -> Int[np.ndarray, " _"]:
        """`count` of them by equal steps in length."""
        by_length = np.argsort([len(one) for one in self.pieces], kind="stable")
        chosen: np.ndarray = by_length[evenly(self.weight[by_length], count, order)]
        return chosen


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

    It takes about `budget` seconds beside loading, and three rounds in any case: where a whole batch would take too
    long, a part of it is timed. Extrapolated by multiply-accumulates, attention's square included.
    """
    shape, kept = model.shape, _Kept(spec)
    plan = [np.array(batch) for batch in batches(shown.lengths, model.batch_pieces)]
    lengths = np.array(shown.lengths)
    costs = np.array([_macs(shape, lengths[batch]) for batch in plan])
    weight = np.array([shown.weight[batch].mean() for batch in plan])
    strata = equal_shares(costs * weight, ENCODING_STRATA)

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
    per_round = sum(costs[stratum].mean() for stratum in strata) * seconds / cost
    part = min(1.0, (until - clock()) / (FEWEST_ROUNDS + 2) / per_round)
    rounds = []
    for _ in _rounds(until, clock):
        chosen = [plan[order.choice(stratum)] for stratum in strata]
        rounds.append([timed(batch[: _enough(part, len(batch), int(lengths[batch[0]]))]) for batch in chosen])
    totals = [float((costs[stratum] * weight[stratum]).sum()) for stratum in strata]
    absent = [_share(shown, lengths, shape, np.concatenate([plan[b] for b in stratum])) for stratum in strata]
    missing = extrapolated([total * share for total, share in zip(totals, absent, strict=True)], rounds)
    return Encoded(extrapolated(totals, rounds), missing, load, kept.rows(), kept.largest)


def cached_seconds(
    variant: Variant,
    spec: Spec,
    tasks: Sequence[Task],
    items: Items,
    rows: np.ndarray,
    settings: Settings,
    budget: float,
    order: np.random.Generator,
    clock: Clock,
) -> Estimate:
    """Seconds of one training step of all tasks over stored views; `rows` [L, P, D] are cut to the items' lengths.

    Each round is all batches of a fresh sample of the items.
    """
    size, until = settings.per_device_train_batch_size, clock() + budget
    method = Aggregate.build(variant, spec, tasks, settings.seed).train()
    groups = [(own, settings.learning_rate) for name in method.names for own in method.groups(name).values()]
    optimiser, schedule = one_cycle(groups, (MOST_ROUNDS + 1) * SAMPLED_BATCHES, settings)

    def seconds_per_step() -> float:
        chosen = items.drawn(SAMPLED_BATCHES * size, order)
        examples = _examples(spec, tasks, [items.documents[i] for i in chosen], [items.pieces[i] for i in chosen], rows)
        n = 0
        began = clock()
        for batch in method.batches(examples, size=size, order=order):
            losses = list(method.losses(batch, method.names).values())
            optimiser.zero_grad(set_to_none=True)
            torch.stack(losses).sum().backward()
            optimiser.step()
            schedule.step()
            n += 1
        return (clock() - began) / n

    seconds_per_step()  # the first steps build kernels and fill buffers
    return spread(np.array([seconds_per_step() for _ in _rounds(until, clock)]))


def live_seconds(
    model: Pretrained, items: Items, settings: Settings, budget: float, order: np.random.Generator, clock: Clock
) -> dict[int, Estimate]:
    """Seconds of an epoch of fine-tuning by the number of live blocks, from the top one to all.

    Forward pass, backward pass and optimiser over padded batches are timed with one block live and with all;
    depths between are interpolated. Heads, small beside a block, are left out, and so is reading the states below.
    """
    size = settings.per_device_train_batch_size
    windows = [jobs_of(0, one) for one in items.pieces]
    longest = np.array([max(len(job.ids) for job in jobs) for jobs in windows])
    drawn = items.drawn(len(windows), order)
    plan = [[job for i in drawn[batch] for job in windows[i]] for batch in planned(longest[drawn], size, order)]
    steps, n_blocks = -(-items.total // size), model.n_blocks
    timers = {depth: _LiveStep(model, depth, settings, clock) for depth in sorted({1, n_blocks})}
    costs = {depth: np.array([timer.macs(jobs) for jobs in plan]) for depth, timer in timers.items()}
    strata, until = equal_shares(costs[n_blocks], LIVE_STRATA), clock() + budget
    part = _affordable(timers, plan, strata, until, clock)
    rounds: dict[int, list[list[tuple[float, float]]]] = {depth: [] for depth in timers}
    updates: dict[int, list[float]] = {depth: [] for depth in timers}
    for _ in _rounds(until, clock):
        chosen = [_part(plan[order.choice(stratum)], part, order) for stratum in strata]
        for depth, timer in timers.items():
            timed = [timer(jobs) for jobs in chosen]
            rounds[depth].append([(passes, macs) for passes, _, macs in timed])
            updates[depth] += [update for _, update, _ in timed]
    epoch = {}
    for depth in timers:
        totals = [float(costs[depth][stratum].sum()) * steps / len(plan) for stratum in strata]
        epoch[depth] = extrapolated(totals, rounds[depth], steps * float(np.mean(updates[depth])))
    return {depth: _between(epoch, depth, n_blocks) for depth in range(1, n_blocks + 1)}


def _between(epoch: Mapping[int, Estimate], depth: int, n_blocks: int) -> Estimate:
    """An epoch with `depth` live blocks, on the line between one and all."""
    if depth in epoch:
        return epoch[depth]
    part = (depth - 1) / (n_blocks - 1)
    one, all_ = epoch[1].times(1 - part), epoch[n_blocks].times(part)
    return Estimate(one.value + all_.value, one.low + all_.low, one.high + all_.high)


class _LiveStep:
    """A training step of the top `depth` blocks over padded batches, in the model's training mode."""

    def __init__(self, model: Pretrained, depth: int, settings: Settings, clock: Clock) -> None:
        self.shape, self.depth, self.clock = model.shape, depth, clock
        self.padding = int(model.config.get("pad_token_id") or 0)
        self.stack = resolve("encoders", model.family).load(model.path)
        self.start = self.stack.n_blocks - depth
        for module in [self.stack.model] if self.start == 0 else self.stack.blocks[self.start :]:
            module.requires_grad_(True).train()
        trained = [parameter for parameter in self.stack.parameters() if parameter.requires_grad]
        self.optimiser, _ = one_cycle([(trained, settings.learning_rate)], 2, settings)

    def macs(self, jobs: Sequence[Job]) -> float:
        """What a step over these windows multiplies, padding included."""
        longest = max(len(job.ids) for job in jobs)
        pieces = longest * len(jobs)
        return float(step_macs(encoder_products(self.shape, pieces, pieces * longest, self.depth)))

    def __call__(self, jobs: Sequence[Job]) -> tuple[float, float, float]:
        """Seconds of both passes, seconds of the update, MACs."""
        ids, mask = self._padded(jobs)
        with torch.no_grad():
            below = self.stack.place(self.stack.lookup(ids))
        began = self.clock()
        states = self.stack.place(self.stack.lookup(ids)) if self.start == 0 else below
        self.stack.run(states, mask, self.start)[-1].square().mean().backward()
        passed = self.clock()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return passed - began, self.clock() - passed, self.macs(jobs)

    def _padded(self, jobs: Sequence[Job]) -> tuple[Tensor, Tensor]:
        longest = max(len(job.ids) for job in jobs)
        ids = np.full((len(jobs), longest), self.padding, np.int64)
        for row, job in enumerate(jobs):
            ids[row, : len(job.ids)] = job.ids
        lengths = torch.tensor([len(job.ids) for job in jobs])
        return torch.from_numpy(ids), torch.arange(longest)[None, :] < lengths[:, None]


def _affordable(
    timers: Mapping[int, _LiveStep],
    plan: Sequence[Sequence[Job]],
    strata: Sequence[Int[np.ndarray, " _"]],
    until: float,
    clock: Clock,
) -> float:
    """The part of a batch that lets enough rounds end in time, from a step over two windows (the second one timed)."""
    jobs = plan[int(strata[len(strata) // 2][0])][:2]
    per_round = 0.0
    for timer in timers.values():
        timer(jobs)
        passes, update, macs = timer(jobs)
        for stratum in strata:
            per_round += update + passes / macs * float(np.mean([timer.macs(plan[batch]) for batch in stratum]))
    return min(1.0, (until - clock()) / (FEWEST_ROUNDS + 1) / per_round)


def _part(jobs: Sequence[Job], part: float, order: np.random.Generator) -> list[Job]:
    """Some windows of a batch, the longest among them, so that it is padded as the whole is."""
    if part >= 1:
        return list(jobs)
    longest = max(range(len(jobs)), key=lambda i: len(jobs[i].ids))
    others = [i for i in order.permutation(len(jobs)).tolist() if i != longest]
    return [jobs[i] for i in [longest, *others][: _enough(part, len(jobs), len(jobs[longest].ids))]]


def _enough(part: float, n_windows: int, length: int) -> int:
    """How many windows a part of a batch has."""
    return min(n_windows, max(round(part * n_windows), -(-ROWS // length)))


def _rounds(until: float, clock: Clock) -> Iterator[int]:
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
    return Pieces("0" * 64, job.ids, np.full(n, -1, np.int32), 0, ((0, n, 0, n),))


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


def _examples(
    spec: Spec, tasks: Sequence[Task], documents: Sequence[Document], pieces: Sequence[Pieces], rows: np.ndarray
) -> Examples:
    """The documents in memory, each with as many of `rows` as it has pieces, every one from another place."""
    longest = max(len(one) for one in pieces)
    if longest > rows.shape[1]:
        rows = np.tile(rows, (1, -(-longest // rows.shape[1]), 1))
    place, encodings = 0, []
    for one in pieces:
        n = len(one)
        place = place if place + n <= rows.shape[1] else 0
        encodings.append(Encoding(one.key, rows[:, place : place + n], one.word))
        place += n
    return Examples.read(Memory(spec, encodings), documents, tasks)
