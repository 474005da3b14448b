"""What is read, which head answers, how it is scored. One file a kind of work, each class final.

A task is made in two steps: `named("upos")` says what is wanted, `.learn(train)` adds what only the training data can
say (the label list, a tagging scheme). Everything later (gold ids, scores, a saved run) needs the learned one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from ..corpus.windows import HasPieces
from ..errors import ConfigError, DataError, RunError
from ..resolve import available, resolve
from ..types import IGNORE, Document
from ._options import checked_options
from ._presets import PRESETS

__all__ = ["Task", "from_json", "in_parts", "named"]

ALIASES = {"chunk": "chunking"}
"""Names the field uses for a file of this room."""


class Task(ABC):
    """What an item's gold is, as a plain value and as an array. `labels` is empty until `learn`.

    A task is a frozen dataclass. Its fields are its settings, but for those in `LEARNED`, which `learn` or `named` set.

    `piece` says which rows the head sees: a "first", "last" or "mean" piece a word (spec A7), or one of the others of
    `batching.batch.PIECES`. `head` and `head_options` say which head of `heads/` answers, `metric` which of the scores
    decides between epochs (higher is better).
    """

    LEARNED: ClassVar[tuple[str, ...]] = ("labels",)
    head: ClassVar[str]
    piece: str
    labels: tuple[str, ...]

    @property
    @abstractmethod
    def name(self) -> str:
        """What the task is called in settings, results and saved runs."""

    @property
    @abstractmethod
    def metric(self) -> str:
        """The score that decides between epochs."""

    @property
    def needs_words(self) -> bool:
        """Whether it answers for words, and so cannot read a running text or a pair; else one answer a document."""
        return not self.piece.startswith("document")

    @property
    def reads_parts(self) -> bool:
        """Whether a document may be read in parts (`shown`)."""
        return type(self).shown is not Task.shown

    def check(self, document: Document) -> None:
        """DataError where this document, with or without gold, is none that the learned task can answer for."""
        if self.needs_words and (document.pair or not document.words):
            why = "a pair of texts has no words to label" if document.pair else "running text: cut it into words first"
            raise DataError(f"{document.place or document.id}: {why} (task {self.name!r}).")

    @property
    @abstractmethod
    def head_options(self) -> dict[str, Any]:
        """Arguments of the head beside width and labels."""

    @abstractmethod
    def learn(self, documents: Sequence[Document]) -> "Task":
        """The same task with what the training documents say; nothing else may ever enter the label list (LABELS-1).

        Raises DataError where there is no example or a gold value is missing.
        """

    def prepared(self, document: Document) -> Document:
        """The document as the task has it read, whatever the encoder; of one that is, the same.

        Stores are filled with documents like this, and methods read them: `store.fill`, `method.read`.
        """
        return document

    def shown(
        self, documents: Sequence[Document], pieces: HasPieces, window: int, training: bool = False
    ) -> list[list[Document]]:
        """What an encoder with a window of so many pieces is shown of each document: itself, unless a task reads long
        ones in parts. A part's own parts are itself. In training, some may be left out."""
        return [[document] for document in documents]

    def joined(self, parts: Sequence[Document], predicted: Sequence[Any]) -> Any:
        """One answer for a document from those for its parts."""
        return predicted[0]

    @abstractmethod
    def gold(self, documents: Sequence[Document]) -> list[Any]:
        """Each document's gold, such as a tuple of labels, one a word. DataError names the place of a missing one."""

    @abstractmethod
    def ids(self, gold: Any) -> np.ndarray:
        """One item's gold as an array, what the head's loss takes: int64 or float32, any leading length.

        `IGNORE` stands for a label training never saw: not learned, and scored as a miss.
        """

    def scored(self, ids: np.ndarray) -> int:
        """How many units of an item's array the loss counts."""
        return int((ids != IGNORE).sum())

    def unseen(self, gold: Any) -> Iterable[str]:
        """Labels of one item's gold that training never saw, as often as they occur."""
        known = set(self.labels)
        return (label for label in gold if label not in known)

    @abstractmethod
    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float | None]:
        """Scores by name, per cent; counts as they are; None where one is undefined."""

    def columns(self, documents: Sequence[Document], predicted: Sequence[Any]) -> dict[str, Sequence[Any]]:
        """The columns of a file that predictions fill, one value a document; "feats:NAME" is an attribute of FEATS."""
        return {str(getattr(self, "column", self.name)): predicted}

    def as_json(self, answer: Any) -> Any:
        """An answer as files of JSON hold it: a label that training had as a number is one again."""
        return answer

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """All that `from_json` needs."""


def in_parts(
    tasks: Sequence[Task], documents: Sequence[Document], pieces: HasPieces, window: int, training: bool = False
) -> list[list[Document]]:
    """`Task.shown` of all tasks, of documents that they `prepared`. ConfigError where they read not the same."""
    first, *rest = (
        [*task.shown([task.prepared(one) for one in documents], pieces, window, training)] for task in tasks
    )
    for task, other in zip(tasks[1:], rest, strict=True):
        if [[part.key for part in own] for own in first] != [[part.key for part in own] for own in other]:
            raise ConfigError(
                f"tasks {tasks[0].name!r} and {task.name!r} read other parts of these documents: train them apart."
            )
    return first


def named(name: str, /, **options: Any) -> Task:
    """A task by name: "ner", "chunk", a column ("upos", "deprel", any other) or an attribute of FEATS ("feats:Number"),
    "classification", "regression", "multilabel", "answer_spans", "ranking", or a data set's name (`_presets`).

    `options` go to the task's class: `piece` and `column` to every one, `scheme`, `constrained` to the span tasks.
    `kind` gives a task of a kind another name, so that one run can have several: named("topic", kind="classification").
    ConfigError names a kind or a setting that does not exist, and a setting of the wrong kind of value.
    """
    options = {"kind": ALIASES.get(name, name), **PRESETS.get(name, {}), **options}
    kind = options.pop("kind")
    if kind not in available("tasks") and kind != name:
        raise ConfigError(f"task {name!r}: kind={kind!r} is not known. There is: {', '.join(available('tasks'))}.")
    if kind not in available("tasks") or kind == "tagging":
        kind, options = "tagging", {"column": name, **options}
    cls = resolve("tasks", kind)
    options = checked_options(cls, name, options)
    if name != kind and "called" in {field.name for field in fields(cls)}:
        options["called"] = name
    task = cls(**options)
    assert isinstance(task, Task)
    return task


def from_json(values: Mapping[str, Any]) -> Task:
    """The inverse of `to_json`, for a saved run."""
    rest = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items() if key != "kind"}
    try:
        task = resolve("tasks", values["kind"])(**rest)
    except (KeyError, TypeError) as problem:
        raise RunError(f"task {dict(values)} cannot be rebuilt: {problem}.") from None
    assert isinstance(task, Task)
    return task
