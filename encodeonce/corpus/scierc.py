"""Entities and relations as SciERC, DyGIE and PURE have them: one object a document, its sentences in a list.

{"doc_key", "sentences": [[word, ...], ...], "ner": [[[first, last, type], ...], ...],
"relations": [[[first, last, first, last, type], ...], ...]}, one list a sentence. Words are counted from 0 through the
whole document, and `last` is the last word itself. Here every sentence is a document of its own, with entities and
relations as `graphs` has them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError
from ..graphs import Graph
from ..types import Document
from ._files import Target, stem, write_text
from ._format import Format
from ._objects import Objects, has_fields, opens_with, written

__all__ = ["FORMATS", "read", "recognises", "write"]


def read(path: str | Path, *, columns: Mapping[str, int | str] | None = None) -> list[Document]:
    """Every sentence that has words; `id` is "doc_key:ordinal".

    `meta` has "doc_key", "entities" and "relations" (where the file does), and with the first sentence of a document
    "document", its other fields. A relation between words that carry two entities is one between the first of each.
    Raises DataError with file:line and sentence for an entity outside its sentence and a relation without entities.
    """
    if columns:
        raise ConfigError(f"columns={dict(columns)}: the fields of this format have fixed names; leave columns out.")
    found, name = Objects.read(path), stem(path)
    documents: list[Document] = []
    for i, (value, place) in enumerate(zip(found.values, found.places, strict=True), 1):
        documents += _sentences(value, place, str(value.get("doc_key") or f"{name}:{i}"))
    return documents


def write(target: Target, source: str | Path | Iterable[Document], columns: Mapping[str, Sequence[Any]]) -> None:
    """Write `source` with "entities" and "relations" set, one list of objects a sentence (see `graphs`).

    `source` is a file in this form (its other bytes stay as they are) or documents; neighbours of one "doc_key" become
    one object.
    """
    if columns and set(columns) != {"entities", "relations"}:
        raise ConfigError(
            f"this format holds 'entities' and 'relations', both at once; there is {', '.join(sorted(columns))}."
        )
    if not isinstance(source, (str, Path)):
        held = list(source)
        rows = _rows(columns, len(held)) if columns else [_own(document) for document in held]
        write_text(target, written(list(_objects(held, rows)), target))
        return
    found = Objects.read(source)
    lists = [_words(value, place) for value, place in zip(found.values, found.places, strict=True)]
    if not columns:
        write_text(target, [found.text])
        return
    values = iter(_rows(columns, sum(bool(words) for sentences in lists for words in sentences)))
    changes = [_fields(sentences, values, place) for sentences, place in zip(lists, found.places, strict=True)]
    write_text(target, found.rewritten(changes))


def recognises(path: str | Path) -> bool:
    """Whether the first object has sentences, and a key or entities."""
    first = opens_with(path)
    return has_fields(first, sentences=list) and (has_fields(first, doc_key=str) or has_fields(first, ner=list))


def _sentences(value: Mapping[str, Any], place: str, key: str) -> Iterator[Document]:
    sentences = _words(value, place)
    ner, relations = (_lists(value, name, len(sentences), place) for name in ("ner", "relations"))
    rest = {k: v for k, v in value.items() if k not in ("doc_key", "sentences", "ner", "relations")}
    offset = 0
    for i, words in enumerate(sentences):
        where = f"{place}: sentence {i + 1}"
        meta: dict[str, Any] = {"doc_key": key, **({"document": rest} if rest and not i else {})}
        reach = (offset, offset + len(words))
        if ner is not None:
            meta["entities"] = [_entity(entry, j, reach, where) for j, entry in enumerate(ner[i])]
            number = {(e["start"], e["end"]): j for j, e in reversed(list(enumerate(meta["entities"])))}
            if relations is not None:
                meta["relations"] = [_relation(r, j, number, offset, where) for j, r in enumerate(relations[i])]
        elif relations is not None and relations[i]:
            raise DataError(f"{where}: relations, but the object has no field 'ner' with their entities.")
        offset += len(words)
        if words:
            yield Document(f"{key}:{i + 1}", tuple(words), meta=meta, place=place)


def _words(value: Mapping[str, Any], place: str) -> list[list[str]]:
    sentences = value.get("sentences")
    if not isinstance(sentences, list) or not all(
        isinstance(words, list) and all(isinstance(word, str) for word in words) for words in sentences
    ):
        raise DataError(f"{place}: 'sentences' must be a list of lists of words. There is: {', '.join(value)}.")
    return sentences


def _lists(value: Mapping[str, Any], name: str, n: int, place: str) -> list[list[Any]] | None:
    lists = value.get(name)
    if lists is None:
        return None
    if not isinstance(lists, list) or len(lists) != n or not all(isinstance(one, list) for one in lists):
        seen = f"{len(lists)} entries" if isinstance(lists, list) else repr(lists)[:40]
        raise DataError(f"{place}: {name!r} must have one list a sentence, {n} of them; there is {seen}.")
    return lists


def _entity(entry: Any, number: int, reach: tuple[int, int], where: str) -> dict[str, Any]:
    if not _is(entry, (int, int, str)):
        raise DataError(f"{where}: entity {number} is {entry!r:.60}; it must be [first word, last word, type].")
    first, last, type_ = entry
    if not reach[0] <= first <= last < reach[1]:
        raise DataError(
            f"{where}: entity {number}, words {first} to {last}, is not in the sentence, whose words are {reach[0]} to "
            f"{reach[1] - 1}. Words count through the whole document, and the end is the last word itself."
        )
    return {"type": type_, "start": first - reach[0], "end": last + 1 - reach[0]}


def _relation(
    entry: Any, number: int, entities: Mapping[tuple[int, int], int], offset: int, where: str
) -> dict[str, Any]:
    if not _is(entry, (int, int, int, int, str)):
        raise DataError(
            f"{where}: relation {number} is {entry!r:.60}; it must be [first, last (of the head), first, last (of the "
            "tail), type]."
        )
    ends = [(entry[i] - offset, entry[i + 1] + 1 - offset) for i in (0, 2)]
    for i, end in enumerate(ends):
        if end not in entities:
            raise DataError(
                f"{where}: relation {number} ({entry[4]}): words {entry[2 * i]} to {entry[2 * i + 1]} are no entity of "
                "this sentence. List them in its 'ner', or leave the relation out."
            )
    return {"type": entry[4], "head": entities[ends[0]], "tail": entities[ends[1]]}


def _is(entry: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(entry, list) and tuple(map(type, entry)) == kinds


def _rows(columns: Mapping[str, Sequence[Any]], n: int) -> list[dict[str, Any]]:
    for name, values in columns.items():
        if len(values) != n:
            raise DataError(f"field {name!r} has values for {len(values)} sentences; there are {n} that have words.")
    return [{name: columns[name][i] for name in columns} for i in range(n)]


def _own(document: Document) -> dict[str, Any]:
    return {name: document.meta.get(name, []) for name in ("entities", "relations")}


def _fields(sentences: Sequence[Sequence[str]], rows: Iterator[dict[str, Any]], place: str) -> dict[str, Any]:
    """The fields "ner" and "relations" of one object; takes a row for each sentence that has words."""
    ner: list[list[Any]] = []
    told: list[list[Any]] = []
    offset = 0
    for words in sentences:
        row = next(rows) if words else {"entities": [], "relations": []}
        graph = Graph.of(row["entities"], row["relations"], len(words), place)
        spans = [[span.start + offset, span.stop - 1 + offset] for span in graph.entities]
        ner.append([[*ends, span.type] for ends, span in zip(spans, graph.entities, strict=True)])
        told.append([[*spans[r.head], *spans[r.tail], r.type] for r in graph.relations])
        offset += len(words)
    return {"ner": ner, "relations": told}


def _objects(held: Sequence[Document], rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Neighbouring sentences of one document as one object."""
    for key, group in groupby(range(len(held)), key=lambda i: str(held[i].meta.get("doc_key") or held[i].id)):
        members = list(group)
        sentences = [list(held[i].words) for i in members]
        fields = _fields(sentences, iter([rows[i] for i in members if held[i].words]), held[members[0]].place)
        yield {"doc_key": key, "sentences": sentences, **fields, **held[members[0]].meta.get("document", {})}


FORMATS = (Format("scierc", (".json", ".jsonl"), read, write, recognises),)
