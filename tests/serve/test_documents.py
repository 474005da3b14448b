"""Whole documents from text to answer: tiny random BERT, real store, against a second, plainer computation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.corpus import read
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, DataError
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.serve import bundle
from encodeonce.serve.bundle import Run
from encodeonce.serve.predictor import Predictor
from encodeonce.store.reader import Store
from encodeonce.tasks import Task, in_parts, named
from encodeonce.train.evaluate import evaluate
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

WORDS = ["good", "fine", "great", "bad", "poor", "awful", "film", "plot", "is", "was", "the", "a", "not", "yes", "no"]
WORDS += ["he", "said", "she", "left", "go", "on", "really", "stop"]
LETTERS = "abcdefghijklmnopqrstuvwxyz.\"',?!0123456789"
GOOD, BAD = ("good", "fine", "great"), ("bad", "poor", "awful")


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BertModel of 2 blocks and window 24."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny_bert")
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "initializer_range": 0.1}
    letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters]
    vocabulary = list(dict.fromkeys(vocabulary))
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=24, **sizes)).save_pretrained(folder)
    BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=24).save_pretrained(folder)
    return folder


@dataclass
class Trained:
    run: Run
    store: Store
    encoder: Pretrained
    scores: dict[str, float | None]

    @property
    def predictor(self) -> Predictor:
        return Predictor(self.run, self.store, self.encoder)


def trained(
    folder: Path,
    states: Path,
    documents: list[Document],
    tasks: Sequence[Task],
    epochs: int = 12,
    variant: str = "linear",
) -> Trained:
    encoder = Pretrained(folder)
    store = Store.open(states, encoder.spec(dtype="fp32"))
    store.fill(documents, encoder)
    learned = [task.learn(documents) for task in tasks]
    method = Aggregate.build(Variant(variant), store.spec, learned)
    examples = method.read(store, documents, learned)
    settings = Settings(learning_rate=0.02, num_train_epochs=epochs, per_device_train_batch_size=8)
    scorers = {task.name: task for task in learned}
    fit(method, examples, scorers, settings)
    scores = evaluate(method, examples, scorers).scores[learned[0].name]
    return Trained(Run(method, tuple(learned), Variant(variant), store.spec), store, encoder, dict(scores))


def reviews(n: int, **changes: Any) -> list[Document]:
    draw = np.random.default_rng(1)
    made = []
    for i in range(n):
        good = bool(draw.integers(2))
        words = [*draw.choice(["the", "film", "plot", "is", "was"], 3), *draw.choice(GOOD if good else BAD, 3)]
        meta = {"label": "pos" if good else "neg", "stars": 4.5 if good else 1.5, "tags": ["up"] if good else []}
        made.append(Document(f"r{i}", text=" ".join(words), meta=meta, place=f"reviews:{i + 1}"))
    return made


@pytest.mark.parametrize("piece", ["document", "document-words"])
@pytest.mark.parametrize("variant", ["frozen", "linear", "adapted"])
def test_A11_loss_and_answers_equal_a_plain_computation(
    piece: str, variant: str, tiny_bert: Path, tmp_path: Path
) -> None:
    """x = mean over the rows of the mixed views; tanh layers; cross-entropy averaged over the documents."""
    documents = reviews(7)
    encoder = Pretrained(tiny_bert)
    store = Store.open(tmp_path / "s", encoder.spec(dtype="fp32"))
    store.fill(documents, encoder)
    task = named("classification", piece=piece).learn(documents)
    method = Aggregate.build(Variant(variant), store.spec, [task]).eval()
    batch = next(iter(method.batches(method.read(store, documents, [task]), size=16, order=None)))
    part, losses, answers = method.part("classification"), [], []
    for document, cut in zip(documents, encoder.cut(documents), strict=True):
        packed = store.batch(store.index([document.key]), layers=method.layers)
        mixed = part.adapter(packed).detach().numpy().astype(np.float64)
        rows = mixed if piece == "document" else mixed[cut.word >= 0]
        weights = {name: tensor.double().numpy() for name, tensor in part.head.state_dict().items()}
        hidden = np.tanh(weights["tagger.inner.weight"] @ rows.mean(0) + weights["tagger.inner.bias"])
        logits = weights["tagger.outer.weight"] @ hidden + weights["tagger.outer.bias"]
        chances = np.exp(logits) / np.exp(logits).sum()
        losses.append(-np.log(chances[task.labels.index(document.meta["label"])]))
        answers.append(dict(zip(task.labels, chances, strict=True)))
    assert method.loss(batch).item() == pytest.approx(np.mean(losses), rel=1e-4)
    for answer, chances in zip(method.predict(batch, probabilities=True), answers, strict=True):
        label, given = answer["classification"]
        assert given == pytest.approx(chances, rel=1e-4)
        assert label == max(chances, key=chances.__getitem__)


@pytest.mark.parametrize("variant", ["frozen", "adapted"])
def test_two_texts_apart_are_compared_by_their_directions(variant: str, tiny_bert: Path, tmp_path: Path) -> None:
    """u, v, |u - v| and u v of the two texts' means, each sqrt(D) long, against a plain computation of single texts."""
    pairs = [
        ("good film", "bad plot was"),
        ("yes", "no"),
        ("the film is not good", "the plot"),
        ("he said", "she said"),
    ]
    documents = [
        Document(f"p{i}", text=a, pair=b, meta={"label": "ab"[i % 2]}, place=f"pairs:{i + 1}")
        for i, (a, b) in enumerate(pairs)
    ]
    encoder = Pretrained(tiny_bert)
    store = Store.open(tmp_path / "s", encoder.spec(dtype="fp32"))
    task = named("classification", piece="document-apart").learn(documents)
    shown = [part for own in in_parts([task], documents, encoder, encoder.window) for part in own]
    store.fill([*shown, *(Document(text, text=text) for pair in pairs for text in pair)], encoder)
    method = Aggregate.build(Variant(variant), store.spec, [task]).eval()
    part = method.part("classification")
    batch = next(iter(method.batches(method.read(store, shown, [task]), size=16, order=None)))
    weights = {name: tensor.double().numpy() for name, tensor in part.head.state_dict().items()}
    assert weights["tagger.inner.weight"].shape == (16, 64)
    predictor = Predictor(Run(method, (task,), Variant(variant), store.spec), None, encoder)
    live = predictor.predict(pairs, probabilities=True)
    for pair, stored, answer in zip(pairs, method.predict(batch, probabilities=True), live, strict=True):
        means = []
        for text in pair:
            packed = store.batch(store.index([Document(text, text=text).key]), layers=method.layers)
            mean = part.adapter(packed).detach().numpy().astype(np.float64).mean(0)
            means.append(4 * mean / np.linalg.norm(mean))
        u, v = means
        seen = np.concatenate([u, v, abs(u - v), u * v])
        hidden = np.tanh(weights["tagger.inner.weight"] @ seen + weights["tagger.inner.bias"])
        logits = weights["tagger.outer.weight"] @ hidden + weights["tagger.outer.bias"]
        chances = dict(zip(task.labels, np.exp(logits) / np.exp(logits).sum(), strict=True))
        assert stored["classification"][1] == pytest.approx(chances, rel=1e-4)
        assert answer["classification"][1] == pytest.approx(chances, rel=1e-4)
    shares = method.layer_weights(batch, "classification")
    torch.testing.assert_close(shares.sum(1), torch.ones(len(pairs)))


