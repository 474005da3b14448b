"""The few-shot estimator: learns, says what it chose, keeps scikit-learn's conventions, reloads to the same answers."""

import inspect
import json
import logging
import pickle
import re
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, DataError, RunError, TooFewVectors
from encodeonce.integrations._material import as_documents
from encodeonce.integrations.few_shot import METHODS, FewShot
from encodeonce.methods.fewshot import features

Texts = tuple[list[str], list[str]]


@pytest.fixture
def encoder(checkpoint: Callable[..., Path]) -> Pretrained:
    return Pretrained(checkpoint("bert"))


def estimator(encoder: Any, **settings: Any) -> FewShot:
    return FewShot(encoder, **{"folds": 2, "steps": 4, "compute": "fp32", **settings})


def test_it_tries_all_chooses_and_reloads_to_the_same_answers(
    encoder: Pretrained, labelled: Texts, others: Texts, tmp_path: Path
) -> None:
    model = estimator(encoder)
    assert model.fit(*labelled, unlabelled=others[0]) is model
    assert [one.name for one in model.tried_] == [*(name for name in METHODS if name != "cosine"), "mixture"]
    assert model.summary().startswith("chosen: ")
    weights = [one.weight for one in model.tried_[:-1]]
    assert sum(weights) == pytest.approx(1)
    assert model.score(*others) > 0.9
    answers = model.predict_proba(others[0])
    np.testing.assert_allclose(answers.sum(1), 1)
    assert model.predict(others[0]).tolist() == model.classes_[answers.argmax(1)].tolist()
    model.save(tmp_path / "saved")
    again = FewShot.load(tmp_path / "saved", Pretrained(encoder.path))
    np.testing.assert_array_equal(again.predict_proba(others[0]), answers)
    assert again.summary() == model.summary()
    assert again.classes_.tolist() == ["animals", "places"]


def test_a_saved_fine_tuning_reloads_to_the_same_answers(
    encoder: Pretrained, labelled: Texts, others: Texts, tmp_path: Path
) -> None:
    model = estimator(encoder, methods=("finetune",)).fit(*labelled, unlabelled=None)
    answers = model.predict_proba(others[0][:9])
    model.save(tmp_path)
    assert (tmp_path / "finetune" / "config.json").is_file()
    np.testing.assert_array_equal(FewShot.load(tmp_path, encoder).predict_proba(others[0][:9]), answers)


def test_whole_numbers_of_numpy_are_taken_and_saved(
    encoder: Pretrained, labelled: Texts, others: Texts, tmp_path: Path
) -> None:
    numbers = {"neighbours": 5, "folds": 2, "steps": 2, "seed": 3}
    model = estimator(encoder, methods=("late", "finetune"))
    model.set_params(**{name: np.int64(value) for name, value in numbers.items()})
    model.fit(*labelled, unlabelled=others[0]).save(tmp_path / "saved")
    parameters = json.loads((tmp_path / "saved" / "config.json").read_text())["parameters"]
    assert {name: parameters[name] for name in numbers} == numbers
    plain = estimator(encoder, methods=("late", "finetune")).set_params(**numbers).fit(*labelled, unlabelled=others[0])
    np.testing.assert_array_equal(model.predict_proba(others[0]), plain.predict_proba(others[0]))


@pytest.mark.parametrize("methods", [{"probe", "late"}, np.array(["probe", "late"]), ("probe", "late")])
def test_methods_of_any_collection_and_rates_of_numpy_are_taken_and_saved(
    encoder: Pretrained, labelled: Texts, others: Texts, tmp_path: Path, methods: Any
) -> None:
    rates = {"learning_rate": np.float32(0.25), "encoder_learning_rate": np.float64(0.5)}
    model = estimator(encoder).set_params(methods=methods, **rates).fit(*labelled, unlabelled=others[0])
    model.save(tmp_path / "saved")
    again = FewShot.load(tmp_path / "saved", encoder)
    assert (sorted(again.methods), again.learning_rate, again.encoder_learning_rate) == (["late", "probe"], 0.25, 0.5)
    np.testing.assert_array_equal(again.predict_proba(others[0]), model.predict_proba(others[0]))


