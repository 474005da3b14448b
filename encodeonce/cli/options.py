"""Options that several commands share."""

import math
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

__all__ = [
    "Decorator",
    "budget_option",
    "documents_option",
    "drawable_picture",
    "encoder_option",
    "json_option",
    "k_option",
    "layers_of",
    "listed",
    "max_gb_option",
    "passages_option",
    "read_option",
    "reader_options",
    "run_argument",
    "set_option",
    "store_option",
    "together",
    "vectors_option",
]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _columns(ctx: click.Context, parameter: click.Parameter, value: str | None) -> dict[str, int | str] | None:
    if value is None:
        return None
    found: dict[str, int | str] = {}
    for part in value.split(","):
        name, equals, place = part.strip().partition("=")
        if not equals or not name or not place:
            raise click.BadParameter(f"{part!r}: write it as form=0,tag=3 (by number) or text=sentence (by name).")
        found[name] = int(place) if re.fullmatch(r"-?\d+", place, re.ASCII) else place
    return found


def _read(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, Any]:
    if not value:
        return {}
    from .config import value_of

    pairs = [one.partition("=") for one in value]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise click.BadParameter(f"{name!r}: write it as comments=true.")
    return {name: value_of(text) for name, _, text in pairs}


def listed(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """A callback: names with commas between; None where none is given."""
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]


def _bytes(ctx: click.Context, parameter: click.Parameter, value: float | None) -> int | None:
    """A callback: 10^9 bytes to bytes."""
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"{value:g} is no size: give a number of 10^9 bytes, 0 or more, such as 1.5.")
    return None if value is None else int(value * 1e9)


def max_gb_option(help: str) -> Decorator:
    """`--max-gb`; the command gets `max_bytes`."""
    return click.option("--max-gb", "max_bytes", type=float, callback=_bytes, help=f"{help} (10^9 bytes).")


def drawable_picture(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """A callback: a picture is refused at once where it could not be drawn after the work."""
    if value is not None and not ctx.resilient_parsing:
        from ..report.plots import drawable

        drawable(value)
    return value


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order of the help."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


reader_options: Decorator = together(
    click.option("--format", "-f", help="Reader's name; by the file's ending where not given."),
    click.option(
        "--columns", callback=_columns, metavar="NAME=PLACE,...", help="Where values stand, such as form=0,tag=3."
    ),
)


def documents_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--documents`, `--format` and `--columns`; the command gets what they name as `documents`, read."""

    @wraps(command)
    def reading(
        *args: Any, documents: Path, format: str | None, columns: dict[str, int | str] | None, **rest: Any
    ) -> Any:
        from ..corpus import read

        return command(*args, documents=read(documents, format=format, columns=columns), **rest)

    named = click.option(
        "--documents",
        "-d",
        required=True,
        type=click.Path(exists=True, path_type=Path),
        help="Documents: jsonl, csv, a folder of texts, ...",
    )
    return together(named, reader_options)(reading)


read_option: Decorator = click.option(
    "--read",
    "reading",
    multiple=True,
    callback=_read,
    metavar="NAME=VALUE",
    help="An option of the format's reader: comments=true, quoting=false, unit=paragraph, ...; repeatable.",
)
passages_option: Decorator = click.option(
    "--passages", type=click.Path(exists=True), help="What questions name by id: documents, sections, passages."
)
budget_option: Decorator = click.option(
    "--budget-seconds",
    "budget",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="How long to measure, beside reading the files and loading the encoder.",
)
run_argument: Decorator = click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
encoder_option: Decorator = click.option("--encoder", "-e", help="Where the run's encoder is now.")
store_option: Decorator = click.option(
    "--store", "-s", help="A store of the run's encoder.  [default: the one the run was trained on]"
)
k_option: Decorator = click.option(
    "-k", type=click.IntRange(min=1), default=10, show_default=True, help="Passages read for a question."
)
json_option: Decorator = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
set_option: Decorator = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a key of the config, such as train.seed=1; repeatable.",
)
vectors_option: Decorator = click.option(
    "--vectors", metavar="ENCODER", help="Where the encoder of the memory's vectors is now, where it is one of its own."
)


def layers_of(text: str) -> str | int | list[int]:
    """ "all", "last", "2" (the last two) or "0,3,6"."""
    if "," in text:
        try:
            return [int(part) for part in text.split(",") if part.strip()]
        except ValueError:
            raise click.BadParameter(f"{text!r}: layers are numbers, such as 0,3,6.", param_hint="--layers") from None
    if text.isdecimal():
        return int(text)
    if text not in ("all", "last"):
        raise click.BadParameter(f"{text!r}: write all, last, a number or a list such as 0,3,6.", param_hint="--layers")
    return text
