"""Fine-tuning with a classification head as a few-shot estimator uses it: what it keeps is a run like any other.

Axes: N items   C classes
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from ..batching import Cut
from ..encoders.pretrained import Pretrained
from ..methods.finetune import Finetune, Tuning
from ..serve.bundle import Run
from ..tasks import Task
from ..types import Document
from ._base import Schedule, answers_of, learned

__all__ = ["Tuned", "Whole", "fits_window", "tuned"]


@dataclass(frozen=True)
class Whole:
    """All blocks of the encoder, and a classification head over the mean of an item's pieces, without dropout."""

    model: Pretrained
    compute: str

    @property
    def piece(self) -> str:
        """The head sees one row an item."""
        return "document"

    @property
    def tuning(self) -> Tuning:
        """What is trained."""
        return Tuning("finetune", dropout=0.0, compute=self.compute)

    def method(self, task: Task, seed: int) -> Finetune:
        """As pre-trained, with a new head."""
        return Finetune.build(self.tuning, self.model, self.model.spec(), [task], seed, read_ahead=0)

    def source(self, documents: Sequence[Document]) -> Cut:
        """Their pieces, equal documents once."""
        distinct = {document.key: document for document in documents}
        return Cut(self.model.spec(), self.model.cut(list(distinct.values())))

    def fits(self, documents: Sequence[Document]) -> Bool[np.ndarray, " N"]:
        """Whether each is within the window."""
        return fits_window(self.model, documents)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"compute": self.compute, "prompt": None}


@dataclass(frozen=True)
class Tuned:
    """A trained encoder with its head."""

    run: Run
    base: Whole

    FILES: ClassVar[tuple[str, ...]] = ("config.json", "model.safetensors")

    def answers(self, documents: Sequence[Document], n_classes: int) -> Float[np.ndarray, "N C"]:
        """Probabilities of the classes; see `answers_of`."""
        assert isinstance(self.run.method, Finetune)
        return answers_of(self.run.method, self.base, documents, n_classes)


def fits_window(model: Pretrained, documents: Sequence[Document]) -> Bool[np.ndarray, " N"]:
    """Whether each text (of a pair, both together) fits the encoder's window."""
    first = model.cut([Document(d.id, text=d.text) for d in documents])
    lengths = np.array([len(pieces) for pieces in first])
    if documents and documents[0].pair:
        second = model.cut([Document(d.id, text=d.pair) for d in documents])
        lengths = lengths + np.array([len(pieces) for pieces in second])
    return lengths <= model.window


def tuned(base: Whole, documents: Sequence[Document], classes: Int[np.ndarray, " N"], schedule: Schedule) -> Tuned:
    """Trained on these documents; the last epoch's weights. DataError where there is no text."""
    method, task, settings = learned(base, documents, classes, schedule)
    return Tuned(Run(method, (task,), base.tuning, base.model.spec(), training=settings.to_json()), base)
