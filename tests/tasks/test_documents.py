"""Tasks with one answer a document, by hand and on the field cases CLS-1 and CLS-2."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.corpus import read
from encodeonce.errors import ConfigError, DataError, RunError
from encodeonce.heads.classifier import Classifier
from encodeonce.nn.rows import Rows
from encodeonce.tasks import Task, from_json, named
from encodeonce.tasks.classification import Classification
from encodeonce.tasks.multilabel import Multilabel
from encodeonce.tasks.regression import Regression
from encodeonce.types import IGNORE, Document


def documents(*values: Any, column: str = "label", pair: str = "") -> list[Document]:
    return [
        Document(f"d{i}", text=f"text {i}", pair=pair, meta={column: value}, place=f"f.csv:{i + 2}")
        for i, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("name", "kind", "metric"),
    [
        ("classification", Classification, "accuracy"),
        ("regression", Regression, "pearson_spearman"),
        ("multilabel", Multilabel, "micro_f1"),
        ("cola", Classification, "matthews"),
        ("sst2", Classification, "accuracy"),
        ("mrpc", Classification, "f1_accuracy"),
        ("rte", Classification, "accuracy"),
        ("qnli", Classification, "accuracy"),
        ("mnli", Classification, "accuracy"),
        ("qqp", Classification, "f1_accuracy"),
        ("stsb", Regression, "pearson_spearman"),
    ],
)
def test_A16_names_and_the_scores_they_are_judged_by(name: str, kind: type, metric: str) -> None:
    task = named(name)
    assert isinstance(task, kind)
    assert (task.name, task.metric, task.piece, task.needs_words) == (name, metric, "document", False)
    assert named(name, piece="document-words").piece == "document-words"


def test_a_task_can_have_any_name() -> None:
    topic = named("topic", kind="classification", column="topic", metric="macro_f1")
    assert isinstance(topic, Classification)
    assert (topic.name, topic.column, topic.metric) == ("topic", "topic", "macro_f1")
    assert named("mrpc", positive="yes", metric="f1").to_json()["positive"] == "yes"


def test_labels_come_from_training_alone_sorted_by_number_or_alphabet() -> None:
    assert named("classification").learn(documents("b", "a", "b")).labels == ("a", "b")
    assert named("classification").learn(documents("10", "9", "-1", "2")).labels == ("-1", "2", "9", "10")
    assert named("classification").learn(documents(10, 9, 2)).labels == ("2", "9", "10")
    assert named("classification").learn(documents("10", "9", "NA")).labels == ("10", "9", "NA")
    assert named("classification").learn(documents(True, False)).labels == ("false", "true")
    task = named("classification").learn(documents("b", "a"))
    assert [task.ids(label).tolist() for label in ("a", "b", "c")] == [[0], [1], [IGNORE]]
    assert task.ids("a").dtype == np.int64
    assert (list(task.unseen("c")), list(task.unseen("a"))) == (["c"], [])
    assert task.scored(task.ids("c")) == 0


def test_CLS1_na_is_a_text_and_a_label_and_quotes_are_characters(cases: Path) -> None:
    expected = json.loads((cases / "CLS-1.expected.json").read_text("utf-8"))
    rows = read(cases / "CLS-1a.tsv", columns={"text": "sentence1", "pair": "sentence2"})
    task = named("classification").learn(rows)
    assert len(rows) == expected["CLS-1a"]["rows"]
    assert (task.labels, task.gold(rows)) == (("0", "1"), ["1", "0", "1", "0"])
    assert [row.pair for row in rows] == ["She left.", "Go on.", 'Really"', "B"]
    texts = read(cases / "CLS-1b.csv", columns={"label": 0, "text": 1})
    assert [row.text for row in texts] == expected["CLS-1b"]["texts"]
    assert named("classification").learn(texts).gold(texts) == ["0", "1", "0", "1", "0"]
    swapped = read(cases / "CLS-1b.csv", columns={"label": 1, "text": 0})
    assert named("classification").learn(swapped).labels == ("NA", "None", "nan", "null", "plain")


def test_CLS2_labels_are_compared_by_name_whatever_their_order(cases: Path) -> None:
    case = json.loads((cases / "CLS-2.json").read_text("utf-8"))["a"]
    head = Classifier(4, case["model_labels"])
    predicted = head.decode(torch.tensor(case["logits"], dtype=torch.float32), Rows.of((1, 1, 1)))
    gold = [case["data_labels"][i] for i in case["gold_ids_in_data_order"]]
    task = from_json({**named("classification").to_json(), "labels": case["model_labels"]})
    assert task.score(gold, predicted)["accuracy"] == 100 * case["accuracy"]
    assert [int(task.ids(label)[0]) for label in gold] == [1, 2, 0]  # places in the model's list, not in the data's


def test_CLS2_scores_are_targets_of_a_regression_and_never_classes(cases: Path) -> None:
    case = json.loads((cases / "CLS-2.json").read_text("utf-8"))["b"]
    rows = documents(*case["labels_as_read"])
    task = named("regression").learn(rows)
    assert task.gold(rows) == case["targets"]
    assert len(task.labels) == case["outputs"]
    message = r"f.csv:2 \(id d0\): task 'classification': 'label' is '3.8'; a number with a fraction.*'regression'"
    with pytest.raises(DataError, match=message):
        named("classification").learn(rows)
    with pytest.raises(DataError, match="as 2 different ones are here"):
        named("classification").learn(documents(4.75, 5.0))
    assert named("classification", numbers_are_classes=True).learn(rows).labels == ("0", "3.8", "5")


def test_one_number_is_one_class_however_json_writes_it() -> None:
    rows = documents(1, 1.0, 0, -0.0, 2.0)
    task = named("classification").learn(rows)
    assert task.labels == ("0", "1", "2")
    assert task.gold(rows) == ["1", "1", "0", "0", "2"]
    assert named("classification").learn(documents("1.0", "x")).labels == ("1.0", "x"), "a text stays as it is"


def test_the_positive_label_is_the_one_that_training_has() -> None:
    assert named("mrpc").learn(documents("equivalent", "not_equivalent")).to_json()["positive"] == "equivalent"
    assert named("mrpc").learn(documents("0", "1")).to_json()["positive"] == "1"
    with pytest.raises(
        DataError, match=r"no training document has the positive label 'equivalent' or '1'. There is: a"
    ):
        named("mrpc").learn(documents("a"))
    with pytest.raises(ConfigError, match="metric='f1' is of one label"):
        named("classification", metric="f1")
    task = named("mrpc").learn(documents("1", "0"))
    scores = task.score(["1", "1", "0", "0"], ["1", "0", "0", "0"])
    assert scores["f1"] == pytest.approx(200 / 3)
    assert scores["f1_accuracy"] == pytest.approx((200 / 3 + 75) / 2)
    assert "f1" not in named("cola").learn(documents("1", "0")).score(["1"], ["1"])


def test_regression_learns_in_the_scale_of_its_training_targets() -> None:
    rows = documents(1, "3", 5.0)
    task = named("stsb").learn(rows)
    assert isinstance(task, Regression)
    assert (task.mean, task.deviation) == (3.0, pytest.approx(np.std([1, 3, 5])))
    ids = np.concatenate([task.ids(value) for value in task.gold(rows)])
    assert ids.dtype == np.float32
    np.testing.assert_allclose([ids.mean(), ids.std()], [0, 1], atol=1e-6)
    assert task.head_options == {"mean": task.mean, "deviation": task.deviation}
    raw = named("stsb", standardise=False).learn(documents(IGNORE, 3))
    assert [raw.ids(float(value)).tolist() for value in (IGNORE, 3)] == [[IGNORE], [3]]
    assert raw.scored(raw.ids(float(IGNORE))) == 1  # a target like any other
    assert list(raw.unseen(7.0)) == []


def test_a_constant_target_is_said(caplog: pytest.LogCaptureFixture) -> None:
    task = named("regression").learn(documents(2, 2))
    assert isinstance(task, Regression)
    assert task.deviation == 1
    assert "every training target is 2" in caplog.text


@pytest.mark.parametrize("value", ["NA", "nan", "inf", "1,5", True, [1.0]])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(DataError, match=r"f.csv:3 \(id d1\): task 'regression': 'label' is .*a finite number"):
        named("regression").gold(documents(1, value))


def test_multilabel_from_lists_and_from_cells() -> None:
    lists = documents(["b", "a", "b"], [], ["c"], column="labels")
    cells = documents("b|a | b", "", "c", column="labels")
    for rows in (lists, cells):
        task = named("multilabel").learn(rows)
        assert task.labels == ("a", "b", "c")
        assert task.gold(rows) == [("a", "b"), (), ("c",)]
        assert [task.ids(own).tolist() for own in task.gold(rows)] == [[[1, 1, 0]], [[0, 0, 0]], [[0, 0, 1]]]
        assert task.ids(()).dtype == np.float32
        assert task.scored(task.ids(())) == 3
        assert list(task.unseen(("a", "x"))) == ["x"]
    assert named("multilabel", separator=";").learn(documents("a;b", column="labels")).labels == ("a", "b")
    words = Document("w", ("one", "two"), columns={"labels": ("a", "b")})  # a reader took the list for a column
    assert named("multilabel").gold([words]) == [("a", "b")]
    with pytest.raises(DataError, match="no training document has a label in 'labels'"):
        named("multilabel").learn(documents([], [], column="labels"))
    with pytest.raises(DataError, match=r"it must be a list of labels, .* or a string of labels divided by '\\|'"):
        named("multilabel").gold(documents({"a": 1}, column="labels"))
    with pytest.raises(ConfigError, match="separator='' divides nothing"):
        named("multilabel", separator="")
    for odd in (["a", ""], [True], [None], [1.5]):
        with pytest.raises(DataError, match=r"f.csv:2 \(id d0\).*each a text that is not empty or a whole number"):
            named("multilabel").gold(documents(odd, column="labels"))
    assert named("multilabel").gold(documents([3, 1], column="labels")) == [("1", "3")]


@pytest.mark.parametrize("name", ["classification", "regression", "multilabel"])
def test_missing_gold_is_refused_by_place_and_name(name: str) -> None:
    column = named(name).to_json()["column"]
    with pytest.raises(DataError, match=rf"f.csv:3 \(id d1\): task '{name}': '{column}' is null. Training and eval"):
        named(name).gold(documents("1", None, column=column))
    with pytest.raises(DataError, match=rf"reads '{column}', and there is labelled. Did you mean 'labelled'"):
        named(name).gold(documents("1", column="labelled"))
    if name != "multilabel":
        with pytest.raises(DataError, match=rf"'{column}' is empty"):
            named(name).gold(documents("1", ""))
    with pytest.raises(DataError, match=r"g:1 \(id e\): task .*: the text is empty"):
        named(name).gold([Document("e", text=" ", meta={column: "1"}, place="g:1")])
    with pytest.raises(DataError, match=rf"task '{name}': no examples"):
        named(name).learn([])


def test_a_list_is_no_single_label() -> None:
    with pytest.raises(DataError, match=r"is \['a'\]; one label is a string or a number.*'multilabel'"):
        named("classification").gold(documents(["a"]))


def test_either_text_of_a_pair_that_is_empty_is_refused_by_place() -> None:
    task = named("rte").learn(documents("a", "b", pair="second"))
    for text, pair, which in (("first", " ", "second text of the pair"), (" ", "second", "text")):
        lacking = Document("e", text=text, pair=pair, meta={"label": "a"}, place="g:1")
        with pytest.raises(DataError, match=rf"^g:1 \(id e\): task 'rte': the {which} is empty"):
            task.gold([lacking])


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_the_number_nan_is_no_gold(kind: str) -> None:
    with pytest.raises(DataError, match=rf"task '{kind}': 'label' is NaN. Training and evaluation need gold: annotate"):
        named(kind).learn(documents(1.0, 0.0, float("nan")))


@pytest.mark.parametrize(
    ("held", "due"),
    [
        ([1, 2, 1.0], [1, 2]),
        ([1e-05, 0.5], [1e-05, 0.5]),
        ([True, False], [False, True]),
        (["1", "2"], ["1", "2"]),
        ([1, "2"], ["1", "2"]),
        ([True, 0], ["0", "true"]),
        ([float("inf"), 1.5], ["1.5", "inf"]),
    ],
)
def test_labels_go_back_into_json_as_training_had_them(held: list[Any], due: list[Any]) -> None:
    """Numbers and truth values where all were that; else the strings that labels are compared by."""
    learned = named("classification", numbers_are_classes=True).learn(documents(*held))
    task = from_json(json.loads(json.dumps(learned.to_json())))
    again = [task.as_json(label) for label in task.labels]
    assert sorted(map(repr, again)) == sorted(map(repr, due))


def test_a_set_of_numbers_goes_back_into_json_as_numbers() -> None:
    task = named("multilabel").learn(documents([10, 9], [], [2], column="labels"))
    assert task.as_json(("10", "2")) == (10, 2)
    assert named("multilabel").learn(documents("10|9", [2], column="labels")).as_json(("10", "2")) == ("10", "2")


def test_pairs_and_single_texts_are_not_mixed_up() -> None:
    pairs, singles = documents("a", "b", pair="second"), documents("a", "b")
    task = named("rte").learn(pairs)
    with pytest.raises(
        DataError, match=r"trained on pairs, and this item has no second text.*--columns text=first,pair"
    ):
        task.gold(singles)
    with pytest.raises(DataError, match="trained on single texts, and this item has a second text"):
        named("cola").learn(singles).check(pairs[0])
    both = named("cola").learn([*pairs, *singles])
    assert both.gold([*pairs, *singles]) == ["a", "b"] * 2
    assert task.learn(singles).gold(singles) == ["a", "b"]  # learned anew


def test_word_tasks_refuse_pairs_and_running_text() -> None:
    with pytest.raises(DataError, match="f:1: running text: cut it into words first"):
        named("upos").check(Document("d", text="a b", place="f:1"))
    with pytest.raises(DataError, match="a pair of texts has no words to label"):
        named("upos").check(Document("d", ("a",), pair="b"))
    named("upos").check(Document("d", ("a",)))


@pytest.mark.parametrize("name", ["cola", "mrpc", "stsb", "multilabel"])
def test_a_learned_task_survives_json(name: str) -> None:
    rows = documents("1", "0", column="labels" if name == "multilabel" else "label", pair="x" if name == "mrpc" else "")
    task: Task = named(name).learn(rows)
    assert from_json(json.loads(json.dumps(task.to_json()))) == task
    with pytest.raises(RunError, match="cannot be rebuilt"):
        from_json({**task.to_json(), "colour": 1})


def test_settings_that_do_not_exist_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"piece='first' is not known. There is: document, document-words"):
        named("cola", piece="first")
    with pytest.raises(ConfigError, match=r"metric='acuracy' is not known.*Did you mean 'accuracy'"):
        named("cola", metric="acuracy")
    kinds = "answer_spans, chunking, classification"
    with pytest.raises(ConfigError, match=f"kind='clasification' is not known. There is: {kinds}"):
        named("topic", kind="clasification")
    for name, learned in (("cola", "pairs"), ("stsb", "mean"), ("multilabel", "called")):
        with pytest.raises(ConfigError, match=rf"task '{name}' has no setting '{learned}'\..* It has: column, piece"):
            named(name, **{learned: "x"})


def test_values_of_the_wrong_kind_are_refused_and_lists_are_taken() -> None:
    with pytest.raises(ConfigError, match=r"task 'mrpc': positive = 1 must be text or a list of texts\."):
        named("mrpc", positive=1)
    with pytest.raises(ConfigError, match=r"positive = \[1, 0\] must be text or a list of texts\."):
        named("mrpc", positive=[1, 0])
    with pytest.raises(ConfigError, match=r"task 'multilabel': threshold = True must be a number\."):
        named("multilabel", threshold=True)
    assert named("mrpc", positive=["yes", "1"]).learn(documents("1", "0")).to_json()["positive"] == "1"
    assert hash(named("mrpc", positive=["yes", "1"])) == hash(named("mrpc", positive=("yes", "1")))


def test_a_single_label_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "encodeonce"):
        named("cola").learn(documents("1", "1"))
    assert "task cola: a single label, '1'" in caplog.text
