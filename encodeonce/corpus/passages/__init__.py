"""Collections of passages to `Passage`s and back: one file a format, with `FORMATS`, found by name or by suffix."""

import importlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...resolve import available
from ...types import Passage
from .._files import Target
from .._format import Format, by_name, by_suffix

__all__ = ["passage_formats", "read_passages", "refuse_repeated", "write_passages"]


@cache
def passage_formats() -> dict[str, Format[Passage]]:
    """Every format by name."""
    found = (importlib.import_module(f"{__name__}.{name}") for name in available("corpus/passages"))
    return {format_.name: format_ for module in found for format_ in vars(module).get("FORMATS", ())}


def read_passages(source: str | Path, *, format: str | None = None, **options: Any) -> list[Passage]:
    """Every passage of a file or a folder.

    `options` go to the format's own `read`. Raises DataError where there is no passage, one or its id is
    empty, or two have one id, ConfigError where there is no such format.
    """
    known = passage_formats()
    passages = (by_suffix(known, source) if format is None else by_name(known, format)).read(source, **options)
    if not passages:
        raise DataError(f"no passages in {source}: it is empty or holds only blank lines.")
    for passage in passages:
        if not passage.text.strip():
            raise DataError(f"{passage.place}: passage {passage.id!r} is empty. Leave it out of the collection.")
    refuse_repeated(passages)
    return passages


def write_passages(target: Target, passages: Iterable[Passage], *, format: str | None = None) -> None:
    """Write passages in the format named or that the target's suffix says (jsonl keeps all, tsv id, text and title)."""
    known = passage_formats()
    (by_suffix(known, target) if format is None else by_name(known, format)).write(target, passages)


def refuse_repeated(passages: Iterable[Passage]) -> None:
    """DataError naming the first id that two passages have, and the first passage whose id is empty."""
    seen: dict[str, str] = {}
    for passage in passages:
        if not passage.id:
            raise DataError(
                f"{passage.place or 'a passage'}: the id of {passage.text[:40]!r} is empty. Give it one: answers name "
                "their source by it."
            )
        if passage.id in seen:
            raise DataError(
                f"{passage.place or passage.id}: a second passage {passage.id!r}; the first is at "
                f"{seen[passage.id] or 'no place'}. Ids must differ: answers name their source by it."
            )
        seen[passage.id] = passage.place
