"""What a config would cost, before anything is stored or trained: counts, bytes, seconds, and what to do.

Axes: N distinct items   M items that were cut   L views
"""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int

from ..costs import (
    Amount,
    Shape,
    adapter_products,
    break_even,
    encoder_products,
    flops,
    forward_macs,
    step_macs,
    tagger_products,
)
from ..encoders.checkpoint import label
from ..encoders.encode import jobs_of
from ..encoders.pretrained import Pretrained
from ..methods.aggregate import Variant
from ..methods.finetune import Tuning
from ..report.results import surroundings
from ..serve.methods import check
from ..store import Store, estimate
from ..store.claim import free_bytes
from ..store.format import file_sizes
from ..tasks import Task
from ..types import DTYPES, Document, Pieces, Spec
from . import learning, steps
from .advice import Advice, Facts, advised
from .calibration import Clock, Encoded, Shown, encoding_seconds
from .contenders import contender
from .plan_methods import Timed, only_view
from .rehearsal import Items, Rehearsal
from .sampling import Estimate, Sample, in_two, rounded

if TYPE_CHECKING:
    from .config import Config

__all__ = ["LIVE_EPOCHS", "Corpus", "Forecast", "Seconds", "Size", "forecast"]

log = logging.getLogger("encodeonce")

CUT = 20_000
"""Items that are cut into pieces; a larger corpus is sampled."""
ENCODING, CACHED, LIVE = 0.2, 0.15, 0.65
"""Parts of the time for calibration: most for live steps, the slowest. Each begins when the one before has ended."""
LIVE_EPOCHS = 5
"""Epochs that fine-tuning is given where whole trainings are compared: of 3 and 5, what was best on dev for all three
tasks of English-EWT (`experiments/structures/ewt/grid.jsonl`), where methods over stored views have 10."""


@dataclass(frozen=True)
class Corpus:
    """Items as the splits have them, `distinct` by content; the rest is of the distinct ones. `cut` of them were cut
    into pieces; where that is not all, the sums are estimates. `over_window` counts items longer than `window` pieces.
    """

    items: Mapping[str, int]
    distinct: int
    words: int
    pieces: Estimate
    longest: int
    window: int
    over_window: Estimate
    cut: int


@dataclass(frozen=True)
class Size:
    """Bytes on disk of the whole corpus; `layers` is what a config would say, `views` how many that are."""

    layers: str
    views: int
    dtype: str
    bytes: Estimate


@dataclass(frozen=True)
class Seconds:
    """Wall seconds on this machine. `encode` is one pass over everything, `encode_missing` over what is not stored;
    both are without `load` (tokenizer and encoder) and `cut` (words to pieces). `cached` is an epoch of each method,
    `live` one by the number of live blocks, from one on the mix of stored views (`live_mix`) to all (`finetune`), none
    where every training item is longer than the window; `attention` one of a whole block and the attention of the next
    (None: cannot be had), and `weighed` one of the method that is compared with fine-tuning; each trains all tasks.
    Fine-tuning has so many `trunks`: one a task, or one that they share. `live_left_out` training items are longer than
    the window, and live blocks refuse them. `calibration` is what measuring all this took.
    """

    load: float
    cut: Estimate
    encode: Estimate
    encode_missing: Estimate
    cached: Mapping[str, Estimate]
    live: Mapping[int, Estimate]
    attention: Estimate | None
    weighed: Estimate
    trunks: int
    live_left_out: int
    calibration: float

    @property
    def first(self) -> Estimate:
        """Until everything is stored, from now on: nothing where nothing is missing."""
        if self.encode_missing.value == 0:
            return Estimate.exactly(0.0)
        return Estimate(
            self.encode_missing.value + self.cut.value + self.load,
            self.encode_missing.low + self.cut.low + self.load,
            self.encode_missing.high + self.cut.high + self.load,
        )


