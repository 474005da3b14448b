"""The task against hand-made columns; a run over stored states; every wrong gold tree by file and line."""

import logging
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.batching import Encodings
from encodeonce.errors import ConfigError, DataError
from encodeonce.heads import IGNORE
from encodeonce.methods.aggregate import VARIANTS, Aggregate, Variant
from encodeonce.metrics.attachment import Tree
from encodeonce.nn.trees import is_tree
from encodeonce.tasks import from_json, named
from encodeonce.tasks.parsing import Parsing
from encodeonce.train.evaluate import evaluate
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document, Encoding, Spec


def document(head: str, deprel: str | None = None, **columns: str) -> Document:
    heads = tuple(head.split())
    values = {name: tuple(value.split()) for name, value in columns.items()}
    values |= {"head": heads, "deprel": tuple(deprel.split()) if deprel else ("dep",) * len(heads)}
    words = tuple("abcdefgh"[: len(heads)])
    return Document("u1", words, columns=values, meta={"lines": [*range(2, 2 + len(heads))]}, place="f.conllu:2")


def test_gold_ids_and_labels() -> None:
    task = named("parsing").learn([document("2 0", "nsubj root"), document("0", "root")])
    assert isinstance(task, Parsing)
    assert (task.labels, task.piece, task.metric, task.head) == (("nsubj", "root"), "root+mean", "las", "biaffine")
    (gold,) = task.gold([document("2 0", "obj root", upos="NOUN VERB")])
    assert gold == Tree((2, 0), ("obj", "root"), ("a", "b"), ("NOUN", "VERB"))
    ids = task.ids(gold)
    assert ids.tolist() == [[2, IGNORE], [0, 1]]
    assert ids.dtype == np.int64
    assert task.scored(ids) == 2
    assert list(task.unseen(gold)) == ["obj"]
    assert task.gold([document("0", upos="_")])[0].upos == ()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("2 _", r"f.conllu:3 \(sent_id u1\): column HEAD of word 2 \('b'\) is '_'"),
        ("x 0", r"f.conllu:2 \(sent_id u1\): column HEAD of word 1 \('a'\) is 'x', not a number from 0"),
        ("-1 0", r"f.conllu:2 .* is '-1', not a number"),
        ("3 0", r"f.conllu:2 .* is '3', not a number from 0 \(the root\) to 2"),
        ("0 3 2", r"f.conllu:3 .*the heads run in a circle, .*: 2 \('b'\) -> 3 \('c'\) -> 2 \('b'\)\."),
        ("1 0", r"f.conllu:2 .*circle, .*: 1 \('a'\) -> 1 \('a'\)\."),
    ],
)
def test_TREES1_gold_that_is_no_tree_is_refused_by_file_and_line(head: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Parsing().learn([document("0"), document(head)])


def test_a_missing_column_or_relation_is_named() -> None:
    with pytest.raises(DataError, match=r"f.conllu:2 .* column DEPREL of word 1 \('a'\) is '_'"):
        Parsing().gold([document("0", "_")])
    bare = Document("u1", ("a",), columns={"upos": ("X",)}, place="f:1")
    with pytest.raises(DataError, match="task 'parsing' reads column 'head', and there is upos"):
        Parsing().gold([bare])


def test_several_roots_are_read_and_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "encodeonce"):
        assert Parsing().gold([document("0 1"), document("0 0 1")])[1].heads == (0, 0, 1)
    assert "1 of 2 trees have several roots, the first: f.conllu:2 (sent_id u1) (words 1, 2)" in caplog.text


def test_a_saved_task_is_the_same_task() -> None:
    task = named("parsing", tree="eisner", n_lstm_layers=0, arc_width=7).learn([document("0", "root")])
    assert from_json(task.to_json()) == task
    assert task.head_options["arc_width"] == 7


def test_settings_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match="piece='first': a parser reads the root and the mean"):
        named("parsing", piece="first")
    with pytest.raises(ConfigError, match=r"tree='eisnr' is not known\. .*Did you mean 'eisner'"):
        named("parsing", tree="eisnr")
    with pytest.raises(ConfigError, match=r"task 'parsing' has no setting 'lstm_widht'\. Did you mean 'lstm_width'\?"):
        named("parsing", lstm_widht=200)
    with pytest.raises(ConfigError, match=r"task 'parsing': n_lstm_layers = '1' must be a whole number\."):
        named("parsing", n_lstm_layers="1")


