"""The chunking set that `experiments/structures/chunks.py` derives: trees by hand, and what holds for any tree."""

import gzip
import importlib.util
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from encodeonce.corpus import read
from encodeonce.corpus.conllu import gold_heads
from encodeonce.errors import DataError
from encodeonce.spans import Span

PATH = Path(__file__).parents[2] / "experiments" / "structures" / "chunks.py"

TREES = {  # form/UPOS/HEAD/DEPREL
    "[NP the company] [NP 's big , red car] [VP was not sold]": (
        "the/DET/2/det company/NOUN/7/nmod:poss 's/PART/2/case big/ADJ/7/amod ,/PUNCT/7/punct red/ADJ/7/amod "
        "car/NOUN/10/nsubj:pass was/AUX/10/aux:pass not/PART/10/advmod sold/VERB/0/root"
    ),
    "[NP he] [VP will probably be] [NP a very good doctor] , [CONJP as well as] [NP a friend]": (
        "he/PRON/8/nsubj will/AUX/8/aux probably/ADV/8/advmod be/AUX/8/cop a/DET/8/det very/ADV/7/advmod "
        "good/ADJ/8/amod doctor/NOUN/0/root ,/PUNCT/14/punct as/ADV/14/cc well/ADV/10/fixed as/ADP/10/fixed "
        "a/DET/14/det friend/NOUN/8/conj"
    ),
    "[PP because of] [NP rain] [NP they] [VP decided to come] [PRT in]": (
        "because/ADP/3/case of/ADP/1/fixed rain/NOUN/5/obl they/PRON/5/nsubj decided/VERB/0/root to/PART/7/mark "
        "come/VERB/5/xcomp in/ADP/7/compound:prt"
    ),
    "[SBAR if] [NP you] [ADVP really] [VP like] [NP cats] and [NP dogs] , [VP see] [NP John Smith] [PP on] "
    "[NP July 4 , 2010] :)": (
        "if/SCONJ/4/mark you/PRON/4/nsubj really/ADV/4/advmod like/VERB/9/advcl cats/NOUN/4/obj and/CCONJ/7/cc "
        "dogs/NOUN/5/conj ,/PUNCT/4/punct see/VERB/0/root John/PROPN/9/obj Smith/PROPN/10/flat on/ADP/14/case "
        "July/PROPN/14/nmod:unmarked 4/NUM/9/obl ,/PUNCT/16/punct 2010/NUM/14/nmod:unmarked :)/SYM/9/discourse"
    ),
    "[INTJ oh] , [NP the poor] [VP want to be] [ADJP truly free]": (
        "oh/INTJ/5/discourse ,/PUNCT/1/punct the/DET/4/det poor/ADJ/5/nsubj want/VERB/0/root to/PART/9/mark "
        "be/AUX/9/cop truly/ADV/9/advmod free/ADJ/5/xcomp"
    ),
    "[VP is] [NP he] [ADVP not] [ADJP happy]": "is/AUX/4/cop he/PRON/4/nsubj not/PART/4/advmod happy/ADJ/0/root",
    "[NP the old town] [NP 's market hall]": (  # the possessor of what stands before the head
        "the/DET/3/det old/ADJ/3/amod town/PROPN/5/nmod:poss 's/PART/3/case market/PROPN/6/compound hall/NOUN/0/root"
    ),
}

RELATIONS = (
    *(
        "root",
        "det",
        "amod",
        "nummod",
        "compound",
        "nmod:poss",
        "nmod:unmarked",
        "advmod",
        "case",
        "mark",
        "aux",
        "cop",
    ),
    *("cc", "conj", "punct", "flat", "fixed", "goeswith", "xcomp", "nsubj", "obl", "discourse", "compound:prt"),
)
CLASSES = (
    *("NOUN", "PROPN", "PRON", "NUM", "DET", "SYM", "X", "ADJ", "ADV", "VERB", "AUX", "ADP", "SCONJ", "CCONJ", "PART"),
    *("PUNCT", "INTJ"),
)


@pytest.fixture(scope="module")
def chunks() -> Any:
    found = importlib.util.spec_from_file_location("chunks", PATH)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _bracketed(words: Sequence[str], spans: Sequence[Span]) -> str:
    shown = list(words)
    for span in spans:
        shown[span.start] = f"[{span.type} {shown[span.start]}"
        shown[span.stop - 1] += "]"
    return " ".join(shown)