def test_two_texts_apart_need_two_texts_and_no_trained_blocks(tiny_bert: Path) -> None:
    pair = Document("p", text="good", pair="bad", meta={"label": "x"}, place="f:1")
    single = Document("s", text="good", meta={"label": "x"}, place="f:2")
    with pytest.raises(DataError, match=r"f:2 .*compares two texts .* --columns text=first,pair=second, or set piece"):
        named("classification", piece="document-apart").learn([pair, single])
    task = named("classification", piece="document-apart").learn([pair])
    encoder = Pretrained(tiny_bert)
    with pytest.raises(ConfigError, match=r"reads the two texts of a pair apart .* Set piece='document', or use a"):
        Finetune.build(Tuning("top1"), encoder, encoder.spec(), [task])
    together = named("other", kind="classification", column="label").learn([pair])
    with pytest.raises(ConfigError, match="'classification' and 'other' read other parts of these documents"):
        in_parts([task, together], [pair], encoder, encoder.window)
    with pytest.raises(ConfigError, match=r"'document-apart'\) and 'other' \(piece='document'\) are read otherwise"):
        Aggregate.build(Variant("linear"), encoder.spec(), [task, together])
    with pytest.raises(
        DataError, match=r"f:2 .* trained on pairs, and this item has no second text\. Name the columns"
    ):
        task.check(single)


