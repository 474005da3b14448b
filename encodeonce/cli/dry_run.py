"""What `train` would do, from config, data and the encoder's config.json: the vocabulary and weights may be missing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..batching import count_by_pieces
from ..encoders.checkpoint import label
from ..methods.aggregate import Aggregate, Variant
from ..methods.finetune import Finetune, Tuning
from ..methods.multitask import Multitask
from ..tasks import Task
from ..types import Document, Spec
from . import learning, steps
from .steps import Plan

if TYPE_CHECKING:
    from ..encoders.pretrained import Pretrained
    from ..encoders.stack import Stack
    from ..train.settings import Settings
    from .config import Config

__all__ = ["DryRun", "dry_run"]


@dataclass(frozen=True, slots=True)
class DryRun:
    """`store` is what encoding would do; where it lacks a vocabulary, what depends on pieces is a lower bound.
    `bounded` says whether the number of steps does. `parameters` counts what is trained by task, and "total"."""

    encoder: str
    layers: tuple[int, ...]
    width: int
    method: str
    examples: Mapping[str, int]
    labels: Mapping[str, int]
    store: Plan
    batches_per_epoch: int
    steps: int
    bounded: bool
    parameters: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def dry_run(config: "Config", settings: "Settings", chosen: Variant | Tuning) -> DryRun:
    """Read and check everything that `train` would; nothing is written, and no weight is needed.

    Raises what `train` would raise for config and data, EncoderError for an encoder without a usable config.json.
    """
    from ..train.optim import count_parameters, total_steps

    splits, tasks = learning.learned(config)
    model = steps.pretrained(config)
    spec = steps.spec_of(config, model, dry=True)
    learning.begun_from(config)
    splits = learning.parted(splits, tasks, model)
    if "vocabulary" not in model.lacks:
        learning.refuse_over_window(splits, [chosen], model)
    reads = bool(learning.layers_of(chosen, spec))
    documents = [document for own in splits.values() for document in own] if reads else []
    for task in tasks:
        for own in splits.values():
            task.gold(own)
    plan = steps.planned(Path(config.store), spec, documents, model)
    bounded = bool(settings.per_device_train_batch_pieces) and "vocabulary" in plan.lacks
    batches = _n_batches(splits["train"], settings, None if bounded else model)
    return DryRun(
        encoder=label(spec.encoder),
        layers=spec.layers,
        width=spec.width,
        method=chosen.name,
        examples={split: len(own) for split, own in splits.items()},
        labels={task.name: len(task.labels) for task in tasks},
        store=plan,
        batches_per_epoch=batches,
        steps=total_steps(batches, settings),
        bounded=bounded,
        parameters=count_parameters(_built(chosen, model, spec, tasks)),
    )


def _n_batches(train: Sequence[Document], settings: "Settings", model: "Pretrained | None") -> int:
    """Batches of an epoch; at least so many, a piece a word, where no model says how words are cut."""
    if not settings.per_device_train_batch_pieces:
        return -(-len(train) // settings.per_device_train_batch_size)
    lengths = [one.n_words for one in train] if model is None else [len(one) for one in model.cut(train)]
    return count_by_pieces(np.array(lengths, dtype=np.int64), settings.per_device_train_batch_pieces)


class _Hollow:
    """A stack without weights, where a method asks for one."""

    def __init__(self, stack: "Stack") -> None:
        self._stack = stack

    def stack(self) -> "Stack":
        return self._stack


def _built(chosen: Variant | Tuning, model: "Pretrained", spec: Spec, tasks: tuple[Task, ...]) -> Multitask:
    """The method with parameters that have no values."""
    with torch.device("meta"):
        if isinstance(chosen, Variant):
            return Aggregate.build(chosen, spec, tasks)
        return Finetune.build(chosen, _Hollow(model.hollow()), spec, tasks)
