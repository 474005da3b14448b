"""Answers for whole documents as values of a file: labels, sets of labels, numbers, and their probabilities."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..tasks import Task
    from ..types import Document

__all__ = ["OF_WORDS", "answers_documents", "held_by_json", "values_of", "written_as"]

FLAT = ("csv", "tsv", "text")
"""Formats whose values are strings; in the others a value may be a number, a list or an object."""

OF_WORDS = ("conllu", "columns")
"""Formats that have a place for a value a word only."""


def answers_documents(tasks: Sequence["Task"], kind: str, running_text: bool, probabilities: bool) -> bool:
    """Whether every task has one answer a document.

    ConfigError where some do and a file of this kind has no place for such an answer, or holds running text that the
    other tasks need cut into words; and for probabilities of tasks that label words.
    """
    whole = [task for task in tasks if not task.needs_words]
    if whole and (kind in OF_WORDS or (running_text and len(whole) < len(tasks))):
        raise ConfigError(
            f"task {whole[0].name!r} has one answer a document, and this {kind!r} file has a place for answers a word "
            "only. Give the documents as jsonl, csv or tsv; as jsonl with words, if other tasks label words."
        )
    if probabilities and len(whole) < len(tasks):
        named = ", ".join(task.name for task in tasks if task.needs_words)
        raise ConfigError(f"--probabilities: only tasks with one answer a document have them; {named} labels words.")
    return bool(whole) and len(whole) == len(tasks)


def values_of(
    documents: Sequence["Document"],
    answers: Sequence[Mapping[str, Any]],
    tasks: Sequence["Task"],
    kind: str,
    probabilities: bool,
) -> dict[str, list[Any]]:
    """Column name -> a value a document, as a file of this kind holds it; null or "" where there is no answer.

    Probabilities come as an object, "COLUMN_probabilities", or as a column a label, "COLUMN:LABEL".
    """
    columns: dict[str, list[Any]] = {}
    for task in tasks:
        column, given = str(getattr(task, "column", task.name)), [answer[task.name] for answer in answers]
        predictions = [pair and pair[0] for pair in given] if probabilities else given
        chances = [pair and pair[1] for pair in given] if probabilities else []
        if kind not in FLAT:
            held = held_by_json(task, predictions)
            columns |= {name: list(values) for name, values in task.columns(documents, held).items()}
            if probabilities:
                columns[f"{column}_probabilities"] = [one and _rounded(one) for one in chances]
            continue
        for name, values in task.columns(documents, predictions).items():
            columns[name] = [_cell(value, task) for value in values]
        if probabilities:
            for label in task.labels:
                columns[f"{column}:{label}"] = ["" if one is None else f"{one[label]:.6f}" for one in chances]
    return columns


def held_by_json(task: "Task", answers: Sequence[Any]) -> list[Any]:
    """A task's answers as a file of JSON holds them (`Task.as_json`), none where there is none."""
    return [None if answer is None else task.as_json(answer) for answer in answers]


def written_as(
    values: Mapping[str, list[Any]], kind: str, columns: Mapping[str, int | str] | None
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """The values under the names that the file itself uses, and the options that `corpus.write` needs for it."""
    if columns and kind in ("csv", "tsv"):
        return dict(values), {"layout_columns": columns}
    return {str((columns or {}).get(name, name)): column for name, column in values.items()}, {}


def _rounded(chances: Mapping[str, float]) -> dict[str, float]:
    return {label: round(chance, 6) for label, chance in chances.items()}


def _cell(prediction: Any, task: "Task") -> str:
    if prediction is None:
        return ""
    if isinstance(prediction, float):
        return f"{prediction:.6g}"
    if not isinstance(prediction, tuple):
        return str(prediction)
    separator = str(getattr(task, "separator", "|"))
    texts = [str(one) for one in prediction]
    ambiguous = next((label for label in texts if separator in label), None)
    if ambiguous is not None:
        raise ConfigError(
            f"task {task.name!r}: the label {ambiguous!r} holds {separator!r}, which divides labels in a cell. Train "
            "with another separator, or write jsonl."
        )
    return separator.join(texts)
