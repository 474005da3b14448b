"""The parser against its formula, its decoders, and the init losses of CA18.   Axes: R rows  D width  W words"""

import json
import math
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from encodeonce.errors import ConfigError
from encodeonce.heads import IGNORE
from encodeonce.heads.biaffine import TREES, BiaffineParser, TreeScores
from encodeonce.nn.biaffine import Biaffine
from encodeonce.nn.rows import Rows
from encodeonce.nn.trees import is_projective, is_tree

WIDTH, LABELS = 8, ("det", "nsubj", "obj", "root")
SMALL: dict[str, Any] = {"n_lstm_layers": 1, "lstm_width": 6, "arc_width": 5, "rel_width": 4}


def parser(**options: Any) -> BiaffineParser:
    """With biaffine weights that are not zero."""
    made = BiaffineParser(WIDTH, LABELS, **{**SMALL, **options}).double().eval()
    for weight in (*made.arc.parameters(), *made.relation.parameters()):
        nn.init.normal_(weight)
    return made


def rows(*n_words: int) -> Rows:
    """Items of so many words, the root before them."""
    word = [w for n in n_words for w in range(-1, n)]
    return Rows(tuple(n + 1 for n in n_words), np.array(word, dtype=np.int64))


def vectors(of: Rows) -> Tensor:
    return torch.randn(len(of.word), WIDTH, dtype=torch.float64)


def gold(of: Rows, label: int = 0) -> Tensor:
    """Every word under the one before it, all with one label."""
    return torch.tensor([[w, label] for w in of.word.tolist() if w >= 0])


@pytest.mark.parametrize(("mask_self", "arcs"), [(True, 1.41788), (False, 1.63971)])
def test_CA18_init_losses(mask_self: bool, arcs: float) -> None:
    """Lengths 5 and 3: the mean of ln n without a word as its own head, of ln(n + 1) with it; ln C for labels."""
    head, of = BiaffineParser(WIDTH, LABELS, mask_self=mask_self, **SMALL).double(), rows(5, 3)
    with_labels = head.loss(head(vectors(of), of), gold(of), (5, 3)).item() / 8
    without = head.loss(head(vectors(of), of), gold(of, IGNORE), (5, 3)).item() / 8
    by_hand = sum(n * log(n + (not mask_self)) for n in (5, 3)) / 8
    assert without == pytest.approx(by_hand, abs=1e-7)
    assert without == pytest.approx(arcs, abs=1e-5)
    assert with_labels - without == pytest.approx(log(4), abs=1e-7)


@pytest.mark.parametrize("bias_y", [False, True])
def test_A8_biaffine_is_its_formula(bias_y: bool) -> None:
    layer, single = Biaffine(3, 2, bias_y).double(), Biaffine(3, 1, bias_y).double()
    assert not any(weight.any() for weight in layer.parameters())
    for weight in (*layer.parameters(), *single.parameters()):
        nn.init.normal_(weight)
    x, y = torch.randn(2, 4, 3, dtype=torch.float64)
    one = torch.ones(4, 1, dtype=torch.float64)
    inner = torch.cat([layer.inner.weight, layer.inner.bias[:, None]], 1).view(2, 3 + bias_y, 4)
    right = torch.cat([y, one], 1) if bias_y else y
    expected = torch.einsum("ri,coi,ro->rc", torch.cat([x, one], 1), inner, right)
    torch.testing.assert_close(layer.at(x, y), expected)
    table = single.between(single.inner(x)[None], y[None])[0]
    pairs = [[single.at(x[i : i + 1], y[j : j + 1]).item() for j in range(4)] for i in range(4)]
    torch.testing.assert_close(table, torch.tensor(pairs, dtype=torch.float64))


def test_A8_scores_are_the_formula_word_by_word() -> None:
    head, of = parser(), rows(3, 1, 4)
    x = vectors(of)
    scores = head(x, of)
    assert scores.arcs.shape == (8, 5)
    w = 0
    for item in x.split(of.lengths):
        states = head.lstm(item, (len(item),))
        dependent, governor, _, _ = leaky_relu(head.layers(states), 0.1).split(head.widths, 1)
        for i in range(1, len(item)):
            inner = head.arc.inner.weight @ dependent[i] + head.arc.inner.bias
            for j in range(5):
                if j >= len(item) or j == i:
                    assert scores.arcs[w, j] == -torch.inf
                else:
                    torch.testing.assert_close(scores.arcs[w, j], inner @ governor[j])
            w += 1


