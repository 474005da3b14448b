"""A part held out by content (A-18): against counting, and under every change that must not matter."""

import random
from collections import Counter

import numpy as np
import pytest

from encodeonce.corpus.holding_out import held_out
from encodeonce.errors import ConfigError, DataError
from encodeonce.types import Document


def corpus(n: int, seed: int = 0, labels: str = "aaabbc") -> list[Document]:
    draw = random.Random(seed)
    return [Document(f"d{i}", text=f"text {i}", meta={"label": draw.choice(labels)}) for i in range(n)]


@pytest.mark.parametrize(("n", "part"), [(1000, 0.1), (997, 0.1), (40, 0.25), (13, 0.5)])
def test_A18_sizes_and_strata(n: int, part: float) -> None:
    documents = corpus(n)
    kept, held = held_out(documents, part)
    assert len(held) == round(n * part)
    assert sorted([*kept, *held], key=lambda d: int(d.id[1:])) == documents
    assert [d.id for d in kept] == [d.id for d in documents if d in kept]  # in their order
    whole, out = (Counter(d.meta["label"] for d in side) for side in (documents, held))
    assert all(abs(out[label] - whole[label] * part) < 1 for label in whole)


def test_A18_the_choice_depends_on_contents_alone() -> None:
    documents = corpus(200)
    chosen = {d.key for d in held_out(documents)[1]}
    shuffled = random.Random(3).sample(documents, len(documents))
    assert {d.key for d in held_out(shuffled)[1]} == chosen
    renamed = [Document(f"x{i}", text=d.text, meta=d.meta) for i, d in enumerate(documents)]
    assert {d.key for d in held_out(renamed)[1]} == chosen
    assert {d.key for d in held_out(documents, seed=1)[1]} != chosen


def test_the_same_content_is_never_on_both_sides() -> None:
    documents = corpus(60)
    twice = [*documents, *corpus(60, seed=5)]  # the same texts, other labels
    kept, held = held_out(twice, 0.2)
    assert not {d.key for d in kept} & {d.key for d in held}
    assert len(kept) + len(held) == 120
    assert abs(len(held) - 24) <= 3
    pairs = [Document("p", text="a", pair="b", meta={"label": "x"}), Document("s", text="a", meta={"label": "x"})]
    assert all(len(side) == 1 for side in held_out(pairs, 0.5))  # other contents


def test_numbers_with_fractions_are_strata_of_whole_numbers() -> None:
    draw = np.random.default_rng(0)
    documents = [
        Document(f"d{i}", text=f"t{i}", meta={"label": round(x, 2)}) for i, x in enumerate(draw.uniform(0, 5, 500))
    ]
    whole, out = (Counter(round(d.meta["label"]) for d in side) for side in (documents, held_out(documents)[1]))
    assert all(abs(out[score] - whole[score] / 10) < 1 for score in whole)
    written = [Document(d.id, text=d.text, meta={"label": str(d.meta["label"])}) for d in documents]
    assert [d.id for d in held_out(written)[1]] == [d.id for d in held_out(documents)[1]]


def test_without_strata() -> None:
    documents = [Document(f"d{i}", ("word", str(i))) for i in range(50)]
    for by in (None, "label"):
        assert len(held_out(documents, by=by)[1]) == 5
    assert held_out(documents, by=None)[1] == held_out(documents)[1]


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"part=1.0 must lie between 0 and 1"):
        held_out(corpus(5), 1.0)
    with pytest.raises(DataError, match=r"3 documents \(3 different\) cannot be split at 0.1"):
        held_out(corpus(3))
    with pytest.raises(DataError, match="0 documents"):
        held_out([])
