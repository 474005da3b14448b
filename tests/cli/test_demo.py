"""`demo` with a tiny encoder and few sentences; the checks of the packaged encoder; F1 of what was taken out."""

import importlib.util
import json
from itertools import pairwise
from pathlib import Path

import pytest

from encodeonce.cli.demonstration import NOTHING, changed_f1, example
from encodeonce.corpus import manual
from encodeonce.encoders import quickstart
from encodeonce.encoders.checkpoint import locate, named
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.serve.bundle import load
from encodeonce.tasks.tagging import Tagging
from encodeonce.types import Document

from .conftest import LEXICON, Run


@pytest.fixture
def manual_of_cats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manual that is read in no time."""
    nouns, verbs = LEXICON["NOUN"], LEXICON["VERB"]
    lines = [f"The {a} {v}, {w} the Big {b}." for a in nouns for b in nouns for v, w in pairwise(verbs)]
    monkeypatch.setattr(manual, "corpus", lambda *limits: [(line, "cats.py") for line in lines])


def test_a_folder_that_holds_no_run_is_refused_before_anything_is_encoded(
    run: Run, tiny: Path, tmp_path: Path, manual_of_cats: None
) -> None:
    """It was, once everything had been trained."""
    own = tmp_path / "demo" / "run" / "config.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    refused = run("demo", "--encoder", tiny, "--sentences", 60, code=1)
    assert "is not the config of a saved run" in refused.stderr
    assert own.read_text() == "{}"
    assert not (tmp_path / "demo" / "states").exists()


def test_a_run_of_something_else_is_not_replaced(run: Run, tiny: Path, tmp_path: Path, manual_of_cats: None) -> None:
    config = tmp_path / "demo" / "run" / "config.json"
    config.parent.mkdir(parents=True)
    own = {
        "schema": 1,
        "method": "adapted",
        "model_sha256": "",
        "tasks": [Tagging("upos", labels=("A", "B")).to_json()],
    }
    config.write_text(json.dumps(own))
    refused = run("demo", "--encoder", tiny, "--sentences", 60, code=1)
    assert "holds a run of upos, no demo's, which would be overwritten" in refused.stderr
    assert json.loads(config.read_text()) == own


def test_demo_twice(run: Run, tiny: Path, tmp_path: Path, manual_of_cats: None) -> None:
    args = ("demo", "--encoder", tiny, "--sentences", 60, "--epochs", 2, "--slice", 16, "--slice-epochs", 1)
    first = run(*args)
    for name in ("frozen", "linear", "fusion", "adapted", "fine-tuning, first 16 sentences, 1 epochs"):
        assert name in first.stdout
    assert "case F1" in first.stdout
    assert "read      the" in first.stdout
    assert "original  The" in first.stdout
    assert (tmp_path / "demo" / "layers.png").read_bytes().startswith(b"\x89PNG")
    assert [task.name for task in load(tmp_path / "demo" / "run").tasks] == list(NOTHING)
    again = run(*args)
    assert "0 encoded" in again.stdout
    assert "encoder not loaded" in again.stdout

    def scores(text: str) -> list[list[str]]:
        return [line.split()[:-3] for line in text.splitlines()[2:8]]

    assert scores(first.stdout) == scores(again.stdout)


def test_f1_counts_what_was_taken_out() -> None:
    gold = [("none", "comma", "period"), ("none", "comma")]
    assert changed_f1(gold, gold, "none") == 100
    assert changed_f1(gold, [("none", "none", "period"), ("comma", "period")], "none") == pytest.approx(
        200 * 1 / (3 + 3)
    )
    assert changed_f1([("none",)], [("none",)], "none") is None


def test_the_example_is_chosen_by_the_text_alone() -> None:
    def document(number: int, words: int, inner: str) -> Document:
        case = ("Capitalised", inner, *["lower"] * (words - 2))
        marks = ("none", "comma", *["none"] * (words - 3), "period")
        return Document(
            f"{number}", ("w",) * words, columns={"case": case, "punct": marks}, meta={"text": f"text {number}"}
        )

    documents = [document(0, 5, "UPPER"), document(1, 12, "lower"), document(2, 12, "UPPER"), document(3, 12, "UPPER")]
    predicted = {"case": [d.columns["case"] for d in documents], "punct": [d.columns["punct"] for d in documents]}
    assert example(documents, predicted).splitlines()[1:] == [f"restored  W W,{' w' * 10}.", "original  text 2"]


def test_the_packaged_weights_are_checked(minilm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert quickstart.quickstart_folder() == minilm
    assert locate("quickstart") == locate("all-MiniLM-L6-v2") == (minilm, "")
    assert Pretrained("quickstart").spec().encoder == named("all-MiniLM-L6-v2") == "all-MiniLM-L6-v2"
    assert (named("org/model"), named(minilm)) == ("org/model", str(minilm.resolve()))
    monkeypatch.setattr(quickstart, "WEIGHTS", "0" * 64)
    with pytest.raises(quickstart.EncoderError, match=r"has SHA-256 53aa51172d14.*expected 0000"):
        quickstart.quickstart_folder()


def test_without_the_extra_the_message_has_the_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'encodeonce[quickstart]'" in run("demo", code=1).stderr