def test_loss_is_the_sum_of_both_parts_by_hand() -> None:
    head, of = parser(), rows(2, 3)
    scores = head(vectors(of), of)
    targets = torch.tensor([[2, 1], [0, 3], [0, 3], [1, IGNORE], [2, 0]])
    starts, row = (0, 0, 3, 3, 3), (1, 2, 4, 5, 6)
    total = 0.0
    for w, (governor, label) in enumerate(targets.tolist()):
        total -= scores.arcs[w].log_softmax(0)[governor].item()
        if label != IGNORE:
            at = head.relation.at(scores.dependent[row[w]][None], scores.governor[starts[w] + governor][None])
            total -= at[0].log_softmax(0)[label].item()
    assert head.loss(scores, targets, (2, 3)).item() == pytest.approx(total)


def test_TREES1_the_same_answer_beside_any_other_item(cases: Path) -> None:
    case = json.loads((cases / "TREES-1.json").read_text())
    matrices = [torch.tensor(case[name]["scores"], dtype=torch.float64)[1:] for name in ("cycle", "roots")]
    padded = torch.full((6, 9), -torch.inf, dtype=torch.float64)
    padded[:3, :4], padded[3:, :4] = matrices
    for word in range(6):
        padded[word, word % 3 + 1] = -torch.inf
    head, feature = parser(), torch.randn(8, 4, dtype=torch.float64)
    for tree in TREES:
        head.tree = tree
        found = head.decode(TreeScores(padded, feature, feature, (4, 4)), rows(3, 3))
        assert [list(one.heads) for one in found] == [case[name]["single_root_heads"] for name in ("cycle", "roots")]


@pytest.mark.parametrize("tree", TREES)
def test_every_answer_is_a_tree_of_its_kind(tree: str) -> None:
    head, of = parser(tree=tree), rows(*range(1, 25), 1)
    for scale in (0.1, 1.0, 30.0):
        scores = head(vectors(of) * scale, of)
        trees = head.decode(scores, of)
        assert [len(one.heads) for one in trees] == [length - 1 for length in of.lengths]
        w = 0
        for one in trees:
            n = len(one.heads)
            best = scores.arcs[w : w + n].argmax(1).tolist()
            w += n
            assert is_tree(one.heads)
            assert len(one.labels) == n
            assert set(one.labels) <= set(LABELS)
            if is_tree(best) and tree != "eisner":
                assert list(one.heads) == best
            if tree == "eisner" or (tree == "greedy-then-tree" and not is_tree(best)):
                assert is_projective(one.heads)


@given(data=st.data(), tree=st.sampled_from(TREES))
def test_no_scores_whatever_make_anything_but_trees(data: st.DataObject, tree: str) -> None:
    """Ties, circles, several roots, impossible arcs and the largest numbers, for several items at once."""
    counts = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    values = st.one_of(
        st.sampled_from([0.0, 1.0, -1.0, -math.inf, 3e38, -3e38]), st.floats(allow_nan=False, allow_infinity=False)
    )
    arcs = torch.full((sum(counts), max(counts) + 1), -torch.inf, dtype=torch.float64)
    w = 0
    for n in counts:
        for _ in range(n):
            arcs[w, : n + 1] = torch.tensor(
                data.draw(st.lists(values, min_size=n + 1, max_size=n + 1)), dtype=torch.float64
            )
            w += 1
    of, feature = rows(*counts), torch.randn(sum(counts) + len(counts), 4, dtype=torch.float64)
    head = parser(tree=tree)
    trees = head.decode(TreeScores(arcs, feature, feature, of.lengths), of)
    assert [len(one.heads) for one in trees] == counts
    for one in trees:
        assert is_tree(one.heads)
        assert one.heads.count(0) == 1
        assert tree == "mst" or is_projective(one.heads) or tree == "greedy-then-tree"


