"""`plan`: what it says against what then takes place; hits, samples, refusals; nothing is written.

Axes: none
"""

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from encodeonce.cli import planning, rehearsal
from encodeonce.cli.advice import Advice
from encodeonce.cli.config import load, value_of
from encodeonce.cli.contenders import contender
from encodeonce.cli.learning import layers_of
from encodeonce.cli.main import cli
from encodeonce.cli.plan_methods import only_view
from encodeonce.cli.sampling import Estimate
from encodeonce.corpus import read
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.train.optim import count_parameters

from .conftest import LEXICON, Run

QUICK = ("--budget-seconds", "0.1", "--json")


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "SAMPLED_BATCHES", 1)


def planned(run: Run, *args: object) -> dict[str, Any]:
    found = json.loads(run("plan", *args, *QUICK).stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def one(tiny: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A plan of the tiny treebank with nothing stored."""
    path = tmp_path_factory.mktemp("plan") / "config.toml"
    files = "".join(f'{split} = "{corpus / split}.conllu"\n' for split in ("train", "dev", "test"))
    path.write_text(
        f'encoder = "{tiny}"\ntasks = ["upos", "deprel"]\nmethod = "linear"\n'
        f"[data]\n{files}[train]\nnum_train_epochs = 3\nper_device_train_batch_size = 8\n"
    )
    result = CliRunner().invoke(cli, ["plan", str(path), *QUICK])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_counts_are_those_of_the_corpus(one: dict[str, Any], tiny: Path, corpus: Path) -> None:
    documents = [d for split in ("train", "dev", "test") for d in read(corpus / f"{split}.conllu")]
    distinct = list({document.key: document for document in documents}.values())
    pieces = [len(cut) for cut in Pretrained(tiny).cut(distinct)]
    found = one["corpus"]
    assert found["items"] == {"train": 60, "dev": 12, "test": 12}
    assert (found["distinct"], found["cut"]) == (len(distinct), len(distinct))
    assert found["words"] == sum(len(document.words) for document in distinct)
    assert set(found["pieces"].values()) == {sum(pieces)}
    assert (found["longest"], found["window"], found["over_window"]["value"]) == (max(pieces), 32, 0)
    assert one["store"]["hits"] == 0
    assert one["store"]["missing"] == len(distinct)


def test_a_method_that_trains_blocks_on_stored_views_is_weighed_itself(run: Run, config: Path) -> None:
    found = planned(run, config, "--set", "method=live_mix", "--set", "finetune.live=1")
    seconds = found["seconds"]
    saved = seconds["live"]["2"]["value"] - seconds["live"]["1"]["value"]
    assert found["method"] == "live_mix"
    expected = None if saved <= 0 else pytest.approx(seconds["first"]["value"] / saved, rel=0.05)
    assert found["break_even"]["epochs"] == expected
    assert planned(run, config, "--set", "method=finetune")["method"] == "adapted"


@pytest.mark.parametrize(
    ("method", "view"), [("frozen", "last"), ("top1", "[1]"), ("lora", "[0]"), ("finetune", "all"), ("live_mix", "all")]
)
def test_the_layers_advised_are_those_that_the_method_reads(config: Path, method: str, view: str) -> None:
    """And a store of what is advised is enough for it."""
    chosen = load(config)
    model, own = Pretrained(chosen.encoder), contender(chosen, method)
    assert only_view(own, model.spec("last"), model) == view.removeprefix("all")
    layers_of(own.settings(), model.spec(value_of(view)))


def test_a_method_of_ones_own_name_is_advised_by_its_own_settings(run: Run, config: Path) -> None:
    """All of `finetune` reads no store; with one live block it reads the view below that."""
    own = ("method=mine", "methods.mine.method=finetune", "methods.mine.finetune.live=1")
    found = planned(run, config, *(part for change in own for part in ("--set", change)))
    assert {one["choice"]: one["value"] for one in found["advice"]}["layers"] == "[1]"


def test_bytes_are_what_encode_then_writes(run: Run, one: dict[str, Any], config: Path, tmp_path: Path) -> None:
    for size in one["sizes"]:
        assert (size["layers"], size["views"]) in {("all", 3), ("last", 1)}
        store = tmp_path / f"{size['layers']}-{size['dtype']}"
        run("encode", config, "-o", store, "--layers", size["layers"], "--dtype", size["dtype"])
        written = sum(file.stat().st_size for file in store.iterdir() if file.name != "store.json")
        assert size["bytes"]["value"] == pytest.approx(written, rel=0.01)
    assert len(one["sizes"]) == 8
    assert one["store"]["bytes_to_write"] == next(
        size["bytes"] for size in one["sizes"] if (size["layers"], size["dtype"]) == ("all", "fp16")
    )


def test_everything_a_plan_promises_is_in_its_json(one: dict[str, Any]) -> None:
    assert set(one) == {
        *("encoder", "method", "tasks", "epochs", "batches_per_epoch", "corpus", "store", "sizes", "seconds", "flops"),
        *("break_even", "advice", "machine"),
    }
    seconds = one["seconds"]
    assert set(seconds["cached"]) == {"frozen", "linear", "fusion", "agg", "adapted"}
    assert set(seconds["live"]) == {"1", "2"}
    for value in (seconds["encode"], seconds["first"], *seconds["cached"].values(), *seconds["live"].values()):
        assert 0 <= value["low"] <= value["value"] <= value["high"]
        assert value["value"] > 0
    assert one["batches_per_epoch"] == 8
    assert (one["method"], one["tasks"], one["epochs"]) == ("linear", ["upos", "deprel"], 3)
    assert [part["choice"] for part in one["advice"]] == ["store", "layers", "dtype", "live"]
    assert {"commit", "machine", "threads", "torch", "free_bytes", "memory_bytes"} <= set(one["machine"])
    cached = one["flops"]["cached"]
    assert 0 < cached["frozen"] < cached["linear"] < cached["fusion"] < cached["agg"] < cached["adapted"]
    assert one["flops"]["live"] > one["flops"]["encode"] > 0


def test_break_even_is_the_formula_of_its_own_numbers(one: dict[str, Any]) -> None:
    seconds, even = one["seconds"], one["break_even"]
    first, cached, live = seconds["first"]["value"], seconds["cached"]["linear"]["value"], seconds["live"]["2"]["value"]
    if live > cached:
        assert even["epochs"] == pytest.approx(first / (live - cached), rel=1e-4)
    else:
        assert even["epochs"] is None
    if 5 * live > 3 * cached:  # epochs of both tasks, of which one has half
        assert even["tasks"] == pytest.approx(first / ((5 * live - 3 * cached) / 2), rel=1e-4)
    assert even["epochs_encoding_each"] == pytest.approx(first / seconds["encode"]["value"], rel=1e-3)


Recorded = list[rehearsal._LiveStep]


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The steps of live blocks that a plan rehearses. One takes a second for each trunk, half of that with low-rank
    terms, and a step of a method that reads takes a quarter for each task."""
    steps: Recorded = []
    made = rehearsal._LiveStep.__init__

    def record(self: rehearsal._LiveStep, *args: Any) -> None:
        made(self, *args)
        steps.append(self)

    def step(self: rehearsal._LiveStep, chosen: np.ndarray) -> tuple[float, float, float]:
        each = 0.5 if any("lora" in name for name, _ in self.trunks[0].method.named_parameters()) else 1.0
        return each * sum(trunk.alike for trunk in self.trunks), 0.0, self.macs(chosen)

    monkeypatch.setattr(rehearsal._LiveStep, "__init__", record)
    monkeypatch.setattr(rehearsal._LiveStep, "__call__", step)
    monkeypatch.setattr(rehearsal.Rehearsal, "cached", lambda self, *_: Estimate.exactly(0.25 * len(self.tasks)))
    return steps


@pytest.mark.parametrize(
    "changes",
    [
        ("method=lora",),
        ("method=finetune",),
        ("method=finetune", "finetune.shared=true"),
        ("method=live_mix", "finetune.live=1", "finetune.over=adapted", "finetune.key_width=8", "finetune.n_heads=2"),
        ("method=live_mix", "finetune.blocks=[1]", "finetune.over=linear", "finetune.shared=true"),
        ("method=live_mix", "finetune.lora=3"),
        ("method=mine", "methods.mine.method=top1", "methods.mine.finetune.lora=2"),
    ],
    ids=" ".join,
)
def test_what_is_rehearsed_is_what_train_would_build(
    run: Run, config: Path, rehearsed: Recorded, changes: tuple[str, ...]
) -> None:
    """Counted by a dry run of `train`: as many weights, and a trunk for each of both tasks unless they share one."""
    args = [part for change in changes for part in ("--set", change)]
    trained = json.loads(run("train", config, "--dry-run", "--json", *args).stdout)["parameters"]["total"]
    planned(run, config, *args)
    totals = [sum(trunk.alike * count_parameters(trunk.method)["total"] for trunk in one.trunks) for one in rehearsed]
    assert trained in totals
    trunks = sum(trunk.alike for trunk in rehearsed[totals.index(trained)].trunks)
    assert trunks == (1 if "finetune.shared=true" in changes else 2)


def test_low_rank_terms_are_timed_themselves(run: Run, config: Path, rehearsed: Recorded) -> None:
    """Eight batches of two trunks: half a second a trunk, and a second where everything is trained."""
    seconds = planned(run, config, "--set", "method=lora")["seconds"]
    assert (seconds["weighed"]["value"], seconds["live"]["2"]["value"]) == (8 * 2 * 0.5, 8 * 2 * 1.0)
    assert "epoch, lora on stored views" in run("plan", config, "--set", "method=lora", *QUICK[:2]).stdout


@pytest.mark.parametrize(
    ("tasks", "shared", "trunks", "saved"),
    [
        ('["upos"]', "false", 1, 5 * 8 - 3 * 2),
        ('["upos", "deprel"]', "false", 2, 5 * 8 - 3 * 2),
        ('["upos", "deprel"]', "true", 1, 5 * 8 / 2 - 3 * 2),
    ],
)
def test_break_even_counts_single_tasks(
    run: Run, config: Path, rehearsed: Recorded, tasks: str, shared: str, trunks: int, saved: float
) -> None:
    """Three epochs of a quarter of a second for each of eight batches and each task, against five of a second a trunk:
    a task saves the same beside another as alone, and less where both have one trunk."""
    found = planned(run, config, "--set", f"tasks={tasks}", "--set", f"finetune.shared={shared}")
    assert found["seconds"]["trunks"] == trunks
    assert found["seconds"]["live"]["2"]["value"] == 8 * trunks
    assert found["break_even"]["tasks"] == pytest.approx(found["seconds"]["first"]["value"] / saved, rel=1e-4)


def test_fine_tuning_is_given_the_epochs_that_the_experiment_chose() -> None:
    grid = Path(__file__).parents[2] / "experiments" / "structures" / "ewt" / "grid.jsonl"
    rows = [json.loads(line) for line in grid.read_text().splitlines()]
    tried = [row for row in rows if (row["method"], row["split"]) == ("finetune", "dev")]
    best = {
        task: max((row for row in tried if row["task"] == task), key=lambda row: row["value"])
        for task in ("upos", "xpos", "deprel")
    }
    assert {row["variant"].rpartition("epochs=")[2] for row in best.values()} == {str(planning.LIVE_EPOCHS)}


def test_nothing_is_written(run: Run, config: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    planned(run, config)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "states").exists()


def test_hits_are_subtracted(run: Run, config: Path, tiny: Path, corpus: Path) -> None:
    run("encode", "-e", tiny, "-o", "states", corpus / "train.conllu")
    found = planned(run, config)
    train = {document.key for document in read(corpus / "train.conllu")}
    others = {d.key for split in ("dev", "test") for d in read(corpus / f"{split}.conllu")} - train
    assert (found["store"]["hits"], found["store"]["missing"]) == (len(train), len(others))
    assert others
    seconds = found["seconds"]
    assert 0 < seconds["encode_missing"]["value"] < seconds["encode"]["value"]
    whole = next(s["bytes"]["value"] for s in found["sizes"] if (s["layers"], s["dtype"]) == ("all", "fp16"))
    assert 0 < found["store"]["bytes_to_write"]["value"] < whole
    run("encode", config)
    done = planned(run, config)
    assert (done["store"]["missing"], done["store"]["bytes_to_write"]["value"]) == (0, 0)
    assert done["seconds"]["first"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert done["break_even"]["epochs"] in (0.0, None)
    assert "everything is stored already" in done["advice"][0]["reason"]


def long_corpus(path: Path, n: int) -> None:
    """Sentences of very different lengths, some longer than the encoder's window of 32 pieces; a spelt word now and
    then, which has a piece a letter."""
    rng = random.Random(2)
    words = [word for group in LEXICON.values() for word in group]
    lines = []
    for _ in range(n):
        length = min(90, 1 + int(rng.lognormvariate(1.5, 0.9)))
        chosen = [rng.choice(words) if rng.random() < 0.8 else "qxjz" for _ in range(length)]
        lines.append(json.dumps({"words": chosen, "tag": [word[0] for word in chosen]}))
    path.write_text("\n".join(lines) + "\n")


def test_a_large_corpus_is_sampled_and_the_counts_lie_in_their_intervals(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_corpus(tmp_path / "long.jsonl", 600)
    config = tmp_path / "long.toml"
    config.write_text(f'encoder = "{tiny}"\ntasks = ["tag"]\n[data]\ntrain = "long.jsonl"\n')
    distinct = list({document.key: document for document in read(tmp_path / "long.jsonl")}.values())
    pieces = [len(cut) for cut in Pretrained(tiny).cut(distinct)]
    over = sum(n > 32 for n in pieces)
    assert over > 0
    monkeypatch.setattr(planning, "CUT", 150)
    sampled = planned(run, config)
    found = sampled["corpus"]
    assert 120 <= found["cut"] <= 200 < found["distinct"] == len(distinct)
    assert found["words"] == sum(len(document.words) for document in distinct)
    assert found["longest"] == max(pieces)
    assert found["pieces"]["low"] < sum(pieces) < found["pieces"]["high"]
    assert found["pieces"]["value"] == pytest.approx(sum(pieces), rel=0.1)
    assert found["over_window"]["value"] == pytest.approx(over, rel=0.3)
    assert sampled["batches_per_epoch"] == -(-600 // 32)
    assert sampled["seconds"]["live_left_out"] > 0
    size = next(s["bytes"] for s in sampled["sizes"])
    assert size["low"] < size["value"] < size["high"]


def test_a_sampled_training_part_stands_for_all_training_items(tiny: Path, corpus: Path) -> None:
    splits = {split: read(corpus / f"{split}.conllu") for split in ("train", "dev")}
    counted = planning._Counted.of(splits, Pretrained(tiny), 0, lambda: 0.0)
    items = counted.training(splits["train"])
    assert items.total == len(splits["train"])
    by_key = {document.key: 0 for document in splits["train"]}
    for document in splits["train"]:
        by_key[document.key] += 1
    np.testing.assert_allclose(items.weight, [by_key[one.key] for one in items.pieces])
    assert [document.key for document in items.documents] == [one.key for one in items.pieces]


def test_few_training_items_beside_many_others_are_all_in_the_sample(
    tiny: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "CUT", 8)
    many = {document.key: document for document in read(corpus / "train.conllu")}
    few = read(corpus / "dev.conllu")[:1]
    counted = planning._Counted.of({"train": few, "test": list(many.values())}, Pretrained(tiny), 0, lambda: 0.0)
    items = counted.training(few)
    assert [one.key for one in items.documents] == [few[0].key]
    assert items.weight.tolist() == [1.0]


def test_a_layer_choice_of_ones_own_is_in_the_table_and_its_methods_are_measured(run: Run, config: Path) -> None:
    found = planned(run, config, "--set", "layers=[0, 1]", "--set", "dtype=int8")
    assert {size["layers"] for size in found["sizes"]} == {"all", "last", "[0, 1]"}
    assert "frozen" not in found["seconds"]["cached"]
    assert found["store"]["layers"] == [0, 1]
    only = planned(run, config, "--set", "layers=last", "--set", "method=frozen")
    assert only["advice"][1]["value"] == "last"


def test_the_text_says_it_all(run: Run, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "CUT", 40)
    text = run("plan", config, *QUICK[:2]).stdout
    for part in (
        "train 60, dev 12, test 12",
        "; estimated from ",
        "nothing there yet",
        "layers (views)",
        "disk free",
        "encode everything once",
        "epoch, adapted on stored views",
        "epoch, live_mix, 1 live block on stored views",
        "epoch, finetune, all 2 blocks live",
        "an epoch is one of all 2 tasks; in fine-tuning each trains a trunk of its own",
        "break-even of storing, for linear",
        "advice",
    ):
        assert part in text
    assert re.search(r"\n  store (yes|no) +\w|\n  store yes, for several tasks or runs: \w", text)
    assert max(len(line) for line in text.replace(str(config.parent), "").splitlines()) < 120


def test_long_advice_is_broken_into_lines(run: Run, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = " ".join(map("reason{}".format, range(40)))
    told = [Advice("store", "yes, for several tasks or runs", reason), Advice("dtype", "int8", "it fits")]
    monkeypatch.setattr(planning, "advised", lambda facts: told)
    *_, said = run("plan", config, *QUICK[:2]).stdout.partition("\nadvice\n")
    lines = said.rstrip().splitlines()
    assert max(map(len, lines)) <= 110
    assert " ".join(" ".join(lines[:-1]).split()) == f"store yes, for several tasks or runs: {reason}"
    assert lines[-1] == "  dtype int8      it fits"
    assert all(line.startswith(" " * 18) for line in lines[1:-1])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--set", "tasks=[]"), "tasks is not set. Write it into the config file or add --set tasks=..."),
        (("--set", "data.train=[]"), "data.train is not set"),
        (("--set", "data.train=none.conllu"), "none.conllu"),
        (("--set", "tasks=nonesuch"), "nonesuch"),
        (("--set", "methud=linear"), "Did you mean 'method'?"),
        (("--set", "layers=9"), "ask for the last 1 to 3"),
        (("--set", "method=frozen", "--set", "layers=[0, 1]"), "method 'frozen' reads view 2"),
    ],
)
def test_what_cannot_be_planned_is_refused_as_training_would(
    run: Run, config: Path, args: tuple[str, ...], message: str
) -> None:
    assert message in run("plan", config, *args, code=1).stderr


def test_a_store_of_another_encoder_is_named(run: Run, config: Path, tiny: Path, corpus: Path) -> None:
    run("encode", "-e", tiny, "-o", "states", "--dtype", "fp32", corpus / "dev.conllu")
    assert "dtype" in run("plan", config, code=1).stderr


def test_the_budget_must_be_time(run: Run, config: Path) -> None:
    assert "--budget-seconds" in run("plan", config, "--budget-seconds", "0", code=2).stderr


def test_two_texts_apart_are_planned_and_weighed_with_both_at_once(run: Run, tiny: Path, tmp_path: Path) -> None:
    """A pair is over the window where one of its texts is; live blocks are given none of which both are too much."""
    rng, words = random.Random(4), [word for group in LEXICON.values() for word in group]
    lines = []
    for i in range(24):
        sizes = ((5, 5), (16, 20), (40, 3), (8, 2))[i % 4]  # 36 + 4 pieces are over the window of 32, as are 40 + 2
        text, pair = (" ".join(rng.choice(words) for _ in range(n)) for n in sizes)
        lines.append(json.dumps({"text": text, "pair": pair, "score": i}) + "\n")
    (tmp_path / "pairs.jsonl").write_text("".join(lines))
    (tmp_path / "pairs.toml").write_text(
        f'encoder = "{tiny}"\ntasks = ["score"]\nmethod = "linear"\n[task.score]\nkind = "regression"\n'
        'column = "score"\npiece = "document-apart"\n[data]\ntrain = "pairs.jsonl"\n'
    )
    found = planned(run, tmp_path / "pairs.toml")
    assert found["corpus"]["over_window"]["value"] == 24 / 4
    assert list(found["seconds"]["live"]) == ["1", "2"]
    assert found["seconds"]["live_left_out"] == 2 * 24 / 4
    refused = run("plan", tmp_path / "pairs.toml", "--set", "method=top1", code=1).stderr
    assert "reads the two texts of a pair apart" in refused  # as training would
