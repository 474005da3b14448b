"""BEIR's folder: queries.jsonl {"_id", "text"} and qrels/SPLIT.tsv (query-id, corpus-id, score); the passages are in
corpus.jsonl (`read_passages`). A query belongs to the split that judges it.
"""

from collections.abc import Iterator
from pathlib import Path

from ...errors import DataError
from ...types import Question
from .._fields import string
from .._files import BOM, body, numbered
from .._format import Format
from ..jsonl import rows
from ._parts import unwritable

__all__ = ["FORMATS", "read", "recognises"]


def read(path: str | Path, *, split: str = "test") -> list[Question]:
    """The queries judged in `split`. `relevant` are the passages of a score above 0, the scores are meta["grades"].

    DataError naming the splits there are where this one is not, and for a judged query that is not among the queries.
    """
    folder = Path(path)
    judged = folder / "qrels" / f"{split}.tsv"
    if not judged.is_file():
        there = ", ".join(sorted(file.stem for file in (folder / "qrels").glob("*.tsv"))) or "none"
        raise DataError(f"{judged} is not there: no judgements for split {split!r}. There is: {there}.")
    grades: dict[str, dict[str, int]] = {}
    places: dict[str, str] = {}
    for query, passage, grade, place in _judgements(judged):
        grades.setdefault(query, {})[passage] = grade
        places.setdefault(query, place)
    questions = []
    for value, place in rows(folder / "queries.jsonl"):
        name = string(value, "_id", place)
        if name in grades:
            own = grades.pop(name)
            relevant = tuple(passage for passage, grade in own.items() if grade > 0)
            meta = {"grades": own, **{key: v for key, v in value.items() if key not in ("_id", "text")}}
            questions.append(Question(name, string(value, "text", place), (), (), meta, place, relevant))
    if grades:
        first = next(iter(grades))
        raise DataError(f"{places[first]}: query {first!r} is judged, and is not in {folder / 'queries.jsonl'}.")
    return questions


def recognises(path: str | Path) -> bool:
    """Whether it is a folder with queries."""
    return (Path(path) / "queries.jsonl").is_file()


def _judgements(path: Path) -> Iterator[tuple[str, str, int, str]]:
    for number, line in numbered(path):
        cells = body(line).split("\t")
        if line == BOM or (number == 1 and cells[-1] == "score"):
            continue
        try:
            query, passage, grade = cells
            yield query, passage, int(grade), f"{path}:{number}"
        except ValueError:
            raise DataError(f"{path}:{number}: {body(line)!r} is not query-id, corpus-id and score, by tabs.") from None


FORMATS = (Format("beir", ("",), read, unwritable("beir"), recognises),)
