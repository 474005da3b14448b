"""Features, side rows, probes and mixtures against values by hand.   Axes: N items  L views  D width  F features"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from encodeonce.errors import ConfigError, NonFinite, TooFewVectors
from encodeonce.methods.fewshot import (
    PROBES,
    SIDES,
    Mixture,
    Probe,
    Side,
    TrainedProbe,
    Vectors,
    features,
    side,
    stacked,
)
from encodeonce.methods.fewshot.folds import folds_of
from encodeonce.methods.fewshot.mixture import cooled
from encodeonce.methods.fewshot.probe import RIDGES


def drawn(n: int, views: int = 4, width: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, views, width)).astype(np.float32)


def planted(n: int, gap: float, seed: int = 1) -> tuple[Vectors, np.ndarray]:
    """Two classes whose means differ by `gap` along one axis."""
    index = np.arange(n) % 2
    views = drawn(n, seed=seed)
    views[:, :, 0] += gap * (2 * index - 1)[:, None]
    return Vectors(views), index


def test_features_are_all_unit_views_side_by_side() -> None:
    views = drawn(3)
    found = features(Vectors(views), "layers")
    by_hand = [views[:, view] / np.linalg.norm(views[:, view], axis=1, keepdims=True) for view in range(4)]
    np.testing.assert_allclose(found, np.concatenate(by_hand, axis=1) / 2, atol=1e-6)
    np.testing.assert_allclose(features(Vectors(views), "last"), by_hand[3], atol=1e-6)


def test_features_of_a_pair_do_not_depend_on_the_order_of_its_texts_and_hold_the_cosine() -> None:
    first, second = drawn(3), drawn(3, seed=5)
    found = features(Vectors(first, second), "last")
    np.testing.assert_allclose(found, features(Vectors(second, first), "last"), atol=1e-6)
    same = features(Vectors(first, first), "last")
    np.testing.assert_allclose(same[:, :6], 0, atol=1e-6)
    np.testing.assert_allclose(same[:, -1], 1, atol=1e-5)
    lengths = np.linalg.norm(first[:, -1], axis=1) * np.linalg.norm(second[:, -1], axis=1)
    by_hand = (first[:, -1] * second[:, -1]).sum(1) / lengths
    np.testing.assert_allclose(features(Vectors(first, second), "cosine")[:, 0], by_hand, atol=1e-5)
    with pytest.raises(ConfigError, match="these are single texts"):
        features(Vectors(first), "cosine")


def side_rows(kind: str, rows: Any, corpus: Any, k: int, exclude: Any = None) -> np.ndarray:
    return Side(kind, corpus, k).rows(rows, exclude=exclude)


def test_what_side_rows_are_made_of_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One text after the other asks a trained probe as much as all at once, and builds nothing anew."""
    draw = np.random.default_rng(0)
    vectors, corpus = (Vectors(draw.standard_normal((n, 2, 5)).astype(np.float32)) for n in (8, 30))
    for name in ("late", "components", "constant"):
        probe = replace(PROBES[name], k=3, ridge=1.0).train(vectors, np.eye(2)[np.arange(8) % 2], corpus)
        together = probe.probabilities(vectors)
        assert probe.side is not None
        monkeypatch.setattr(side, "Search", None)
        monkeypatch.setattr(np.linalg, "svd", None)
        alone = [probe.probabilities(vectors.take(np.array([n])))[0] for n in range(8)]
        monkeypatch.undo()
        np.testing.assert_allclose(alone, together, atol=1e-6)