@pytest.mark.parametrize("rate", [np.float32("inf"), np.float64(-1)])
def test_a_rate_that_is_none_is_refused(encoder: Pretrained, labelled: Texts, rate: Any) -> None:
    with pytest.raises(ConfigError, match="learning_rate"):
        estimator(encoder, methods=("probe",)).set_params(learning_rate=rate).fit(*labelled)


def test_an_answer_depends_on_its_own_text_alone(encoder: Pretrained, labelled: Texts, others: Texts) -> None:
    model = estimator(encoder, methods=("layers", "late", "self_training")).fit(*labelled, unlabelled=others[0])
    together = model.predict_proba(others[0][:6])
    alone = np.concatenate([model.predict_proba([text]) for text in others[0][:6]])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert model.predict_proba([]).shape == (0, 2)


def test_a_store_gives_the_same_answers_and_encodes_nothing_twice(
    encoder: Pretrained, labelled: Texts, others: Texts, tmp_path: Path
) -> None:
    expected = estimator(encoder, methods=("probe",)).fit(*labelled).predict_proba(others[0][:5])
    for _ in range(2):
        fresh = Pretrained(encoder.path)
        model = estimator(fresh, methods=("probe",), store=tmp_path / "vectors").fit(*labelled)
        np.testing.assert_array_equal(model.predict_proba(others[0][:5]), expected)
    assert not fresh.loaded


def test_pairs_are_learned_by_how_their_texts_relate(encoder: Pretrained, labelled: Texts, others: Texts) -> None:
    texts, kinds = labelled
    pairs = [(texts[i], texts[j]) for i in range(12) for j in (i + 1, i + 2)]
    same = [int(kinds[i] == kinds[j]) for i in range(12) for j in (i + 1, i + 2)]
    model = estimator(encoder, methods=("layers", "cosine", "finetune")).fit(pairs, same)
    assert model.classes_.tolist() == [0, 1]
    asked = [(others[0][i], others[0][i + shift]) for i in range(20) for shift in (1, 2)]
    assert model.score(asked, [0, 1] * 20) > 0.8
    assert model.predict(asked).dtype.kind == "i"


def test_unlabelled_copies_of_a_text_are_counted_and_are_no_neighbours(
    encoder: Pretrained, labelled: Texts, others: Texts, caplog: pytest.LogCaptureFixture
) -> None:
    own = set(labelled[0])
    apart = [text for text in others[0] if text not in own]
    with_copies, without = [*labelled[0], *apart], apart
    settings = {"methods": ("late",), "folds": 2}
    with caplog.at_level(logging.INFO, logger="encodeonce"):
        estimator(encoder, **settings).fit(*labelled, unlabelled=with_copies)
    assert "24 of 24 texts are among the unlabelled ones" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="encodeonce"):
        estimator(encoder, **settings).fit(*labelled, unlabelled=without)
    assert "among the unlabelled ones" not in caplog.text


def test_texts_over_the_window_are_answered_by_the_other_methods(
    encoder: Pretrained, labelled: Texts, caplog: pytest.LogCaptureFixture
) -> None:
    long = " ".join(["cat"] * (encoder.window + 5))
    model = estimator(encoder, methods=("layers", "finetune")).fit([*labelled[0], long], [*labelled[1], "animals"])
    assert "1 of" in caplog.text
    assert "too long to be fine-tuned on" in caplog.text
    assert model.predict([long]).tolist() == ["animals"]


