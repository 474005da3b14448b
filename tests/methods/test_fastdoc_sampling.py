"""Triplets and quadruplets: rules, disjointness, determinism (identity 16, PRETRAIN-2)."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from encodeonce.errors import ConfigError, DataError
from encodeonce.methods.fastdoc.sampling import _Both, _Sampler, quadruplets, shuffled, triplets
from encodeonce.methods.fastdoc.similarity import Cited, SharedGroup
from encodeonce.methods.fastdoc.unsupervised import rouge_triplets
from encodeonce.metrics.rouge import rouge_l


def concepts(n: int = 120, seed: int = 0) -> list[list[str]]:
    generator = np.random.default_rng(seed)
    return [[f"c{c}" for c in generator.choice(25, generator.integers(0, 4), replace=False)] for _ in range(n)]


def test_fd16_category_rule_disjoint_seeded_and_doubled() -> None:
    generator = np.random.default_rng(0)
    categories = [f"k{k}" for k in generator.integers(0, 6, 80)]
    keys = [f"t{i // 2}" for i in range(80)]  # every text stands twice
    rule = SharedGroup.of(keys, [[c] for c in categories])
    sample = triplets(rule, 60, seed=3)
    for a, p, n in sample.tuples.tolist():
        assert categories[a] == categories[p] != categories[n]
        assert len({keys[a], keys[p], keys[n]}) == 3
    pairs = {frozenset(pair) for pair in sample.tuples[:, :2].tolist()}
    assert len(pairs) == len(sample.tuples) == 60
    assert (triplets(rule, 60, seed=3).tuples == sample.tuples).all()
    assert (triplets(rule, 60, seed=4).tuples != sample.tuples).any()
    doubled = sample.doubled().tuples
    assert len(doubled) == 120
    assert (doubled[60:, [1, 0, 2]] == doubled[:60]).all(), "swapping twice gives the triplet back"


def test_fd16_concept_rule_negatives_share_nothing_with_either_side() -> None:
    groups = concepts()
    rule = SharedGroup.of([str(i) for i in range(len(groups))], groups)
    sample = triplets(rule, 150, seed=1)
    for a, p, n in sample.tuples.tolist():
        assert set(groups[a]) & set(groups[p])
        assert not set(groups[n]) & (set(groups[a]) | set(groups[p]))
        assert groups[n], "nothing says that a document without concepts is dissimilar"
    report = sample.report
    assert report.without_metadata == sum(not own for own in groups)
    due = [i for i, own in enumerate(groups) if any(set(own) & set(o) for j, o in enumerate(groups) if j != i)]
    assert rule.anchors().tolist() == due
    assert report.without_partner == len(groups) - len(due) - report.without_metadata
    for i in due[:20]:
        others = [j for j, own in enumerate(groups) if j != i and set(own) & set(groups[i])]
        assert rule.partners(i).tolist() == others


def test_one_category_of_many_documents_is_refused_at_once() -> None:
    """Also a concept that every document has, beside others; without such a group the pairs are looked at."""
    n = 100_000
    every, began = np.arange(n), time.perf_counter()
    with pytest.raises(DataError, match="no negatives: all 100000 documents"):
        triplets(SharedGroup(every, every, np.zeros(n, np.int64)), 5)
    roots = SharedGroup(every, np.repeat(every, 2), np.stack([np.zeros(n, np.int64), every // 2 + 1], 1).ravel())
    with pytest.raises(DataError, match="a field with no name that they all have"):
        triplets(roots, 5)
    assert time.perf_counter() - began < 10
    with pytest.raises(DataError, match="no negatives: every one of 3 pairs"):
        triplets(SharedGroup.of(list("abc"), [["x", "y"], ["y", "z"], ["x", "z"]]), 5)


@pytest.mark.parametrize("extra", [0, 4])
def test_documents_that_all_are_similar_to_are_not_looked_at_pair_by_pair(
    monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    """Three concepts, two a document, so any two documents share one; beside them four of another concept, with which
    all pairs have a negative. The pool is looked through a few times a document, not a pair."""
    n, looked, apart = 90, [], _Sampler._apart
    groups = [[["x", "y"], ["y", "z"], ["x", "z"]][i % 3] for i in range(n)] + [["w"]] * extra

    def counting(self: _Sampler, anchor: int, positive: int, others: np.ndarray) -> np.ndarray:
        looked.append(len(others))
        return apart(self, anchor, positive, others)

    monkeypatch.setattr(_Sampler, "_apart", counting)
    rule = SharedGroup.of([str(i) for i in range(n + extra)], groups)
    if extra:
        sample = triplets(rule, 10_000)
        due = {(a, p) for p in range(n + extra) for a in range(p) if set(groups[a]) & set(groups[p])}
        assert {(min(a, p), max(a, p)) for a, p, _ in sample.tuples.tolist()} == due
        assert sample.report.without_negative == 0
        return
    with pytest.raises(DataError, match=f"no negatives: every one of {n * (n - 1) // 2} pairs"):
        triplets(rule, 50)
    assert sum(one == n for one in looked) < 12 * n


def test_pairs_without_a_negative_are_counted_once_and_all_others_found() -> None:
    """Against looking at each pair, with texts that stand twice, concepts that nearly all have, and none at all."""
    generator, lost = np.random.default_rng(3), 0
    for _ in range(40):
        n = int(generator.integers(5, 16))
        groups = [{f"c{c}" for c in generator.choice(4, generator.integers(0, 4), replace=False)} for _ in range(n)]
        keys = [f"t{k}" for k in generator.integers(0, 12, n)]
        pairs = [(a, p) for p in range(n) for a in range(p) if keys[a] != keys[p] and groups[a] & groups[p]]
        free = {
            (a, p): [
                d for d in range(n) if groups[d] and keys[d] not in (keys[a], keys[p])
                and not groups[d] & (groups[a] | groups[p])
            ]
            for a, p in pairs
        }  # fmt: skip
        if not any(free.values()):
            continue
        sample = triplets(SharedGroup.of(keys, [sorted(own) for own in groups]), 1000, seed=1)
        found = {(min(a, p), max(a, p)) for a, p, _ in sample.tuples.tolist()}
        assert found == {pair for pair, others in free.items() if others}
        assert sample.report.without_negative == len(pairs) - len(found)
        lost += len(pairs) - len(found)
    assert lost > 50


def test_a_name_that_stands_twice_is_one_group() -> None:
    rule = SharedGroup.of(list("abcd"), [["x", "x"], ["x"], ["y"], ["y", "y", "y"]])
    assert rule.groups_of(0).tolist() == [0]
    assert sorted(triplets(rule, 9).tuples[:, :2].ravel().tolist()) == [0, 1, 2, 3]


def test_partners_are_drawn_evenly_whatever_they_share() -> None:
    """Document 1 shares two concepts with document 0, document 2 one: both are as likely."""
    rule = SharedGroup.of(list("abcd"), [["x", "y"], ["x", "y"], ["x"], ["z"]])
    generator = np.random.default_rng(0)
    drawn = [rule.draw(0, generator) for _ in range(8000)]
    ones, twos = drawn.count(1), drawn.count(2)
    assert abs(ones - twos) < 4 * np.sqrt(ones + twos)


def test_pretrain_2_a_category_of_one_document(cases: Path) -> None:
    lines = (cases / "PRETRAIN-2.jsonl").read_text(encoding="utf-8").strip("\n").split("\n")
    rows = [json.loads(line) for line in lines]
    due = json.loads((cases / "PRETRAIN-2.expected.json").read_text(encoding="utf-8"))
    rule = SharedGroup.of([row["text"] for row in rows], [[row["cat"]] for row in rows])
    began = time.perf_counter()
    sample = triplets(rule, 2000, seed=0)
    assert time.perf_counter() - began < due["finishes_within_seconds"]
    assert sorted({rows[i]["id"] for i in rule.anchors()}) == due["anchors"]
    assert list(sample.report.groups_without_partner) == due["categories_without_positive"]
    pairs = {frozenset((rows[a]["id"], rows[p]["id"])) for a, p, _ in sample.tuples.tolist()}
    assert pairs == {frozenset(("a1", "a2")), frozenset(("a2", "a3"))}, "a1 and a3 have one text"
    assert sample.report.drawn == 2 < sample.report.asked
    assert {rows[n]["cat"] for n in sample.tuples[:, 2]} <= {"B", "C"}
    assert (triplets(rule, 2000, seed=0).tuples == sample.tuples).all()
    only = rows[:3]
    with pytest.raises(DataError, match="no negatives"):
        triplets(SharedGroup.of([row["text"] for row in only], [["A"]] * 3), 5)
    with pytest.raises(DataError, match="no document of 2 has a partner"):
        triplets(SharedGroup.of(["a", "b"], [["A"], ["B"]]), 5)
    with pytest.raises(DataError, match="none of 2 documents has metadata: the field is empty everywhere"):
        triplets(SharedGroup.of(["a", "b"], [[], []]), 5)


def test_citations_and_their_hard_negatives() -> None:
    """0 cites 1, 1 cites 2: of 0, 2 is hard. Documents outside the set are no partners."""
    ids = list("abcdef")
    rule = Cited.of(ids, ids, [["b", "zz"], ["c"], [], ["a"], [], []])
    assert rule.anchors().tolist() == [0, 1, 3]
    assert rule.hard(0).tolist() == [2]
    found = triplets(rule, 3, seed=0, hard_ratio=1.0).tuples.tolist()
    assert sorted(row[:2] for row in found) == [[0, 1], [1, 2], [3, 0]]
    assert next(n for a, _, n in found if a == 3) == 1, "cited by a, which d cites"
    with pytest.raises(DataError, match=r"they cite 'x1' and the like, .* ids are 'a' and the like\. Name the field"):
        triplets(Cited.of(ids, ids, [["x1"], [], ["x2"], [], [], []]), 3)
    with pytest.raises(DataError, match=r"none cites another one\. Name the field of the cited ids"):
        triplets(Cited.of(ids, ids, [["a"], [], [], [], [], []]), 3)
    twice = [*ids[:5], "b"]
    with pytest.raises(DataError, match=r"^'a' cites 'b', which is the id of 2 documents, of different texts"):
        Cited.of(ids, twice, [["b"], [], [], [], [], []])
    assert Cited.of(ids, twice, [["c"], [], [], [], [], []]).anchors().tolist() == [0], "nobody cites b"
    assert Cited.of([*ids[:5], "b"], twice, [["b"], [], [], [], [], []]).anchors().tolist() == [0], "one text, twice"
    with pytest.raises(ConfigError, match="without hard negatives"):
        triplets(rule, 3, hard_ratio=1.0).doubled()
    with pytest.raises(ConfigError, match="hard_ratio"):
        triplets(SharedGroup.of(["a"], [["x"]]), 1, hard_ratio=0.3)


def test_a_copy_of_a_cited_text_is_no_negative() -> None:
    """0 cites 1, and 2 has the text of 1. Nor is it a hard one, nor is a copy of the anchor."""
    keys = ["a", "b", "b", "d", "e", "d"]
    rule = Cited.of(keys, list("012345"), [["1"], [], [], ["0"], [], []])
    assert rule.similar(0, np.arange(6)).tolist() == [False, True, True, False, False, False]
    drawn = {n for seed in range(30) for a, _, n in triplets(rule, 2, seed).tuples.tolist() if a == 0}
    assert drawn == {3, 4, 5}
    assert rule.hard(3).tolist() == [1]
    both = Cited.of(keys, list("012345"), [["1", "3"], [], [], ["2", "5", "0"], [], []])
    assert both.hard(0).tolist() == [], "3 cites a copy of what 0 cites, itself again, and 0"
    assert both.hard(3).tolist() == [], "0 cites copies of what 3 cites, and 3"


def test_quadruplets_by_brand_and_category() -> None:
    generator = np.random.default_rng(1)
    category, brand = generator.integers(0, 4, 90), generator.integers(0, 3, 90)
    keys = [str(i) for i in range(90)]
    rules = (SharedGroup.of(keys, [[f"c{c}"] for c in category]), SharedGroup.of(keys, [[f"b{b}"] for b in brand]))
    tuples = quadruplets(*rules, n=40, seed=2).tuples
    assert tuples.shape == (40, 4)
    for a, near, far, n in tuples.tolist():
        assert category[a] == category[near] == category[far] != category[n]
        assert brand[a] == brand[near]
        assert brand[a] != brand[far]
        assert brand[n] not in (brand[a], brand[near])


def test_quadruplets_need_two_brands_in_a_category() -> None:
    keys = list("abcd")
    category, brand = SharedGroup.of(keys, [["x"], ["x"], ["y"], ["y"]]), SharedGroup.of(keys, [[k] for k in keys])
    with pytest.raises(DataError, match="an anchor needs a document of its category and brand, and one of its cat"):
        quadruplets(category, brand, 3)


def test_quadruplets_start_from_every_document_that_has_both_positives() -> None:
    """Against looking at each pair, with texts and whole documents that stand twice, no brand, several brands."""
    generator = np.random.default_rng(5)
    for _ in range(30):
        n = int(generator.integers(4, 14))
        category = [[f"c{generator.integers(2)}"] for _ in range(n)]
        brand = [[f"b{b}" for b in generator.choice(3, generator.integers(0, 3), replace=False)] for _ in range(n)]
        keys = [f"t{k}" for k in generator.integers(0, 5, n)]
        rule = _Both(SharedGroup.of(keys, category), SharedGroup.of(keys, brand))
        due = []
        for d in range(n):
            others = [o for o in range(n) if keys[o] != keys[d] and category[o] == category[d] and brand[o]]
            shared = [bool(set(brand[o]) & set(brand[d])) for o in others]
            due += [d] if brand[d] and any(shared) and not all(shared) else []
        assert rule.anchors().tolist() == due


def test_the_shuffled_control_keeps_the_metadata_and_breaks_its_order() -> None:
    values = [f"v{i}" for i in range(50)]
    assert sorted(shuffled(values)) == sorted(values)
    assert shuffled(values) == shuffled(values) != values


def test_similar_texts_without_metadata() -> None:
    texts = [f"the {w} boat sails over the {w} sea today" for w in ("red", "blue", "green")]
    texts += [f"{w} stocks fell while banks raised their rates" for w in ("some", "many", "most")] + ["", texts[0]]
    sample = rouge_triplets(texts, 12, seed=0)
    for a, p, n in sample.tuples.tolist():
        assert (a < 3) == (p < 3) != (n < 3)
    assert sample.report.without_metadata == 2, "an empty text, and one that stands twice"
    with pytest.raises(DataError, match="need at least 4"):
        rouge_triplets(["a", "b", "c"], 1)


def test_similar_texts_stay_true_when_anchor_and_positive_change_places() -> None:
    """Texts of few words, many of which tie: the negative is below the pair's score from either side."""
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(list("abcdefgh"), 6)) for _ in range(60)]
    sample = rouge_triplets(texts, 100, seed=1, pool=12)
    assert len(sample.tuples) > 50
    for a, p, n in sample.doubled().tuples.tolist():
        assert rouge_l(texts[a], texts[n]) < rouge_l(texts[a], texts[p])


def test_the_two_positives_of_a_quadruplet_are_different_texts() -> None:
    keys, category, brand = ["k0", "dup", "dup", "k3", "k4"], "cccdc", "xxyzy"
    rules = [SharedGroup.of(keys, [[own] for own in values]) for values in (category, brand)]
    for seed in range(20):
        for _, near, far, _ in quadruplets(*rules, n=1, seed=seed).tuples.tolist():
            assert keys[near] != keys[far]