def test_side_rows_by_hand() -> None:
    corpus = np.array([[1.0, 0], [0.9, 0.1], [0, 1], [0, 0.8]], np.float32)
    rows = np.array([[2.0, 0], [0, 3.0]], np.float32)
    near = side_rows("neighbours", rows, corpus, k=2)
    np.testing.assert_allclose(near, [[0.95, 0.05], [0, 0.9]], atol=1e-6)
    np.testing.assert_allclose(side_rows("neighbours", rows, corpus, 1, exclude=[[0], []]), [[0.9, 0.1], [0, 1]])
    np.testing.assert_allclose(side_rows("shuffled", rows, corpus, k=2), near[::-1], atol=1e-6)
    np.testing.assert_allclose(side_rows("constant", rows, corpus, k=2), [corpus.mean(0)] * 2, atol=1e-6)
    np.testing.assert_allclose(side_rows("components", rows, corpus, k=2), rows, atol=1e-5)
    np.testing.assert_allclose(side_rows("random", rows, corpus, k=4), [corpus.mean(0)] * 2, atol=1e-6)
    assert all(side_rows(kind, rows, corpus, k=2).shape == rows.shape for kind in SIDES)


def test_no_control_gives_an_item_its_own_copy() -> None:
    corpus = np.array([[1.0, 0], [0.9, 0.1], [0, 1], [0, 0.8]], np.float32)
    rows = np.array([[2.0, 0], [0, 3.0]], np.float32)
    others = [corpus[[1, 2, 3]].mean(0), corpus[[0, 2, 3]].mean(0)]
    np.testing.assert_allclose(side_rows("random", rows, corpus, 3, exclude=[[0], [1]]), others, atol=1e-6)
    found = side_rows("shuffled", rows, corpus, 1, exclude=[[2], [0]])  # the other's nearest that is no copy of either
    np.testing.assert_allclose(found, [[0, 0.8], [0.9, 0.1]])
    for kind in SIDES:
        np.testing.assert_array_equal(
            side_rows(kind, rows, corpus, 2, exclude=[[], []]), side_rows(kind, rows, corpus, 2)
        )
    with pytest.raises(ConfigError, match="4 different rows cannot be drawn from 3"):
        side_rows("random", rows, corpus, 4, exclude=[[], [1]])


def test_a_corpus_smaller_than_k_is_a_named_error() -> None:
    corpus = np.eye(3, dtype=np.float32)
    with pytest.raises(TooFewVectors, match="4 neighbours asked for"):
        side_rows("neighbours", corpus, corpus, k=4)
    with pytest.raises(ConfigError, match="give two texts or more at once"):
        side_rows("shuffled", corpus[:1], corpus, k=1)
    with pytest.raises(ConfigError, match="4 different rows cannot be drawn from 3"):
        side_rows("random", corpus, corpus, k=4)
    with pytest.raises(ConfigError, match=r"side='neighbour' is not known.*Did you mean 'neighbours'"):
        side_rows("neighbour", corpus, corpus, k=1)


@pytest.mark.parametrize("name", [name for name in PROBES if name != "cosine"])
def test_every_probe_learns_planted_classes_and_survives_saving(name: str) -> None:
    vectors, index = planted(24, gap=4.0)
    corpus = Vectors(planted(80, gap=4.0, seed=2)[0].text)
    queries, gold = planted(40, gap=4.0, seed=3)
    trained = PROBES[name].train(vectors, np.eye(2)[index], corpus)
    answers = trained.probabilities(queries)
    np.testing.assert_allclose(answers.sum(1), 1)
    if name != "shuffled":
        assert (answers.argmax(1) == gold).mean() > 0.95
    again = TrainedProbe.from_arrays(Probe(**trained.probe.to_json()), trained.arrays())
    np.testing.assert_array_equal(again.probabilities(queries), answers)