def test_predictions_fill_two_columns() -> None:
    answers = [Tree((2, 0), ("nsubj", "root")), ()]
    assert Parsing().columns([], answers) == {"head": [("2", "0"), ()], "deprel": [("nsubj", "root"), ()]}


def treebank(n: int) -> tuple[list[Document], Encodings]:
    """Trees that can be read off the states: a word says how far away its head is, and its relation."""
    random = np.random.default_rng(0)
    spec = Spec("tiny", "w" * 64, "c" * 64, "t" * 64, 2, 16, (0, 1, 2), 512, 128, dtype="fp32")
    documents, encodings = [], []
    for i in range(n):
        n_words = int(random.integers(1, 7))
        root = int(random.integers(1, n_words + 1))
        heads = [0 if w == root else w + (1 if w < root else -1) for w in range(1, n_words + 1)]
        labels = ["root" if h == 0 else ("left" if h > w else "right") for w, h in enumerate(heads, 1)]
        columns = {"head": tuple(map(str, heads)), "deprel": tuple(labels)}
        documents.append(Document(f"s{i}", tuple(f"{i}-{w}" for w in range(n_words)), columns=columns, place=f"t:{i}"))
        word = np.array([-1, *np.repeat(np.arange(n_words), random.integers(1, 3, n_words)), -1], dtype=np.int32)
        states = random.normal(size=(3, len(word), 16)).astype(np.float32) * 0.1
        for row, w in enumerate(word.tolist()):
            if w >= 0:
                states[:, row, ("root", "left", "right").index(labels[w])] += 3
        encodings.append(Encoding(documents[-1].key, states, word))
    return documents, Encodings(spec, encodings)


@pytest.mark.parametrize("variant", ["frozen", "linear", "adapted"])
def test_a_run_learns_a_treebank_and_answers_with_trees(variant: str) -> None:
    documents, source = treebank(60)
    options = {"n_lstm_layers": 1, "lstm_width": 16, "arc_width": 24, "rel_width": 12}
    task = named("parsing", **options, dropout=0.1, lstm_dropout=0.1, token_dropout=0.0).learn(documents)
    method = Aggregate.build(Variant(variant), source.spec, [task])
    assert method.part("parsing").head.dropout.rate == 0.1
    examples = method.read(source, documents, [task])
    batch = next(iter(method.batches(examples, size=16, order=None)))
    method.eval()
    with torch.no_grad():
        start = method.losses(batch, ["parsing"])["parsing"].item()
    words = batch.gold["parsing"].shape[0]
    counts = batch.counts["parsing"]
    by_hand = sum(n * (np.log(n) + np.log(3)) for n in counts)
    assert start == pytest.approx(by_hand * batch.scale["parsing"], rel=1e-5)
    assert words == sum(counts)
    settings = Settings(num_train_epochs=20, per_device_train_batch_size=8, learning_rate=0.01)
    fit(method, examples, {"parsing": task}, settings)
    found = evaluate(method, examples, {"parsing": task})
    assert found.scores["parsing"]["las"] > 97
    assert all(is_tree(answer["parsing"].heads) for answer in found.predictions)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_parser_stands_on_every_adapter(variant: str) -> None:
    """What it learns reaches all of the adapter, and what it answers is a tree from the first step on."""
    documents, source = treebank(6)
    task = named("parsing", n_lstm_layers=1, lstm_width=4, arc_width=6, rel_width=4).learn(documents)
    method = Aggregate.build(Variant(variant, key_width=4), source.spec, [task])
    part: Any = method.part("parsing")
    for weight in (*part.head.arc.parameters(), *part.head.relation.parameters()):
        torch.nn.init.normal_(weight)  # they start at zero and let nothing through
    batch = next(iter(method.batches(method.read(source, documents, [task]), size=6, order=None)))
    method.loss(batch).backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in part.adapter.parameters())
    method.eval()
    assert all(is_tree(answer["parsing"].heads) for answer in method.predict(batch))
