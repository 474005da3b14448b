"""Relations without positions: a text and the triples it tells, as CasRel's and PFN's WebNLG has them.

{"text": "Alan Bean was born in Wheeler .", "triple_list": [["Bean", "birthPlace", "Wheeler"]]}, or "tokens" and
"triples"; in an array or one a line. An argument is words, and where they stand is not said. They are looked for among
the words of the text, which are what blanks divide. An argument that occurs once has its place; one that occurs several
times is ambiguous: it is tied to its first occurrence, as the authors' loader does, and said to be so, or refused.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError
from ..graphs import UNTYPED, Graph
from ..types import Document
from ._files import Target, stem, write_text
from ._format import Format
from ._objects import Objects, has_fields, opens_with, written

__all__ = ["FORMATS", "read", "recognises", "write"]

LOG = logging.getLogger("encodeonce")

FORMS = {"triple_list": "text", "triples": "tokens"}
"""Field of the triples -> field of the words."""


def read(
    path: str | Path, *, columns: Mapping[str, int | str] | None = None, ambiguous: str = "first"
) -> list[Document]:
    """Every text; arguments are entities of the type UNTYPED, relations have the triples' order.

    `ambiguous` says what becomes of an argument that occurs several times: "first" ties it to the first occurrence,
    lists it in `meta["ambiguous"]` and warns once a file; "refuse" raises DataError. Raises DataError with file:line
    for an argument that is not in the text.
    """
    if columns:
        raise ConfigError(f"columns={dict(columns)}: the fields of this format have fixed names; leave columns out.")
    if ambiguous not in ("first", "refuse"):
        raise ConfigError(f"ambiguous={ambiguous!r} is not known. There is: first, refuse.")
    found, name = Objects.read(path), stem(path)
    documents = [
        _document(value, place, f"{name}:{i}", refuse=ambiguous == "refuse")
        for i, (value, place) in enumerate(zip(found.values, found.places, strict=True), 1)
    ]
    _warn(path, documents)
    return documents


def write(target: Target, source: str | Path | Iterable[Document], columns: Mapping[str, Sequence[Any]]) -> None:
    """Write `source` with the relations of "entities" and "relations" (see `graphs`) as its triples.

    `source` is a file in this form (its other bytes stay as they are) or documents. An entity of no relation has no
    place in this form: how many there are is said, as a warning.
    """
    if columns and set(columns) != {"entities", "relations"}:
        raise ConfigError(
            f"this format tells relations: give 'entities' and 'relations'; there is {', '.join(sorted(columns))}."
        )
    if isinstance(source, (str, Path)):
        found = Objects.read(source)
        words = [_words(value, place) for value, place in zip(found.values, found.places, strict=True)]
        if not columns:
            write_text(target, [found.text])
            return
        triples = _triples(words, columns, found.places)
        changes = [{_form(value): told} for value, told in zip(found.values, triples, strict=True)]
        write_text(target, found.rewritten(changes))
        return
    held = list(source)
    columns = columns or {name: [d.meta.get(name, []) for d in held] for name in ("entities", "relations")}
    triples = _triples([d.words for d in held], columns, [d.place or d.id for d in held])
    objects = [{"id": d.id, "tokens": list(d.words), "triples": t} for d, t in zip(held, triples, strict=True)]
    write_text(target, written(objects, target))


def recognises(path: str | Path) -> bool:
    """Whether the first object has triples and the words they are about."""
    first = opens_with(path)
    return any(has_fields(first, **{form: list}) for form in FORMS) and (
        has_fields(first, text=str) or has_fields(first, tokens=list)
    )


def _form(value: Mapping[str, Any]) -> str:
    """The field that holds an object's triples, or should."""
    return next((form for form in FORMS if form in value), "triples" if "tokens" in value else "triple_list")


def _words(value: Mapping[str, Any], place: str) -> tuple[str, ...]:
    words, text = value.get("tokens"), value.get("text")
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return tuple(words)
    if words is not None or not isinstance(text, str):
        raise DataError(f"{place}: neither 'text', a string, nor 'tokens', a list of words. There is: {list(value)}.")
    return tuple(word for word in re.split(r"[ \t\r\n]+", text) if word)  # other blanks are part of a word here


