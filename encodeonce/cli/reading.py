"""Which layers the words of a label read: layer weights of a run, averaged over the words of each label.

Axes: W words of a batch   L layers the run reads   C labels
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from ..batching import Examples
from ..errors import ConfigError, DataError, NotStored
from ..methods.multitask import Multitask
from ..report.plots import Heat
from ..serve.predictor import Predictor
from ..store import Store
from ..types import Document

__all__ = ["layer_reading", "mean_weights"]

ONE_LABEL = ("tagger", "span_tagger", "classifier")
"""Heads that give every row of theirs one label."""


def layer_reading(
    predictor: Predictor, documents: Sequence[Document], by: str = "gold", tasks: Sequence[str] = ()
) -> list[Heat]:
    """One panel a task (all where none is named), labels by falling count. `by` is "gold" or "predicted".

    ConfigError for a task whose rows have not one label each: numbers, sets of labels, trees, graphs. DataError where
    no document has a text.
    """
    run = predictor.run
    if not run.method.layers:
        raise ConfigError(
            "this run was fine-tuned from piece ids and reads no stored layer: there is no weight to show."
        )
    count, task = len(documents), run.tasks[0]
    documents = [task.prepared(one) for one in documents if not one.empty]
    if not documents:
        raise DataError(f"none of {count} documents has a text, so no layer is read. Give one that has.")
    chosen = [task for task in run.tasks if not tasks or task.name in tasks]
    unread = next((task for task in chosen if task.head not in ONE_LABEL), None)
    if unread is not None:
        raise ConfigError(
            f"task {unread.name!r} has not one label a row, so layers cannot be averaged by label. Choose others with "
            "--task, or train one that has (deprel, ner, classification) beside it."
        )
    if by == "predicted":
        answers = predictor.predict(documents)
        labels = {task.name: [answer[task.name] for answer in answers] for task in chosen}
    else:
        labels = {task.name: task.gold(documents) for task in chosen}
    labels = {name: [(own,) if isinstance(own, str) else own for own in found] for name, found in labels.items()}
    with _stored(predictor, documents) as store:
        examples = Examples.read(store, documents)
        return [mean_weights(run.method, examples, task.name, labels[task.name]) for task in chosen]


def mean_weights(
    method: Multitask, examples: Examples, task: str, labels: Sequence[tuple[str, ...]], size: int = 32
) -> Heat:
    """The mean of `layer_weights` over the words of each label: [C, L], lines sum to 1; labels by falling count."""
    names = sorted({label for line in labels for label in line})
    row = {label: number for number, label in enumerate(names)}
    sums = np.zeros((len(names), len(method.layers)))
    counts = np.zeros(len(names), dtype=np.int64)
    method.eval()
    with torch.no_grad():
        for batch in method.batches(examples, size=size, order=None):
            weights_WL = method.layer_weights(batch, task).numpy().astype(np.float64)
            at = np.array([row[label] for item in batch.items for label in labels[item]], dtype=np.int64)
            np.add.at(sums, at, weights_WL)
            np.add.at(counts, at, 1)
    order = sorted(range(len(names)), key=lambda number: (-counts[number], names[number]))
    return Heat(
        title=task,
        labels=[names[number] for number in order],
        counts=[int(counts[number]) for number in order],
        layers=list(method.layers),
        weights=sums[order] / counts[order, None],
    )


@contextmanager
def _stored(predictor: Predictor, documents: Sequence[Document]) -> Iterator[Store]:
    """A store that holds the documents: the run's own, or one that is filled for the moment and removed."""
    own = predictor.store
    if isinstance(own, Store) and not own.missing([document.key for document in documents]):
        yield own
        return
    if predictor.encoder is None:
        raise NotStored("Some of these texts are not stored and the run's encoder is not here. Name it with --encoder.")
    with tempfile.TemporaryDirectory(prefix="encodeonce-") as folder:
        store = Store.open(Path(folder) / "states", predictor.run.spec)
        store.fill(documents, predictor.encoder)
        yield store