@dataclass(frozen=True)
class Forecast:
    """All of a plan. `break_even` counts epochs of all tasks, or single tasks with `epochs` epochs each, from which
    storing is cheaper than fine-tuning, with what is stored already; None: never. A task's share of a trunk that tasks
    have together is what it takes divided by their number."""

    encoder: str
    method: str
    tasks: tuple[str, ...]
    epochs: int
    batches_per_epoch: int
    corpus: Corpus
    store: Mapping[str, Any]
    sizes: Sequence[Size]
    seconds: Seconds
    flops: Mapping[str, Any]
    break_even: Mapping[str, float | None]
    advice: Sequence[Advice]
    machine: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values; estimates are {value, low, high}, with 95 % intervals."""
        values = asdict(self)
        values["seconds"]["first"] = asdict(self.seconds.first)
        values["seconds"]["live"] = {str(depth): asdict(one) for depth, one in self.seconds.live.items()}
        found = rounded(values)
        assert isinstance(found, dict)
        return found


def forecast(config: "Config", budget: float, clock: Clock = time.perf_counter) -> Forecast:
    """Read, count, measure for about `budget` seconds of `clock` beside loading, and advise. Nothing is written.

    Raises what `train` would raise for the same config: ConfigError, DataError, EncoderError, SpecMismatch.
    """
    splits, tasks = learning.learned(config)
    model = steps.pretrained(config)
    spec = steps.spec_of(config, model)
    own = contender(config)
    check(own.settings(), spec, tasks, model)
    learning.begun_from(config)
    splits = learning.parted(splits, tasks, model)
    timed = Timed.of(config, own, spec, repeats=model.hollow().repeats)
    counted = _Counted.of(splits, model, config.train.seed, clock)
    stored = _stored(config, spec, counted)
    log.info("calibrating for about %g s", budget)
    began = clock()
    order = np.random.default_rng(config.train.seed)
    shown = counted.shown(stored.missing)
    encoded = encoding_seconds(model, spec, shown, ENCODING * budget, order, clock)
    settings, items = own.training(config), counted.training(splits["train"])
    rehearsal = Rehearsal(spec, tasks, items, encoded.rows, settings, clock)
    epochs = _Epochs.of(rehearsal, timed, model, budget, order)
    seconds = _seconds(counted, stored, encoded, epochs, clock() - began - encoded.load)
    corpus = counted.corpus(splits, model)
    sizes = _sizes(config, spec, model, corpus)
    view = only_view(timed.weighed, spec, model)
    facts = _facts(timed.weighed.method, view, settings.num_train_epochs, stored, encoded.largest, seconds, sizes)
    return Forecast(
        encoder=label(spec.encoder),
        method=facts.method,
        tasks=tuple(task.name for task in tasks),
        epochs=facts.epochs,
        batches_per_epoch=rehearsal.n_batches,
        corpus=corpus,
        store=stored.to_json(spec),
        sizes=sizes,
        seconds=seconds,
        flops=_flops(model.shape, counted, items, tasks, timed.variants, spec, seconds.trunks),
        break_even=_break_even(facts, seconds.encode.value, len(tasks)),
        advice=advised(facts),
        machine={**surroundings(), "free_bytes": stored.free, "memory_bytes": facts.memory},
    )


@dataclass(frozen=True)
class _Counted:
    """The distinct documents, and the pieces of a sample of them."""

    documents: Sequence[Document]
    words: Int[np.ndarray, " N"]
    sample: Sample
    pieces: Sequence[Pieces]
    load: float
    cut: float

    @classmethod
    def of(cls, splits: Mapping[str, Sequence[Document]], model: Pretrained, seed: int, clock: Clock) -> "_Counted":
        distinct = list({one.key: one for documents in splits.values() for one in reversed(documents)}.values())
        words = np.array([one.n_words for one in distinct], dtype=np.int64)
        training = {one.key for one in splits["train"]}
        first = np.array([one.key in training for one in distinct])
        sample = in_two(words, first, CUT, np.random.default_rng(seed))
        began = clock()
        model.cut(distinct[:1])
        loaded = clock()
        pieces = model.cut([distinct[i] for i in sample.index])
        return cls(distinct, words, sample, pieces, loaded - began, clock() - loaded)

    @property
    def lengths(self) -> Int[np.ndarray, " M"]:
        return np.array([len(one) for one in self.pieces], dtype=np.int64)

    def corpus(self, splits: Mapping[str, Sequence[Document]], model: Pretrained) -> Corpus:
        lengths = self.lengths
        return Corpus(
            items={split: len(documents) for split, documents in splits.items()},
            distinct=len(self.documents),
            words=int(self.words.sum()),
            pieces=self.sample.total(lengths),
            longest=int(lengths.max()),
            window=model.window,
            over_window=self.sample.total(np.array([one.n_windowed for one in self.pieces], dtype=np.int64)),
            cut=len(self.pieces),
        )

    def shown(self, missing: Bool[np.ndarray, " N"]) -> Shown:
        """The windows of the sampled items."""
        jobs = [jobs_of(0, one) for one in self.pieces]
        counts = [len(own) for own in jobs]
        chosen = missing[self.sample.index]
        return Shown(
            [job for own in jobs for job in own], np.repeat(self.sample.weight, counts), np.repeat(chosen, counts)
        )

    def training(self, train: Sequence[Document]) -> Items:
        """The sampled items that training reads, each as often as it stands in the training data."""
        times = Counter(document.key for document in train)
        first = {document.key: document for document in reversed(train)}
        own = [i for i, one in enumerate(self.pieces) if one.key in times]
        weight = np.array([self.sample.weight[i] * times[self.pieces[i].key] for i in own])
        # the sample hits the known number of training items on average only
        weight *= len(train) / weight.sum()
        pieces = [self.pieces[i] for i in own]
        return Items([first[one.key] for one in pieces], pieces, weight)


@dataclass(frozen=True)
class _Stored:
    """What the config's store has of the distinct documents, and the disk it is on."""

    hits: int
    missing: Bool[np.ndarray, " N"]
    to_write: Estimate
    bytes: int
    free: int

    def to_json(self, spec: Spec) -> dict[str, Any]:
        return {
            "hits": self.hits,
            "missing": int(self.missing.sum()),
            "bytes_held": self.bytes,
            "bytes_to_write": asdict(self.to_write),
            "layers": list(spec.layers),
            "dtype": spec.dtype,
        }


