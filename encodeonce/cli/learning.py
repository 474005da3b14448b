"""From a config to trained tasks: read, learn the labels, encode what is missing, train, score."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..batching import Cut, Source
from ..corpus.holding_out import held_out
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError
from ..methods.aggregate import Variant
from ..methods.finetune import Tuning, refuse_long
from ..serve import bundle
from ..serve.methods import Method, MethodSettings, build, check
from ..store import Store, estimate
from ..tasks import Task, in_parts, named
from ..train.evaluate import Evaluation, evaluate
from ..train.fit import Fit, fit
from ..train.settings import Settings
from ..types import Document, Spec
from . import steps
from .peak_memory import measured_peak

if TYPE_CHECKING:
    from .config import Config

__all__ = [
    "Material",
    "Trained",
    "begun_from",
    "drawn",
    "fraction",
    "layers_of",
    "learned",
    "parted",
    "prepare",
    "stored",
    "train",
]

log = logging.getLogger("encodeonce")


@dataclass(frozen=True)
class Material:
    """All that methods are trained on: the documents of each split, or their parts, learned tasks, and a store that
    holds them; a run whose weights they begin with, where there is one.

    The store holds nothing new where nothing that is to be trained reads one.
    """

    splits: Mapping[str, Sequence[Document]]
    tasks: tuple[Task, ...]
    spec: Spec
    store: Store
    model: Pretrained
    encoded: steps.Encoded
    start: Path | None = None

    @cached_property
    def pieces(self) -> Cut:
        """Every document as piece ids."""
        everything = {document.key: document for documents in self.splits.values() for document in documents}
        return Cut(self.spec, self.model.cut(list(everything.values())))

    def stored_bytes(self, layers: Sequence[int]) -> int:
        """Bytes that these views of the documents take in a store of them alone, within 1 %."""
        rows, items = self._stored
        return estimate(replace(self.store.spec, layers=tuple(layers)), rows, items)

    @cached_property
    def _stored(self) -> tuple[int, int]:
        """Rows and items that the documents are in the store."""
        keys = {key for documents in self.splits.values() for key in self.store.keys(documents)}
        return int(self.store.rows(self.store.index(list(keys))).sum()), len(keys)

    def source(self, method: Method) -> Source:
        """Where a method reads its views, or piece ids."""
        return self.store if method.layers else self.pieces

    def encoder(self) -> Pretrained:
        """The encoder once more, so that its weights are freed with the method that copied some of them."""
        model = self.model
        return Pretrained(model.name, compute=model.compute, window=model.window, overlap=model.overlap)


@dataclass(frozen=True)
class Trained:
    """One trained method: what the loop did, and an evaluation for each split that was scored.

    `peak_mb` is the memory that building and training it added to the process (`cli.peak_memory`).
    """

    method: Method
    variant: MethodSettings
    tasks: tuple[Task, ...]
    fit: Fit
    evaluations: Mapping[str, Evaluation]
    seconds: float
    peak_mb: float | None

    def training(self, settings: Settings, splits: Mapping[str, Sequence[Document]], **more: Any) -> dict[str, Any]:
        """What a saved run keeps of its making: settings and `more`, sizes of the splits, steps, seconds."""
        return {
            "settings": settings.to_json(),
            **more,
            "examples": {split: len(documents) for split, documents in splits.items()},
            "best": self.fit.best,
            "steps": self.fit.steps,
            "seconds": self.fit.seconds,
            "seconds_per_batch": self.fit.seconds_per_batch,
            "parameters": self.fit.parameters,
        }


def prepare(config: "Config", methods: Sequence[MethodSettings], *, max_bytes: int | None = None) -> Material:
    """Read the files, learn the tasks from the training part, encode what the store lacks of what `methods` read."""
    return stored(config, *learned(config), methods, max_bytes=max_bytes)


def stored(
    config: "Config",
    splits: Mapping[str, Sequence[Document]],
    tasks: tuple[Task, ...],
    methods: Sequence[MethodSettings],
    *,
    max_bytes: int | None = None,
) -> Material:
    """The same with documents that were read and tasks that were learned already. ConfigError for settings of which no
    method can be made, and DataError for an item that is too long for one, come before anything is encoded."""
    model = steps.pretrained(config)
    spec = steps.spec_of(config, model)
    reads = any(layers_of(method, spec) for method in methods)
    for method in methods:
        check(method, spec, tasks, model)
    start = begun_from(config)
    store = Store.open(config.store, spec)
    splits = parted(splits, tasks, model)
    refuse_over_window(splits, methods, model)
    everything = [document for documents in splits.values() for document in documents] if reads else []
    encoded = steps.encode(store, everything, model, max_bytes=max_bytes)
    return Material(splits, tasks, spec, store, model, encoded, start)


def refuse_over_window(
    splits: Mapping[str, Sequence[Document]], methods: Sequence[MethodSettings], model: Pretrained
) -> None:
    """DataError for an item that is longer than the encoder's window, where one of the methods trains its blocks."""
    if any(isinstance(method, Tuning) for method in methods):
        for documents in splits.values():
            refuse_long((one.place or one.id for one in documents), map(len, model.cut(documents)), model.window)


