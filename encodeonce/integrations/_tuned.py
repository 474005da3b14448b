"""Fine-tuning with a classification head as a few-shot estimator uses it: trained by the one loop, asked as any run.

Axes: N items   C classes
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from ..batching import Cut
from ..encoders.pretrained import Pretrained
from ..errors import DataError
from ..methods.finetune import Finetune, Tuning
from ..serve.bundle import Run
from ..serve.predictor import Predictor
from ..tasks import Task, named
from ..train.fit import fit
from ..train.settings import Settings
from ..types import Document

__all__ = ["TASK", "Schedule", "answers_of", "cut", "fits_window", "task_of", "tuned"]

log = logging.getLogger("encodeonce")

TASK = "label"
"""The task's name in the saved run; its labels are the numbers of the classes."""

BATCH = 32


@dataclass(frozen=True)
class Schedule:
    """About `steps` steps of the 1cycle schedule, no dropout in the head; rates of head and encoder."""

    steps: int
    learning_rate: float
    encoder_learning_rate: float
    compute: str
    seed: int

    @property
    def tuning(self) -> Tuning:
        """What is trained."""
        return Tuning("finetune", dropout=0.0, compute=self.compute)

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


def fits_window(model: Pretrained, documents: Sequence[Document]) -> Bool[np.ndarray, " N"]:
    """Whether each text (of a pair, both together) fits the encoder's window."""
    first = model.cut([Document(d.id, text=d.text) for d in documents])
    lengths = np.array([len(pieces) for pieces in first])
    if documents and documents[0].pair:
        second = model.cut([Document(d.id, text=d.pair) for d in documents])
        lengths = lengths + np.array([len(pieces) for pieces in second])
    return lengths <= model.window


def tuned(
    model: Pretrained, documents: Sequence[Document], classes: Int[np.ndarray, " N"], schedule: Schedule
) -> Predictor:
    """All blocks and a head over the mean of an item's pieces; the last epoch's weights. DataError without a text."""
    labelled, task = task_of(documents, classes)
    tuning, spec = schedule.tuning, model.spec()
    method = Finetune.build(tuning, model, spec, [task], schedule.seed, read_ahead=0)
    examples = method.read(cut(model, labelled), labelled, [task])
    settings = schedule.settings(len(labelled))
    fit(method, examples, {TASK: task}, settings)
    method.settle()
    return Predictor(Run(method, (task,), tuning, spec, training=settings.to_json()), encoder=model)


def task_of(
    documents: Sequence[Document], classes: Int[np.ndarray, " N"], piece: str = "document"
) -> tuple[list[Document], Task]:
    """The documents with their classes as labels, and the task that learned these. DataError where there is none."""
    if not documents:
        raise DataError("no text is short enough to be fine-tuned on: leave out 'finetune' and every fusion.")
    labelled = [replace(d, meta={TASK: str(label)}) for d, label in zip(documents, classes.tolist(), strict=True)]
    return labelled, named(TASK, kind="classification", column=TASK, piece=piece).learn(labelled)


def cut(model: Pretrained, documents: Sequence[Document]) -> Cut:
    """Their pieces, equal documents once."""
    distinct = {document.key: document for document in documents}
    return Cut(model.spec(), model.cut(list(distinct.values())))


def answers_of(
    predictor: Predictor, model: Pretrained, documents: Sequence[Document], n_classes: int
) -> Float[np.ndarray, "N C"]:
    """Probabilities of the classes; even ones for a text over the window, and for a class that training never saw."""
    answers = np.full((len(documents), n_classes), 1 / n_classes)
    fits = np.flatnonzero(fits_window(model, documents))
    if len(fits) < len(documents):
        log.warning("%d texts are over the window: fine-tuning has no say on them", len(documents) - len(fits))
    found = predictor.predict([documents[int(i)] for i in fits], probabilities=True)
    for place, answer in zip(fits, found, strict=True):
        said = answer[TASK][1]
        answers[place] = [said.get(str(label), 0.0) for label in range(n_classes)]
    return answers