def _stored(config: "Config", spec: Spec, counted: _Counted) -> _Stored:
    """Raises SpecMismatch where the store was made by something else."""
    path = Path(config.store)
    missing, held, own = np.ones(len(counted.documents), dtype=bool), 0, spec
    if (path / "store.json").exists():
        store = Store.open(path, spec)
        missing[:] = False
        missing[store.missing([document.key for document in counted.documents])] = True
        held, own = sum(file_sizes(path).values()), store.spec
    rows = counted.sample.total(counted.lengths, missing[counted.sample.index])
    n_missing = int(missing.sum())
    return _Stored(len(missing) - n_missing, missing, _bytes(own, rows, n_missing), held, free_bytes(path))


def _bytes(spec: Spec, rows: Estimate, items: int) -> Estimate:
    low, value, high = (float(estimate(spec, round(n), items)) for n in (rows.low, rows.value, rows.high))
    return Estimate(value, low, high)


def _sizes(config: "Config", spec: Spec, model: Pretrained, corpus: Corpus) -> list[Size]:
    """Every layer choice in every type; the config's own is among them."""
    choices: dict[str, tuple[int, ...]] = {"all": model.layers("all")}
    if model.n_blocks + 1 > 4:
        choices["4"] = model.layers(4)
    choices["last"] = model.layers("last")
    if spec.layers not in choices.values():
        choices[str(config.layers)] = spec.layers
    return [
        Size(
            name, len(layers), dtype, _bytes(replace(spec, layers=layers, dtype=dtype), corpus.pieces, corpus.distinct)
        )
        for name, layers in choices.items()
        for dtype in DTYPES
    ]


@dataclass(frozen=True)
class _Epochs:
    """Measured epochs, as `Seconds` has them."""

    cached: Mapping[str, Estimate]
    live: Mapping[int, Estimate]
    attention: Estimate | None
    weighed: Estimate
    trunks: int
    live_left_out: int

    @classmethod
    def of(
        cls, rehearsal: Rehearsal, timed: Timed, model: Pretrained, budget: float, order: np.random.Generator
    ) -> "_Epochs":
        cached, each = {}, CACHED * budget / len(timed.variants)
        for name, variant in timed.variants.items():
            cached[name] = rehearsal.cached(variant, each, order).times(rehearsal.n_batches)
        over = bool((rehearsal.items.lengths > model.window).all())
        if over and timed.tuning is None:  # nothing that is asked for trains a block
            tuned: dict[Tuning, Estimate] = {}
            left_out = rehearsal.items.total
        else:
            tuned, left_out = rehearsal.live(model, timed.tunings, LIVE * budget, order)
        attention = tuned.get(timed.attention) if timed.attention else None
        weighed = tuned[timed.tuning] if timed.tuning else cached[timed.weighed.method]
        trunks = 1 if timed.live[model.n_blocks].shared else len(rehearsal.tasks)
        return cls(cached, timed.by_depth(tuned), attention, weighed, trunks, left_out)


