"""Parsing over trained blocks: learned, always a tree, and the same trees after a run is saved and loaded."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from encodeonce.batching import Cut
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.nn.trees import is_tree
from encodeonce.serve.bundle import Run, load, save
from encodeonce.serve.predictor import Predictor
from encodeonce.store import Store
from encodeonce.tasks import named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

SMALL = {"n_lstm_layers": 1, "lstm_width": 12, "arc_width": 16, "rel_width": 8}
RATES = Settings(
    learning_rate=2e-2,
    encoder_learning_rate=2e-3,
    num_train_epochs=12,
    per_device_train_batch_pieces=40,
    adam_beta1=0.9,
    adam_beta2=0.9,
    adam_epsilon=1e-12,
    max_grad_norm=5.0,
)
"""A-12's optimiser, at rates that suit two tiny blocks."""


def treebank(n: int) -> list[Document]:
    """A word's letter says where its head is: "the" right, "cat" the root, "mat" left."""
    rng, documents = random.Random(2), []
    for i in range(n):
        before, after = rng.randrange(3), rng.randrange(3)
        words = ("the",) * before + ("cat",) + ("mat",) * after
        heads = [*range(2, before + 2), 0, *range(before + 1, before + after + 1)]
        labels = ("det",) * before + ("root",) + ("obj",) * after
        columns = {"head": tuple(map(str, heads)), "deprel": labels}
        documents.append(Document(f"s{i}", words, columns=columns, place=f"t:{i}"))
    return documents


@pytest.mark.parametrize(
    "tuning",
    [Tuning("finetune"), Tuning("live_mix", live=1, key_width=8, n_heads=2), Tuning("top1"), Tuning("lora")],
    ids=lambda tuning: tuning.name,
)
def test_parsing_over_trained_blocks(checkpoint: Callable[..., Path], tuning: Tuning, tmp_path: Path) -> None:
    if tuning.rank:
        pytest.importorskip("peft")
    documents, encoder = treebank(24), Pretrained(checkpoint("bert"))
    off = {"dropout": 0.0, "lstm_dropout": 0.0, "token_dropout": 0.0}
    task = named("parsing", **SMALL, **off).learn(documents)
    store = Store.open(tmp_path / "states", encoder.spec(dtype="fp32"))
    store.fill(documents, encoder)
    method = Finetune.build(tuning, encoder, store.spec, [task])
    before = {name: p.detach().clone() for name, p in method.named_parameters() if p.requires_grad}
    source = store if method.layers else Cut(store.spec, encoder.cut(documents))
    examples = method.read(source, documents, [task])
    done = fit(method, examples, {"parsing": task}, RATES)
    assert done.steps == 12 * -(-int(examples.lengths.sum()) // 40)
    assert done.epochs[-1]["loss"] < 0.5 * done.epochs[0]["loss"]
    after = dict(method.named_parameters())
    assert [name for name in before if ".blocks." in name and not torch.equal(before[name], after[name])]
    run = Run(method.eval(), (task,), tuning, store.spec)
    shown = [Document(f"q{i}", tuple(["the", "cat", "mat", "x", "river"][: i % 5 + 1])) for i in range(10)]
    answers = Predictor(run, encoder=encoder).predict(shown)
    assert all(is_tree(list(answer["parsing"].heads)) for answer in answers)
    gold = Predictor(run, encoder=encoder).predict(documents)
    assert task.score(task.gold(documents), [one["parsing"] for one in gold])["uas"] > 65
    save(run, tmp_path / "run")
    assert Predictor(load(tmp_path / "run", encoder), encoder=encoder).predict(shown) == answers