def test_labels_are_the_best_under_the_trees_head() -> None:
    head, of = parser(), rows(4, 1)
    scores = head(vectors(of), of)
    for start, item in zip((0, 5), head.decode(scores, of), strict=True):
        for i, (governor, label) in enumerate(zip(item.heads, item.labels, strict=True)):
            at = head.relation.at(scores.dependent[start + 1 + i][None], scores.governor[start + governor][None])
            assert LABELS[int(at.argmax())] == label


def test_padding_and_neighbours_change_nothing() -> None:
    head, of = parser(), rows(*range(1, 40))
    x = vectors(of)
    together = head(x, of)
    w = 0
    for item, length in zip(x.split(of.lengths), of.lengths, strict=True):
        alone = head(item, rows(length - 1))
        torch.testing.assert_close(together.arcs[w : w + length - 1, :length], alone.arcs)
        assert (together.arcs[w : w + length - 1, length:] == -torch.inf).all()
        w += length - 1


def test_scores_that_are_no_numbers_are_refused() -> None:
    head, of = parser(), rows(2)
    x = vectors(of)
    x[1] = torch.nan
    with pytest.raises(ConfigError, match="the score of head 0 for word 1 is nan"):
        head.decode(head(x, of), of)


def test_no_items() -> None:
    head = parser()
    assert head.decode(head(torch.zeros(0, WIDTH, dtype=torch.float64), rows()), rows()) == []


@pytest.mark.parametrize("compute", ["fp32", "bf16"])
@pytest.mark.parametrize("n_lstm_layers", [0, 2])
def test_every_parameter_gets_a_gradient(compute: str, n_lstm_layers: int) -> None:
    options = {**SMALL, "n_lstm_layers": n_lstm_layers}
    head, of = BiaffineParser(WIDTH, LABELS, compute=compute, **options), rows(5, 9, 1)
    for weight in (*head.arc.parameters(), *head.relation.parameters()):
        nn.init.normal_(weight)
    head.loss(head(vectors(of).float(), of), gold(of), (5, 9, 1)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in head.parameters())


def test_it_learns_trees_by_heart() -> None:
    options = {**SMALL, "arc_width": 20, "token_dropout": 0.0, "dropout": 0.0, "lstm_dropout": 0.0}
    head, of = BiaffineParser(WIDTH, LABELS, **options), rows(4, 2, 5, 3)
    x = vectors(of).float()
    items = [[(2, 0), (0, 3), (2, 2), (3, 0)], [(0, 3), (1, 1)], [(3, 1), (1, 0), (0, 3), (5, 0), (3, 2)]]
    items.append([(2, 1), (0, 3), (2, 0)])
    targets = torch.tensor([pair for item in items for pair in item])
    optimiser = torch.optim.Adam(head.parameters(), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        head.loss(head(x, of), targets, (4, 2, 5, 3)).backward()
        optimiser.step()
    found = head.eval().decode(head(x, of), of)
    # (1, 0) in the third item hangs word 2 under word 1, which hangs under 3: every gold item is a tree
    assert all(is_tree([h for h, _ in item]) for item in items)
    assert [list(one.heads) for one in found] == [[h for h, _ in item] for item in items]
    assert [list(one.labels) for one in found] == [[LABELS[label] for _, label in item] for item in items]


def test_bad_settings_are_named() -> None:
    known = r"tree='mts' is not known\. There is: mst, eisner, greedy-then-tree\. Did you mean 'mst'"
    with pytest.raises(ConfigError, match=known):
        BiaffineParser(WIDTH, LABELS, tree="mts")
    with pytest.raises(ConfigError, match="at least one relation and each once; there is none"):
        BiaffineParser(WIDTH, ())
    with pytest.raises(ConfigError, match=r"each once; repeated: \['det'\]"):
        BiaffineParser(WIDTH, ("det", "det"))
    with pytest.raises(ConfigError, match="arc_width=0 and rel_width=100 must be at least 1"):
        BiaffineParser(WIDTH, LABELS, arc_width=0)
    with pytest.raises(ConfigError, match=r"dropout=1.0 must lie in \[0, 1\)"):
        BiaffineParser(WIDTH, LABELS, token_dropout=1.0)