def test_where_a_class_is_too_long_to_be_fine_tuned_on_it_is_said_or_refused(
    encoder: Pretrained, labelled: Texts, caplog: pytest.LogCaptureFixture
) -> None:
    texts, labels = labelled
    long = [f"{text} " * encoder.window if label == "places" else text for text, label in zip(*labelled, strict=True)]
    model = estimator(encoder).fit(long, labels)
    assert "finetune not tried: 0 texts of class 'places' fit the" in caplog.text
    assert [one.name for one in model.tried_] == ["probe", "layers", "mixture"]
    for names in (("probe", "finetune"), ("add",)):
        with pytest.raises(DataError, match=f"method '{names[-1]}': 0 texts of class 'places' fit the .* two must"):
            estimator(encoder, methods=names).fit(long, labels, unlabelled=texts)


def test_fitting_texts_of_a_class_must_be_there_whatever_part_is_held_out(
    encoder: Pretrained, caplog: pytest.LogCaptureFixture
) -> None:
    """Two copies that fit and one text that does not: without the copies nothing was left to fine-tune on, and the
    command ended."""
    texts = [text for word in ("cat", "river") for text in (word, word, f"{word} " * encoder.window)]
    for seed in range(3):
        model = FewShot(encoder, folds=2, steps=2, compute="fp32", seed=seed).fit(texts, ["a"] * 3 + ["b"] * 3)
        assert [one.name for one in model.tried_] == ["probe", "layers", "mixture"]
    assert "finetune not tried: 2 texts of class 'a' fit the" in caplog.text
    with pytest.raises(DataError, match=r"method 'finetune': 2 texts of class 'a' fit .* in different parts"):
        estimator(encoder, methods=("finetune",)).fit(texts, ["a"] * 3 + ["b"] * 3)


def test_a_text_that_is_asked_may_be_any_of_the_unlabelled_ones(encoder: Pretrained, others: Texts) -> None:
    """As many neighbours as there are texts were promised, and missing when one of these was asked."""
    texts, labels = ["cat sat", "cat mat", "river bank", "cafe bank"], ["a", "a", "b", "b"]
    corpus = others[0][:12]
    for name in ("late", "random", "add"):
        with pytest.raises(
            TooFewVectors, match=r"12 unlabelled texts, and 1 of them may be .* Ask for at most 11 with"
        ):
            estimator(encoder, methods=(name,), neighbours=12).fit(texts, labels, unlabelled=corpus)
        model = estimator(encoder, methods=(name,), neighbours=11).fit(texts, labels, unlabelled=corpus)
        assert model.predict_proba(corpus).shape == (12, 2)
    many = [*corpus, *[corpus[0].upper()] * 3, corpus[1]]
    for name, most in (("late", 12), ("shuffled", 10)):
        with pytest.raises(TooFewVectors, match=f"16 unlabelled texts, .* Ask for at most {most} with"):
            estimator(encoder, methods=(name,), neighbours=most + 1).fit(texts, labels, unlabelled=many)
        model = estimator(encoder, methods=(name,), neighbours=most).fit(texts, labels, unlabelled=many)
        assert model.predict_proba(corpus[:2]).shape == (2, 2)
    with pytest.raises(TooFewVectors, match=r"no neighbours of it\. Give more texts, or leave"):
        estimator(encoder, methods=("late",), neighbours=1).fit(texts, labels, unlabelled=["cat"])


def test_of_the_default_methods_one_that_finds_too_few_texts_is_left_out(
    encoder: Pretrained, labelled: Texts, others: Texts, caplog: pytest.LogCaptureFixture
) -> None:
    """30 unlabelled texts, where `late` adds 64 to each: self-training does with any number, and is tried."""
    with caplog.at_level(logging.WARNING, logger="encodeonce"):
        model = estimator(encoder).fit(*labelled, unlabelled=others[0][:30])
    names = [one.name for one in model.tried_]
    assert "late" not in names
    assert "self_training" in names
    assert "late not tried: 64 neighbours asked for, but there are 30 unlabelled texts" in caplog.text
    assert "Ask for at most 29 with --neighbours (in Python neighbours=...), or give more texts." in caplog.text
    assert "late" in [one.name for one in estimator(encoder, neighbours=29).fit(*labelled, others[0][:30]).tried_]


