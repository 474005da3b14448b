"""Fusion inside the encoder as a few-shot estimator uses it: neighbours are unlabelled texts, the loop is the one loop.

A searched fusion learns its weights on one half of the labels and its architecture on the other (ReFusion, section
3.3); what it chose is then trained anew on all of them.

Fusion goes inside what is trained anyway: the encoder with a head, or the model that a prompt asks.

FOLDER/model.safetensors    encoder and head, as the plain method names them
FOLDER/fusion.safetensors   what fusion adds, with its settings and choice in fusion.json
FOLDER/corpus.safetensors   the unlabelled texts' vectors
FOLDER/inner.json           task, prompt, the search's decisions, how much each module adds, and the texts, so that none
                            is its own neighbour

Axes: N items   M unlabelled texts   D width
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load_file, save_file

from ..batching import Source
from ..encoders.pretrained import Pretrained
from ..errors import DataError
from ..methods.fewshot.folds import folds_of
from ..methods.refusion import FUSINGS, Decision, Fusing, Near, Refusion, Retrieved, refusion
from ..methods.refusion.near import asked, nearest_of, same, texts_of
from ..store import Search
from ..tasks import Task, from_json
from ..train.atomic import json_bytes, write_bytes
from ..train.fit import fit
from ..train.upper import Upper
from ..types import Corpus, Document
from ._asked import Asking
from ._base import TASK, Base, Schedule, answers_of, task_of
from ._material import TextVectors, content
from ._tuned import Whole

__all__ = ["ARCHITECTURE_RATE", "FUSED", "INSIDE_RATE", "Inner", "Neighbourhood", "fused"]

FUSED = tuple(name for name, fusing in FUSINGS.items() if not fusing.leak)
"""Names of fusions that an estimator may try. What was released is for comparisons: it trains on what it chooses by."""

ARCHITECTURE_RATE = 0.1
"""A few dozen steps: at the rate of long runs (3e-3) the candidates' shares would hardly leave their even start."""

INSIDE_RATE = 1e-2


@dataclass(frozen=True)
class Neighbourhood:
    """Unlabelled texts that differ, by `same` with the row of each, and their last views; `vectors` encodes queries."""

    rows: Mapping[str, int]
    search: Search
    vectors: TextVectors

    @classmethod
    def of(cls, documents: Sequence[Document], vectors: TextVectors, metric: str = "l2") -> "Neighbourhood":
        """Of documents' texts, both of a pair; of equal texts the first. `metric` is one of `store.search.METRICS`."""
        texts: dict[str, str] = {}
        for document in documents:
            for text in texts_of(document):
                texts.setdefault(same(text), text)
        rows = {name: row for row, name in enumerate(texts)}
        return cls(rows, _search(vectors.last(list(texts.values())), metric, rows, vectors), vectors)

    def near(self, documents: Sequence[Document], k: int) -> Near:
        """The k nearest of each document, without its own texts. TooFewVectors where there are fewer."""
        return nearest_of(documents, self.vectors.last(asked(documents)), self.search, self.rows, k)

    def around(self, source: Source, documents: Sequence[Document], k: int) -> Retrieved:
        """The source of these documents with the neighbours of each."""
        return Retrieved(source, self.near(documents, k))


