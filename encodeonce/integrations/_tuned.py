"""Fine-tuning with a classification head as a few-shot estimator uses it: trained by the one loop, asked as any run.

Axes: N items   C classes
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from ..batching import Cut
from ..encoders.pretrained import Pretrained
from ..errors import DataError
from ..methods.finetune import Finetune, Tuning
from ..serve.bundle import Run
from ..serve.predictor import Predictor
from ..tasks import named
from ..train.fit import fit
from ..train.settings import Settings
from ..types import Document

__all__ = ["TASK", "answers_of", "fits_window", "tuned"]

log = logging.getLogger("encodeonce")

TASK = "label"
"""The task's name in the saved run; its labels are the numbers of the classes."""

BATCH = 32


def fits_window(model: Pretrained, documents: Sequence[Document]) -> Bool[np.ndarray, " N"]:
    """Whether each text (of a pair, both together) fits the encoder's window."""
    first = model.cut([Document(d.id, text=d.text) for d in documents])
    lengths = np.array([len(pieces) for pieces in first])
    if documents and documents[0].pair:
        second = model.cut([Document(d.id, text=d.pair) for d in documents])
        lengths = lengths + np.array([len(pieces) for pieces in second])
    return lengths <= model.window


def tuned(
    model: Pretrained,
    documents: Sequence[Document],
    classes: Int[np.ndarray, " N"],
    *,
    steps: int,
    rates: tuple[float, float],
    compute: str,
    seed: int,
) -> Predictor:
    """All blocks and a head over the mean of an item's pieces, about `steps` steps of the 1cycle schedule, no dropout
    in the head; `rates` are the head's and the encoder's. The last epoch's weights. DataError where there is no text.
    """
    if not documents:
        raise DataError("no text is short enough to be fine-tuned on: leave out the method 'finetune'.")
    labelled = [replace(d, meta={TASK: str(label)}) for d, label in zip(documents, classes.tolist(), strict=True)]
    task = named(TASK, kind="classification", column=TASK).learn(labelled)
    spec = model.spec()
    tuning = Tuning("finetune", dropout=0.0, compute=compute)
    method = Finetune.build(tuning, model, spec, [task], seed, read_ahead=0)
    distinct = {document.key: document for document in labelled}
    examples = method.read(Cut(spec, model.cut(list(distinct.values()))), labelled, [task])
    epochs = max(1, round(steps / math.ceil(len(labelled) / BATCH)))
    head, encoder = rates
    settings = Settings(
        learning_rate=head,
        encoder_learning_rate=encoder,
        num_train_epochs=epochs,
        per_device_train_batch_size=BATCH,
        warmup_ratio=0.1,
        seed=seed,
    )
    fit(method, examples, {TASK: task}, settings)
    return Predictor(Run(method, (task,), tuning, spec, training=settings.to_json()), encoder=model)


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
