"""`encodeonce compare`: methods x tasks x seeds from one store, as a table, a plot and raw rows."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ConfigError, DataError, MissingExtra
from .options import json_option, set_option

if TYPE_CHECKING:
    from ..report.results import ResultsRow

__all__ = ["compare"]

log = logging.getLogger("encodeonce")


def _listed(ctx: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


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
@click.option("--methods", "-m", default="frozen,linear,fusion,agg,adapted", show_default=True, callback=_listed)
@click.option("--seeds", default="5", show_default=True, help="A number of seeds, or the seeds: 13,21,42.")
@click.option(
    "--learning-rate-grid", "grid", callback=_rates, help="Chosen on dev with the first seed: 5e-4,1e-3,2e-3."
)
@click.option("--experiment", help="Name in the rows.  [default: REPORT's name]")
@click.option("--dataset", help="Name in the rows.  [default: the training file's]")
@click.option(
    "--paper", type=click.Path(exists=True, path_type=Path), help="YAML or JSON: task, method, value beside ours."
)
@click.option("--plot/--no-plot", default=True, show_default=True, help="Draw REPORT/improvement.png.")
@set_option
@json_option
def compare(
    config: Path,
    report: Path,
    methods: list[str],
    seeds: str,
    grid: list[float],
    experiment: str | None,
    dataset: str | None,
    paper: Path | None,
    plot: bool,
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Train every method on every task with every seed, from one encoding pass, and compare.

    REPORT gets results.jsonl (one row a number), table.md and improvement.png. A finished cell is never computed
    again: a comparison that was interrupted goes on. With --json, prints the list of rows and nothing else.
    """
    from .config import load

    chosen = load(config, changes)
    chosen.need("tasks", "data.train", "data.test")
    numbers = _seeds(seeds)
    beside = _paper(paper)
    from . import learning
    from .comparing import Comparison, Names

    default = Names(report.resolve().name, Path(chosen.data.train[0]).name.split(".")[0])
    names = Names(experiment or default.experiment, dataset or default.dataset)
    comparison = Comparison(chosen, report, methods, numbers, grid, names)
    rows = comparison.run(learning.prepare(chosen))
    _write(rows, report, beside, plot)
    if as_json:
        click.echo(json.dumps([row.to_json() for row in rows], indent=1))
    else:
        click.echo(_text(rows, beside))


def _seeds(text: str) -> list[int]:
    from .comparing import SEEDS

    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise click.BadParameter(f"{text!r}: a number of seeds, or seeds as 13,21,42.", param_hint="--seeds") from None
    if len(numbers) == 1 and 1 <= numbers[0] <= len(SEEDS):
        return list(SEEDS[: numbers[0]])
    return numbers


def _paper(path: Path | None) -> dict[str, dict[str, float]]:
    """Task -> method -> value of a file; ConfigError where it is something else."""
    if path is None:
        return {}
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        try:
            values: Any = json.loads(text)
        except ValueError as problem:
            raise DataError(f"{path} is not JSON: {problem}.") from None
    else:
        try:
            import yaml  # type: ignore[import-untyped]
        except ImportError:
            raise MissingExtra("A YAML file needs PyYAML. Install it with: pip install pyyaml, or give JSON.") from None
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError as problem:
            raise DataError(f"{path} is not YAML: {problem}.") from None
    try:
        return {str(task): {str(m): float(v) for m, v in by.items()} for task, by in values.items()}
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(
            f"{path} must map each task to methods and their values, such as upos: {{frozen: 90.1}}."
        ) from None


def _write(rows: Sequence["ResultsRow"], report: Path, paper: Mapping[str, Mapping[str, float]], plot: bool) -> None:
    from ..report.table import comparison, markdown, scores

    header, lines = comparison(rows, paper=paper)
    text = "\n\n".join([_title(rows), markdown(header, lines), *_notes(rows)])
    (report / "table.md").write_text(text + "\n", encoding="utf-8")
    table = scores(rows)
    if plot and any("frozen" in by and len(by) > 1 for by in table.values()):
        from ..report.plots import improvement

        try:
            improvement(
                table, report / "improvement.png", title=f"{rows[0].dataset}, {rows[0].encoder}: gain over Frozen"
            )
        except MissingExtra as problem:
            log.warning("no plot: %s", problem)


def _text(rows: Sequence["ResultsRow"], paper: Mapping[str, Mapping[str, float]]) -> str:
    from ..report.table import aligned, comparison

    header, lines = comparison(rows, paper=paper, bold="{} *".format)
    return "\n\n".join([aligned(header, lines), *(note.replace("bold", "*") for note in _notes(rows))])


def _title(rows: Sequence["ResultsRow"]) -> str:
    return f"# {rows[0].experiment}: {rows[0].dataset}, {rows[0].encoder}"


def _notes(rows: Sequence["ResultsRow"]) -> list[str]:
    """What the numbers are: marks, seeds, rates, times, machine."""
    seeds = sorted({row.seed for row in rows if row.seed is not None})
    rates: dict[str, dict[str, None]] = {}
    for row in rows:
        for part in row.variant.split():
            if part.startswith("lr="):
                rates.setdefault(f"{row.method} {part[3:]}", {})[row.task] = None
    chosen = "; ".join(f"{name} ({', '.join(tasks)})" for name, tasks in rates.items())
    joint = any("joint=" in row.variant for row in rows)
    of_tasks = " of all tasks that share a rate, trained from one read" if joint else ""
    machines = dict.fromkeys(f"{row.machine}; {row.threads} threads; torch {row.torch}" for row in rows)
    commits = dict.fromkeys(row.commit for row in rows if row.commit)
    return [
        f"Test scores, mean ± sd over seeds {', '.join(map(str, seeds))}. Best in bold; ≈ marks what does not differ "
        "from it (Welch's t-test, p ≥ 0.05).",
        f"ms/batch: training{of_tasks}, reading included; train s: scoring dev included; encode s: the one pass "
        "that all methods share (empty where the store held some items before); trainable: parameters of one task; "
        "peak MB: resident memory of the whole process.",
        f"Learning rates: {chosen}.",
        f"Measured on: {' | '.join(machines)}; commit {', '.join(commits) or 'unknown'}.",
    ]