@dataclass(frozen=True)
class Inner:
    """A trained fusion that answers, what the search decided (empty where there was none), and how much each module
    adds to the labelled texts: (block, slot) -> length of the fused vector over that of the slot's output."""

    method: Refusion
    base: Base
    task: Task
    neighbourhood: Neighbourhood
    decisions: tuple[Decision, ...]
    ratios: Mapping[tuple[int, str], float]

    FILES: ClassVar[tuple[str, ...]] = (
        *("model.safetensors", "fusion.safetensors", "fusion.json"),
        *("corpus.safetensors", "inner.json"),
    )

    def answers(self, documents: Sequence[Document], n_classes: int) -> Float[np.ndarray, "N C"]:
        """Probabilities of the classes; see `answers_of`."""
        return answers_of(self.method, self.base, documents, n_classes, self._around)

    def _around(self, source: Source, documents: Sequence[Document]) -> Retrieved:
        return self.neighbourhood.around(source, documents, self.method.fusion.fusing.k)

    def save(self, folder: Path) -> None:
        """The files above."""
        near = self.neighbourhood
        self.method.save(folder)
        save_file({"vectors": near.search.vectors(np.arange(len(near.search)))}, folder / "corpus.safetensors")
        described = {
            **self.base.to_json(),
            "task": self.task.to_json(),
            "decisions": [asdict(one) for one in self.decisions],
            "ratios": [[*place, ratio] for place, ratio in self.ratios.items()],
            "metric": near.search.metric,
            "texts": list(near.rows),
        }
        write_bytes(folder / "inner.json", json_bytes(described))

    @classmethod
    def load(cls, folder: Path, model: Pretrained, vectors: TextVectors) -> "Inner":
        """What `save` left, with the same answers."""
        described = json.loads((folder / "inner.json").read_text(encoding="utf-8"))
        fusing = Fusing(**json.loads((folder / "fusion.json").read_text(encoding="utf-8"))["fusing"])
        rows = {text: row for row, text in enumerate(described["texts"])}
        kept = load_file(folder / "corpus.safetensors")["vectors"]
        near = Neighbourhood(rows, _search(kept, described["metric"], rows, vectors), vectors)
        by_prompt = described["prompt"] is not None
        base = Asking.from_json(described, model) if by_prompt else Whole(model, described["compute"])
        task = from_json(described["task"])
        method = refusion(base.method(task, seed=0), fusing, near.search.width)
        method.restore(folder)
        method.settle()
        decisions = tuple(Decision(**one) for one in described["decisions"])
        ratios = {(block, slot): ratio for block, slot, ratio in described["ratios"]}
        return cls(method, base, task, near, decisions, ratios)


def fused(
    base: Base,
    documents: Sequence[Document],
    classes: Int[np.ndarray, " N"],
    fusing: Fusing,
    near: Neighbourhood,
    schedule: Schedule,
) -> Inner:
    """All that `base` trains, with fusion inside; the last epoch's weights.

    Raises DataError where there is no text, or one alone for a search, TooFewVectors where the unlabelled ones are
    fewer than the neighbours, ConfigError where a slot is not as wide as their vectors.
    """
    labelled, task = task_of(base, documents, classes)
    source = near.around(base.source(labelled), labelled, fusing.k)
    decisions: tuple[Decision, ...] = ()

    def made(how: Fusing) -> Refusion:
        return refusion(base.method(task, schedule.seed), how, near.search.width, seed=schedule.seed)

    if fusing.searched:
        method = made(fusing)
        halves = folds_of([content(document) for document in labelled], classes, 2, schedule.seed)
        if not halves.any():
            raise DataError(
                f"a search learns weights from one half of the texts and the architecture from the other, and all "
                f"{len(labelled)} to learn from here are one text. Give more labelled texts, or name a fusion without "
                "a search: add, reranker, mask."
            )
        train, dev = (
            method.read(source, [labelled[i] for i in np.flatnonzero(halves == half)], [task]) for half in (0, 1)
        )
        upper = Upper(dev, learning_rate=ARCHITECTURE_RATE)
        fit(method, train, {TASK: task}, schedule.settings(len(train), inside=INSIDE_RATE), upper=upper)
        decisions, fusing = tuple(method.architecture()), replace(fusing, choice=method.choice())
    method = made(fusing)
    examples = method.read(source, labelled, [task])
    fit(method, examples, {TASK: task}, schedule.settings(len(labelled), inside=INSIDE_RATE))
    ratios = method.ratios(examples)
    method.settle()
    return Inner(method, base, task, near, decisions, ratios)


def _search(kept: Float[np.ndarray, "M D"], metric: str, rows: Mapping[str, int], vectors: TextVectors) -> Search:
    """Among the texts' vectors; `rows` are the texts as they are compared, in the order of the vectors."""
    return Search(kept, metric, corpus=Corpus.of(list(rows), vectors.spec))
