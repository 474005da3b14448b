"""Any number of tasks over one read of the stored views: what all methods over stored pieces share.

Axes: L views   P rows of all items   R rows that a head sees   D width   C classes
"""

import hashlib
import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..adapters import Adapter
from ..batching import Batch, Examples, Source, Supervised, count_by_pieces, planned, planned_by_pieces
from ..batching.ahead import ahead
from ..batching.batch import collated
from ..batching.buffers import Buffers
from ..errors import ConfigError, DataError
from ..heads import Head
from ..resolve import resolve
from ..types import APART

__all__ = ["Multitask", "Part", "checked", "head_of", "settings_of", "start_seed"]


class Part(nn.Module):
    """What one task trains: an adapter, a head, and the rows that the head sees (`batching.batch.PIECES`)."""

    def __init__(self, adapter: Adapter, head: Head, piece: str) -> None:
        super().__init__()
        self.adapter = adapter
        self.head = head
        self.piece = piece

    def forward(self, batch: Batch) -> Any:
        """The head's scores of the batch."""
        choice = batch.choices[self.piece]
        return self.head(choice.seen(self.adapter(batch.packed, choice.packed)), choice.rows)


class Multitask(nn.Module):
    """Tasks share the read of a batch and nothing else: trained together or alone they end at the same weights
    (up to dropout, whose random numbers they draw from one stream).

    `layers` are the view numbers that are read. `read_ahead` batches are read by a background thread; 0 reads in line.
    `settings` are what the parts were made by (`settings_of`).
    """

    def __init__(
        self,
        parts: Mapping[str, Part],
        layers: Sequence[int],
        read_ahead: int = 1,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not parts:
            raise ConfigError("no task: give at least one, such as 'upos'.")
        self.parts = nn.ModuleList(parts.values())
        self.names = tuple(parts)
        self.layers = tuple(layers)
        self.read_ahead = read_ahead
        self.settings = dict(settings or {})

    def described(self) -> dict[str, Any]:
        """What weights do not say: rates of dropout, number types, which rows a head sees."""
        return self.settings

    def part(self, name: str) -> Part:
        """The part of one task."""
        part = self.parts[self.names.index(name)]
        assert isinstance(part, Part)
        return part

    def modules_of(self) -> dict[str, nn.Module]:
        """Task name -> what it trains; `train` keeps the best weights of each by itself."""
        return {name: self.part(name) for name in self.names}

    def tasks_of(self, name: str) -> tuple[str, ...]:
        """The tasks that one of `modules_of` answers."""
        return (name,)

    def groups(self, name: str) -> dict[str, list[nn.Parameter]]:
        """What a task trains, by learning rate."""
        return {"head": [parameter for parameter in self.part(name).parameters() if parameter.requires_grad]}

    def read(
        self, source: Source, documents: Sequence[Any], tasks: Sequence[Supervised] = (), split: str = "these documents"
    ) -> Examples:
        """`Examples.read`; no tasks where there is no gold. DataError for a document that the method's tasks have not
        `prepared`: two texts that are to be read apart and are not, or the other way round."""
        apart = any(self.part(name).piece == APART for name in self.names)
        other = next((one for one in documents if one.apart != apart and (one.pair or apart)), None)
        if other is not None:
            here = (
                f"its two texts are read {'apart' if other.apart else 'together'}"
                if other.pair
                else "there is one text"
            )
            raise DataError(
                f"{other.place or other.id}: {here}, and {', '.join(self.names)} reads two "
                f"{'apart' if apart else 'together'}. Fill the store with documents as the task has them read, and "
                "give the method the same: documents = [task.prepared(document) for document in documents]."
            )
        return Examples.read(source, documents, tasks, split)

    def scores(self, batch: Batch, names: Collection[str]) -> dict[str, Any]:
        """Each task's scores of the batch, of whatever form its head gives them."""
        return {name: self.part(name)(batch) for name in names}

    def losses(self, batch: Batch, names: Collection[str]) -> dict[str, Float[Tensor, ""]]:
        """The loss of each of these modules, a scored unit on average over the epoch: the sum of its tasks' losses,
        each of them a sum times the constant `Batch.scale`."""
        losses = {}
        for name in names:
            tasks = self.tasks_of(name)
            scores = self.scores(batch, tasks)
            own = [
                self.part(task).head.loss(scores[task], batch.gold[task], batch.counts[task]) * batch.scale[task]
                for task in tasks
            ]
            losses[name] = torch.stack(own).sum() if len(own) > 1 else own[0]
        return losses

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """The sum over all tasks."""
        return torch.stack(list(self.losses(batch, list(self.modules_of())).values())).sum()

    def predict(self, batch: Batch, probabilities: bool = False) -> list[dict[str, Any]]:
        """For each item a prediction a task, of the kind that the task's gold is.

        With `probabilities`, a pair of the prediction and label -> probability; ConfigError where a head has none.
        """
        found = self.scores(batch, self.names)
        decoded: dict[str, list[Any]] = {}
        for name in self.names:
            part = self.part(name)
            scores, rows = found[name], batch.choices[part.piece].rows
            decoded[name] = part.head.decode(scores, rows)
            if probabilities:
                decoded[name] = list(zip(decoded[name], part.head.probabilities(scores, rows), strict=True))
        return [{name: decoded[name][b] for name in self.names} for b in range(len(batch.items))]

    def layer_weights(self, batch: Batch, name: str) -> Float[Tensor, "R L"]:
        """How much of each view of `layers` a task's adapter reads for every row of its head; rows sum to 1."""
        part = self.part(name)
        choice = batch.choices[part.piece]
        return choice.pooled(part.adapter.layer_weights(batch.packed, choice.packed))

    def batches(self, examples: Examples, *, size: int, order: np.random.Generator | None) -> Iterator[Batch]:
        """All examples once: in an order drawn from `order`, or as they stand where it is None.

        The order is drawn before the first batch. A batch's views lie in a buffer that is used again once the batch is
        garbage: keep the batch, not its views.
        """
        if size < 1:
            raise ConfigError(f"batch size {size} must be at least 1.")
        return self._ahead(examples, planned(len(examples), size, order), min(size, len(examples)))

    def count_of_pieces(self, examples: Examples, pieces: int) -> int:
        """How many batches `batches_of_pieces` gives."""
        return count_by_pieces(examples.lengths, pieces)

    def batches_of_pieces(self, examples: Examples, *, pieces: int, order: np.random.Generator) -> Iterator[Batch]:
        """As `batches`, each batch of about so many pieces whatever the number of items."""
        plan = planned_by_pieces(examples.lengths, pieces, order)
        return self._ahead(examples, plan, len(examples) / max(1, len(plan)))

    def _ahead(self, examples: Examples, plan: Sequence[np.ndarray], size: int | float) -> Iterator[Batch]:
        """The planned batches; `size` is the mean number of items."""
        return ahead(self._read(examples, plan, size), self.read_ahead if len(plan) > 1 else 0)

    def _read(self, examples: Examples, plan: Sequence[np.ndarray], size: int | float) -> Iterator[Batch]:
        pieces = frozenset(self.part(name).piece for name in self.names)
        scale = {name: 1 / (size * units.scored) for name, units in examples.units.items()}
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


def checked(tasks: Sequence[Supervised]) -> Sequence[Supervised]:
    """The tasks, each learned and each once, which read the same; ConfigError names the first that does not."""
    names = [task.name for task in tasks]
    for task in tasks:
        if names.count(task.name) > 1:
            raise ConfigError(f"task {task.name!r} is given twice.")
        if not task.labels:
            raise ConfigError(f"task {task.name!r} has no labels yet: task = task.learn(train_documents).")
        if (task.piece == APART) != (tasks[0].piece == APART):
            raise ConfigError(
                f"tasks {tasks[0].name!r} (piece={tasks[0].piece!r}) and {task.name!r} (piece={task.piece!r}) are read "
                "otherwise, and all tasks of a method read the same. Give both one piece, or train each by itself."
            )
    return tasks


def head_of(task: Supervised, width: int, dropout: float, compute: str) -> Head:
    """A new head for a learned task over vectors of `width`; what the task says of the head overrules the method."""
    options = {"dropout": dropout, "compute": compute, **task.head_options}
    if task.piece == APART:  # what compares two texts is four vectors wide
        options, width = {"inner_width": width, **options}, 4 * width
    head: Head = resolve("heads", task.head)(width, task.labels, **options)
    return head


def settings_of(method: Mapping[str, Any], tasks: Sequence[Supervised]) -> dict[str, Any]:
    """A method's settings, and those of its tasks' heads, as plain JSON values."""
    heads = {task.name: {"head": task.head, "piece": task.piece, **task.head_options} for task in tasks}
    plain = json.loads(json.dumps({**method, "tasks": heads}))
    assert isinstance(plain, dict)
    return plain


def start_seed(seed: int, name: str) -> int:
    """The seed of a task's start values: of the run's seed and the task's name, and of nothing else."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