def _document(value: Mapping[str, Any], place: str, ordinal: str, refuse: bool) -> Document:
    words = _words(value, place)
    form = _form(value)
    rest = {k: v for k, v in value.items() if k not in ("id", "tokens", form)}
    if form in value:
        rest |= _located(value[form], words, place, refuse)
    own = value.get("id")
    return Document(ordinal if own is None else str(own), words, meta=rest, place=place)


def _located(triples: Any, words: tuple[str, ...], place: str, refuse: bool) -> dict[str, Any]:
    """Entities and relations of one text, and the arguments whose place is a guess."""
    if not isinstance(triples, list):
        raise DataError(f"{place}: the triples must be a list; there is {triples!r:.60}.")
    numbers: dict[tuple[int, int], int] = {}
    relations = []
    ambiguous: dict[str, None] = {}
    for i, triple in enumerate(triples):
        if not isinstance(triple, list) or len(triple) != 3 or not all(isinstance(part, str) for part in triple):
            raise DataError(f"{place}: triple {i} is {triple!r:.80}; it must be [head, relation, tail].")
        ends = []
        for argument in (triple[0], triple[2]):
            spans = _occurrences(argument, words)
            if not spans:
                raise DataError(
                    f"{place}: triple {i}: {argument!r} is not in the text, whose words are divided by blanks. Spell "
                    "it as the text does, or leave the triple out."
                )
            if len(spans) > 1:
                ambiguous[argument] = None
                if refuse:
                    raise DataError(
                        f"{place}: triple {i}: {argument!r} occurs {len(spans)} times, at words "
                        f"{', '.join(str(start) for start, _ in spans)}, and the file does not say which is meant. "
                        "Give positions (format 'spert'), or read it with ambiguous='first'."
                    )
            ends.append(numbers.setdefault(spans[0], len(numbers)))
        relations.append({"type": triple[1], "head": ends[0], "tail": ends[1]})
    entities = [{"type": UNTYPED, "start": start, "end": stop} for start, stop in numbers]
    return {"entities": entities, "relations": relations, **({"ambiguous": list(ambiguous)} if ambiguous else {})}


def _occurrences(argument: str, words: tuple[str, ...]) -> list[tuple[int, int]]:
    """Every place where the argument's words stand side by side."""
    looked_for = (argument,) if argument in words else tuple(argument.split(" "))
    n = len(looked_for)
    return [(i, i + n) for i in range(len(words) - n + 1) if words[i : i + n] == looked_for]


def _warn(path: str | Path, documents: Sequence[Document]) -> None:
    counts = [0, 0, 0]
    for document in documents:
        names = set(document.meta.get("ambiguous", ()))
        spans = [" ".join(document.words[e["start"] : e["end"]]) for e in document.meta.get("entities", ())]
        told = document.meta.get("relations", ())
        counts[0] += sum(spans[r["head"]] in names or spans[r["tail"]] in names for r in told)
        counts[1] += len(told)
        counts[2] += bool(names)
    if counts[0]:
        LOG.warning(
            "%s: %d of %d triples (%d texts) name words that occur several times. The file has no positions: each is "
            "tied to the first occurrence, which may not be the one that is meant (meta 'ambiguous' lists them).",
            path,
            *counts,
        )


def _triples(
    words: Sequence[tuple[str, ...]], columns: Mapping[str, Sequence[Any]], places: Sequence[str]
) -> list[list[list[str]]]:
    for name, values in columns.items():
        if len(values) != len(words):
            raise DataError(f"field {name!r} has values for {len(values)} texts; there are {len(words)}.")
    found, alone = [], 0
    for i, text in enumerate(words):
        graph = Graph.of(columns["entities"][i], columns["relations"][i], len(text), places[i])
        names = [" ".join(text[span.start : span.stop]) for span in graph.entities]
        found.append([[names[r.head], r.type, names[r.tail]] for r in graph.relations])
        alone += len(set(range(len(names))) - {end for r in graph.relations for end in (r.head, r.tail)})
    if alone:
        LOG.warning("%d entities of no relation are not written: triples have no place for them.", alone)
    return found


FORMATS = (Format("triples", (".json", ".jsonl"), read, write, recognises),)
