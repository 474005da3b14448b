"""`encodeonce predict`: fill a file's columns, or tag raw text, with a saved run."""

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ..errors import ConfigError
from .options import encoder_option, passages_option, read_option, reader_options, run_argument, store_option

if TYPE_CHECKING:
    from io import BufferedIOBase

    from ..corpus._files import Target
    from ..tasks import Task
    from ..types import Document

__all__ = ["predict"]

log = logging.getLogger("encodeonce")


@click.command()
@run_argument
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="[default: stdout]")
@encoder_option
@store_option
@click.option("--probabilities", is_flag=True, help="Write the probability of every label too (tasks of documents).")
@reader_options
@read_option
@passages_option
def predict(
    run: Path,
    file: Path,
    output: Path | None,
    encoder: str | None,
    store: str | None,
    probabilities: bool,
    format: str | None,
    columns: Mapping[str, int | str] | None,
    reading: dict[str, Any],
    passages: str | None,
) -> None:
    """Fill FILE's columns with what RUN predicts; all else in it stays as it is.

    The output has the input's format. Where RUN labels words, running text is cut into sentences and words, and comes
    out as columns, a word a line with its labels beside it (as CoNLL-U or JSON lines where --output ends in .conllu or
    .jsonl), or as JSON where there are entities and relations. Where it answers for documents, each text or pair is
    read whole (--columns text=...,pair=... names the second text's column).
    """
    from ..corpus import format_of, options_of, write
    from ..corpus.text import split
    from . import documents as answering
    from .running import Reading, parts_of, predictor_of, read_for

    predictor = predictor_of(run, encoder, store)
    documents, how = read_for(run, str(file), Reading(format, columns, reading), passages)
    format, columns, reading = how.format, how.columns, dict(how.options)
    tasks, kind = predictor.run.tasks, format_of(file, format).name
    _say_contested(tasks)
    _refuse_no_place(tasks, kind, file, output)
    running_text = any(document.text and not document.words for document in documents)
    whole = answering.answers_documents(tasks, kind, running_text, probabilities)
    if whole or not running_text:
        answering.refuse_pipe(file)
    cut = running_text and not whole  # into sentences and words
    if cut:
        documents = [part for document in documents for part in ([document] if document.words else split(document))]
    made = _made_of_text(tasks, output) if cut else {"folder": "jsonl"}.get(kind, kind)
    if output is not None:
        answering.refuse_other_ending(output, file, made, kind)
        if cut:
            _refuse_same_file(output, file)
    if whole:
        answering.refuse_overwriting(tasks, columns or {})
    answering.refuse_labels(tasks, made, **reading)
    parts = parts_of(predictor, documents)
    found = iter(predictor.predict([part for own in parts for part in own], probabilities=probabilities))
    answers = [_joined(tasks, own, [next(found) for _ in own]) for own in parts]
    kept = {name: value for name, value in reading.items() if name in options_of(format_of(file, format).write)}
    target: Target = output or cast("BufferedIOBase", sys.stdout.buffer)
    if whole:
        asked: dict[str, Any] = {"format": format, "columns": columns, "probabilities": probabilities}
        answering.write_answers(target, file, documents, answers, tasks, **asked, **kept)
    elif running_text:
        write(target, documents, filled(documents, answers, tasks), format=made)
    else:
        options = {"layout_columns": columns} if columns and kind == "columns" else {}
        write(target, file, filled(documents, answers, tasks), format=format, **options, **kept)
    click.echo(f"{predictor.hits:,} documents from the store, {predictor.misses:,} encoded", err=True)


def _refuse_same_file(output: Path, file: Path) -> None:
    """ConfigError where words would be written over the running text that they were cut out of."""
    if output.exists() and output.samefile(file):
        raise ConfigError(
            f"--output {output} is the text that is read, which would be lost: words in columns take its place. Name "
            "another."
        )


def _made_of_text(tasks: Sequence["Task"], output: Path | None) -> str:
    """The format of words that were cut out of running text."""
    from ..corpus._files import ending

    if _of_entities(tasks) is not None:
        return "spert"
    return {".conllu": "conllu", ".jsonl": "jsonl"}.get(ending(output) if output else "", "columns")


def _of_entities(tasks: Sequence["Task"]) -> "Task | None":
    """The first task that answers with entities."""
    return next((task for task in tasks if "entities" in task.columns([], [])), None)


def _refuse_no_place(tasks: Sequence["Task"], kind: str, file: Path, output: Path | None) -> None:
    """ConfigError where entities and relations would have to be written into columns of words, and where a saved data
    set would have to be written to a stream."""
    from .documents import OF_WORDS

    task = _of_entities(tasks)
    if task is not None and kind in OF_WORDS:
        raise ConfigError(
            f"task {task.name!r} gives entities and relations, and this {kind!r} file has a place for answers a word "
            "only. Give the sentences as jsonl with words, in a form that has relations (spert, scierc, triples), or "
            "as running text."
        )
    if kind == "hub" and output is None:
        raise ConfigError(f"{file} is a saved data set, and so is what comes out: name a folder with --output.")


def _say_contested(tasks: Sequence["Task"]) -> None:
    """A warning for each column that several tasks fill: the last one's answers are written."""
    from .documents import filled_by

    for column, names in filled_by(tasks).items():
        if len(names) > 1:
            log.warning("%s all fill %r: the answers of %s stand there", ", ".join(names), column, names[-1])


def _joined(tasks: Sequence["Task"], parts: Sequence["Document"], found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One answer a task from those for a document's parts."""
    return {task.name: task.joined(parts, [answer[task.name] for answer in found]) for task in tasks}


def filled(
    documents: Sequence["Document"], answers: Sequence[dict[str, Any]], tasks: Sequence["Task"]
) -> dict[str, Sequence[Any]]:
    """Column name -> a value a document, mostly its labels. A predicted attribute replaces its value inside FEATS."""
    from .documents import held_by_json

    columns: dict[str, Sequence[Any]] = {}
    found = [
        pair
        for task in tasks
        for pair in task.columns(documents, held_by_json(task, [answer[task.name] for answer in answers])).items()
    ]
    for name, predicted in found:
        column, _, attribute = name.partition(":")
        if not attribute:
            columns[column] = predicted
            continue
        before = columns.get(column) or [
            document.columns.get(column, ("_",) * len(document.words)) for document in documents
        ]
        columns[column] = [
            tuple(_with_feature(features, attribute, value) for features, value in zip(old, new, strict=True))
            for old, new in zip(before, predicted, strict=True)
        ]
    return columns


def _with_feature(features: str, name: str, value: str) -> str:
    """ "Case=Nom", "Number", "Sing" -> "Case=Nom|Number=Sing"; "_" takes the attribute out."""
    pairs = dict(feature.split("=", 1) for feature in features.split("|") if "=" in feature)
    pairs.pop(name, None)
    if value != "_":
        pairs[name] = value
    return "|".join(f"{key}={pairs[key]}" for key in sorted(pairs, key=str.lower)) or "_"
