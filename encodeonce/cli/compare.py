"""`encodeonce compare`: methods x tasks x seeds from one store, as a table, a plot and raw rows."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import DataError, MissingExtra
from ..resolve import nearest
from .options import json_option, listed, set_option

if TYPE_CHECKING:
    from ..report.results import ResultsRow
    from ..report.table import Paper
    from ..tasks import Task
    from .config import Config

Metrics = Mapping[str, Sequence[str]]

__all__ = ["compare"]

log = logging.getLogger("encodeonce")


def _rates(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[float]:
    try:
        return [float(part) for part in (value or "").split(",") if part.strip()]
    except ValueError:
        raise click.BadParameter(f"{value!r}: write it as 5e-4,1e-3,2e-3.") from None


@click.command()
@click.argument("config", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--output", "-o", "report", required=True, type=click.Path(file_okay=False, path_type=Path), help="REPORT."
)
@click.option(
    "--methods",
    "-m",
    default="frozen,linear,fusion,agg,adapted",
    show_default=True,
    callback=listed,
    help="Methods, or names of [methods.NAME] tables, with commas between.",
)
@click.option(
    "--seeds",
    default="5",
    show_default=True,
    help="How many seeds, or which: 13,21,42. One alone is written 42,.",
)
@click.option(
    "--learning-rate-grid",
    "rates",
    callback=_rates,
    help="For methods that only read stored layers, chosen on dev with the first seed: 5e-4,1e-3,2e-3.",
)
@click.option("--apart", is_flag=True, help="Train every task by itself, so that times are those of one task.")
@click.option(
    "--metric", "shown", multiple=True, metavar="TASK=NAME", help="Which score stands in the table; repeatable."
)
@click.option("--experiment", help="Name in the rows.  [default: the one there, else REPORT's name]")
@click.option("--dataset", help="Name in the rows.  [default: the one there, else the training file's]")
@click.option(
    "--paper", type=click.Path(exists=True, path_type=Path), help="YAML or JSON: task, method, value beside ours."
)
@click.option("--paper-table", help="Which of the paper's tables.")
@click.option("--plot/--no-plot", default=True, show_default=True, help="Draw REPORT/improvement.png and cost.png.")
@click.option("--dry-run", is_flag=True, help="Check everything and print what there is to do; do nothing.")
@set_option
@json_option
def compare(
    config: Path,
    report: Path,
    methods: list[str],
    seeds: str,
    rates: list[float],
    apart: bool,
    shown: tuple[str, ...],
    experiment: str | None,
    dataset: str | None,
    paper: Path | None,
    paper_table: str | None,
    plot: bool,
    dry_run: bool,
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Train every method on every task with every seed, from one encoding pass, and compare.

    A method is frozen, linear, fusion, agg, agg_tailor, adapted (these read stored layers), finetune, top1, top2, lora,
    live_mix (these train blocks of the encoder), or a [methods.NAME] of the config, which may have settings, seeds and
    a grid of its own. REPORT gets results.jsonl (one row a number), table.md, improvement.png and cost.png. A finished
    cell is never computed again: a comparison that was interrupted goes on. With --json, prints the list of rows (with
    --dry-run, what there is to do) and nothing else. Of seeds --seeds decides, and seeds in [methods.NAME]; train.seed
    is not read.
    """
    _refuse_incomplete(methods, paper, paper_table)
    from .config import load

    chosen = load(config, changes)
    chosen.need("tasks", "data.train", "data.test")
    metrics = _known(_metrics(shown), chosen)
    from ..report.table import scores
    from . import learning, steps
    from .comparing import Comparison
    from .contenders import contenders, say_unused, seeds_of
    from .published import published, strangers
    from .report_files import names_of

    beside = published(paper, paper_table) if paper is not None else {}
    names = names_of(report, chosen, experiment, dataset)
    taking_part = contenders(chosen, methods, seeds_of(_seeds(seeds)), rates)
    say_unused(chosen, taking_part)
    comparison = Comparison(chosen, report, taking_part, names, apart)
    comparison.files.agree(write=False)  # before anything is read for a report that will not take it
    splits, tasks = learning.learned(chosen)
    _askable(metrics, tasks)
    if dry_run:
        from .outlook import outlook

        found = outlook(comparison, chosen, splits, tasks)
        click.echo(json.dumps(found.to_json()) if as_json else found.text())
        return
    comparison.files.same_encoder(steps.spec_of(chosen, steps.pretrained(chosen)), write=False)
    possible = [settings for one in taking_part for settings in one.possible]
    rows = comparison.run(tasks, lambda: learning.stored(chosen, splits, tasks, possible))
    unused = strangers(beside, scores(rows, metrics=metrics))
    if unused:
        log.warning("of the paper's values these stand beside none of ours: %s", ", ".join(unused))
    _write(rows, report, beside, metrics, plot)
    click.echo(json.dumps([row.to_json() for row in rows], indent=1) if as_json else _text(rows, beside, metrics))


