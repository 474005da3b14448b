"""`train`, `evaluate`, `predict` and `inspect` with methods that train blocks of the encoder."""

import json
import re
from pathlib import Path

import pytest

from encodeonce.corpus import read

from .conftest import Run

FEW = ("--set", "train.num_train_epochs=2", "--set", "tasks=['upos']")


@pytest.mark.parametrize("method", ["finetune", "top1", "lora", "live_mix"])
def test_a_run_answers_as_it_was_scored(run: Run, config: Path, corpus: Path, tmp_path: Path, method: str) -> None:
    if method == "lora":
        pytest.importorskip("peft")
    train = ("train", config, "-o", "run", "--set", f"method={method}", *FEW)
    said = json.loads(run(*train, "--json").stdout)
    assert (said["encode"]["written"] > 0) == (method != "finetune")
    rows = json.loads(run("evaluate", "run", corpus / "test.conllu", "--json").stdout)
    assert {(row["method"], row["value"]) for row in rows} == {(method, said["scores"]["test"]["upos"]["accuracy"])}
    run("predict", "run", corpus / "test.conllu", "-o", "out.conllu")
    right = [
        a == b
        for gold, found in zip(read(corpus / "test.conllu"), read("out.conllu"), strict=True)
        for a, b in zip(gold.columns["upos"], found.columns["upos"], strict=True)
    ]
    assert 100 * sum(right) / len(right) == pytest.approx(rows[0]["value"])
    again = json.loads(run(*train, "--json").stdout)
    assert again["scores"] == said["scores"]
    if method == "finetune":
        assert "reads no stored layer" in run("inspect", "run", corpus / "test.conllu", code=1).stderr
        assert "store: not read" in run(*train).stdout
    else:
        (panel,) = json.loads(run("inspect", "run", corpus / "test.conllu", "--json").stdout)
        assert panel["layers"] == {"top1": [1], "lora": [0], "live_mix": [0, 1, 2]}[method]
        assert all(sum(line["weights"]) == pytest.approx(1, abs=1e-4) for line in panel["labels"])


def test_an_item_too_long_for_live_blocks_is_named_before_the_encoding_pass(
    run: Run, config: Path, tmp_path: Path
) -> None:
    whole = ("train", config, "-o", "run", *FEW, "--set", "window=7")
    refused = run(*whole, "--set", "method=live_mix", code=1).stderr
    assert re.search(r"train\.conllu:\d+: \d+ pieces, but the encoder's blocks can be given 7 at once", refused)
    assert "encoded" not in refused
    said = json.loads(run(*whole, "--set", "method=linear", "--json").stdout)
    assert said["encode"]["hits"] == 0


def test_a_run_needs_its_encoder_and_no_other(
    run: Run, config: Path, corpus: Path, tmp_path: Path, minilm: Path
) -> None:
    run("train", config, "-o", "run", "--set", "method=top1", "--set", "finetune.compute=bf16", *FEW)
    wrong = run("evaluate", "run", corpus / "test.conllu", "--encoder", minilm, code=1)
    assert "does not make the states" in wrong.stderr
    other = run("train", config, "-o", "run", "--set", "method=top1", *FEW, "--set", "finetune.live=2", code=1)
    assert "started differently" in other.stderr
