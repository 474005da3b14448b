"""`encodeonce train`: encode what is missing, train, save a run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import json_option, set_option

if TYPE_CHECKING:
    from ..train.settings import Settings
    from .config import Config
    from .dry_run import DryRun
    from .learning import Material, Trained

__all__ = ["train"]


@click.command()
@click.argument("config", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--output", "-o", "run", type=click.Path(file_okay=False, path_type=Path), help="RUN.")
@click.option("--dry-run", is_flag=True, help="Check config, data and encoder, say what would be done, and do nothing.")
@set_option
@json_option
def train(config: Path, run: Path | None, dry_run: bool, changes: tuple[str, ...], as_json: bool) -> None:
    """Encode what is missing, train, and save a run.

    A run that was interrupted goes on where it was when the same command is given again. RUN holds the resolved
    config, adapter and heads as safetensors, what made the stored views, a model card and a log. A dry run needs
    nothing of the encoder but its config.json.
    """
    if run is None and not dry_run:
        raise click.UsageError("Missing option '--output' / '-o'.")
    from .config import load

    chosen = load(config, changes)
    chosen.need("tasks", "data.train")
    from . import learning, steps
    from .contenders import contender, say_unused

    own = contender(chosen)
    say_unused(chosen, [own])
    settings, variant = own.training(chosen), own.settings()
    if run is None or dry_run:
        from .dry_run import dry_run as tried

        found = tried(chosen, settings, variant)
        click.echo(json.dumps(found.to_json()) if as_json else _dry_text(found))
        return
    from ..serve.folder import refuse_other

    refuse_other(run)
    material = learning.prepare(chosen, [variant])
    with steps.held(run, "train", "overwrite each other's checkpoints and log"):
        done = learning.train(material, variant, settings, folder=run)
        _save(chosen, material, done, settings, run)
    if as_json:
        click.echo(json.dumps(_values(material, done)))
    else:
        click.echo(_text(material, done, run))


def _save(config: "Config", material: "Material", done: "Trained", settings: "Settings", run: Path) -> None:
    from ..report.results import command_line
    from ..serve.bundle import Run, save
    from .config import to_toml

    training = done.training(settings, material.splits, train_fraction=config.data.train_fraction)
    scores = {split: evaluation.scores for split, evaluation in done.evaluations.items()}
    names = {split: ", ".join(Path(name).name for name in getattr(config.data, split)) for split in material.splits}
    if config.data.dev_fraction:
        names["dev"] = f"{config.data.dev_fraction:g} of train, held out"
    (run / "config.toml").write_text(to_toml(config, run), encoding="utf-8")
    save(Run(done.method, done.tasks, done.variant, material.spec, training, scores, names, command_line()), run)


def _values(material: "Material", done: "Trained") -> dict[str, object]:
    return {
        "scores": {split: evaluation.scores for split, evaluation in done.evaluations.items()},
        "best": done.fit.best,
        "encode": material.encoded.to_json(),
        "seconds": done.fit.seconds,
        "seconds_per_batch": done.fit.seconds_per_batch,
        "parameters": done.fit.parameters,
    }


def _text(material: "Material", done: "Trained", run: Path) -> str:
    from ..report.table import aligned, shown

    header = ["task", "metric", *done.evaluations, "best epoch", "trainable"]
    lines = []
    for task in done.tasks:
        scores = [shown(e.scores[task.name][task.metric]) for e in done.evaluations.values()]
        best = str(done.fit.best[task.name]["epoch"])
        lines.append([task.name, task.metric, *scores, best, f"{done.fit.parameters[task.name]:,}"])
    report = material.encoded.report
    distinct = report.asked - report.duplicates
    stored = (
        "store: not read"
        if not distinct
        else (
            f"store: {report.hits:,} of {distinct:,} items were there, {report.written:,} encoded "
            f"({report.bytes:,} bytes)"
        )
    )
    loaded = "" if material.encoded.encoder_loaded or not distinct else "; encoder not loaded"
    fitted = done.fit
    speed = f"train: {fitted.batches:,} batches, {1000 * fitted.seconds_per_batch:.1f} ms each, {fitted.seconds:.1f} s"
    return "\n".join([aligned(header, lines), "", stored + loaded, speed, f"saved: {run}"])


def _dry_text(found: "DryRun") -> str:
    plan, layers = found.store, ", ".join(map(str, found.layers))
    at_least = "at least " if "vocabulary" in plan.lacks else ""
    examples = ", ".join(f"{split} {count:,}" for split, count in found.examples.items())
    labels = ", ".join(f"{task} {count:,} labels" for task, count in found.labels.items())
    parameters = ", ".join(f"{task} {count:,}" for task, count in found.parameters.items())
    lines = [
        f"encoder    {found.encoder}: layers {layers}, width {found.width:,}",
        f"data       {examples}; {labels}",
        f"to store   {at_least}{plan.rows:,} rows of {plan.missing:,} documents, {plan.bytes:,} bytes",
        f"training   {found.method}, {at_least if found.bounded else ''}{found.batches_per_epoch:,} batches an epoch, "
        f"{found.steps:,} steps",
        f"trainable  {parameters} parameters",
    ]
    if plan.lacks:
        lines.append(f"lacking    the encoder has no {' and no '.join(plan.lacks)}: nothing can be encoded yet")
    return "\n".join([*lines, "Nothing was written."])
