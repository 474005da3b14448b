"""A saved few-shot estimator where the commands expect a saved run: what it answers for, and its answers."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..integrations.few_shot import FewShot
from ..tasks import Task
from ..tasks._json_labels import as_label, kept_as
from ..tasks.classification import Classification
from ..types import Document, Spec
from .few_shot_material import shown

__all__ = ["FewShotPredictor", "FewShotRun"]

log = logging.getLogger("encodeonce")


@dataclass(frozen=True)
class Name:
    """Of the method."""

    name: str = "fewshot"


@dataclass(frozen=True)
class FewShotRun:
    """What commands ask of a `serve.bundle.Run`; what an estimator does not know of its training is None."""

    tasks: tuple[Task, ...]
    spec: Spec
    training: Mapping[str, Any]
    variant: Name = field(default_factory=Name)


class FewShotPredictor:
    """What commands ask of a `serve.Predictor`. `hits` and `misses` count documents by whether a store held them."""

    def __init__(self, model: FewShot) -> None:
        classes = model.classes_.tolist()
        task = Classification(
            column=model.column_,
            called="label",
            labels=tuple(map(as_label, classes)),
            kept_as=kept_as(classes),
            pairs=model.pairs_,
        )
        training = {
            "settings": {"seed": model.seed},
            "seconds": None,
            "seconds_per_batch": None,
            "parameters": {task.name: None},
        }
        self.model, self.encoder = model, model.model
        self.run = FewShotRun((task,), model.spec, training)
        self.hits = self.misses = 0

    @classmethod
    def load(cls, folder: Path, encoder: str | None = None, store: str | None = None) -> "FewShotPredictor":
        """Of what `FewShot.save` left; see `FewShot.load` for errors."""
        return cls(FewShot.load(folder, encoder, store))

    def predict(self, documents: Sequence[Document], probabilities: bool = False) -> list[dict[str, Any]]:
        """For each document its label, or with `probabilities` a pair of it and {label: probability}; None for one
        that is `empty`, of a pair either text, which is logged. DataError for a single text where training had pairs,
        or the other way round.
        """
        (task,) = self.run.tasks
        asked = [n for n, document in enumerate(documents) if not document.empty]
        for n in asked:
            task.check(documents[n])
        if len(asked) < len(documents):
            log.warning("%d texts are empty and get no answer", len(documents) - len(asked))
        answers: list[dict[str, Any]] = [{task.name: None} for _ in documents]
        texts = shown([documents[n] for n in asked])
        stored = self.model.stored(texts)
        self.hits, self.misses = self.hits + stored, self.misses + len(asked) - stored
        for n, line in zip(asked, self.model.predict_proba(texts), strict=True):
            label = task.labels[int(line.argmax())]
            chances = dict(zip(task.labels, map(float, line), strict=True))
            answers[n] = {task.name: (label, chances) if probabilities else label}
        return answers