def _refuse_incomplete(methods: Sequence[str], paper: Path | None, paper_table: str | None) -> None:
    """UsageError for no method, and for a table of a paper without its file."""
    if not methods:
        raise click.BadParameter("name at least one, such as frozen,linear.", param_hint="--methods")
    if paper_table is not None and paper is None:
        raise click.UsageError(f"--paper-table {paper_table} is a table of --paper FILE: give that too.")


def _metrics(shown: Sequence[str]) -> dict[str, list[str]]:
    """Task -> scores that are asked for."""
    found: dict[str, list[str]] = {}
    for one in shown:
        task, equals, metric = one.rpartition("=")
        if not equals or not task or not metric:
            raise click.BadParameter(f"{one!r}: write it as parsing=uas.", param_hint="--metric")
        found.setdefault(task, []).append(metric)
    return found


def _known(metrics: dict[str, list[str]], config: "Config") -> dict[str, list[str]]:
    """The same, before anything is trained: BadParameter for a score of a task that there is not."""
    from ..tasks import named

    tasks = [named(name, **config.task.get(name, {})).name for name in config.tasks]
    for task in metrics:
        if task not in tasks:
            raise click.BadParameter(
                f"{task!r} is not one of the tasks {', '.join(tasks)}.{nearest(task, tasks)}", param_hint="--metric"
            )
    return metrics


def _askable(metrics: Metrics, tasks: Sequence["Task"]) -> None:
    """Before anything is trained: BadParameter for a score that a task has not. Its names are those of a score of
    nothing; a task that refuses to score nothing (its mean is over questions) is asked when there are rows."""
    for task in tasks:
        if task.name not in metrics:
            continue
        try:
            there = [name for name in task.score([], []) if name != "n"]
        except DataError:
            continue
        for wanted in metrics[task.name]:
            if wanted not in there:
                listed = f"{', '.join(there)}.{nearest(wanted, there)}"
                problem = f"task {task.name!r} has no score {wanted!r}. There is: {listed}"
                raise click.BadParameter(problem, param_hint="--metric")


