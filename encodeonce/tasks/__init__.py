"""What is read, which head answers, how it is scored. One file a kind of work, each class final.

A task is made in two steps: `named("upos")` says what is wanted, `.learn(train)` adds what only the training data can
say (the label list, a tagging scheme). Everything later (gold ids, scores, a saved run) needs the learned one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ..errors import ConfigError, RunError
from ..resolve import available, resolve
from ..types import Document

__all__ = ["Task", "from_json", "named"]

ALIASES = {"chunk": "chunking"}
"""Names the field uses for a file of this room."""


class Task(ABC):
    """One label a word. `labels` is empty until `learn`.

    `piece` says which of a word's pieces stands for it: "first", "last" or "mean" (spec A7). `head` and `head_options`
    say which head of `heads/` answers, `metric` which of the scores decides between epochs (higher is better).
    """

    head: ClassVar[str]
    metric: ClassVar[str]
    piece: str
    labels: tuple[str, ...]

    @property
    @abstractmethod
    def name(self) -> str:
        """What the task is called in settings, results and saved runs."""

    @property
    @abstractmethod
    def head_options(self) -> dict[str, Any]:
        """Arguments of the head beside width and labels."""

    @abstractmethod
    def learn(self, documents: Sequence[Document]) -> "Task":
        """The same task with what the training documents say; nothing else may ever enter the label list (LABELS-1).

        Raises DataError where there is no example or a gold value is missing.
        """

    @abstractmethod
    def gold(self, documents: Sequence[Document]) -> list[tuple[str, ...]]:
        """The gold labels of each document, one a word. DataError names document, word and column of a missing one."""

    @abstractmethod
    def ids(self, gold: tuple[str, ...]) -> np.ndarray:
        """Gold labels -> int64 ids; `IGNORE` for a label training never saw: not learned, and scored as a miss."""

    @abstractmethod
    def score(self, gold: Sequence[tuple[str, ...]], predicted: Sequence[tuple[str, ...]]) -> dict[str, float | None]:
        """Scores by name, per cent; counts as they are; None where one is undefined."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """All that `from_json` needs."""


def named(name: str, **options: Any) -> Task:
    """A task by name: "ner", "chunk", a column ("upos", "deprel", any other) or an attribute of FEATS ("feats:Number").

    `options` go to the task's class: `piece` to every one, `column`, `scheme`, `constrained` to the span tasks.
    """
    kind = ALIASES.get(name, name)
    if kind not in available("tasks") or kind == "tagging":
        column = options.pop("column", name)
        kind, options = "tagging", {"column": column, **options}
    cls = resolve("tasks", kind)
    try:
        task = cls(**options)
    except TypeError as problem:
        raise ConfigError(f"task {name!r}: {problem}.") from None
    assert isinstance(task, Task)
    return task


def from_json(values: Mapping[str, Any]) -> Task:
    """The inverse of `to_json`, for a saved run."""
    rest = {key: tuple(value) if key == "labels" else value for key, value in values.items() if key != "kind"}
    try:
        task = resolve("tasks", values["kind"])(**rest)
    except (KeyError, TypeError) as problem:
        raise RunError(f"task {dict(values)} cannot be rebuilt: {problem}.") from None
    assert isinstance(task, Task)
    return task
