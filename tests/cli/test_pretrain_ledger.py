"""The costs that `pretrain` reports, against what was really encoded and stepped."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from encodeonce.types import Document

from .conftest import Run
from .test_pretrain import config

TOPICS = ("sample.rule=rouge", "sample.topic_levels=2", "sample.n_topics=3", "sample.n_held_out=4", "sample.n=6")


def sets(*changes: str) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


def by_hand(tokenizer: Any, documents: Sequence[Document]) -> int:
    """Two blocks of width 16 with 32 inside, forward: 4 x 16 x 16 + 2 x 16 x 32 a piece, 2 x 16 a pair of pieces."""
    sizes = [len(tokenizer(sentence)["input_ids"]) for document in documents for sentence in document.sentences]
    return sum(2 * 2 * (n * (4 * 16 * 16 + 2 * 16 * 32) + n * n * 2 * 16) for n in sizes)


@pytest.mark.parametrize("changes", [(), TOPICS, (*TOPICS, "full=true")])
def test_encoding_costs_what_was_encoded_to_train_and_apart_what_to_score(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: tuple[str, ...]
) -> None:
    """Clusters are made of all documents, whether they stand in a tuple or not."""
    from transformers import AutoTokenizer

    from encodeonce.cli import pretraining, steps

    filled: list[list[Document]] = []

    def filling(store: Any, documents: Sequence[Document], model: Any, **more: Any) -> Any:
        filled.append(list(documents))
        return steps.encode(store, documents, model, **more)

    monkeypatch.setattr(pretraining, "encode", filling)
    report = json.loads(run("pretrain", config(tmp_path, tiny), "-o", "out", *sets(*changes), "--json").stdout)
    tokenizer, costs = AutoTokenizer.from_pretrained(tiny), report["costs"]
    assert len(filled) == 2, "to train, and to score"
    assert costs["flops"]["encode"] == by_hand(tokenizer, filled[0]) > 0
    assert costs["scoring"]["flops"] == by_hand(tokenizer, filled[1]) > 0
    assert costs["scoring"]["documents"] == len(filled[1])
    assert costs["stored"] == {"before": 0, "of": len(filled[0])}
    parts = [costs["seconds"][name] for name in ("encode", "draw", "train")]
    assert costs["seconds"]["total"] == pytest.approx(sum(parts), abs=0.02)
    noted = [json.loads((tmp_path / "out" / name).read_text()) for name in ("encode.json", "encode-scored.json")]
    assert [costs["seconds"]["encode"], costs["scoring"]["seconds"]] == [round(one["seconds"], 2) for one in noted]
    if changes:
        assert len(filled[0]) == 45 > costs["documents"], "all that are trained on, more than stand in tuples"
    said = run("pretrain", tmp_path / "p.toml", "-o", "out", *sets(*changes)).stdout
    assert f"scored     {len(filled[1])} held-out documents, encoded beside" in said


@pytest.mark.parametrize("changes", [(), TOPICS])
def test_drawing_tuples_and_finding_topics_is_in_the_total(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: tuple[str, ...]
) -> None:
    from encodeonce.cli import pretraining

    for name in ("sampled", "topics"):
        true = getattr(pretraining, name)

        def slow(*given: Any, true: Any = true, **named: Any) -> Any:
            time.sleep(0.2)
            return true(*given, **named)

        monkeypatch.setattr(pretraining, name, slow)
    monkeypatch.setattr(pretraining.Job, "held_sample", lambda self, documents: None)
    slept = 0.4 if changes else 0.2
    result = run("pretrain", config(tmp_path, tiny), "-o", "out", *sets(*changes))
    seconds = json.loads((tmp_path / "out" / "report.json").read_text())["costs"]["seconds"]
    assert slept <= seconds["draw"] + 0.005
    assert seconds["draw"] <= seconds["total"]
    assert f", {seconds['draw']:.1f} s of it drawing tuples and finding topics" in result.stdout


def test_a_budget_pays_for_all_documents_that_clusters_are_made_of(run: Run, tiny: Path, tmp_path: Path) -> None:
    path = config(tmp_path, tiny)
    whole = json.loads(run("pretrain", path, "-o", "whole", *sets(*TOPICS), "--json").stdout)["costs"]["flops"]
    few = whole["encode"] + 0.6 * whole["train"]
    half = json.loads(
        run("pretrain", path, "-o", "half", "--budget", f"{few / 1e12:.9f}TFLOP", *sets(*TOPICS), "--json").stdout
    )
    assert half["costs"]["flops"]["encode"] == whole["encode"]
    assert half["costs"]["flops"]["total"] < 1.1 * few
    done = run(
        "pretrain", path, "-o", "no", "--budget", f"{0.9 * whole['encode'] / 1e12:.9f}TFLOP", *sets(*TOPICS), code=1
    )
    assert "does not pay for one batch" in done.stderr


def test_low_rank_terms_cost_less_than_all_weights(run: Run, tiny: Path, tmp_path: Path) -> None:
    """In the report, as in a budget; the epoch of masked language beside it is one of all weights."""
    path = config(tmp_path, tiny)
    plain, lora = (
        json.loads(run("pretrain", path, "-o", f"r{rank}", *sets(f"options.lora={rank}"), "--json").stdout)["costs"]
        for rank in (0, 1)
    )
    assert 0.6 < lora["flops"]["train"] / plain["flops"]["train"] < 0.75
    assert lora["masked_epoch_flops"] == plain["masked_epoch_flops"]
    given = ("--budget", f"{(plain['flops']['encode'] + 0.5 * plain['flops']['train']) / 1e12:.9f}TFLOP", "--json")
    more, less = (
        json.loads(run("pretrain", path, "-o", f"b{rank}", *given, *sets(f"options.lora={rank}")).stdout)["tuples"]
        for rank in (1, 0)
    )
    assert more > 1.2 * less
