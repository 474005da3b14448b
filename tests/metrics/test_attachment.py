"""Attachment scores by hand, and against the official evaluator on files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodeonce.corpus import read, write
from encodeonce.errors import ConfigError
from encodeonce.metrics.attachment import Tree, attachment, is_punctuation, universal
from encodeonce.types import Document

GOLD = Tree((2, 0, 2, 2), ("nsubj:pass", "root", "obl", "punct"), ("Dogs", "bark", "%", "!"), ("X", "X", "PUNCT", "X"))


def test_scores_by_hand() -> None:
    predicted = Tree((2, 0, 4, 2), ("nsubj", "root", "obl", "obj"))
    scores = attachment([GOLD], [predicted])
    assert [scores[name] for name in ("uas", "las", "las_universal", "n")] == [75.0, 25.0, 50.0, 4.0]


def test_A13_each_rule_leaves_out_its_own_words() -> None:
    """ "%" and "!" have only P characters, "%" has UPOS PUNCT, "!" is related as punct."""
    predicted = Tree((2, 0, 1, 2), ("nsubj:pass", "root", "obl", "punct"))
    scores = attachment([GOLD], [predicted])
    assert [scores[f"n_no_punct_{rule}"] for rule in ("form", "upos", "deprel")] == [2.0, 3.0, 3.0]
    assert [scores[f"uas_no_punct_{rule}"] for rule in ("form", "upos")] == [100.0, 100.0]
    assert scores["las_no_punct_deprel"] == pytest.approx(200 / 3)


def test_punctuation_is_of_category_P_through_and_through() -> None:
    assert all(map(is_punctuation, (".", "--", "«", "。", "%", "@", "#")))
    assert not any(map(is_punctuation, ("", "$", "+", "...a", "=", "^", "´", "``")))
    assert (universal("acl:relcl"), universal("acl")) == ("acl", "acl")


def test_what_is_not_known_is_undefined() -> None:
    bare = Tree((0,), ("root",))
    scores = attachment([bare], [bare])
    assert scores["las"] == 100.0
    assert scores["las_no_punct_form"] is None
    assert scores["n_no_punct_upos"] is None
    assert scores["las_no_punct_deprel"] == 100.0
    assert attachment([Tree()], [Tree()])["uas"] is None
    dot = Tree((0,), ("punct",), (".",), ("PUNCT",))
    assert attachment([dot], [dot])["las_no_punct_deprel"] is None


def test_shapes_are_checked() -> None:
    with pytest.raises(ConfigError, match="1 gold trees but 0 predicted ones"):
        attachment([GOLD], [])
    with pytest.raises(ConfigError, match="item 0: 4 gold heads, 4 labels; 1 predicted heads, 1 labels"):
        attachment([GOLD], [Tree((0,), ("root",))])


def tree(document: Document) -> Tree:
    columns = document.columns
    return Tree(tuple(map(int, columns["head"])), columns["deprel"], document.words, columns["upos"])


def test_A13_words_of_each_rule_in_EWT(shared: Path) -> None:
    """The three rules differ on a whole treebank too, in the order of the spec's counts (of another EWT release)."""
    trees = [tree(document) for document in read(shared / "data" / "ud" / "en_ewt" / "en_ewt-ud-test.conllu.gz")]
    scores = attachment(trees, trees)
    left = [scores["n"] - scores[f"n_no_punct_{rule}"] for rule in ("form", "upos", "deprel")]
    assert left[0] > left[1] > left[2] > 3000


@pytest.mark.parametrize(
    "name", ["en_ewt/en_ewt-ud-dev", "fr_sequoia/fr_sequoia-ud-dev", "he_iahltwiki/he_iahltwiki-ud-dev"]
)
def test_scores_equal_the_official_evaluators_on_files(name: str, shared: Path, tmp_path: Path) -> None:
    """Half of the sentences get other trees and labels; the files keep their multiword tokens and empty nodes."""
    official = pytest.importorskip("udtools.udeval", reason="needs the oracle: pip install udtools")
    source, random = shared / "data" / "ud" / f"{name}.conllu.gz", np.random.default_rng(0)
    gold = [tree(document) for document in read(source)]
    found = [shuffled(one, random) if random.random() < 0.5 else one for one in gold]
    files = tmp_path / "gold.conllu", tmp_path / "found.conllu"
    write(files[0], source, {})
    write(files[1], source, {"head": [one.heads for one in found], "deprel": [one.labels for one in found]})
    theirs = official.evaluate(*(_loaded(official, file) for file in files))
    ours = attachment(*([tree(document) for document in read(file)] for file in files))
    assert ours["uas"] == pytest.approx(100 * theirs["UAS"].f1, abs=1e-9)
    assert ours["las_universal"] == pytest.approx(100 * theirs["LAS"].f1, abs=1e-9)
    assert 30 < ours["las"] < ours["uas"] < 80


def _loaded(official: Any, file: Path) -> Any:
    with open(file, encoding="utf-8") as stream:  # its own reader leaves the file open
        return official.load_conllu(stream, str(file), {})


def shuffled(gold: Tree, random: np.random.Generator) -> Tree:
    """A random tree; half of the labels are another one, or the same without its subtype."""
    order, heads = random.permutation(len(gold.heads)) + 1, [0] * len(gold.heads)
    for place in range(1, len(order)):
        heads[order[place] - 1] = int(order[random.integers(place)])
    other = [str(random.choice([label, universal(label), "nsubj:pass"])) for label in gold.labels]
    return Tree(tuple(heads), tuple(other))
