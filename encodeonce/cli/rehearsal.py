"""Some training steps over stored views and of live blocks, really done, and what they say of an epoch.

Nothing is written: views are kept in memory. A step takes as long whatever numbers the views hold, so they are those
that were encoded for calibration, cut to the lengths of a sample of the training items.

Axes: L views   P rows in all   D width   N items   B items of a batch
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..batching import Cut, Encodings, Examples, planned
from ..costs import Amount, Shape, encoder_products, step_macs
from ..encoders.pretrained import Pretrained
from ..errors import DataError
from ..methods.aggregate import Aggregate, Variant
from ..methods.finetune import Finetune, Tuning
from ..methods.multitask import Multitask
from ..tasks import Task, from_json
from ..train.batches import epoch
from ..train.optim import groups_of, optimiser_and_schedule
from ..train.settings import Settings
from ..types import APART, Document, Encoding, Pieces, Spec
from .calibration import MOST_ROUNDS, Clock, affordable, enough, rounds_until
from .sampling import Estimate, evenly, extrapolated, spread

__all__ = ["Items", "Rehearsal"]

STRATA = 3
SAMPLED_BATCHES = 8
"""Batches in one timed round of a cached method."""


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

    @property
    def lengths(self) -> Int[np.ndarray, " N"]:
        """Pieces of each item."""
        return np.array([len(one) for one in self.pieces], dtype=np.int64)

    def drawn(self, count: int, order: np.random.Generator) -> Int[np.ndarray, " _"]:
        """`count` of them by equal steps in length."""
        by_length = np.argsort(self.lengths, kind="stable")
        chosen: np.ndarray = by_length[evenly(self.weight[by_length], count, order)]
        return chosen

    def within(self, window: int) -> "Items":
        """Those that live blocks can be given; DataError where all are longer."""
        own = np.flatnonzero(self.lengths <= window).tolist()
        if not own:
            raise DataError(f"every training item is longer than {window} pieces, so no live block can be given one.")
        return Items([self.documents[i] for i in own], [self.pieces[i] for i in own], self.weight[own])

    def together(self) -> "Items":
        """The same pieces with the texts of each pair as one item, whichever way they are to be read."""
        documents = [replace(one, apart=False) for one in self.documents]
        pieces = [replace(cut, key=one.key) for one, cut in zip(documents, self.pieces, strict=True)]
        return Items(documents, pieces, self.weight)


@dataclass(frozen=True)
class Rehearsal:
    """What steps are tried on: tasks, items, and views [L, P, D] of the Spec's layers, in memory."""

    spec: Spec
    tasks: Sequence[Task]
    items: Items
    rows: np.ndarray
    settings: Settings
    clock: Clock

    @property
    def batch_items(self) -> int:
        """Items of a batch, the mean number where batches are sized by pieces."""
        return max(1, round(self.items.total / self.n_batches))

    @property
    def n_batches(self) -> int:
        """Batches of an epoch."""
        pieces = self.settings.per_device_train_batch_pieces
        if not pieces:
            return -(-self.items.total // self.settings.per_device_train_batch_size)
        return min(self.items.total, -(-round(float(self.items.weight @ self.items.lengths)) // pieces))

    def cached(self, variant: Variant, budget: float, order: np.random.Generator) -> Estimate:
        """Seconds of one training step of all tasks over stored views, data included, as the loop takes them.

        Each round is all batches of a fresh sample of the items; the first, which builds kernels, does not count.
        """
        until = self.clock() + budget
        method = Aggregate.build(variant, self.spec, self.tasks, self.settings.seed)
        step = _Step(method, self.settings, 2 * (MOST_ROUNDS + 1) * SAMPLED_BATCHES, self.clock)

        def seconds_per_step() -> float:
            examples = self.examples(method, self.items.drawn(SAMPLED_BATCHES * self.batch_items, order))
            n, began = 0, self.clock()
            for batch in epoch(method, examples, self.settings, order):
                step(batch)
                n += 1
            return (self.clock() - began) / n

        seconds_per_step()
        return spread(np.array([seconds_per_step() for _ in rounds_until(until, self.clock)]))

    def live(
        self, model: Pretrained, tunings: Iterable[Tuning], budget: float, order: np.random.Generator
    ) -> tuple[dict[Tuning, Estimate], int]:
        """Seconds of an epoch of methods that train blocks, and how many training items were left out.

        Each is timed as it would be trained, with a trunk for each task unless it shares one, batch by batch: a round
        has one of each stratum of fine-tuning's work, or a single one where that is too much for the time. Where a
        whole batch would take too long, a part of it is timed, though its items take longer. Half of one beside it
        tells what a step takes whatever it holds: gradients as large as the weights, and weights brought into
        `compute`. Items over the encoder's window, which live blocks refuse, are left out. Of pairs whose texts are
        read apart, which no live block is trained on, both at once are timed instead.
        """
        tasks = [from_json({**t.to_json(), "piece": "document"}) if t.piece == APART else t for t in self.tasks]
        own = replace(self, items=self.items.within(model.window).together(), tasks=tasks)
        size = own.batch_items
        drawn = own.items.drawn(len(own.items.pieces), order)
        plan = [drawn[batch] for batch in planned(len(drawn), size, order)]
        timers = {tuning: _LiveStep(own, model, tuning) for tuning in tunings}
        work = np.array([_macs(model.shape, own.items.lengths[batch], model.n_blocks) for batch in plan])
        by_work = np.argsort(work, kind="stable")
        plan, work = [plan[i] for i in by_work], work[by_work]
        costs = {tuning: np.array([timer.macs(batch) for batch in plan]) for tuning, timer in timers.items()}
        until = self.clock() + budget
        strata, part = _affordable(list(timers.values()), plan, work, until)
        for timer in timers.values():
            timer(own.part(plan[-1], part, order))  # memory that a process touches first is slow: does not count
        rounds: dict[Tuning, list[list[tuple[float, float]]]] = {tuning: [] for tuning in timers}
        halves: dict[Tuning, list[tuple[float, float]]] = {tuning: [] for tuning in timers}
        updates: dict[Tuning, list[float]] = {tuning: [] for tuning in timers}
        for _ in rounds_until(until, self.clock):
            chosen = [own.part(plan[order.choice(stratum)], part, order) for stratum in strata]
            middle = chosen[len(chosen) // 2]
            half = middle[: len(middle) // 2] if part < 1 or len(chosen) > 1 else middle[:0]
            for tuning, timer in timers.items():
                timed = [timer(batch) for batch in chosen]
                rounds[tuning].append([(passes, macs) for passes, _, macs in timed])
                updates[tuning] += [update for _, update, _ in timed]
                if len(half):
                    passes, _, macs = timer(half)
                    halves[tuning].append((passes, macs))
        found, copies = {}, own.items.total / len(drawn)
        for tuning in timers:
            totals = [copies * float(costs[tuning][stratum].sum()) for stratum in strata]
            start = _start(rounds[tuning], halves[tuning])
            working = [[(passes - start, macs) for passes, macs in one] for one in rounds[tuning]]
            each = start + float(np.median(updates[tuning]))
            found[tuning] = extrapolated(totals, working, -(-own.items.total // size) * each)
        return found, self.items.total - own.items.total

    def part(self, batch: Int[np.ndarray, " B"], part: float, order: np.random.Generator) -> Int[np.ndarray, " _"]:
        """Some items of a batch, drawn at random, enough of them for the products to have their usual speed."""
        length = max(1, int(self.items.lengths[batch].mean()))
        return order.permutation(batch)[: enough(part, len(batch), length)]

    def examples(self, method: Multitask, chosen: Int[np.ndarray, " _"]) -> Examples:
        """The chosen items as the method reads them: views of as many rows as an item has pieces, every item's from
        another place; or piece ids, where the method reads no view."""
        pieces = [self.items.pieces[i] for i in chosen]
        source = self._views(pieces) if method.layers else Cut(self.spec, pieces)
        return method.read(source, [self.items.documents[i] for i in chosen], self.tasks)

    def _views(self, pieces: Sequence[Pieces]) -> Encodings:
        rows, longest = self.rows, max(len(one) for one in pieces)
        if longest > rows.shape[1]:
            rows = np.tile(rows, (1, -(-longest // rows.shape[1]), 1))
        place, encodings = 0, []
        for one in pieces:
            place = place if place + len(one) <= rows.shape[1] else 0
            encodings.append(Encoding(one.key, rows[:, place : place + len(one)], one.word))
            place += len(one)
        return Encodings(self.spec, encodings)


class _Step:
    """One optimiser step as the training loop does it. Returns seconds of both passes, and of the update."""

    def __init__(self, method: Multitask, settings: Settings, steps: int, clock: Clock) -> None:
        self.method, self.clock, self.max_norm = method.train(), clock, settings.max_grad_norm
        self.names = list(method.modules_of())
        groups = groups_of(method, self.names, settings)
        self.optimiser, self.schedule = optimiser_and_schedule(groups, steps, settings)

    def __call__(self, batch: Any) -> tuple[float, float]:
        began = self.clock()
        losses = self.method.losses(batch, self.names)
        for loss in losses.values():
            loss.item()
        self.optimiser.zero_grad(set_to_none=True)
        total = sum(losses.values())
        assert isinstance(total, Tensor)
        total.backward()
        passed = self.clock()
        if self.max_norm:
            for module in self.method.modules_of().values():
                nn.utils.clip_grad_norm_(module.parameters(), self.max_norm)
        self.optimiser.step()
        self.schedule.step()
        return passed - began, self.clock() - passed


@dataclass(frozen=True)
class _Trunk:
    """Trained blocks with the heads of the tasks that they are under, and how many like it a method trains."""

    method: Finetune
    step: _Step
    alike: int


class _LiveStep:
    """A step over chosen items of a method that trains blocks: all trunks that training would have, of those that are
    alike one, as often as there are."""

    def __init__(self, rehearsal: Rehearsal, model: Pretrained, tuning: Tuning) -> None:
        self.rehearsal, self.shape, spec, settings = rehearsal, model.shape, rehearsal.spec, rehearsal.settings
        self.depth = len(tuning.plan(spec).blocks)
        self.trunks = []
        for tasks, alike in _trunks(rehearsal.tasks, tuning, spec.width):
            method = Finetune.build(tuning, model, spec, tasks, settings.seed, 0)
            step = _Step(method, settings, 10 * MOST_ROUNDS * STRATA, rehearsal.clock)
            self.trunks.append(_Trunk(method, step, alike))

    def macs(self, chosen: Int[np.ndarray, " B"]) -> float:
        """What a step over these items multiplies in one trunk, its blocks trained."""
        return _macs(self.shape, self.rehearsal.items.lengths[chosen], self.depth)

    def __call__(self, chosen: Int[np.ndarray, " B"]) -> tuple[float, float, float]:
        """Seconds of reading, once for all trunks, and of both passes; seconds of the update; MACs."""
        clock, reads = self.rehearsal.clock, []
        passes = update = 0.0
        for trunk in self.trunks:
            examples = self.rehearsal.examples(trunk.method, chosen)
            began = clock()
            (batch,) = trunk.method.batches(examples, size=len(chosen), order=None)
            reads.append(clock() - began)
            passed, updated = trunk.step(batch)
            passes, update = passes + trunk.alike * passed, update + trunk.alike * updated
        return max(reads) + passes, update, self.macs(chosen)


def _trunks(tasks: Sequence[Task], tuning: Tuning, width: int) -> list[tuple[Sequence[Task], int]]:
    """The tasks of each trunk that a method trains, and how many trunks are like it. Two are alike where the heads are,
    up to labels that are less than a hundredth of one block's products."""
    if tuning.shared:
        return [(tasks, 1)]
    found: list[list[Task]] = []
    for task in tasks:
        like = next((own for own in found if _alike(own[0], task, width)), None)
        if like is None:
            found.append([task])
        else:
            like.append(task)
    return [([own[0]], len(own)) for own in found]


def _alike(one: Task, other: Task, width: int) -> bool:
    """Whether a step of the one's trunk and head takes as long as the other's."""
    heads = [(task.head, task.head_options, task.piece) for task in (one, other)]
    return heads[0] == heads[1] and 10 * abs(len(one.labels) - len(other.labels)) < width


def _macs(shape: Shape, lengths: Int[np.ndarray, " B"], live: int) -> float:
    amount = Amount.of(lengths.tolist(), lengths.tolist())
    return float(step_macs(encoder_products(shape, amount.pieces, amount.squares, live)))


def _start(rounds: Sequence[Sequence[tuple[float, float]]], halves: Sequence[tuple[float, float]]) -> float:
    """Seconds of a step's passes that do not follow its work: where the line from half a part to the parts of its round
    begins, the median over rounds; 0 without halves. `rounds` [R, S] and `halves` [R] are (seconds, MACs)."""
    found = []
    for parts, (less, fewer) in zip(rounds, halves, strict=False):
        more, many = np.mean(parts, axis=0)
        if many > fewer:
            found.append(less - (more - less) / (many - fewer) * fewer)
    quickest = min(seconds for parts in rounds for seconds, _ in parts)
    return min(max(0.0, float(np.median(found))), quickest) if found else 0.0


def _affordable(
    timers: Sequence[_LiveStep],
    plan: Sequence[Int[np.ndarray, " _"]],
    work: Float[np.ndarray, " _"],
    until: float,
) -> tuple[list[Int[np.ndarray, " _"]], float]:
    """The strata of a round and the part of a batch, from a small step of each method that is done twice. A quarter of
    the time is for the largest batch, before the rounds."""
    some, macs = plan[len(plan) // 2], [float(np.mean([timer.macs(batch) for batch in plan])) for timer in timers]
    per_batch = 0.0
    for timer, whole in zip(timers, macs, strict=True):
        few = timer.rehearsal.part(some, 0.0, np.random.default_rng(0))
        timer(few)
        passes, update, done = timer(few)
        per_batch += update + passes / done * whole
    strata, part = affordable(work, per_batch, 0.75 * (until - timers[0].rehearsal.clock()), STRATA)
    return strata, part if part == 1 else part / 1.5  # half a part beside each part
