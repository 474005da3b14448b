"""What `fewshot` is given, read and checked before anything is trained."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..corpus import format_of, read
from ..errors import ConfigError, DataError
from ..integrations._saved import refuse_other
from ..methods.refusion import FUSINGS
from ..methods.refusion.near import texts_of
from ..tasks import Task, named
from ..types import Document
from .documents import (
    answers_documents,
    filled_by,
    refuse_labels,
    refuse_other_ending,
    refuse_overwriting,
    refuse_pipe,
    write_answers,
)

__all__ = ["Given", "check_outputs", "read_all", "shown", "write_asked"]

log = logging.getLogger("encodeonce")

Columns = Mapping[str, int | str] | None


@dataclass(frozen=True)
class Given:
    """The documents of each file, none where there is no file; `labels` are those of `labelled`, which `task` learned,
    `gold` of `test`. `format` and `reading` (its reader's options) are those of the file that is asked about."""

    labelled: Sequence[Document]
    unlabelled: Sequence[Document]
    test: Sequence[Document]
    asked: Sequence[Document]
    labels: Sequence[str]
    gold: Sequence[str]
    task: Task
    format: str | None
    reading: Mapping[str, Any]


def check_outputs(
    asked: Path | None,
    output: Path | None,
    folder: Path | None,
    picture: Path | None,
    methods: Sequence[str] | None,
    given: Sequence[Path],
) -> None:
    """What would come out where nothing is asked for it, or over something else, is refused.

    UsageError for answers without texts, and for a picture where none of the methods searches; ConfigError for answers
    into a file that can be read only once, and for what would be written over a file that is `given` to learn from;
    RunError for a folder that holds something else.
    """
    for option, target in (("--output", output), ("--picture", picture)):
        lost = next((path for path in given if target is not None and target.exists() and target.samefile(path)), None)
        if lost is not None:
            raise ConfigError(f"{option} {target} is {lost}, which is learned from and would be lost: name another.")
    if output is not None:
        if asked is None:
            raise click.UsageError("--output is where answers go: say with --predict what is to be answered.")
        refuse_pipe(asked)
    searched = [name for name, fusing in FUSINGS.items() if fusing.searched and not fusing.leak]
    if picture is not None and not set(methods or ()) & set(searched):
        raise click.UsageError(
            f"--picture shows what a search chose: name one of {', '.join(searched)} with --methods."
        )
    if folder is not None:
        refuse_other(folder)


def read_all(
    labelled: Path,
    unlabelled: Path | None,
    test: Path | None,
    asked: Path | None,
    column: str,
    format: str | None,
    columns: Columns,
    output: Path | None,
    reading: Mapping[str, Any],
) -> Given:
    """All files; DataError names the place of a text or label that is missing, and of a text that cannot be answered.

    `format` and the reader's own options, `reading`, are those of all files that end like the labelled one. ConfigError
    for an `output` that cannot have the answers (`_check_answers`).
    """

    def form(path: Path) -> str | None:
        return format if path.suffix == labelled.suffix else None

    def options(path: Path) -> Mapping[str, Any]:
        return reading if path.suffix == labelled.suffix else {}

    def of(path: Path | None, with_labels: bool) -> list[Document]:
        if path is None:
            return []
        return documents_of(path, form(path), columns, "" if with_labels else column, **options(path))

    documents, others, gold, questions = of(labelled, True), of(unlabelled, False), of(test, True), of(asked, False)
    kind = named("label", kind="classification", column=column, numbers_are_classes=True)
    task = kind.learn(documents)
    labels, of_test = ([str(one) for one in task.gold(own)] for own in (documents, gold))
    empty = next((one for one in others if not all(text.strip() for text in texts_of(one))), None)
    if empty is not None:
        raise DataError(f"{empty.place}: the text is empty. Give it one, or leave the line out.")
    other = next((one for one in others if bool(one.pair) != bool(others[0].pair)), None)
    if other is not None:
        raise DataError(
            f"{other.place}: {'a pair of texts' if other.pair else 'a single text'}, and the first line has "
            f"{'a single text' if other.pair else 'a pair'}. Give all lines a second text, or none."
        )
    for document in questions:
        task.check(document)
    if asked is not None:
        name = format_of(asked, form(asked)).name
        if output is not None:
            _check_answers(output, asked, name, task, columns)
        if name == "text":
            _say_blank_lines(asked, questions)
    how = (form(asked), options(asked)) if asked else (None, {})
    return Given(documents, others, gold, questions, labels, of_test, task, *how)


def _check_answers(output: Path, asked: Path, kind: str, task: Task, columns: Columns) -> None:
    """ConfigError, before anything is trained, where answers cannot stand in what `write_asked` makes of the file that
    is asked about: an `output` that ends as files of another format do, a format without a place for them or for one of
    the labels, a column that is counted from the end or holds what is read."""
    refuse_other_ending(output, asked, kind, kind)
    answers_documents([task], kind, running_text=False, probabilities=False)
    refuse_labels([task], kind)
    named = {} if kind == "text" else columns or {}
    refuse_overwriting([task], named)
    column = next(iter(filled_by([task])))
    place = named.get(column, 0)
    if isinstance(place, int) and place < 0:
        raise ConfigError(
            f"--columns {column}={place} counts from the end, which may be another column in {asked}, where answers "
            "are to stand. Count it from 0."
        )


def write_asked(output: Path, asked: Path, given: Given, answers: Sequence[str], columns: Columns) -> None:
    """Write the file that is asked about with its answers, as `encodeonce predict` would; plain text has no columns."""
    kept = None if format_of(asked, given.format).name == "text" else columns
    found = [{given.task.name: answer} for answer in answers]
    output.parent.mkdir(parents=True, exist_ok=True)
    write_answers(output, asked, given.asked, found, [given.task], format=given.format, columns=kept, **given.reading)


def _say_blank_lines(path: Path, documents: Sequence[Document]) -> None:
    """Answers are a line a text: lines before the last text that hold none are counted."""
    blank = int(documents[-1].place.rpartition(":")[2]) - len(documents)
    if blank:
        log.warning("%s: %d blank lines get no answer; answers are those of the other lines, in order", path, blank)


def documents_of(path: Path, format: str | None, columns: Columns, without: str = "", **reading: Any) -> list[Document]:
    """The documents of a file, with the columns that it can have: plain text has none, and a file that is not labelled
    need not have the one called `without`."""
    plain = format_of(path, format).name == "text"
    kept = {} if plain else {name: place for name, place in (columns or {}).items() if name != without}
    return read(path, format=format, columns=kept or None, **reading)


def shown(documents: Sequence[Document]) -> list[str | tuple[str, str]]:
    """Texts, or pairs of texts, as an estimator takes them."""
    texts = [document.text or " ".join(document.words) for document in documents]
    return [(text, d.pair) if d.pair else text for text, d in zip(texts, documents, strict=True)]
