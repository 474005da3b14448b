"""`encodeonce inspect`: which layers every label reads."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import (
    drawable_picture,
    encoder_option,
    json_option,
    read_option,
    reader_options,
    run_argument,
    store_option,
)

if TYPE_CHECKING:
    from ..report.plots import Heat

__all__ = ["inspect"]


@click.command()
@run_argument
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=drawable_picture,
    help="A heat map (.png, .svg, .pdf).",
)
@click.option("--by", type=click.Choice(["gold", "predicted"]), default="gold", show_default=True, help="Whose labels.")
@click.option("--task", "-t", "chosen", multiple=True, help="Only this task; repeatable.  [default: all]")
@click.option("--top", type=click.IntRange(min=1), default=25, show_default=True, help="Labels shown a task.")
@encoder_option
@store_option
@reader_options
@read_option
@json_option
def inspect(
    run: Path,
    file: Path,
    output: Path | None,
    by: str,
    chosen: tuple[str, ...],
    top: int,
    encoder: str | None,
    store: str | None,
    format: str | None,
    columns: dict[str, int | str] | None,
    reading: dict[str, Any],
    as_json: bool,
) -> None:
    """Mean layer weight of the words of every label of FILE: a row a label, a column a layer, the most frequent first.

    Prints a table, or numbers with --json (all labels, whatever --top says).
    """
    from ..errors import ConfigError
    from ..serve.predictor import Predictor
    from .reading import layer_reading
    from .running import Reading, predictor_of, read_for

    predictor = predictor_of(run, encoder, store)
    if not isinstance(predictor, Predictor):
        raise ConfigError(f"{run} is a few-shot estimator, which reads layers by no weights: there is none to show.")
    for name in chosen:
        predictor.run.task(name)
    documents, _ = read_for(run, str(file), Reading(format, columns, reading))
    panels = layer_reading(predictor, documents, by, chosen)
    if as_json:
        click.echo(json.dumps([_values(panel) for panel in panels], indent=1))
    else:
        click.echo("\n\n".join(_text(panel.most_frequent(top)) for panel in panels))
    if output is not None:
        from ..report.plots import heat

        name = predictor.run.variant.name
        heat([panel.most_frequent(top) for panel in panels], output, f"Which layers each {by} label reads ({name})")
        click.echo(f"{output} written", err=True)


def _values(panel: "Heat") -> dict[str, Any]:
    return {
        "task": panel.title,
        "layers": list(panel.layers),
        "labels": [
            {"label": label, "words": count, "weights": [round(weight, 6) for weight in weights]}
            for label, count, weights in zip(panel.labels, panel.counts, panel.weights.tolist(), strict=True)
        ],
    }


def _text(panel: "Heat") -> str:
    from ..report.table import aligned

    header = [panel.title, "words", *(f"layer {layer}" if layer else "embeddings" for layer in panel.layers)]
    lines = [
        [label, f"{count:,}", *(f"{100 * weight:.1f} %" for weight in weights)]
        for label, count, weights in zip(panel.labels, panel.counts, panel.weights.tolist(), strict=True)
    ]
    return aligned(header, lines)
