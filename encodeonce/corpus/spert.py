"""Entities and relations as SpERT has them (Eberts and Ulges 2020): one object a sentence, in an array or one a line.

{"tokens": [...], "entities": [{"type", "start", "end"}], "relations": [{"type", "head", "tail"}], ...}: words start ...
end - 1 are an entity, head and tail are numbers of entities, from 0. Both lists stand in `meta` as they are, and so do
all other fields.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..graphs import Graph
from ..types import Document
from ._files import Target, stem, write_text
from ._format import Format
from ._objects import Objects, has_fields, opens_with, written
from .jsonl import document

__all__ = ["FORMATS", "read", "recognises", "write"]


def read(path: str | Path, *, columns: Mapping[str, int | str] | None = None) -> list[Document]:
    """Every sentence. `columns` names fields, our name first: {"words": "sentence_tokens"}.

    A file to be predicted may have no entities and no relations. Raises DataError with file:line for bad JSON, for an
    entity outside the sentence and for a relation of an entity that is not there.
    """
    found, name = Objects.read(path), stem(path)
    documents = []
    for i, (value, place) in enumerate(zip(found.values, found.places, strict=True), 1):
        one = document(value, place, f"{name}:{i}", columns or {})
        if one.text and not one.words:
            raise DataError(f"{place}: 'text' without 'tokens': entities are places among words. Give the words.")
        if "entities" in one.meta or "relations" in one.meta:
            Graph.of(one.meta.get("entities", []), one.meta.get("relations", []), len(one.words), place)
        documents.append(one)
    return documents


def write(target: Target, source: str | Path | Iterable[Document], columns: Mapping[str, Sequence[Any]]) -> None:
    """Write `source` with fields set, one value a sentence; a file's other bytes stay as they are.

    `source` is a file in this form or documents, which become an array where the target ends in .json.
    """
    if isinstance(source, (str, Path)):
        found = Objects.read(source)
        write_text(target, found.rewritten(_rows(columns, len(found.values))))
        return
    held = list(source)
    rows = _rows(columns, len(held))
    write_text(target, written([_object(d) | row for d, row in zip(held, rows, strict=True)], target))


def recognises(path: str | Path) -> bool:
    """Whether the first object has tokens and entities."""
    return has_fields(opens_with(path), tokens=list, entities=list)


def _rows(columns: Mapping[str, Sequence[Any]], n: int) -> list[dict[str, Any]]:
    """Columns as one set of fields an item."""
    for name, values in columns.items():
        if len(values) != n:
            raise DataError(f"field {name!r} has values for {len(values)} sentences; there are {n}.")
    plain = {name: [list(v) if isinstance(v, tuple) else v for v in values] for name, values in columns.items()}
    return [{name: values[i] for name, values in plain.items()} for i in range(n)]


def _object(item: Document) -> dict[str, Any]:
    kept = {name: value for name, value in item.meta.items() if isinstance(value, (str, int, float, list, dict))}
    own = {name: list(values) for name, values in item.columns.items() if name != "form"}
    return {"id": item.id, "tokens": list(item.words), **own, **kept}


FORMATS = (Format("spert", (".json", ".jsonl"), read, write, recognises),)