@pytest.mark.parametrize("expected", TREES)
def test_trees_by_hand(chunks: Any, expected: str) -> None:
    words, upos, heads, deprels = zip(*(row.split("/") for row in TREES[expected].split(" ")), strict=True)
    assert _bracketed(words, chunks.base_chunks([int(head) for head in heads], deprels, upos)) == expected


def _check_chunks(heads: Sequence[int], spans: Sequence[Span]) -> None:
    """They do not overlap, and each lies below one of its words, or below the head of one (its auxiliaries')."""
    assert all(a.stop <= b.start for a, b in pairwise(spans))
    for span in spans:
        above = []
        for word in range(span.start + 1, span.stop + 1):
            path = [word]
            while heads[path[-1] - 1]:
                path.append(heads[path[-1] - 1])
            above.append(path)
        common = set.intersection(*map(set, above))
        allowed = set(range(span.start + 1, span.stop + 1))
        if span.type == "VP":
            allowed |= {heads[word - 1] for word in allowed}
        assert common & allowed


@some.composite
def trees(draw: some.DrawFn) -> tuple[list[int], list[str], list[str]]:
    """Any tree, crossing arcs too, with any labels."""
    n = draw(some.integers(1, 9))
    order = draw(some.permutations(range(1, n + 1)))
    heads = [0] * n
    for at in range(1, n):
        heads[order[at] - 1] = order[draw(some.integers(0, at - 1))]
    deprels, upos = (some.lists(some.sampled_from(one), min_size=n, max_size=n) for one in (RELATIONS, CLASSES))
    return heads, draw(deprels), draw(upos)


@settings(max_examples=200, deadline=None)
@given(tree=trees())
@example(tree=([3, 3, 0, 3, 3], ["root", "root", "root", "aux", "nummod"], ["NOUN", "NOUN", "NOUN", "PUNCT", "NOUN"]))
@example(tree=([0, 1, 1, 1, 3], ["root", "root", "root", "root", "nummod"], ["NOUN", "NOUN", "NOUN", "PUNCT", "NOUN"]))
def test_chunks_lie_apart_and_below_one_word_in_any_tree(chunks: Any, tree: Any) -> None:
    heads, deprels, upos = tree
    _check_chunks(heads, chunks.base_chunks(heads, deprels, upos))


def test_chunks_of_a_treebank(chunks: Any, shared: Path) -> None:
    for tree in read(shared / "data" / "ud" / "en_ewt" / "en_ewt-ud-dev.conllu.gz")[:300]:
        heads = gold_heads(tree)
        spans = chunks.base_chunks(heads, tree.columns["deprel"], tree.columns["upos"])
        _check_chunks(heads, spans)
        starts = {span.start: f"B-{span.type}" for span in spans}
        inside = {word: f"I-{span.type}" for span in spans for word in range(span.start + 1, span.stop)}
        tags = tuple((starts | inside).get(word, "O") for word in range(len(tree.words)))
        assert chunks.derive(tree).columns["tag"] == tags


def test_what_is_written(
    chunks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["1\tcats\tcat\tNOUN\tN\t_\t2\tnsubj\t_\t_", "2\tsleep\tsleep\tVERB\tV\t_\t0\troot\t_\t_", "", ""]
    for split in ("train", "dev", "test"):
        (tmp_path / f"en-{split}.conllu").write_text("\n".join(rows))
    monkeypatch.setattr(sys, "argv", ["chunks.py", str(tmp_path), "-o", str(tmp_path / "out")])
    chunks.main()
    for split in ("train", "dev", "test"):
        with gzip.open(tmp_path / "out" / f"{split}.conll.gz", "rt") as file:
            assert file.read() == "cats\tNOUN\tB-NP\nsleep\tVERB\tB-VP\n\n"
    assert "dev: 1 sentences, 2 chunks" in capsys.readouterr().out


def test_what_is_no_tree_is_named(chunks: Any, tmp_path: Path) -> None:
    rows = [f"{i}\tw\tw\tNOUN\tN\t_\t{head}\tamod\t_\t_" for i, head in ((1, 2), (2, 1), (3, 0))]
    with gzip.open(tmp_path / "loop.conllu.gz", "wt") as file:
        file.write("\n".join([*rows, "", ""]))
    with pytest.raises(DataError, match=r"loop.conllu.gz:1: .* is no tree of one root"):
        chunks.derive(read(tmp_path / "loop.conllu.gz")[0])
