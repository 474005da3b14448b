"""From a config to trained tasks: read, learn the labels, encode what is missing, train, score."""

import logging
import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ..corpus.holding_out import held_out
from ..errors import ConfigError
from ..methods.aggregate import Aggregate, Variant
from ..store import Store
from ..tasks import Task, named
from ..train.evaluate import Evaluation, evaluate
from ..train.fit import Fit, fit
from ..train.settings import Settings
from ..types import Document, Spec
from . import steps

if TYPE_CHECKING:
    from .config import Config

__all__ = [
    "Material",
    "Trained",
    "command_line",
    "fraction",
    "learned",
    "peak_mb",
    "prepare",
    "settings_of",
    "train",
    "variant_of",
]

log = logging.getLogger("encodeonce")


@dataclass(frozen=True)
class Material:
    """All that methods are trained on: the documents of each split, learned tasks, and a store that holds them."""

    splits: Mapping[str, Sequence[Document]]
    tasks: tuple[Task, ...]
    spec: Spec
    store: Store
    encoded: steps.Encoded


@dataclass(frozen=True)
class Trained:
    """One trained method: what the loop did, and an evaluation for each split that was scored."""

    method: Aggregate
    variant: Variant
    tasks: tuple[Task, ...]
    fit: Fit
    evaluations: Mapping[str, Evaluation]
    seconds: float
    peak_mb: float | None


def prepare(config: "Config", *, max_bytes: int | None = None) -> Material:
    """Read the files, learn the tasks from the training part, encode what the store lacks."""
    splits, tasks = learned(config)
    model = steps.pretrained(config)
    spec = steps.spec_of(config, model)
    store = Store.open(config.store, spec)
    everything = [document for documents in splits.values() for document in documents]
    encoded = steps.encode(store, everything, model, max_bytes=max_bytes)
    return Material(splits, tasks, spec, store, encoded)


def learned(config: "Config") -> tuple[dict[str, list[Document]], tuple[Task, ...]]:
    """The documents of each split that the config names, and its tasks, learned from the training part."""
    config.need("tasks", "data.train")
    data = config.data
    splits = {
        split: steps.documents_of(files, data.format, data.columns)
        for split, files in (("train", data.train), ("dev", data.dev), ("test", data.test))
        if files
    }
    wanted = [named(name, **config.task.get(name, {})) for name in config.tasks]
    if data.dev_fraction:
        splits = _with_held_out(splits, wanted, data.dev_fraction)
    splits["train"] = fraction(splits["train"], data.train_fraction)
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
    """The first ceil(part x N) documents in the order of their keys, put back into file order.

    The choice depends on the contents alone, and a smaller part is contained in every larger one.
    """
    if part >= 1:
        return list(documents)
    by_key = sorted(range(len(documents)), key=lambda place: (documents[place].key, place))
    chosen = sorted(by_key[: math.ceil(part * len(documents))])
    return [documents[place] for place in chosen]


def settings_of(config: "Config", **changes: float | int) -> Settings:
    """The loop's settings."""
    return Settings(**{**config.train.model_dump(), **changes})


def variant_of(config: "Config", method: str | None = None) -> Variant:
    """The config's method, or another one with the config's adapter settings."""
    return Variant(method or config.method, **config.adapter.chosen())


def train(
    material: Material,
    variant: Variant,
    settings: Settings,
    tasks: Sequence[Task] | None = None,
    *,
    scored: Sequence[str] = ("dev", "test"),
    folder: Path | None = None,
) -> Trained:
    """Train these tasks side by side from one read of the store, and score the splits that there are."""
    tasks = material.tasks if tasks is None else tuple(tasks)
    scorers = {task.name: task for task in tasks}
    began = time.perf_counter()
    start_peak()
    method = Aggregate.build(variant, material.spec, tasks, settings.seed)
    read = {split: method.read(material.store, documents, tasks, split) for split, documents in material.splits.items()}
    done = fit(method, read["train"], scorers, settings, dev=read.get("dev"), folder=folder)
    peak = peak_mb()
    size = settings.per_device_eval_batch_size
    evaluations = {split: evaluate(method, read[split], scorers, size) for split in scored if split in read}
    return Trained(method, variant, tuple(tasks), done, evaluations, time.perf_counter() - began, peak)


def start_peak() -> None:
    """Forget the peak memory of what ran before, where the system can (Linux)."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        log.debug("this system cannot reset the peak memory of a process")


def peak_mb() -> float | None:
    """Peak of the process's resident memory (or of the GPU's) since `start_peak`, in 10^6 bytes; None where unknown."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return found[0] * 1024 / 1e6 if found else None


def command_line() -> str:
    """The command that is running, with the last part of every absolute path: no place of this machine is recorded."""
    words = [_without_place(word) for word in sys.argv[1:]]
    return shlex.join(["encodeonce", *words])


def _without_place(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and Path(value.strip("\"'")).is_absolute():
        return f"{name}={Path(value.strip(chr(34) + chr(39))).name}"
    return Path(word).name if Path(word).is_absolute() else word
