"""`encodeonce evaluate`: score a saved run on files."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import (
    encoder_option,
    json_option,
    passages_option,
    read_option,
    reader_options,
    run_argument,
    store_option,
)

if TYPE_CHECKING:
    from ..report.results import ResultsRow
    from ..serve.bundle import Run
    from ..serve.predictor import Predictor
    from ..tasks import Task
    from ..tasks.chunking import Chunking
    from ..tasks.ner import NER
    from ..types import Document
    from .few_shot_run import FewShotPredictor, FewShotRun

__all__ = ["evaluate"]


@click.command()
@run_argument
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@encoder_option
@store_option
@click.option("--split", default="test", show_default=True, help="What the results rows call these files.")
@reader_options
@read_option
@passages_option
@click.option(
    "--all-pieces", is_flag=True, help="Of entities and chunks also the F1 of programs that label every piece."
)
@json_option
def evaluate(
    run: Path,
    files: tuple[str, ...],
    encoder: str | None,
    store: str | None,
    split: str,
    format: str | None,
    columns: dict[str, int | str] | None,
    reading: dict[str, Any],
    passages: str | None,
    all_pieces: bool,
    as_json: bool,
) -> None:
    """Score a saved RUN on FILE, all scores of every task.

    With --json, prints a list of results rows: one a task and metric.
    """
    from ..batching import warn_unseen
    from ..report.results import command_line
    from ..report.table import aligned, shown
    from .running import Reading, parts_of, predictor_of, read_for

    predictor = predictor_of(run, encoder, store)
    asked = Reading(format, columns, reading)
    parts = parts_of(predictor, [one for file in files for one in read_for(run, file, asked, passages)[0]])
    documents = [part for own in parts for part in own]
    tasks = predictor.run.tasks
    of_spans = _span_tasks(tasks) if all_pieces else []
    pieces = _pieces(predictor, documents) if all_pieces else []
    gold = {task.name: task.gold(documents) for task in tasks}
    for task in tasks:
        warn_unseen(task, gold[task.name], split)
    began = time.perf_counter()
    answers = predictor.predict(documents)
    seconds = time.perf_counter() - began
    predicted = {task.name: [answer[task.name] for answer in answers] for task in tasks}
    scores = {task.name: task.score(gold[task.name], predicted[task.name]) for task in tasks}
    for span_task in of_spans:
        name = span_task.name
        scores[name] |= span_task.score_of_pieces(gold[name], predicted[name], pieces)
    click.echo(f"{predictor.hits:,} documents from the store, {predictor.misses:,} encoded, {seconds:.1f} s", err=True)
    if as_json:
        rows = _rows(predictor.run, run, files, split, scores, command_line())
        click.echo(json.dumps([row.to_json() for row in rows], indent=1))
        return
    lines = [
        [name, metric, f"{value:,.0f}" if metric == "n" else shown(value)]
        for name, found in scores.items()
        for metric, value in found.items()
    ]
    click.echo(aligned(["task", "metric", "value"], lines))


def _span_tasks(tasks: "Sequence[Task]") -> "list[NER | Chunking]":
    """Those that label spans; ConfigError where there is none."""
    from ..errors import ConfigError
    from ..tasks.chunking import Chunking
    from ..tasks.ner import NER

    found = [task for task in tasks if isinstance(task, NER | Chunking)]
    if not found:
        names = ", ".join(task.name for task in tasks)
        raise ConfigError(f"--all-pieces is for entities and chunks; the run has {names}. Leave it out.")
    return found


def _pieces(predictor: "Predictor | FewShotPredictor", documents: "Sequence[Document]") -> list[list[int]]:
    """How many pieces each word has, none of an empty document; RunError where the run's encoder is not here."""
    from ..errors import RunError

    if predictor.encoder is None:
        raise RunError("--all-pieces needs the run's encoder, which is not here, to cut words. Give --encoder FOLDER.")
    cuts = iter(predictor.encoder.cut([document for document in documents if not document.empty]))
    return [[] if document.empty else next(cuts).per_word.tolist() for document in documents]


def _rows(
    run: "Run | FewShotRun", folder: Path, files: tuple[str, ...], split: str, scores: dict[str, Any], command: str
) -> list["ResultsRow"]:
    """A row a task and metric; None is the value of an undefined score."""
    from ..encoders.checkpoint import label
    from ..report.results import ResultsRow, now, surroundings

    here, started = surroundings(), now()
    return [
        ResultsRow(
            experiment=folder.resolve().name,
            dataset=", ".join(Path(name).name for name in files),
            task=task,
            encoder=label(run.spec.encoder),
            method=run.variant.name,
            variant="",
            seed=run.training["settings"]["seed"],
            split=split,
            metric=metric,
            value=value,
            n=int(found["n"]),
            train_s_per_batch=run.training["seconds_per_batch"],
            train_s_total=run.training["seconds"],
            params_trainable=run.training["parameters"][task],
            started=started,
            command=command,
            **here,
        )
        for task, found in scores.items()
        for metric, value in found.items()
        if metric != "n"
    ]