def test_a_score_has_a_label_a_text(encoder: Pretrained, labelled: Texts) -> None:
    model = estimator(encoder, methods=("probe",)).fit(*labelled)
    assert model.score(labelled[0][:2], ["animals", "animals"]) == 0.5
    for labels in (["animals"], ["animals"] * 3):
        with pytest.raises(DataError, match=f"2 texts and {len(labels)} labels: give each text one label"):
            model.score(labelled[0][:2], labels)
    with pytest.raises(DataError, match="no text to score"):
        model.score([], [])


def test_classes_that_no_file_keeps_are_refused_before_anything_is_written(
    encoder: Pretrained, labelled: Texts, tmp_path: Path
) -> None:
    days = np.array(["2026-01-01", "2026-02-01"], "datetime64[ns]")
    for index, kinds in enumerate(([date(2026, 1, 1), date(2026, 2, 1)], [1.0, float("inf")], list(days))):
        model = estimator(encoder, methods=("probe",)).fit(labelled[0][:6], [kinds[n % 2] for n in range(6)])
        with pytest.raises(RunError, match=r"class .* cannot be saved; .* such as str\(label\)"):
            model.save(tmp_path / str(index))
    for given, said in ((["a"], "1 classes are given for the 2"), (["a", "a"], "hold one twice")):
        with pytest.raises(RunError, match=said):
            model.save(tmp_path / "named", classes=given)
    assert not list(tmp_path.iterdir())
    for kinds in ([True, False], [0.5, 3.0], [2**70, 3]):
        model = estimator(encoder, methods=("probe",)).fit(labelled[0][:6], [kinds[n % 2] for n in range(6)])
        model.save(tmp_path / str(kinds[0]))
        again = FewShot.load(tmp_path / str(kinds[0]), encoder)
        assert again.classes_.tolist() == sorted(kinds)
        assert again.predict(labelled[0][:2]).tolist() == model.predict(labelled[0][:2]).tolist()


def test_after_a_fit_that_failed_nothing_answers(encoder: Pretrained, labelled: Texts) -> None:
    """The new labels stood before the old model's probabilities."""
    model = estimator(encoder, methods=("probe",)).fit(*labelled)
    with pytest.raises(DataError, match="unlabelled text 1 is empty"):
        model.fit(labelled[0], [label[::-1] for label in labelled[1]], unlabelled=[" "])
    with pytest.raises(RunError, match="not fitted yet"):
        model.predict(["cat"])


def test_a_fine_tuning_of_another_save_is_noticed(encoder: Pretrained, labelled: Texts, tmp_path: Path) -> None:
    """What is left where a second save was killed before its config.json."""
    for seed in (1, 2):
        estimator(encoder, methods=("finetune",), seed=seed).fit(*labelled).save(tmp_path / str(seed))
    shutil.copytree(tmp_path / "2" / "finetune", tmp_path / "1" / "finetune", dirs_exist_ok=True)
    with pytest.raises(RunError, match=r"finetune does not hold the files config.json was written for"):
        FewShot.load(tmp_path / "1", encoder)
    values = json.loads((tmp_path / "2" / "config.json").read_text())
    (tmp_path / "2" / "config.json").write_text(json.dumps({**values, "folders": {}}))  # as saved before
    assert FewShot.load(tmp_path / "2", encoder).score(*labelled) >= 0


def test_scikit_learns_conventions(encoder: Pretrained) -> None:
    model = estimator(encoder, folds=3)
    copy = type(model)(**model.get_params())
    assert copy.get_params() == model.get_params()
    assert model.set_params(folds=5, seed=1) is model
    assert (model.folds, model.seed) == (5, 1)
    with pytest.raises(ConfigError, match=r"no parameter 'fold'. There is: encoder"):
        model.set_params(fold=3)
    with pytest.raises(RunError, match="not fitted yet"):
        model.predict(["cat"])


