"""Questions beside a file of passages, an object a line: our own form, and that of open questions.

{"id"?, "question", "answers"?: [...], "answer_starts"?: [...], "answer_passages"?: [...], "passage_id"? or
"passage_ids"?: ...}. `answer_starts` say at which character of its passage each answer stands: of the one there is, or
of that which `answer_passages` names. The passages are looked up in the file `passages.jsonl`
(or .jsonl.gz) beside the questions, or in those given. In place of a passage, a question may bring "sentences": [{
"text", "answer": 0 or 1}, ...]; each is then a passage, and those marked 1 (or true) are answers, where they stand.
"""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from ...errors import DataError
from ...types import Answer, Passage, Question
from .._fields import kind, objects, string, strings, truth
from .._files import Target, lines, stem, write_text
from .._format import Format
from .._objects import Objects, written
from ..passages import read_passages
from ._parts import answers_of, located, question_text

__all__ = ["FORMATS", "read", "write"]

OWN = (
    *("id", "question", "answers", "answer", "answer_starts", "answer_passages"),
    *("passage_id", "passage_ids", "sentences"),
)


def read(
    path: str | Path, *, passages: str | Path | Iterable[Passage] | Literal[False] | None = None
) -> list[Question]:
    """Every question with its passages, which are relevant to it by definition; False: without, and with its answers'
    texts alone.

    DataError with file and line where a passage is not there or an answer does not stand at its place.
    """
    found, name = Objects.read(path), stem(path)
    held: dict[str, Passage] | None = None if passages is False else {}
    if passages is not False and any(
        value.get("passage_id") is not None or value.get("passage_ids") for value in found.values
    ):
        held = {passage.id: passage for passage in _beside(path, passages)}
    return [
        _question(value, place, f"{name}:{i}", held)
        for i, (value, place) in enumerate(zip(found.values, found.places, strict=True), 1)
    ]


def write(target: Target, questions: Iterable[Question]) -> None:
    """An object a question. Passages are named by their ids: write them with `write_passages`, beside this file."""
    write_text(target, written([_object(question) for question in questions], target))


def passages_beside(path: str | Path) -> Path | None:
    """The file where a file of questions looks its passages up when it is told of none. DataError where there are two,
    packed and plain, that do not hold the same: one of them is old."""
    plain, packed = (Path(path).parent / f"passages.jsonl{ending}" for ending in ("", ".gz"))
    there = [name for name in (plain, packed) if name.exists()]
    if len(there) == 2 and any(one != other for one, other in zip_longest(lines(plain), lines(packed))):
        raise DataError(f"{plain} and {packed} hold different passages. Remove the one that is old, or name the other.")
    return there[0] if there else None


def _beside(path: str | Path, passages: str | Path | Iterable[Passage] | None) -> Iterable[Passage]:
    if passages is None:
        passages = passages_beside(path)
        if passages is None:
            raise DataError(
                f"{path} names passages by id, and there is neither {Path(path).parent / 'passages.jsonl'} nor its "
                ".gz. Give passages=...."
            )
    return read_passages(passages) if isinstance(passages, (str, Path)) else passages


def _question(value: Mapping[str, Any], place: str, ordinal: str, held: Mapping[str, Passage] | None) -> Question:
    own = value.get("id")
    name = ordinal if own is None else str(own)
    meta = {key: content for key, content in value.items() if key not in OWN}
    text = question_text(value, place)
    if "sentences" in value:
        passages, answers = _sentences(value, name, place)
        relevant = tuple(answer.passage for answer in answers)
        return Question(name, text, answers, passages, meta, place, relevant)
    ids, answers = _ids(value, place), answers_of(value, ("answers", "answer"), place)
    passages = () if held is None else tuple(_held(held, one, place) for one in ids)
    if held is not None and value.get("answer_starts") is not None:
        answers = _located(value, passages, place)
    return Question(name, text, answers, passages, meta, place, tuple(ids))


def _ids(value: Mapping[str, Any], place: str) -> list[str]:
    """Ids of its passages; a number names the passage whose id is that number. null is none."""
    one, several = value.get("passage_id"), value.get("passage_ids")
    if several is not None and not isinstance(several, list):
        raise DataError(f"{place}: 'passage_ids' is a {kind(several)} ({several!r:.40}); it must be a list of ids.")
    ids = [one] if one is not None else several or []
    for own in ids:
        if isinstance(own, bool) or not isinstance(own, str | int):
            raise DataError(f"{place}: a passage's id is a {kind(own)} ({own!r:.40}); it must be a string or a number.")
    return list(map(str, ids))


def _held(held: Mapping[str, Passage], name: str, place: str) -> Passage:
    if name not in held:
        raise DataError(f"{place}: passage {name!r} is not among the {len(held)} passages.")
    return held[name]


def _located(value: Mapping[str, Any], passages: tuple[Passage, ...], place: str) -> tuple[Answer, ...]:
    texts, starts = strings(value.get("answers"), "answers", place), value["answer_starts"]
    if not isinstance(starts, list) or len(starts) != len(texts):
        raise DataError(f"{place}: {len(texts)} answers; 'answer_starts' must be a list of as many numbers.")
    held = {passage.id: passage for passage in passages}
    named = value.get("answer_passages")
    names = strings(list(held) * len(texts) if named is None else named, "answer_passages", place)
    if len(names) != len(texts):
        raise DataError(
            f"{place}: {len(texts)} answers and {len(passages)} passages; 'answer_passages' names "
            f"{'none' if named is None else len(names)} that the 'answer_starts' are places in. Name one an answer."
        )
    other = next((name for name in names if name not in held), None)
    if other is not None:
        raise DataError(f"{place}: 'answer_passages' names {other!r}; the question has {', '.join(held) or 'none'}.")
    return tuple(
        located(text, start, held[name], place) for text, start, name in zip(texts, starts, names, strict=True)
    )


def _sentences(value: Mapping[str, Any], name: str, place: str) -> tuple[tuple[Passage, ...], tuple[Answer, ...]]:
    passages, answers = [], []
    for n, one in enumerate(objects(value, "sentences", place)):
        text, right = string(one, "text", place), truth(one, "answer", f"{place}: sentence {n + 1}")
        if not text.strip():  # blank lines between sentences are kept by some files
            continue
        passages.append(Passage(f"{name}/{n}", text=text, place=place))
        if right:
            answers.append(Answer(text, passages[-1].id, 0, len(text)))
    return tuple(passages), tuple(answers)


def _object(question: Question) -> dict[str, Any]:
    own: dict[str, Any] = {"id": question.id, "question": question.text}
    own["answers"] = [answer.text for answer in question.answers]
    names = [passage.id for passage in question.passages]
    if names:
        own |= {"passage_id": names[0]} if len(names) == 1 else {"passage_ids": names}
    if question.answers and all(answer.located and answer.passage in names for answer in question.answers):
        own["answer_starts"] = [answer.start for answer in question.answers]
        if len(names) > 1:
            own["answer_passages"] = [answer.passage for answer in question.answers]
    return own | {name: value for name, value in question.meta.items() if name not in OWN}


FORMATS = (Format("questions", (".jsonl", ".ndjson", ".json"), read, write, by_id=True),)
