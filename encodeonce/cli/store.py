"""`encodeonce store ls|info|verify|gc`: what stores hold, whether they are whole, and what may go."""

import json
import logging
from pathlib import Path
from typing import Any

import click

from ..errors import CorruptStore, StoreError
from .options import json_option, max_gb_option

__all__ = ["store"]

log = logging.getLogger("encodeonce")

folder = click.argument("path", metavar="STORE", type=click.Path(exists=True, file_okay=False, path_type=Path))


@click.group()
def store() -> None:
    """List, describe, verify or clean stores."""


@store.command()
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def ls(path: Path, as_json: bool) -> None:
    """The shards of the store PATH, or every store below the folder PATH; one that cannot be read is said to be so."""
    from ..store import ls as shards

    if (path / "store.json").exists():
        _table(shards(path), ("name", "items", "rows", "bytes"), as_json)
        return
    found = sorted(file.parent for file in path.rglob("store.json"))
    if not found and not as_json:
        raise StoreError(f"There is no store at or below {path}. Encode a corpus first: encodeonce encode --help.")
    _table(list(map(_described, found)), ("path", "items", "rows", "bytes", "dtype", "encoder"), as_json)


def _described(place: Path) -> dict[str, Any]:
    """What `info` says of a store; of one that cannot be read path, state and problem, which is logged."""
    from ..store import info

    try:
        return info(place)
    except (StoreError, OSError) as problem:
        log.warning("%s cannot be read: %s", place, problem)
        state = "damaged" if isinstance(problem, CorruptStore) else "unreadable"
        return {"path": str(place), "state": state, "problem": str(problem)}


@store.command()
@folder
@json_option
def info(path: Path, as_json: bool) -> None:
    """What the store holds and what made it."""
    from ..store import info as describe

    found = describe(path)
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    spec = found.pop("spec")
    lines = {**found, **{f"spec.{key}": value for key, value in spec.items()}}
    lines["layers"] = ", ".join(map(str, found["layers"]))
    lines["unfinished"] = ", ".join(found["unfinished"]) or "nothing"
    width = max(map(len, lines))
    for key, value in lines.items():
        click.echo(f"{key.ljust(width)}  {_shown(value)}")


@store.command()
@folder
@json_option
def verify(path: Path, as_json: bool) -> None:
    """Hash every byte. Exit status 1, naming each damaged file and item, where one differs from what was written."""
    from ..store import verify as check

    sound = check(path)
    if as_json:
        click.echo(json.dumps({"sound": sound}))
        return
    for line in sound:
        click.echo(line)
    click.echo(f"{len(sound)} shards, all sound")


@store.command()
@folder
@max_gb_option("Remove the oldest shards too, until the store is no larger")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@json_option
def gc(path: Path, max_bytes: int | None, dry_run: bool, as_json: bool) -> None:
    """Remove what nobody reads: leftovers of dead writers, and shards whose items are all in others."""
    from ..store import gc as clean

    gone = clean(path, max_bytes=max_bytes, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps({"removed": [] if dry_run else gone, "would_remove": gone if dry_run else []}))
        return
    for name in gone:
        click.echo(name)
    click.echo(f"{len(gone)} files {'would be ' if dry_run else ''}removed")


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    from ..report.table import aligned

    if as_json:
        click.echo(json.dumps(rows))
        return
    click.echo(aligned(list(columns), [_cells(row, columns) for row in rows]))


def _cells(row: dict[str, Any], columns: tuple[str, ...]) -> list[str]:
    """A row's values; where a store could not be read, its state in their place."""
    return [_shown(row[column] if column in row else row["state"]) for column in columns]


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