def test_scikit_learn_clones_it_without_copying_the_encoder(encoder: Pretrained, labelled: Texts) -> None:
    model = estimator(encoder, methods=["probe"]).fit(*labelled)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert copied.encoder is encoder

    class Own(FewShot):
        """A user's."""

    assert type(clone(Own(encoder))) is Own
    with pytest.raises(RunError, match="not fitted yet"):
        copied.predict(["cat"])
    scores = cross_val_score(model, *labelled, cv=2)
    assert [score > 0.5 for score in scores] == [True, True]


def test_it_is_pickled_as_scikit_learn_sends_it_to_its_workers(
    encoder: Pretrained, labelled: Texts, others: Texts
) -> None:
    model = estimator(encoder, methods=("finetune",)).fit(*labelled)
    answers = model.predict_proba(others[0][:5])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(others[0][:5]), answers)
    assert pickle.loads(pickle.dumps(clone(model))).fit(*labelled).classes_.tolist() == ["animals", "places"]
    for name in ("late", "add"):  # with what they search, before and after the first search
        model = estimator(encoder, methods=(name,), neighbours=8).fit(*labelled, others[0])
        answers = model.predict_proba(others[0][:5])
        for copied in (model, pickle.loads(pickle.dumps(model))):
            again = pickle.loads(pickle.dumps(copied))
            np.testing.assert_array_equal(again.predict_proba(others[0][:5]), answers)


def test_another_encoder_must_be_fitted_anew(
    encoder: Pretrained, checkpoint: Callable[..., Path], labelled: Texts
) -> None:
    """A probe over one encoder's vectors answered over those of another of that width."""
    model = estimator(encoder, methods=("probe",)).fit(*labelled)
    answers = model.predict_proba(labelled[0])
    np.testing.assert_array_equal(model.set_params(seed=7, encoder=encoder).predict_proba(labelled[0]), answers)
    with pytest.raises(RunError, match="not fitted yet"):
        model.set_params(encoder=str(checkpoint("bert"))).predict(labelled[0])


def test_a_table_is_not_read_by_the_names_of_its_columns(encoder: Pretrained, labelled: Texts) -> None:
    model = estimator(encoder, methods=("probe",)).fit(*labelled)
    table = {"cat": labelled[0], "river": labelled[0]}
    pandas = pytest.importorskip("pandas")
    for given in (table, pandas.DataFrame(table)):
        with pytest.raises(DataError, match=r"texts: \w+ is a table. Give one column's values"):
            model.predict(given)
    series = pandas.DataFrame(table)["cat"]
    assert model.predict(series).tolist() == model.predict(labelled[0]).tolist()
    with pytest.raises(DataError, match="label 24 is <NA>: give text 24 a label"):
        model.fit(labelled[0], [*labelled[1][:-1], pandas.NA])


