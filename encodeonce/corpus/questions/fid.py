"""Questions with retrieved passages, as Fusion-in-Decoder and DPR have them, in an array or one object a line.

{"id"?, "question", "answers": [...], "ctxs": [{"id"?, "title"?, "text", "score"?}, ...]}; in DPR's training files
"positive_ctxs", "negative_ctxs" and "hard_negative_ctxs" in place of "ctxs", of which the first are relevant. Passages
keep the file's order, also where there are no scores; none is made up (case FID-1). `meta["scores"]` holds the scores,
None for a passage without one, where the file has any. A passage without an id is named by its content. Of a passage,
only id, title, text and score are read: whether it holds an answer is counted here (`metrics.retrieval`).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...types import Passage, Question
from .._fields import kind, objects, string
from .._files import Target, stem, write_text
from .._format import Format
from .._objects import Objects, has_fields, opens_with, written
from ._parts import answers_of, content_id, place_of, question_text

__all__ = ["FORMATS", "passage_of", "read", "recognises", "write"]

LISTS = ("ctxs", "positive_ctxs", "hard_negative_ctxs", "negative_ctxs")
IDS = ("id", "passage_id", "psg_id")
OWN = ("id", "question", "answers", *LISTS)


def read(path: str | Path) -> list[Question]:
    """Every question, also those without passages. DataError with file and line for fields of another kind."""
    found, name = Objects.read(path), stem(path)
    return [_question(v, p, f"{name}:{i}") for i, (v, p) in enumerate(zip(found.values, found.places, strict=True), 1)]


def recognises(path: str | Path) -> bool:
    """Whether the first object has a question and passages."""
    first = opens_with(path)
    return has_fields(first, question=str) and any(has_fields(first, **{name: list}) for name in LISTS)


def write(target: Target, questions: Iterable[Question]) -> None:
    """An object a question, in an array where the target ends in .json; scores where the question has them."""
    write_text(target, written([_object(question) for question in questions], target))


def passage_of(value: Mapping[str, Any], place: str) -> Passage:
    """One passage of a list."""
    title = value.get("title")
    if title is not None and not isinstance(title, str):
        raise DataError(f"{place}: 'title' is a {kind(title)}; it must be a string.")
    text = string(value, "text", place)
    own = next((str(value[name]) for name in IDS if value.get(name) not in (None, "")), None)
    return Passage(content_id(title or "", text) if own is None else own, title or "", text, place=place)


def _question(value: Mapping[str, Any], place: str, ordinal: str) -> Question:
    passages: list[Passage] = []
    scores: list[float | None] = []
    relevant: list[str] = []
    for name in LISTS:
        for n, one in enumerate(objects(value, name, place) if name in value else []):
            passages.append(passage_of(one, f"{place} ({name}[{n}])"))
            scores.append(_score(one.get("score"), f"{place} ({name}[{n}])"))
            if name == "positive_ctxs":
                relevant.append(passages[-1].id)
    meta = {key: content for key, content in value.items() if key not in OWN}
    if any(score is not None for score in scores):
        meta["scores"] = tuple(scores)
    own = value.get("id")
    return Question(
        ordinal if own is None else str(own),
        question_text(value, place),
        answers_of(value, ("answers", "target"), place),
        tuple(passages),
        meta,
        place,
        tuple(dict.fromkeys(relevant)),
    )


def _score(score: Any, place: str) -> float | None:
    if score is None:
        return None
    try:
        return float(score)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{place}: score {score!r} is no number.") from None


def _object(question: Question) -> dict[str, Any]:
    scores = question.meta.get("scores", [None] * len(question.passages))
    if len(scores) != len(question.passages):
        raise DataError(
            f"{place_of(question)}: {len(scores)} scores in meta['scores'] for {len(question.passages)} passages. "
            "Passages were put in place of others: take the scores out, or put theirs in."
        )
    ctxs = [
        {"id": passage.id, "title": passage.title, "text": passage.text} | ({} if score is None else {"score": score})
        for passage, score in zip(question.passages, scores, strict=True)
    ]
    own = {"id": question.id, "question": question.text, "answers": [answer.text for answer in question.answers]}
    rest = {name: value for name, value in question.meta.items() if name not in (*OWN, "scores")}
    return {**own, **rest, "ctxs": ctxs}


FORMATS = (Format("fid", (".json", ".jsonl"), read, write, recognises),)