def test_documents_that_a_task_has_not_prepared_are_refused_and_the_way_is_said(
    tiny_bert: Path, tmp_path: Path
) -> None:
    pair = Document("p", text="good", pair="bad film", meta={"label": "x"}, place="f:1")
    encoder = Pretrained(tiny_bert)
    store = Store.open(tmp_path / "s", encoder.spec(dtype="fp32"))
    apart = replace(pair, apart=True)
    store.fill([pair, apart, Document("s", text="good")], encoder)
    for piece, given, wanted in (("document-apart", pair, apart), ("document", apart, pair)):
        task = named("classification", piece=piece).learn([pair])
        method = Aggregate.build(Variant("linear"), store.spec, [task]).eval()
        with pytest.raises(DataError, match=r"f:1: .* documents = \[task\.prepared\(document\) for document in docum"):
            method.read(store, [given], [task])
        assert task.prepared(given) == wanted == task.prepared(wanted)
        examples = method.read(store, [task.prepared(given)], [task])
        assert examples.keys == (wanted.key,)
        predictor = Predictor(Run(method, (task,), Variant("linear"), store.spec), store)
        assert predictor.predict([pair]) == predictor.predict([apart]) == [{"classification": "x"}]
    method = Aggregate.build(Variant("linear"), store.spec, [named("rte", piece="document-apart").learn([pair])])
    with pytest.raises(DataError, match="s: there is one text, and rte reads two"):
        method.read(store, [Document("s", text="good")])


def test_LONG_a_document_of_several_windows_is_averaged_over_all_its_rows(tiny_bert: Path, tmp_path: Path) -> None:
    documents = [Document(f"l{i}", text=" ".join(["the film is", "good" if i % 2 else "bad"] * 15)) for i in range(4)]
    documents = [Document(d.id, text=d.text, meta={"label": "ab"[i % 2]}) for i, d in enumerate(documents)]
    done = trained(tiny_bert, tmp_path / "s", documents, [named("classification")], epochs=1, variant="frozen")
    pieces = done.encoder.cut(documents)
    assert all(len(cut.windows) > 3 for cut in pieces)
    views = dict(done.encoder.encode(pieces))
    head = done.run.method.eval().part("classification").head
    for i, document in enumerate(documents):
        assert views[i].shape[1] == 62  # 60 words and two special pieces, each once
        alone = head(torch.from_numpy(views[i][-1].mean(0, keepdims=True))).double().softmax(-1)[0].tolist()
        ((_, chances),) = (a["classification"] for a in done.predictor.predict([document], probabilities=True))
        assert list(chances.values()) == pytest.approx(alone, rel=1e-4)


