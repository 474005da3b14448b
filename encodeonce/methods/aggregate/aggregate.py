"""The method: any number of token tasks over one read of the stored views (Basirat 2024; spec A2-A7, A12).

Axes: L views   P rows of all items   D width   B items   W words of all items   C labels
"""

import hashlib
import logging
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...adapters import Adapter
from ...errors import ConfigError
from ...heads import Head
from ...resolve import resolve
from ...types import Spec
from .ahead import ahead
from .batch import Batch, collated
from .buffers import Buffers
from .examples import Examples, Source, TokenTask
from .variant import Variant

__all__ = ["Aggregate", "Part"]

log = logging.getLogger("encodeonce")

POOL = 4
"""Batches in a bucketing pool: items are sorted by length among POOL x size neighbours of the shuffled order.

Enough to keep padding low where tensors are padded (no compiled kernel), and little enough that the longest batch,
which sets the peak memory, stays within about twice the mean one.
"""


class Part(nn.Module):
    """What one task trains: an adapter, a head, and the piece that stands for a word."""

    def __init__(self, adapter: Adapter, head: Head, piece: str) -> None:
        super().__init__()
        self.adapter = adapter
        self.head = head
        self.piece = piece

    def forward(self, batch: Batch) -> Float[Tensor, "W C"]:
        """Scores of every word of the batch."""
        vectors = self.adapter(batch.packed, batch.rows[self.piece])
        scores: Tensor = self.head(batch.word_vectors(vectors, self.piece))
        return scores


class Aggregate(nn.Module):
    """Tasks share the read of a batch and nothing else: trained together or alone they end at the same weights
    (up to dropout, whose random numbers they draw from one stream).

    `layers` are the view numbers that are read. `read_ahead` batches are read by a background thread; 0 reads in line.
    """

    def __init__(self, parts: Mapping[str, Part], layers: Sequence[int], read_ahead: int = 1) -> None:
        super().__init__()
        if not parts:
            raise ConfigError("no task: give at least one, such as 'upos'.")
        self.parts = nn.ModuleList(parts.values())
        self.names = tuple(parts)
        self.layers = tuple(layers)
        self.read_ahead = read_ahead

    @classmethod
    def build(
        cls, variant: Variant, spec: Spec, tasks: Sequence[TokenTask], seed: int = 42, read_ahead: int = 1
    ) -> "Aggregate":
        """New parts for learned tasks. Each part's start values depend on `seed` and the task's name only."""
        parts = {}
        for task in tasks:
            if task.name in parts:
                raise ConfigError(f"task {task.name!r} is given twice.")
            if not task.labels:
                raise ConfigError(f"task {task.name!r} has no labels yet: task = task.learn(train_documents).")
            if len(task.labels) == 1:
                log.warning("task %s: a single label, %r; every prediction will be it", task.name, task.labels[0])
            digest = hashlib.sha256(f"{seed}/{task.name}".encode()).digest()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
                adapter = variant.adapter(spec)
                head = resolve("heads", task.head)(
                    spec.width, task.labels, dropout=variant.dropout, compute=variant.compute, **task.head_options
                )
            parts[task.name] = Part(adapter, head, task.piece)
        return cls(parts, variant.layers(spec), read_ahead)

    def part(self, name: str) -> Part:
        """The part of one task."""
        part = self.parts[self.names.index(name)]
        assert isinstance(part, Part)
        return part

    def modules_of(self) -> dict[str, nn.Module]:
        """Task name -> what it trains; `train` keeps the best weights of each by itself."""
        return {name: self.part(name) for name in self.names}

    def read(
        self, source: Source, documents: Sequence[Any], tasks: Sequence[TokenTask] = (), split: str = "train"
    ) -> Examples:
        """`Examples.read`; no tasks where there is no gold."""
        return Examples.read(source, documents, tasks, split)

    def losses(self, batch: Batch, names: Collection[str]) -> dict[str, Float[Tensor, ""]]:
        """Each task's loss, in nats a word on average over the epoch: its sum times a constant, `Batch.scale`."""
        losses = {}
        for name in names:
            part = self.part(name)
            losses[name] = part.head.loss(part(batch), batch.gold[name]) * batch.scale[name]
        return losses

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """The sum over all tasks."""
        return torch.stack(list(self.losses(batch, self.names).values())).sum()

    def predict(self, batch: Batch) -> list[dict[str, tuple[str, ...]]]:
        """For each item a prediction a task: one label a word."""
        decoded = {}
        for name in self.names:
            part = self.part(name)
            decoded[name] = part.head.decode(part(batch), batch.words)
        return [{name: decoded[name][b] for name in self.names} for b in range(len(batch.words))]

    def layer_weights(self, batch: Batch, name: str) -> Float[Tensor, "W L"]:
        """How much of each view of `layers` a task's adapter reads for every word; rows sum to 1."""
        part = self.part(name)
        return batch.word_vectors(part.adapter.layer_weights(batch.packed, batch.rows[part.piece]), part.piece)

    def batches(self, examples: Examples, *, size: int, order: np.random.Generator | None) -> Iterator[Batch]:
        """All examples once: in length buckets in an order drawn from `order`, or as they stand where it is None.

        The order is drawn before the first batch. A batch's views lie in a buffer that is used again once the batch is
        garbage: keep the batch, not its views.
        """
        if size < 1:
            raise ConfigError(f"batch size {size} must be at least 1.")
        return ahead(self._read(examples, planned(examples.lengths, size, order), size), self.read_ahead)

    def _read(self, examples: Examples, plan: Sequence[np.ndarray], size: int) -> Iterator[Batch]:
        pieces = frozenset(self.part(name).piece for name in self.names)
        scale = {name: 1 / (min(size, len(examples)) * examples.scored_words(name)) for name in examples.ids}
        buffers = Buffers()
        width = examples.source.spec.width
        upcoming = deque(plan)
        while upcoming:
            items = upcoming.popleft()
            if upcoming:
                examples.source.prefetch(examples.index[upcoming[0]], self.layers)
            shape = (len(self.layers), int(examples.lengths[items].sum()), width)
            out, hold = buffers.take(shape)
            packed = examples.source.batch(examples.index[items], layers=self.layers, dtype=torch.float32, out=out)
            batch = collated(examples, items, packed, pieces, scale)
            hold(batch)
            yield batch
            del batch, packed, out


def planned(
    lengths: Int[np.ndarray, " N"], size: int, order: np.random.Generator | None
) -> list[Int[np.ndarray, " B"]]:
    """Which items go into which batch; ceil(N / size) batches, all of `size` items but one."""
    n = len(lengths)
    if order is None:
        return [np.arange(start, min(start + size, n)) for start in range(0, n, size)]
    shuffled = order.permutation(n)
    batches = []
    for start in range(0, n, POOL * size):
        pool = shuffled[start : start + POOL * size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[at : at + size] for at in range(0, len(pool), size)]
    return [batches[i] for i in order.permutation(len(batches))]