def _seeds(text: str) -> int | list[int]:
    """A number of seeds, or the seeds."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise click.BadParameter(f"{text!r}: a number of seeds, or seeds as 13,21,42.", param_hint="--seeds") from None
    alone = len(numbers) == 1 and "," not in text
    if not numbers or min(numbers) < int(alone):
        raise click.BadParameter(f"{text!r}: give at least one seed, of 0 or more.", param_hint="--seeds")
    return numbers[0] if alone else numbers


def _write(rows: Sequence["ResultsRow"], report: Path, paper: "Paper", metrics: Metrics, plot: bool) -> None:
    from ..report.table import comparison, markdown

    header, lines = comparison(rows, paper=paper, metrics=metrics)
    text = "\n\n".join([_title(rows), markdown(header, lines), *_notes(rows, metrics)])
    (report / "table.md").write_text(text + "\n", encoding="utf-8")
    if not plot:
        return
    try:
        _draw(rows, report, metrics)
    except MissingExtra as problem:
        log.warning("no plot: %s", problem)


def _draw(rows: Sequence["ResultsRow"], report: Path, metrics: Metrics) -> None:
    from ..report.plots import cost, improvement
    from ..report.table import metrics_of, scores, seconds

    table, taken = scores(rows, metrics=metrics), seconds(rows, metrics=metrics)
    metric = metrics_of(rows, metrics=metrics)
    what = f"{rows[0].dataset}, {rows[0].encoder}"
    gains = report / "improvement.png"
    if any("frozen" in by and len(by) > 1 for by in table.values()):
        improvement(table, gains, title=f"{what}: gain over Frozen", metric=metric)
    else:
        gains.unlink(missing_ok=True)  # an earlier call's is of other rows
        if several := sorted({name for by in table.values() for name in by if name.startswith("frozen (")}):
            log.warning(
                "no improvement.png: a gain is over one Frozen, and there are %d: %s. table.md has all; for the "
                "picture, compare with one of them in a report of its own.",
                len(several),
                ", ".join(several),
            )
    prices = report / "cost.png"
    # a task whose scores are all undefined has times, and nothing to draw them against
    if any(len(set(table.get(task, ())) & set(by)) > 1 for task, by in taken.items()):
        cost(table, taken, prices, title=f"{what}: score by cost of training", metric=metric)
    else:
        prices.unlink(missing_ok=True)


def _text(rows: Sequence["ResultsRow"], paper: "Paper", metrics: Metrics) -> str:
    from ..report.table import aligned, comparison

    header, lines = comparison(rows, paper=paper, bold="{} *".format, metrics=metrics)
    return "\n\n".join([aligned(header, lines), *(note.replace("bold", "*") for note in _notes(rows, metrics))])


def _title(rows: Sequence["ResultsRow"]) -> str:
    return f"# {rows[0].experiment}: {rows[0].dataset}, {rows[0].encoder}"


def _notes(rows: Sequence["ResultsRow"], metrics: Metrics) -> list[str]:
    """What the numbers are: marks, seeds, what is undefined, rates, times, machine."""
    from ..report.table import deciding

    seeds: dict[str, list[str]] = {}
    for method in dict.fromkeys(row.method for row in rows):
        own = sorted({row.seed for row in rows if row.method == method and row.seed is not None})
        seeds.setdefault(", ".join(map(str, own)), []).append(method)
    which = "; ".join(f"{own} ({', '.join(names)})" if len(seeds) > 1 else own for own, names in seeds.items())
    chosen: dict[str, dict[str, None]] = {}
    for row in rows:
        parts = [part for part in row.variant.split() if part.partition("=")[0] in ("lr", "encoder_lr", "epochs")]
        chosen.setdefault(f"{row.method} {' '.join(parts)}", {})[row.task] = None
    settings = "; ".join(f"{name} ({', '.join(tasks)})" for name, tasks in chosen.items())
    absent = [row for row in deciding(rows, "test", metrics) if row.value is None]
    undefined = "; ".join(f"{row.method}, {row.task} {row.metric}, seed {row.seed}" for row in absent)
    joint = any("joint=" in row.variant for row in rows)
    of_tasks = " of all tasks that share their settings, trained side by side" if joint else ""
    machines = dict.fromkeys(f"{row.machine}; {row.threads} threads; torch {row.torch}" for row in rows)
    commits = dict.fromkeys(row.commit for row in rows if row.commit)
    return [
        f"Test scores, mean ± sd over seeds {which}. Best in bold; ≈ marks what does not differ "
        "from it (Welch's t-test, p ≥ 0.05), ° what cannot be tested: one seed, or no spread.",
        f"ms/batch: training{of_tasks}, reading included, mean over all epochs; + encoding: with the encoder's "
        "pass over the batch, divided by the epochs; train s: scoring dev included; encode s: the one pass over all "
        "items that methods share (– where the store held some before, or none is needed); infer: predicting a batch, "
        "alone and with the encoder's pass over it; trainable: parameters of one task; peak MB: memory that training "
        "added, pages of the mapped store left out; store MB: of the views that are read.",
        *([f"Undefined, and in no mean: {undefined}."] if undefined else []),
        f"Rates and epochs: {settings}.",
        f"Measured on: {' | '.join(machines)}; commit {', '.join(commits) or 'unknown'}.",
    ]