def test_three_kinds_of_tasks_learn_side_by_side_from_one_read(tiny_bert: Path, tmp_path: Path) -> None:
    documents = reviews(60)
    tasks = [named("classification"), named("regression", column="stars"), named("multilabel", column="tags")]
    done = trained(tiny_bert, tmp_path / "s", documents, tasks)
    answers = done.predictor.predict(documents)
    right = [
        (
            a["classification"] == d.meta["label"],
            abs(a["regression"] - d.meta["stars"]) < 1,
            list(a["multilabel"]) == d.meta["tags"],
        )
        for a, d in zip(answers, documents, strict=True)
    ]
    assert (np.mean(right, axis=0) > 0.9).all()
    with pytest.raises(ConfigError, match="the head 'regressor' gives no probabilities"):
        done.predictor.predict(documents[:1], probabilities=True)


def test_strings_pairs_and_documents_get_the_same_answers_from_a_loaded_run(tiny_bert: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    texts = [(str(draw.choice(["yes", "no"])), str(draw.choice(["yes", "no"]))) for _ in range(40)]
    documents = [
        Document(f"p{i}", text=f"he said {a}", pair=f"she said {b}", meta={"label": f"she {b}"})
        for i, (a, b) in enumerate(texts)
    ]
    done = trained(
        tiny_bert, tmp_path / "s", documents, [named("mrpc", positive="she yes")], epochs=40, variant="adapted"
    )
    assert done.scores["f1_accuracy"] is not None
    assert done.scores["f1_accuracy"] > 90
    bundle.save(done.run, tmp_path / "run")
    loaded = bundle.load(tmp_path / "run", done.encoder)
    assert loaded.tasks == done.run.tasks
    card = (tmp_path / "run" / "README.md").read_text("utf-8")
    assert "pipeline_tag: text-classification" in card
    assert "- mrpc: 2 labels, one answer a document" in card
    stored = Predictor(loaded, done.store).predict(documents)
    live = Predictor(loaded, encoder=done.encoder).predict([(d.text, d.pair) for d in documents])
    assert live == stored
    swapped = Predictor(loaded, encoder=done.encoder).predict([(d.pair, d.text) for d in documents])
    assert {answer["mrpc"] for answer in swapped} <= {"she yes", "she no"}
    with pytest.raises(DataError, match=r"text 1.*trained on pairs, and this item has no second text"):
        Predictor(loaded, encoder=done.encoder).predict(["he said yes"])


def test_CLS1_every_row_of_the_tables_is_encoded_trained_on_and_answered(
    cases: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    rows = read(cases / "CLS-1a.tsv", columns={"text": "sentence1", "pair": "sentence2"})
    done = trained(tiny_bert, tmp_path / "a", rows, [named("rte")], epochs=40, variant="adapted")
    assert done.predictor.predict(rows) == [{"rte": label} for label in ("1", "0", "1", "0")]
    texts = read(cases / "CLS-1b.csv", columns={"label": 0, "text": 1})
    done = trained(tiny_bert, tmp_path / "b", texts, [named("cola")], epochs=40, variant="adapted")
    assert done.predictor.predict(["NA", "null", "None", "nan", "plain"]) == [{"cola": label} for label in "01010"]
    assert len(done.store) == 5


def test_an_empty_text_gets_no_answer_and_is_said(
    tiny_bert: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = trained(tiny_bert, tmp_path / "s", reviews(4), [named("classification")], epochs=1)
    answers = done.predictor.predict(["good film", " ", "bad"])
    assert answers[1] == {"classification": None}
    assert {answers[0]["classification"], answers[2]["classification"]} <= {"pos", "neg"}
    assert "1 texts are empty and get no answer, the first: text 2" in caplog.text


def test_a_pair_without_either_text_gets_no_answer_and_is_said(
    tiny_bert: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [replace(one, pair="the plot") for one in reviews(4)]
    done = trained(tiny_bert, tmp_path / "s", rows, [named("classification")], epochs=1)
    found = done.predictor.predict([("good film", "bad plot"), ("good film", ""), ("", "bad plot"), ("bad", " ")])
    assert [answer["classification"] is None for answer in found] == [False, True, True, True]
    assert "3 texts are empty and get no answer, the first: text 2" in caplog.text
