"""Ordinary fine-tuning, for the demo to compare with: every weight of the encoder is trained, nothing is stored.

Padded random batches in fp32 with the model's own dropout, the same heads, Adam and 1cycle as everywhere else.

Axes: B items of a batch   T pieces, padding included   D width   W words of all items, end to end   C labels
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..encoders.pretrained import Pretrained
from ..errors import ConfigError
from ..heads import Head
from ..nn.rows import Rows
from ..resolve import resolve
from ..tasks import Task
from ..train.optim import one_cycle, total_steps
from ..train.settings import Settings
from ..types import Document, Pieces

__all__ = ["FineTuned", "finetune"]


@dataclass(frozen=True)
class FineTuned:
    """`predicted[task]` of the scored documents; wall seconds; number of weights that were trained."""

    predicted: dict[str, list[tuple[str, ...]]]
    steps: int
    seconds_per_batch: float
    seconds: float
    parameters: int


def finetune(
    model: Pretrained,
    tasks: Sequence[Task],
    train: Sequence[Document],
    scored: Sequence[Document],
    settings: Settings,
    head_rate: float,
) -> FineTuned:
    """Train encoder and heads on `train`, answer for `scored`. The settings' learning rate is the encoder's; the heads,
    which start from nothing, have their own (spec A-14). Raises ConfigError for items longer than the window."""
    live = _Live(model, tasks, settings.seed)
    generator = np.random.default_rng(settings.seed)
    torch.manual_seed(settings.seed)
    gold = {task.name: [task.ids(labels) for labels in task.gold(train)] for task in tasks}
    steps = total_steps(len(train), settings)
    groups = (
        (list(live.encoder.parameters()), settings.learning_rate),
        (list(live.trained_heads.parameters()), head_rate),
    )
    optimiser, schedule = one_cycle(groups, steps, settings)
    pieces = _cut(model, train)
    began = time.perf_counter()
    live.train()
    for _ in range(settings.num_train_epochs):
        for chosen in _batches(generator.permutation(len(train)), settings.per_device_train_batch_size):
            live.zero_grad(set_to_none=True)
            live.loss(
                [pieces[i] for i in chosen], {name: [ids[i] for i in chosen] for name, ids in gold.items()}
            ).backward()
            optimiser.step()
            schedule.step()
    seconds = time.perf_counter() - began
    predicted = live.answers(_cut(model, scored), settings.per_device_eval_batch_size)
    parameters = sum(parameter.numel() for parameter in live.parameters())
    return FineTuned(predicted, steps, seconds / max(1, steps), seconds, parameters)


class _Live(nn.Module):
    """The encoder with its weights free, and a head a task."""

    def __init__(self, model: Pretrained, tasks: Sequence[Task], seed: int) -> None:
        super().__init__()
        self.encoder: Any = resolve("encoders", model.family).load(model.path).model.requires_grad_(True)
        self.padding = int(model.config.get("pad_token_id") or 0)
        self.tasks = tuple(tasks)
        torch.manual_seed(seed)
        heads: list[Head] = [
            resolve("heads", task.head)(model.width, task.labels, **task.head_options) for task in tasks
        ]
        self.heads = heads
        self.trained_heads = nn.ModuleList(heads)

    def vectors(self, items: Sequence[Pieces]) -> Tensor:
        """The last piece of every word, [W, D]."""
        longest = max(len(item) for item in items)
        ids = torch.full((len(items), longest), self.padding)
        mask = torch.zeros(len(items), longest, dtype=torch.long)
        rows = []
        for b, item in enumerate(items):
            ids[b, : len(item)] = torch.from_numpy(item.ids.astype(np.int64))
            mask[b, : len(item)] = 1
            ends = np.flatnonzero((item.word >= 0) & (np.append(item.word[1:], -1) != item.word))
            rows.append(b * longest + ends)
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return states.flatten(0, 1)[torch.from_numpy(np.concatenate(rows))]

    def loss(self, items: Sequence[Pieces], gold: dict[str, list[np.ndarray]]) -> Tensor:
        """Nats a word, summed over the tasks."""
        vectors, rows = self.vectors(items), Rows.of([item.n_words for item in items])
        losses = [
            head.loss(head(vectors, rows), torch.from_numpy(np.concatenate(gold[task.name])), rows.lengths)
            for task, head in zip(self.tasks, self.heads, strict=True)
        ]
        return torch.stack(losses).sum() / len(vectors)

    def answers(self, items: Sequence[Pieces], size: int) -> dict[str, list[tuple[str, ...]]]:
        """A label a word for every task and item, in order; items of like length are read together."""
        self.eval()
        found: dict[str, list[tuple[str, ...]]] = {task.name: [()] * len(items) for task in self.tasks}
        order = np.argsort([len(item) for item in items], kind="stable")
        with torch.no_grad():
            for chosen in _batches(order, size):
                vectors = self.vectors([items[i] for i in chosen])
                rows = Rows.of([items[i].n_words for i in chosen])
                for task, head in zip(self.tasks, self.heads, strict=True):
                    for i, labels in zip(chosen, head.decode(head(vectors, rows), rows), strict=True):
                        found[task.name][i] = labels
        return found


def _cut(model: Pretrained, documents: Sequence[Document]) -> list[Pieces]:
    pieces = model.cut(documents)
    for document, item in zip(documents, pieces, strict=True):
        if len(item.windows) > 1:
            raise ConfigError(f"{document.place or document.id} is longer than {model.window} pieces; leave it out.")
    return pieces


def _batches(order: np.ndarray, size: int) -> Iterator[list[int]]:
    for start in range(0, len(order), size):
        yield order[start : start + size].tolist()