def test_the_ridge_is_the_one_under_which_held_out_labels_are_likeliest() -> None:
    """Against scikit-learn's own folds-and-likelihood search: clear classes want the smallest, noise a large one."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_score

    chosen = {}
    for gap in (4.0, 0.3, 0.0):
        vectors, index = planted(40, gap=gap, seed=7)
        trained = Probe(form="last").train(vectors, np.eye(2)[index])
        rows = features(vectors, "last")
        fold = PredefinedSplit(folds_of([row.tobytes() for row in rows], index, 4))
        # one penalised weight vector of two classes, w = W_1 - W_0: |W|^2 = |w|^2 / 2
        found = {
            ridge: cross_val_score(
                LogisticRegression(C=2 / ridge, tol=1e-8, max_iter=5000), rows, index, cv=fold, scoring="neg_log_loss"
            ).mean()
            for ridge in RIDGES
        }
        chosen[gap] = trained.probe.ridge
        assert chosen[gap] == max(reversed(RIDGES), key=lambda ridge: found[ridge]), (gap, found)
    assert chosen == {4.0: RIDGES[0], 0.3: 1.0, 0.0: 10.0}
    assert Probe(form="last", ridge=0.7).train(vectors, np.eye(2)[index]).probe.ridge == 0.7
    alone = Vectors(np.repeat(vectors.text[:1], 3, axis=0))
    assert Probe(form="last").train(alone, np.eye(2)[[0, 0, 0]]).probe.ridge in RIDGES


def test_folds_spread_classes_and_keep_copies_together() -> None:
    fold = folds_of(["a", "b", "c", "d", "a", "e", "f", "g"], np.array([0, 0, 0, 0, 0, 1, 1, 1]), 2, seed=3)
    assert fold[0] == fold[4]
    assert sorted(np.bincount(fold[:4]).tolist()) == [2, 2]
    assert min(np.bincount(fold[5:], minlength=2)) == 1


def test_no_class_lies_in_one_fold_because_of_texts_it_shares() -> None:
    classes = np.array([0, 0, 0, 1, 1])
    for seed in range(8):
        fold = folds_of(["x", "y", "z", "x", "z"], classes, 2, seed)
        assert [len(set(fold[classes == label])) for label in (0, 1)] == [2, 2]
        fold = folds_of(["x", "y", "x", "z"], np.array([0, 0, 1, 1]), 2, seed)
        assert fold.tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_folds_of_unshared_keys_are_dealt_one_after_the_other() -> None:
    generator = np.random.default_rng(0)
    for seed in range(20):
        classes = generator.integers(0, 3, 15)
        keys = list(zip(classes.tolist(), generator.integers(0, 6, 15).tolist(), strict=True))
        order = np.random.default_rng(seed).permutation(15)
        dealt = dict.fromkeys(keys[n] for label in range(3) for n in order if classes[n] == label)
        expected = {key: turn % 4 for turn, key in enumerate(dealt)}
        assert folds_of(keys, classes, 4, seed).tolist() == [expected[key] for key in keys]


def test_answers_that_are_no_numbers_are_refused_by_their_methods_name() -> None:
    """They gave a mixture of weight NaN, and the first class for everything."""
    good, gold = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 1])
    wrong = np.array([[0.9, 0.1], [np.nan, np.nan]])
    with pytest.raises(NonFinite, match=r"method 'b' answers \[nan, nan\] for text 2, 1 of 2 texts .*learning_rate"):
        stacked({"a": good, "b": wrong}, gold)
    mixture = Mixture({"a": 1.0}, {"a": 1.0, "b": 1.0})
    np.testing.assert_allclose(mixture.mixed({"a": good, "b": wrong}), good)
    with pytest.raises(NonFinite, match="method 'a' answers"):
        mixture.mixed({"a": wrong})


def test_unlabelled_items_that_are_needed_must_be_there() -> None:
    vectors, index = planted(8, gap=1.0)
    with pytest.raises(ConfigError, match="needs unlabelled texts"):
        PROBES["late"].train(vectors, np.eye(2)[index])


def test_weight_zero_of_a_side_is_the_probe_without_it() -> None:
    vectors, index = planted(12, gap=1.0)
    corpus, queries = planted(70, gap=1.0, seed=4)[0], planted(5, gap=1.0, seed=6)[0]
    plain = Probe().train(vectors, np.eye(2)[index]).probabilities(queries)
    none = Probe(side="neighbours", weight=0.0).train(vectors, np.eye(2)[index], corpus).probabilities(queries)
    np.testing.assert_allclose(none, plain, atol=1e-6)


def test_cooling_keeps_the_order_and_evens_the_answers() -> None:
    answers = np.array([[0.9, 0.1], [0.0, 1.0]])
    np.testing.assert_allclose(cooled(answers, 1.0)[0], answers[0])
    warm = cooled(answers, 3.0)
    np.testing.assert_allclose(warm.sum(1), 1)
    assert 0.5 < warm[0, 0] < 0.9
    assert (warm.argmax(1) == answers.argmax(1)).all()


def test_a_mixture_trusts_who_knows_and_leaves_out_who_does_not() -> None:
    gold = np.arange(60) % 2
    good = np.where(np.eye(2)[gold] > 0, 0.9, 0.1)
    bad = np.tile([0.5, 0.5], (60, 1))
    worse = np.where(np.eye(2)[gold] > 0, 0.001, 0.999)
    found = stacked({"good": good, "bad": bad, "worse": worse}, gold)
    assert set(found.weights) == {"good"} or found.weights["good"] > 0.8
    assert "worse" not in found.weights
    np.testing.assert_allclose(sum(found.weights.values()), 1)
    np.testing.assert_allclose(found.mixed({"good": good, "bad": bad, "worse": worse}).sum(1), 1)


def test_methods_that_know_nothing_cannot_outvote_one_that_knows_a_little() -> None:
    """64 held-out labels: one method is right on 45 of them and says so faintly, five are wrong together on 36 of
    them, and a mean of all six would follow these."""
    gold = np.arange(64) % 2
    names = ("wrong", "also", "likewise", "again", "still")
    right = np.eye(2)[gold]
    knows = np.where(np.r_[np.ones(45, bool), np.zeros(19, bool)][:, None], 0.56 * right + 0.44 * (1 - right), 0.5)
    herd = np.where(np.r_[np.zeros(36, bool), np.ones(28, bool)][:, None], right, 1 - right) * 0.8 + 0.1
    answers = {**dict.fromkeys(names, herd), "knows": knows}
    found = stacked(answers, gold)
    assert set(found.weights) == {"knows"}
    assert (found.mixed(answers).argmax(1) == knows.argmax(1)).all()
    everyone = np.mean([cooled(own, found.temperatures[name]) for name, own in answers.items()], axis=0)
    assert (everyone.argmax(1) == gold)[:36].sum() < 5  # what a plain mean, as cool as they come, would answer


def test_where_nothing_is_known_the_simplest_answers_alone(caplog: pytest.LogCaptureFixture) -> None:
    generator = np.random.default_rng(0)
    gold = generator.permutation(np.arange(64) % 2)
    answers = {name: generator.dirichlet((3, 3), 64) for name in ("simple", "rich", "richer")}
    assert stacked(answers, gold).weights == {"simple": 1.0}
    assert "no method knows more of held-out labels than how frequent they are: simple answers alone" in caplog.text
    rare = (np.arange(64) < 6).astype(int)  # the frequencies alone give the labels more than a half each
    faint = np.tile([0.6, 0.4], (64, 1))
    assert stacked({"simple": faint, "rich": np.tile([58 / 64, 6 / 64], (64, 1))}, rare).weights == {"simple": 1.0}


def test_equal_methods_have_equal_weights() -> None:
    gold = np.arange(10) % 2
    own = np.where(np.eye(2)[gold] > 0, 0.8, 0.2)
    found = stacked({"a": own, "b": own}, gold)
    np.testing.assert_allclose([found.weights["a"], found.weights["b"]], 0.5)
    with pytest.raises(ConfigError, match="no answers of b"):
        found.mixed({"a": own})
    with pytest.raises(ConfigError, match="at least one method"):
        stacked({}, gold)


def test_a_mixture_of_one_method_is_that_method() -> None:
    answers = np.array([[0.8, 0.2]])
    np.testing.assert_allclose(Mixture({"a": 1.0}, {"a": 1.0}).mixed({"a": answers}), answers)
