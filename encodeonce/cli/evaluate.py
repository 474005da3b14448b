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
    from ..tasks.chunking import Chunking
    from ..tasks.ner import NER
    from .running import Reading, parts_of, predictor_of, read_for

    predictor = predictor_of(run, encoder, store)
    asked = Reading(format, columns, reading)
    parts = parts_of(predictor, [one for file in files for one in read_for(run, file, asked, passages)[0]])
    documents = [part for own in parts for part in own]
    tasks = predictor.run.tasks
    pieces = _pieces(predictor, documents) if all_pieces else []
    gold = {task.name: task.gold(documents) for task in tasks}
    for task in tasks:
        warn_unseen(task, gold[task.name], split)
    began = time.perf_counter()
    answers = predictor.predict(documents)
    seconds = time.perf_counter() - began
    scores = {}
    for task in tasks:
        sides = gold[task.name], [answer[task.name] for answer in answers]
        scores[task.name] = task.score(*sides)
        if all_pieces and isinstance(task, NER | Chunking):
            scores[task.name] |= task.score_of_pieces(*sides, pieces)
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


def _pieces(predictor: "Predictor | FewShotPredictor", documents: "Sequence[Document]") -> list[list[int]]:
    """How many pieces each word of each document has. ConfigError where no task labels spans, RunError where only the
    states of the run's encoder are here."""
    from ..errors import ConfigError, RunError
    from ..tasks.chunking import Chunking
    from ..tasks.ner import NER

    names = [task.name for task in predictor.run.tasks]
    if not any(isinstance(task, NER | Chunking) for task in predictor.run.tasks):
        raise ConfigError(f"--all-pieces is for entities and chunks; the run has {', '.join(names)}. Leave it out.")
    if predictor.encoder is None:
        raise RunError("--all-pieces needs the run's encoder, which is not here, to cut words. Give --encoder FOLDER.")
    return [cut.per_word.tolist() for cut in predictor.encoder.cut(documents)]


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
