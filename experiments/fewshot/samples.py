"""What the few-shot experiment reads: samples of 16 a label or whole training files, tests, unlabelled texts."""

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from recipe import DATA, FILES, SQUAD, Recipe

from encodeonce.types import Document

__all__ = ["Cell", "samples_of"]

SHOTS = 16
"""Questions of SQuAD for train, and for dev."""
HELD_OUT = 0.1
"""Of a whole training file: dev (spec B13)."""


@dataclass(frozen=True)
class Cell:
    """One task and seed: labelled documents of train and dev, test, unlabelled documents."""

    task: str
    seed: int
    train: list[Document]
    dev: list[Document]
    test: list[Document]
    unlabelled: list[Document]
    recipe: Recipe


def samples_of(task: str, recipe: Recipe) -> Iterator[Cell]:
    """A cell a seed. At 16 shots LM-BFF's own samples, and unlabelled texts that are in none of them.

    With `recipe.full` the whole training file less what the test holds too, a tenth of it, drawn by the seed, as dev;
    unlabelled are texts of the other nine tenths, so a text meets itself among them, and no text is its own neighbour.
    Of "squad" 16 questions are drawn for train and 16 for dev; unlabelled are passages that no question of these, or of
    the test, is about.
    """
    if task == "squad":
        yield from _questions(recipe)
        return
    samples, test, others = _read(task, recipe.test_size)
    for seed in recipe.seeds:
        if recipe.full:
            drawn = random.Random(seed).sample(others, len(others))
            n_dev = round(HELD_OUT * len(drawn))
            dev, train = drawn[:n_dev], drawn[n_dev:]
            unlabelled = train[: recipe.unlabelled_size or None]
        else:
            train, dev = (
                [d for d in samples if (d.meta["seed"], d.meta["split"]) == (seed, s)] for s in ("train", "dev")
            )
            seen = {document.key for document in samples}
            unlabelled = [d for d in others if d.key not in seen][: recipe.unlabelled_size or None]
        yield Cell(task, seed, train, dev, test, unlabelled, recipe)


def _questions(recipe: Recipe) -> Iterator[Cell]:
    """The question is a document's text, the passage its second."""
    test, others = (questions_of(folder) for folder in (SQUAD.test, SQUAD.train))
    random.Random(0).shuffle(test)
    asked = {document.pair for document in test}
    train = [d for d in others if d.meta["split"] == "train" and d.pair not in asked]
    for seed in recipe.seeds:
        drawn = random.Random(seed).sample(train, len(train))
        n_dev = round(HELD_OUT * len(drawn)) if recipe.full else SHOTS
        dev, own = drawn[:n_dev], drawn[n_dev : None if recipe.full else 2 * SHOTS]
        seen = {document.pair for document in (dev if recipe.full else [*dev, *own])}
        passages = list(dict.fromkeys(document.pair for document in drawn if document.pair not in seen))
        unlabelled = [Document(f"passage {n}", text=text) for n, text in enumerate(passages, start=1)]
        yield Cell(
            "squad",
            seed,
            own,
            dev,
            test[: recipe.test_size or None],
            unlabelled[: recipe.unlabelled_size or None],
            recipe,
        )


def questions_of(folder: str) -> list[Document]:
    """A folder of questions and passages, answers with the characters they begin at."""
    passages = {row["passage_id"]: row["text"] for row in _lines(f"{folder}/passages")}
    return [
        Document(row["id"], text=row["question"], pair=passages[row["passage_id"]], meta=row, place=folder)
        for row in _lines(f"{folder}/questions")
    ]


def _lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def rows_of(name: str) -> list[Document]:
    """A file of the data folder. The one empty text of the samples becomes a full stop."""
    return [
        Document(
            f"{name}:{number}",
            text=row.get("text", row.get("text_a")).strip() or ".",
            pair=row.get("text_b", ""),
            meta={"label": str(row["label"]), "seed": row.get("seed"), "split": row.get("split")},
            place=f"{name}:{number}",
        )
        for number, row in enumerate(_lines(name), start=1)
    ]


@cache
def _read(task: str, test_size: int) -> tuple[list[Document], list[Document], list[Document]]:
    """The samples of all seeds, a fixed sample of the test file, training texts that the test lacks, each once."""
    files = FILES[task]
    samples, test, others = (rows_of(name) for name in (files.samples, files.test, files.train))
    random.Random(0).shuffle(test)
    random.Random(0).shuffle(others)
    seen = {document.key for document in test}
    distinct = {d.key: d for d in others if d.key not in seen and d.text.strip()}
    return samples, test[: test_size or None], list(distinct.values())
