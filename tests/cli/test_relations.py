"""Entities and relations on the command line: train, evaluate, and predictions in the form the file came in."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encodeonce.corpus import read

Run = Callable[..., Any]
PEOPLE, PLACES = ["cat", "dog", "bird"], ["tree", "house"]


def sentence(rng: random.Random) -> dict[str, Any]:
    words = ["the", rng.choice(PEOPLE), rng.choice(["sees", "likes"]), "a", rng.choice(PLACES), "."]
    entities = [{"type": "ANIMAL", "start": 0, "end": 2}, {"type": "THING", "start": 4, "end": 5}]
    return {"tokens": words, "entities": entities, "relations": [{"type": "meets", "head": 0, "tail": 1}]}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.json, dev.json and new.jsonl without gold in SpERT's form, new.scierc.jsonl, and a running text."""
    folder, rng = tmp_path_factory.mktemp("relations"), random.Random(1)
    for split, size in (("train", 60), ("dev", 10)):
        (folder / f"{split}.json").write_text(json.dumps([sentence(rng) for _ in range(size)], indent=1))
    plain = [sentence(rng)["tokens"] for _ in range(3)]
    (folder / "new.jsonl").write_text("".join(json.dumps({"tokens": words, "n": 1.50}) + "\n" for words in plain))
    (folder / "scierc.jsonl").write_text(json.dumps({"doc_key": "D", "sentences": plain}) + "\n")
    (folder / "new.txt").write_text(" ".join(plain[0]) + "\n")
    return folder


def test_train_evaluate_and_predict(run: Run, tiny: Path, corpus: Path, files: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        f'encoder = "{tiny}"\nstore = "states"\ntasks = ["relations"]\nmethod = "linear"\n'
        f'[data]\ntrain = "{files}/train.json"\ndev = "{files}/dev.json"\n[task.relations]\nhidden = 32\n'
        "[train]\nnum_train_epochs = 8\nper_device_train_batch_size = 8\nlearning_rate = 0.02\n"
    )
    run("train", "config.toml", "-o", "out")
    out = Path("out")
    rows = json.loads(run("evaluate", out, files / "dev.json", "--json").stdout)
    scores = {row["metric"]: row["value"] for row in rows}
    assert (scores["ner_f1_strict"], scores["re_f1_strict"]) == (100.0, 100.0)
    run("predict", out, files / "new.jsonl", "-o", "found.jsonl")
    first = json.loads(Path("found.jsonl").read_text("utf-8").split("\n")[0])
    assert list(first) == ["tokens", "n", "entities", "relations"]
    assert first["entities"] == [{"type": "ANIMAL", "start": 0, "end": 2}, {"type": "THING", "start": 4, "end": 5}]
    spert = [(d.meta["entities"], d.meta["relations"]) for d in read("found.jsonl")]
    run("predict", out, files / "scierc.jsonl", "-o", "found.scierc.jsonl")
    assert [(d.meta["entities"], d.meta["relations"]) for d in read("found.scierc.jsonl")] == spert
    run("predict", out, files / "new.txt", "-o", "found.txt.jsonl")
    (document,) = read("found.txt.jsonl")
    assert document.meta["entities"] == spert[0][0]
    run("predict", out, files / "dev.json", "-o", "dev.json")
    assert Path("dev.json").read_bytes() == (files / "dev.json").read_bytes()  # all right, so nothing is changed
    (tmp_path / "new.conll").write_text("the\tO\ncat\tO\n")
    for words, kind in ((corpus / "test.conllu", "conllu"), (tmp_path / "new.conll", "columns")):
        wrong = run("predict", out, words, code=1).stderr
        assert f"gives entities and relations, and this '{kind}' file has a place for answers a word only" in wrong
    assert "'relations' has not one label a row" in run("inspect", out, files / "dev.json", code=1).stderr
