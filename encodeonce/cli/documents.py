"""Answers for whole documents as values of a file: labels, sets of labels, numbers, and their probabilities."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..corpus._files import Target
    from ..tasks import Task
    from ..types import Document

__all__ = [
    "OF_WORDS",
    "answers_documents",
    "filled_by",
    "held_by_json",
    "refuse_labels",
    "refuse_other_ending",
    "refuse_overwriting",
    "refuse_pipe",
    "values_of",
    "write_answers",
]

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


def write_answers(
    target: "Target",
    file: Path,
    documents: Sequence["Document"],
    answers: Sequence[Mapping[str, Any]],
    tasks: Sequence["Task"],
    *,
    format: str | None,
    columns: Mapping[str, int | str] | None,
    probabilities: bool = False,
    **reading: Any,
) -> None:
    """Write the file that `documents` were read from, with the columns that the tasks fill; all else in it as it is. Of
    a folder of texts they are written as JSON lines.

    `format`, `columns` and `reading` are what it was read with; see `values_of` for what is written.
    """
    from ..corpus import format_of, write

    kind = format_of(file, format).name
    source: Path | Sequence[Document] = file
    if kind == "folder":
        source, format, kind = documents, "jsonl", "jsonl"
    named, options = _as_file(values_of(documents, answers, tasks, kind, probabilities), kind, columns)
    write(target, source, named, format=format, **options, **reading)


def refuse_pipe(file: Path) -> None:
    """ConfigError for what can be read only once, where it is read again to write all else in it as it is."""
    if not (file.is_file() or file.is_dir()):
        raise ConfigError(
            f"{file} can be read only once, as a pipe is, and it is read again to write all else in it as it is. Save "
            "it to a file, and give that."
        )


def refuse_other_ending(output: Path, file: Path, kind: str, read_as: str) -> None:
    """ConfigError where `output` ends as files of other formats than `kind` do, and would be read as one of them. The
    ending of `file` will do where what is written has the format that it was `read_as`."""
    from ..corpus import formats
    from ..corpus._files import ending

    own, known = ending(output), formats()
    claimed = [name for name, one in known.items() if own in one.suffixes]
    lines = kind in ("columns", "text") and own in (*known["text"].suffixes, *known["tsv"].suffixes)
    if not claimed or kind in claimed or lines or (kind == read_as and own == ending(file)):
        return
    due = " or ".join(known[kind].suffixes) or "nothing: it is a folder"
    made = f"a line a text of {file}" if read_as == "folder" else f"words, cut out of {file}"
    has = f"has {file}'s format, {kind}" if kind == read_as else f"is of the format {kind}: {made}"
    raise ConfigError(
        f"--output {output}: {own} is the ending of {', '.join(claimed)}, and what is written {has}. Let it end in "
        f"{due}."
    )


def refuse_labels(
    tasks: Sequence["Task"], kind: str, *, separator: str | None = None, quoting: bool | None = None, **_: Any
) -> None:
    """ConfigError where a label of the tasks holds what divides cells or lines in a file of this kind, or labels in a
    cell: before there are answers to be lost. `separator` and `quoting` are those of a table."""
    table = kind in ("csv", "tsv")
    comma = (table and separator) or ("," if kind == "csv" else "\t")
    quotes = table and (comma != "\t" if quoting is None else quoting)
    dividers = () if quotes or kind not in (*FLAT, *OF_WORDS) else (comma, "\r", "\n")
    for task in tasks:
        between = (str(task.separator),) if kind in FLAT and hasattr(task, "separator") else ()
        signs = (*dividers, *between)
        bad = next(((label, sign) for label in map(str, task.labels) for sign in signs if sign in label), None)
        if bad is not None:
            raise ConfigError(
                f"task {task.name!r}: the label {bad[0]!r:.60} holds {bad[1]!r}, which divides what stands in this "
                f"{kind!r} file. Give the documents as jsonl, or train with another "
                f"{'label or separator' if between else 'label'}."
            )


def refuse_overwriting(tasks: Sequence["Task"], columns: Mapping[str, int | str]) -> None:
    """ConfigError where answers would be written over a text that they are of."""
    read = {place: name for name, place in columns.items() if name in ("text", "pair", "words", "id")}
    for column in filled_by(tasks):
        place = columns.get(column, column)
        if place in read:
            raise ConfigError(
                f"--columns {read[place]}={place}: the answers fill {place!r}, and would take that text's place. Give "
                f"the column another name in the file, and then --columns {read[place]}=NAME."
            )


def filled_by(tasks: Sequence["Task"]) -> Mapping[str, Sequence[str]]:
    """Columns -> the tasks that fill them."""
    owners: dict[str, list[str]] = {}
    for task in tasks:
        for column in task.columns([], []):
            owners.setdefault(column, []).append(task.name)
    return owners


def _as_file(
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
        return repr(prediction)
    if not isinstance(prediction, tuple):
        return str(prediction)
    texts = [str(one) for one in prediction]
    separator = getattr(task, "separator", "")
    if not separator and len(texts) < 2:
        return "".join(texts)
    separator = str(separator or "|")
    ambiguous = next((label for label in texts if separator in label), None)
    if ambiguous is not None:
        raise ConfigError(
            f"task {task.name!r}: the label {ambiguous!r} holds {separator!r}, which divides labels in a cell. Train "
            "with another separator, or write jsonl."
        )
    return separator.join(texts)