def test_what_cannot_be_learned_is_refused_by_name(encoder: Pretrained, labelled: Texts, others: Texts) -> None:
    texts, labels = labelled
    with pytest.raises(DataError, match="24 texts and 23 labels"):
        estimator(encoder).fit(texts, labels[:-1])
    with pytest.raises(DataError, match="needs two classes"):
        estimator(encoder).fit(texts, ["a"] * 24)
    with pytest.raises(DataError, match=r"class 'b' has one example"):
        estimator(encoder).fit(texts, [*["a"] * 23, "b"])
    with pytest.raises(DataError, match="text 2 is empty"):
        estimator(encoder).fit(["cat", " "], ["a", "b"])
    with pytest.raises(DataError, match="cannot be mixed"):
        estimator(encoder).fit(["cat", ("cat", "mat")], ["a", "b"])
    with pytest.raises(ConfigError, match=r"method 'knn' is not known"):
        estimator(encoder, methods=("knn",)).fit(texts, labels)
    with pytest.raises(ConfigError, match=r"method 'late' needs unlabelled texts"):
        estimator(encoder, methods=("late",)).fit(texts, labels)
    with pytest.raises(ConfigError, match=r"method 'cosine' compares the two texts of a pair"):
        estimator(encoder, methods=("cosine",)).fit(texts, labels)
    with pytest.raises(DataError, match="class 'b' has one text, 2 times"):
        estimator(encoder).fit([*texts[:22], "cat", "CAT "], [*["a"] * 22, "b", "b"])
    with pytest.raises(DataError, match="label 2 is None: give text 2 a label"):
        estimator(encoder).fit(texts[:3], ["a", None, "b"])
    with pytest.raises(DataError, match="label 2 is nan"):
        estimator(encoder).fit(texts[:2], [1.0, float("nan")])
    with pytest.raises(DataError, match="label 1 is 'a' and label 2 is 2: give strings"):
        estimator(encoder).fit(texts[:2], ["a", 2])
    with pytest.raises(DataError, match=r"labels cannot be put in order: .*not supported"):
        estimator(encoder).fit(texts[:2], [object(), object()])
    for name, value in (("neighbours", 0), ("folds", 1), ("steps", 0), ("seed", -1)):
        with pytest.raises(ConfigError, match=f"{name}={value} must be a whole number of at least"):
            estimator(encoder, **{name: value}).fit(texts, labels)
    for settings, message in (
        ({"methods": "probe"}, r"methods='probe' is a text. Give a list of names: \['probe'\]"),
        ({"compute": "fp8"}, "compute.*fp8"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0 must be"),
        ({"prompt": {"template": "{text}"}}, "give the name of a task, a .toml file, or a prompts.Prompt"),
    ):
        with pytest.raises(ConfigError, match=message):
            estimator(encoder, **settings).fit(texts, labels)
    with pytest.raises(ConfigError, match=r"neighbours=2.5 must be a whole number"):
        estimator(encoder).set_params(neighbours=2.5).fit(texts, labels)
    for methods in (None, [1]):
        with pytest.raises(
            ConfigError, match=rf"methods={re.escape(repr(methods))} is no list of names. Give .*'late'"
        ):
            estimator(encoder).set_params(methods=methods).fit(texts, labels)
    with pytest.raises(DataError, match="unlabelled texts: 'cat mat' is one string"):
        estimator(encoder).fit(texts, labels, unlabelled="cat mat")
    with pytest.raises(DataError, match=r"label 1 is \['a'\]: give text 1 one label, not a list"):
        estimator(encoder).fit(texts, [["a"], ["b"]] * 12)
    with pytest.raises(ConfigError, match="no method is named"):
        estimator(encoder, methods=()).fit(texts, labels)
    pairs = [(text, text) for text in others[0]]
    with pytest.raises(DataError, match=r"unlabelled text 1 is a pair of texts, .*'late' cannot compare"):
        estimator(encoder).fit(texts, labels, unlabelled=pairs)
    model = estimator(encoder, methods=("layers",)).fit(texts, labels, unlabelled=pairs)
    with pytest.raises(DataError, match="text 1 is a pair of texts, and training had single texts"):
        model.predict([("cat", "mat")])
    with pytest.raises(TooFewVectors, match="method 'late': 64 neighbours asked for, but there are 30 unlabelled"):
        estimator(encoder, methods=("late", "probe")).fit(texts, labels, unlabelled=others[0][:30])
    one = [*others[0][:20], *["cat sat"] * 50]
    with pytest.raises(TooFewVectors, match=r"method 'add': 64 neighbours asked for, but there are 21 unlabelled"):
        estimator(encoder, methods=("add",)).fit(texts, labels, unlabelled=one)


def test_texts_that_are_none_are_named_where_no_types_are_checked() -> None:
    unchecked = inspect.unwrap(as_documents)
    for wrong, message in (
        (None, "text 2 is None: give a string, or a pair"),
        (3.5, r"text 2 is 3\.5"),
        (("a", "b", "c"), "text 2 is 3 strings"),
        (("a", None), r"text 2 is \('a', None\)"),
    ):
        with pytest.raises(DataError, match=message):
            unchecked(["cat", wrong], "text")


def test_as_many_unlabelled_texts_as_asked_for_are_added(encoder: Pretrained, labelled: Texts, others: Texts) -> None:
    """Late fusion by hand: each text's row and the mean of the three nearest others, its copies left out."""
    corpus = [*others[0][:20], labelled[0][0].upper()]
    model = estimator(encoder, methods=("late",), neighbours=3).fit(*labelled, unlabelled=corpus)
    trained = model._trained["late"]
    assert trained.probe.k == 3
    rows, own = (features(model._vectors(as_documents(texts, "text"))) for texts in (corpus, labelled[0]))
    found = own.copy()
    for n, row in enumerate(own):
        order = [m for m in np.argsort(-(rows @ row), kind="stable") if corpus[m].lower() != labelled[0][n]]
        found[n] += rows[order[:3]].mean(0)
    expected = trained.parameters.probabilities(found)
    cooled_once = cooled(expected, model.mixture_.temperatures["late"])
    np.testing.assert_allclose(model.predict_proba(labelled[0]), cooled_once, atol=1e-5)


def cooled(answers: np.ndarray, temperature: float) -> np.ndarray:
    powers = answers ** (1 / temperature)
    return powers / powers.sum(1, keepdims=True)


def test_several_labels_of_one_text_are_said_and_its_copies_stay_in_one_fold(
    encoder: Pretrained, labelled: Texts, caplog: pytest.LogCaptureFixture
) -> None:
    texts, labels = labelled
    estimator(encoder, methods=("probe",)).fit([*texts, texts[0].upper()], [*labels, "places"])
    assert "1 texts have several labels, the first: text 1" in caplog.text


def test_another_folder_is_not_overwritten(encoder: Pretrained, labelled: Texts, tmp_path: Path) -> None:
    model = estimator(encoder, methods=("probe",)).fit(*labelled)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(RunError, match=r"is no few-shot estimator and holds config\.json"):
        model.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    (tmp_path / "config.json").rename(tmp_path / "model.safetensors")
    with pytest.raises(RunError, match=r"holds model\.safetensors, which would be overwritten"):
        model.save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save(tmp_path / "kept")
    model.save(tmp_path / "kept")


def test_a_changed_file_and_another_encoder_are_refused(
    encoder: Pretrained, checkpoint: Callable[..., Path], labelled: Texts, tmp_path: Path
) -> None:
    model = estimator(encoder, methods=("probe",)).fit((text for text in labelled[0]), labelled[1])
    model.save(tmp_path)
    with pytest.raises(RunError, match=r"model.safetensors is a file; a few-shot estimator is a folder"):
        model.save(tmp_path / "model.safetensors")
    with pytest.raises(RunError, match=r"makes others \(here: the saved one\): .*weights"):
        FewShot.load(tmp_path, checkpoint("electra"))
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:-1])
    with pytest.raises(RunError, match="copy the folder again"):
        FewShot.load(tmp_path, encoder)
    values = json.loads((tmp_path / "config.json").read_text())
    cut = {name: value for name, value in values.items() if name not in ("tried", "probes")}
    (tmp_path / "config.json").write_text(json.dumps(cut))
    with pytest.raises(RunError, match=r"config\.json: tried, probes is missing; it was cut or changed"):
        FewShot.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**values, "schema": 1}))
    with pytest.raises(RunError, match="schema 1 of"):
        FewShot.load(tmp_path, encoder)
