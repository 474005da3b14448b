"""Field cases from text to prediction: tiny random BERT, real store, one task (families ZERO, LONG, LABELS)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from encodeonce.corpus import read
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import DataError
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.serve.bundle import Run
from encodeonce.serve.predictor import Predictor
from encodeonce.store.reader import Store
from encodeonce.tasks import Task
from encodeonce.tasks.ner import NER
from encodeonce.tasks.tagging import Tagging
from encodeonce.train.evaluate import evaluate
from encodeonce.train.fit import Fit, fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document


@pytest.fixture(scope="module")
def tiny_bert(cases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BertModel of 2 blocks, window 512, with the cases' vocabulary and the words of LABELS-1."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny_bert")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    vocabulary = (cases / "vocab-wordpiece.txt").read_text(encoding="utf-8").splitlines()
    vocabulary += ["ana", "bo", "ran", "cy", "saw", "dee"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertModel(BertConfig(vocab_size=len(vocabulary), **sizes)).save_pretrained(folder)
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@dataclass
class Trained:
    run: Run
    fitted: Fit
    store: Store
    encoder: Pretrained

    def predicted(self, documents: Sequence[Document]) -> list[tuple[str, ...]]:
        name = self.run.tasks[0].name
        return [answer[name] for answer in Predictor(self.run, self.store, self.encoder).predict(documents)]


def trained(folder: Path, states: Path, documents: list[Document], task: Task, epochs: int = 2) -> Trained:
    """The main job on these documents."""
    encoder = Pretrained(folder)
    store = Store.open(states, encoder.spec())
    store.fill(documents, encoder)
    task = task.learn(documents)
    variant = Variant("adapted", key_width=4)
    method = Aggregate.build(variant, store.spec, [task])
    examples = method.read(store, documents, [task])
    settings = Settings(num_train_epochs=epochs, per_device_train_batch_size=4, learning_rate=1e-2)
    fitted = fit(method, examples, {task.name: task}, settings, dev=examples)
    return Trained(Run(method, (task,), variant, store.spec), fitted, store, encoder)


def zero_2(cases: Path) -> list[Document]:
    lines = (cases / "ZERO-2.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines if line]
    return [Document(f"z{i}", tuple(x["words"]), columns={"upos": tuple(x["labels"])}) for i, x in enumerate(items)]


def test_ZERO2_a_sentence_without_a_piece_trains_and_predicts(tiny_bert: Path, cases: Path, tmp_path: Path) -> None:
    documents = zero_2(cases)
    job = trained(tiny_bert, tmp_path / "all", documents, Tagging("upos"))
    assert np.isfinite([epoch["loss"] for epoch in job.fitted.epochs]).all()
    assert list(map(len, job.predicted(documents))) == [2, 2, 1]
    without = Store.open(tmp_path / "without", job.encoder.spec())
    without.fill([documents[0], documents[2]], job.encoder)
    for document in (documents[0], documents[2]):
        np.testing.assert_array_equal(job.store.get(document.key).states, without.get(document.key).states)
    assert sorted(set(job.store.get(documents[1].key).word.tolist())) == [-1, 0, 1]


def test_LONG1_all_700_words_are_predicted_and_scored(tiny_bert: Path, cases: Path, tmp_path: Path) -> None:
    documents = read(cases / "LONG-1.conll")
    expected = json.loads((cases / "LONG-1.expected.json").read_text())
    job = trained(tiny_bert, tmp_path / "states", documents, NER(), epochs=1)
    (answer,) = job.predicted(documents)
    assert len(answer) == expected["words"] == 700
    task = job.run.tasks[0]
    examples = job.run.method.read(job.store, documents, [task])
    scores = evaluate(job.run.method, examples, {"ner": task}).scores["ner"]
    assert scores["n"] == expected["entities"]


def test_LABELS1_an_unseen_entity_is_a_miss(
    tiny_bert: Path, cases: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = json.loads((cases / "LABELS-1.expected.json").read_text())
    train, dev = read(cases / "LABELS-1-train.conll"), read(cases / "LABELS-1-dev.conll")
    job = trained(tiny_bert, tmp_path / "states", train, NER(), epochs=1)
    task = job.run.tasks[0]
    assert list(task.labels) == expected["label_list"]
    job.store.fill(dev, job.encoder)
    caplog.clear()
    examples = job.run.method.read(job.store, dev, [task], split="dev")
    evaluate(job.run.method, examples, {"ner": task})
    evaluate(job.run.method, examples, {"ner": task})
    warned = [message for message in caplog.messages if "never saw" in message]
    assert len(warned) == 1
    assert "'B-Z' (1)" in warned[0]
    used: list[str] = expected["prediction_used"]
    cut, start = [], 0
    for tags in examples.gold["ner"]:
        cut.append(tuple(used[start : start + len(tags)]))
        start += len(tags)
    scores = task.score(examples.gold["ner"], cut)
    for name in ("precision", "recall", "f1"):
        assert scores[f"{name}_lenient"] == pytest.approx(100 * expected[name], abs=0.01)


@pytest.mark.parametrize("name", ["LABELS-2-blank.conll", "LABELS-2-comments.conllu"])
def test_LABELS2_a_file_without_examples_is_refused_before_a_model_is_made(cases: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"no examples in .*{name}"):
        read(cases / name)