def begun_from(config: "Config") -> Path | None:
    """The saved run that methods begin with, where there is one. RunError for a folder that is none."""
    start = Path(config.start) if config.start else None
    if start is not None:
        bundle.made_for(start)
    return start


def parted(
    splits: Mapping[str, Sequence[Document]], tasks: Sequence[Task], model: Pretrained
) -> dict[str, list[Document]]:
    """What the encoder is shown of every split: parts of documents where a task reads these in parts."""
    found = {}
    for split, documents in splits.items():
        parts = in_parts(tasks, documents, model, model.window, split == "train")
        found[split] = [part for own in parts for part in own]
        if len(found[split]) != len(documents):
            log.info("%s: %d documents are read as %d parts", split, len(documents), len(found[split]))
    return found


def layers_of(method: MethodSettings, spec: Spec) -> tuple[int, ...]:
    """The stored views that a method reads. ConfigError where the store has not what it needs."""
    return method.layers(spec) if isinstance(method, Variant) else method.plan(spec).layers


def learned(config: "Config") -> tuple[dict[str, list[Document]], tuple[Task, ...]]:
    """The documents of each split that the config names, and its tasks, learned from the training part."""
    config.need("tasks", "data.train")
    data = config.data
    splits = {
        split: steps.documents_of(files, data.format, data.columns, data.passages, data.options)
        for split, files in (("train", data.train), ("dev", data.dev), ("test", data.test))
        if files
    }
    wanted = [named(name, **config.task.get(name, {})) for name in config.tasks]
    if data.dev_fraction:
        splits = _with_held_out(splits, wanted, data.dev_fraction)
    splits["train"] = fraction(splits["train"], data.train_fraction)
    if data.train_examples:
        splits["train"] = drawn(splits["train"], data.train_examples)
    stray = sorted(set(config.task) - set(config.tasks))
    if stray:
        raise ConfigError(f"[task.{stray[0]}]: {stray[0]!r} is not one of tasks = {config.tasks}.")
    return splits, tuple(task.learn(splits["train"]) for task in wanted)


def _with_held_out(
    splits: Mapping[str, list[Document]], tasks: Sequence[Task], part: float
) -> dict[str, list[Document]]:
    """The splits with a dev taken out of train, by the labels of the first task of documents where there is one."""
    if "dev" in splits:
        raise ConfigError(f"data.dev_fraction={part} takes dev out of train, and data.dev is set too. Choose one.")
    by = next((str(getattr(task, "column", "")) for task in tasks if not task.needs_words), None)
    train, dev = held_out(splits["train"], part, by=by)
    return {"train": train, "dev": dev, **{name: found for name, found in splits.items() if name != "train"}}


def fraction(documents: Sequence[Document], part: float) -> list[Document]:
    """ceil(part x N) of the documents, `drawn`."""
    return drawn(documents, math.ceil(part * len(documents)))


def drawn(documents: Sequence[Document], n: int) -> list[Document]:
    """The first n documents in the order of their keys (all, where there are not so many), put back into file order.

    The choice depends on the contents alone, and a smaller part is contained in every larger one.
    """
    if n >= len(documents):
        return list(documents)
    by_key = sorted(range(len(documents)), key=lambda place: (documents[place].key, place))
    chosen = sorted(by_key[:n])
    return [documents[place] for place in chosen]


def train(
    material: Material,
    variant: MethodSettings,
    settings: Settings,
    tasks: Sequence[Task] | None = None,
    *,
    scored: Sequence[str] = ("dev", "test"),
    folder: Path | None = None,
    save_seconds: float = 0.0,
) -> Trained:
    """Train these tasks side by side from one read of the store, and score the splits that there are. `folder` and
    `save_seconds` are `fit`'s."""
    tasks = material.tasks if tasks is None else tuple(tasks)
    scorers = {task.name: task for task in tasks}
    began = time.perf_counter()
    with measured_peak() as peak:
        method = build(variant, material.spec, tasks, material.encoder(), settings.seed)
        if material.start is not None:
            bundle.begin(method, tasks, material.start, material.encoder())
        source = material.source(method)
        read = {split: method.read(source, documents, tasks, split) for split, documents in material.splits.items()}
        dev = read.get("dev")
        done = fit(method, read["train"], scorers, settings, dev=dev, folder=folder, save_seconds=save_seconds)
    size = settings.per_device_eval_batch_size
    evaluations = {split: evaluate(method, read[split], scorers, size) for split in scored if split in read}
    return Trained(method, variant, tuple(tasks), done, evaluations, time.perf_counter() - began, peak.mb)
