"""What a few-shot estimator trains by the one loop, and how that answers.

A `Base` is the encoder with a head (`_tuned.Whole`) or a model that is asked by a prompt (`_asked.Asking`). Fusion
(`_fused`) goes inside either.

Axes: N items   C classes
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from ..batching import Cut, Source
from ..errors import DataError
from ..methods.finetune import Finetune
from ..tasks import Task, named
from ..train.fit import fit
from ..train.settings import Settings
from ..types import Document

__all__ = ["TASK", "Base", "Schedule", "answers_of", "learned", "plain", "task_of"]

log = logging.getLogger("encodeonce")

TASK = "label"
"""The task's name in what is saved; its labels are the numbers of the classes."""

BATCH = 32


@runtime_checkable
class Base(Protocol):
    """What is trained, and how texts are laid for it."""

    @property
    def piece(self) -> str:
        """The rows that the task's head sees."""

    def method(self, task: Task, seed: int) -> Finetune:
        """As pre-trained."""

    def source(self, documents: Sequence[Document]) -> Cut:
        """Their pieces, equal documents once."""

    def fits(self, documents: Sequence[Document]) -> Bool[np.ndarray, " N"]:
        """Whether each can be read."""

    def to_json(self) -> dict[str, Any]:
        """What makes it again beside the encoder: "compute" and "prompt", None where there is none."""


def plain(value: Any) -> Any:
    """A number of NumPy as Python's."""
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class Schedule:
    """About `steps` steps of the 1cycle schedule; rates of head and encoder."""

    steps: int
    learning_rate: float
    encoder_learning_rate: float
    seed: int

    def settings(self, n: int, inside: float = 0.0) -> Settings:
        """The loop's, for n examples; `inside` is the rate of what is added inside the encoder."""
        return Settings(
            learning_rate=self.learning_rate,
            encoder_learning_rate=self.encoder_learning_rate,
            inside_learning_rate=inside,
            num_train_epochs=max(1, round(self.steps / math.ceil(n / BATCH))),
            per_device_train_batch_size=BATCH,
            warmup_ratio=0.1,
            seed=self.seed,
        )


def task_of(base: Base, documents: Sequence[Document], classes: Int[np.ndarray, " N"]) -> tuple[list[Document], Task]:
    """The documents with their classes as labels, and the task that learned these. DataError where there is none."""
    if not documents:
        raise DataError("no text is short enough to be fine-tuned on: leave out 'finetune' and every fusion.")
    labelled = [replace(d, meta={TASK: str(label)}) for d, label in zip(documents, classes.tolist(), strict=True)]
    return labelled, named(TASK, kind="classification", column=TASK, piece=base.piece).learn(labelled)


def learned(
    base: Base, documents: Sequence[Document], classes: Int[np.ndarray, " N"], schedule: Schedule
) -> tuple[Finetune, Task, Settings]:
    """Trained on all of these, the last epoch's weights, ready to answer. DataError where there is no text."""
    labelled, task = task_of(base, documents, classes)
    method, settings = base.method(task, schedule.seed), schedule.settings(len(labelled))
    fit(method, method.read(base.source(labelled), labelled, [task]), {TASK: task}, settings)
    method.settle()
    return method, task, settings


def answers_of(
    method: Finetune,
    base: Base,
    documents: Sequence[Document],
    n_classes: int,
    around: Callable[[Source, Sequence[Document]], Source] | None = None,
) -> Float[np.ndarray, "N C"]:
    """Probabilities of the classes, 0 of one that training never saw; even ones for a text that cannot be read.

    `around` gives what the method reads in place of a source of these documents: with their neighbours.
    """
    answers = np.full((len(documents), n_classes), 1 / n_classes)
    fits: list[int] = np.flatnonzero(base.fits(documents)).tolist()
    if len(fits) < len(documents):
        log.warning("%d texts are over the window: fine-tuning has no say on them", len(documents) - len(fits))
    distinct = list({documents[i].key: documents[i] for i in fits}.values())
    if not distinct:
        return answers
    source: Source = base.source(distinct)
    examples = method.eval().read(source if around is None else around(source, distinct), distinct)
    with torch.no_grad():
        found = [
            answer[TASK][1]
            for batch in method.batches(examples, size=BATCH, order=None)
            for answer in method.predict(batch, True)
        ]
    said = {document.key: answer for document, answer in zip(distinct, found, strict=True)}
    for i in fits:
        answers[i] = [said[documents[i].key].get(str(label), 0.0) for label in range(n_classes)]
    return answers