def _seconds(counted: _Counted, stored: _Stored, encoded: Encoded, epochs: _Epochs, calibration: float) -> Seconds:
    share = float(stored.missing.mean())
    return Seconds(
        load=counted.load + encoded.load,
        cut=Estimate.exactly(counted.cut * len(counted.documents) / len(counted.pieces) * share),
        encode=encoded.whole,
        encode_missing=encoded.missing,
        cached=epochs.cached,
        live=epochs.live,
        attention=epochs.attention,
        weighed=epochs.weighed,
        trunks=epochs.trunks,
        live_left_out=epochs.live_left_out,
        calibration=calibration,
    )


def _break_even(facts: Facts, encode: float, n_tasks: int) -> dict[str, float | None]:
    """Epochs of all tasks, and single tasks: one has its share of what all of them take."""
    tuned = facts.live[max(facts.live)] if facts.live else 0.0  # nothing costs less
    cached, live = facts.epochs * facts.cached / n_tasks, facts.live_epochs * tuned / n_tasks
    return {
        "epochs": break_even(facts.first, facts.cached, tuned),
        "epochs_encoding_each": break_even(facts.first, facts.cached, facts.cached + encode),
        "tasks": break_even(facts.first, cached, live),
    }


def _facts(
    method: str,
    view: str,
    epochs: int,
    stored: _Stored,
    largest: float,
    seconds: Seconds,
    sizes: Sequence[Size],
) -> Facts:
    return Facts(
        method=method,
        epochs=epochs,
        live_epochs=LIVE_EPOCHS,
        largest=largest,
        bytes={(size.layers, size.dtype): size.bytes.high for size in sizes},
        held=stored.bytes,
        complete=not stored.missing.any(),
        disk=stored.free,
        memory=_memory(),
        first=seconds.first.value,
        cached=seconds.weighed.value,
        live={depth: one.value for depth, one in seconds.live.items()},
        attention=seconds.attention.value if seconds.attention else None,
        view=view,
    )


def _flops(
    shape: Shape,
    counted: _Counted,
    items: Items,
    tasks: Sequence[Task],
    variants: Mapping[str, Variant],
    spec: Spec,
    trunks: int,
) -> dict[str, Any]:
    """Floating point operations of one encoding pass, and of an epoch of each method and of fine-tuning's trunks; None
    without a head's formula."""
    shown = counted.shown(np.ones(len(counted.documents), dtype=bool))
    lengths = np.array(shown.lengths)
    encode = encoder_products(shape, *(round(float((shown.weight * lengths**power).sum())) for power in (1, 2)))
    pieces = np.array([len(one) for one in items.pieces])
    words = np.array([one.n_words for one in items.pieces])
    amount = Amount(
        items.total,
        *(round(float((items.weight * n).sum())) for n in (pieces, words, pieces**2, pieces * words)),
    )
    known = all(task.head in ("tagger", "span_tagger") for task in tasks)
    cached = {}
    for name, variant in variants.items():
        views = len(variant.layers(spec))
        products = [p for task in tasks for p in _products(name, variant, amount, views, spec.width, task)]
        cached[name] = flops(step_macs(products)) if known else None
    all_live = encoder_products(shape, amount.pieces, amount.squares, shape.n_blocks)
    return {"encode": flops(forward_macs(encode)), "cached": cached, "live": trunks * flops(step_macs(all_live))}


def _products(name: str, variant: Variant, amount: Amount, views: int, width: int, task: Task) -> list[Any]:
    head = tagger_products(amount.words, width, len(task.labels), trained_below=name != "frozen")
    return [*adapter_products(name, amount, views, width, variant.key_width), *head]


def _memory() -> int | None:
    """Bytes that programs can still have, the cache of files included; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    return found[0] * 1024 if found else None
