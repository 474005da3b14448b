"""`pretrain` with objective = "probe": what is tried, chosen, spent and said; and heads that a base has not."""

import inspect
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from encodeonce.cli.pretrain_trials import TaskProbe, _say, gain

from .conftest import Run
from .test_pretrain import config

Probed = Callable[..., Path]


@pytest.fixture
def with_head(tiny: Path, tmp_path: Path) -> Path:
    """The tiny encoder with a masked-language head."""
    from transformers import AutoConfig, BertForMaskedLM

    torch.manual_seed(3)
    base = tmp_path / "with-head"
    BertForMaskedLM(AutoConfig.from_pretrained(tiny)).save_pretrained(base)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (base / name).write_bytes((tiny / name).read_bytes())
    return base


@pytest.fixture
def probed(corpus: Path, tmp_path: Path) -> Probed:
    """A config of `pretrain` whose [probe] is a tagging task."""

    def made(encoder: Path, probe: str = "") -> Path:
        (tmp_path / "task.toml").write_text(
            f'encoder = "{encoder}"\ntasks = ["upos"]\nmethod = "linear"\n[data]\ntrain = "{corpus}/train.conllu"\n'
            f'dev = "{corpus}/dev.conllu"\ntest = "missing.conllu"\n'
            "[train]\nnum_train_epochs = 2\nlearning_rate = 0.01\n",
            encoding="utf-8",
        )
        path = config(tmp_path, encoder)
        text = f'objective = "probe"\n{path.read_text()}\n[probe]\nconfig = "task.toml"\nseeds = 2\n{probe}\n'
        path.write_text(text, encoding="utf-8")
        return path

    return made


def test_the_task_chooses_and_the_rest_of_the_budget_is_spent(
    run: Run, with_head: Path, probed: Probed, tmp_path: Path
) -> None:
    path = probed(with_head, "part = 0.2\nexamples = 40")
    run("pretrain", path, "-o", "whole", "--set", "objective=combined", "--json")
    once = json.loads((tmp_path / "whole/report.json").read_text())["costs"]["flops"]["total"]
    given = ("--budget", f"{2.5 * once / 1e12:.9f}TFLOP")
    done = run("pretrain", path, "-o", "out", *given, "--json")
    assert f"trying both with {0.5 * once / 1e12:.3g} TFLOP\n" in done.stderr
    assert re.search(rf"budget {0.5 * once / 1e12:.3g} TFLOP: \d+ tuples, of \d+ different ones\n", done.stderr)
    report = json.loads(done.stdout)
    probe = report["probe"]
    assert set(probe["scores"]) == {"untouched", "both", "masked", "combined", "trained"}
    assert all(len(scores) == 2 and all(0 <= score <= 100 for score in scores) for scores in probe["scores"].values())
    tried = {name: fmean(scores) for name, scores in probe["scores"].items() if name in probe["trials"]}
    assert tried[report["chosen"]] == max(tried.values())
    assert probe["examples"] == {"train": 40, "dev": 12}
    spent = [trial["flops"] for trial in probe["trials"].values()]
    assert all(0.8 * 0.5 * once < one < 1.2 * 0.5 * once for one in spent), "a fifth of the budget each"
    assert 0.8 * once < report["costs"]["flops"]["total"] < 1.2 * once, "the last two fifths"
    again = run("pretrain", path, "-o", "out", *given)
    assert f"chosen: {report['chosen']}" in again.stdout
    assert json.loads((tmp_path / "out/report.json").read_text()) == report
    assert not (tmp_path / "out/trials").exists()
    other = run("pretrain", path, "-o", "out", *given, "--set", "probe.examples=20", code=1)
    assert "a choice of objective that was made differently: probe.documents.train" in other.stderr


def test_scores_are_those_of_the_train_command(run: Run, with_head: Path, probed: Probed, tmp_path: Path) -> None:
    from encodeonce.cli.config import load
    from encodeonce.cli.pretrain_config import PretrainConfig

    probe = TaskProbe(load(probed(with_head), model=PretrainConfig).probe)
    expected = []
    for seed in probe.seeds:
        sets = ("--set", f"train.seed={seed}", "--set", "data.test=[]")
        done = json.loads(run("train", tmp_path / "task.toml", "-o", f"run{seed}", *sets, "--json").stdout)
        expected.append(done["scores"]["dev"]["upos"]["accuracy"])
    assert probe.scores(str(with_head)) == pytest.approx(expected)


@pytest.mark.parametrize("untouched", [50.0, 70.0])
def test_a_killed_choice_goes_on_and_says_where_untouched_is_as_good(
    run: Run, with_head: Path, probed: Probed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, untouched: float
) -> None:
    """Half a second a sentence, one a tuple or window: each trial is sized as if it paid all encoding itself."""
    from encodeonce.cli.pretrain_pace import Pace

    def probe(self: Pace, *given: Any) -> None:
        self.sentence, self.batch = 0.5, 8.0

    asked: list[str] = []
    values = {"both": 60.0, "masked": 61.0, "combined": 59.0, "encoder": 62.0}

    def scores(self: TaskProbe, encoder: str) -> list[float]:
        name = Path(encoder).parent.name if Path(encoder).name == "encoder" else "base"
        asked.append(name)
        if len(asked) == 4:
            raise RuntimeError("killed")
        return [values.get(name, untouched if name == "base" else 62.0), values.get(name, untouched) + 1]

    monkeypatch.setattr(Pace, "probe", probe)
    monkeypatch.setattr(TaskProbe, "scores", scores)
    path = probed(with_head, "part = 0.2\nobjectives = ['both', 'masked', 'combined']")
    run("pretrain", path, "-o", "out", "--budget", "300s", code=1)
    assert asked == ["base", "both", "masked", "combined"]
    before = json.loads(Path("out/probe.json").read_text())["seconds"]
    done = run("pretrain", path, "-o", "out", "--budget", "300s", "--json")
    report = json.loads(done.stdout)
    spent = report["probe"]["trials"]["combined"]["seconds"]
    assert report["probe"]["seconds"] >= before + spent, "a trial killed before it was scored is paid for"
    assert asked[4:] == ["combined", "out"], "what was scored is not scored again"
    assert report["chosen"] == "masked"
    trials = report["probe"]["trials"]
    assert trials["masked"]["windows"] == 60
    assert trials["both"]["tuples"] == trials["combined"]["tuples"] < 40, (
        "the second does not find its sentences stored"
    )
    assert ("the untouched encoder scores as high" in done.stderr) is (untouched == 70.0)
    assert report["probe"]["budget"] == "300s"
    assert 280 < float(report["budget"].removesuffix("s")) < 300, "the clock, not the parts, is taken off"
    more = run("pretrain", path, "-o", "out", "--budget", "400s", code=1)
    assert "a choice of objective that was made differently: budget: '300s' then, '400s' now" in more.stderr
    assert run("pretrain", path, "-o", "out", "--budget", "300s").output.count("chosen: masked") == 1
    shutil.rmtree("out/train/checkpoint")
    whole = run("pretrain", path, "-o", "out", "--budget", "400s", code=1)
    assert "budget: '300s' then, '400s' now" in whole.stderr, "its checkpoint may be removed once it is whole"
    Path("out/report.json").unlink()
    more = run("pretrain", path, "-o", "out", "--budget", "400s", "--json")
    assert json.loads(more.stdout)["probe"]["budget"] == "400s", "until the first checkpoint"
    less = run("pretrain", path, "-o", "out", "--budget", "300s", code=1)
    assert "budget: '400s' then, '300s' now" in less.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("pooling=cls", "sentences.pooling: 'mean' then, 'cls' now"),
        ("dtype=fp32", "dtype: 'fp16' then, 'fp32' now"),
        ("compute=fp32", "compute: 'bf16x3' then, 'fp32' now"),
        ("windows_of=tuples", "windows_of: 'all' then, 'tuples' now"),
        ("token_documents=7", "token_documents: 8 then, 7 now"),
        ("data.levels=1", "data.levels: 0 then, 1 now"),
        ("sentence_encoder=OTHER", "sentences.weights: "),
        ("train.logging_steps=7", ""),
        ("store=elsewhere", ""),
    ],
)
def test_trials_of_other_settings_are_not_gone_on_with(
    run: Run,
    with_head: Path,
    tiny_masked: Path,
    probed: Probed,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    said: str,
) -> None:
    """Scores of a trial were kept for another sentence encoder, pooling or stored type."""
    asked: list[str] = []

    def scores(self: TaskProbe, encoder: str) -> list[float]:
        asked.append(encoder)
        if len(asked) == 2:
            raise RuntimeError("killed")
        return [60.0, 61.0]

    monkeypatch.setattr(TaskProbe, "scores", scores)
    path = probed(with_head, "part = 0.2\nobjectives = ['both', 'triplet']")
    given = ("pretrain", path, "-o", "out", "--budget", "0.0004TFLOP")
    run(*given, code=1)
    set_to = ("--set", change.replace("OTHER", str(tiny_masked)))
    again = run(*given, *set_to, code=1 if said else 0)
    if said:
        assert "out holds a choice of objective that was made differently: " in again.stderr
        assert said in again.stderr
    assert len(asked) == (2 if said else 5)


def test_a_run_of_a_named_objective_is_refused_before_anything_is_scored(
    run: Run, with_head: Path, probed: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All trials were made, and the folder's run was found after them."""
    asked: list[str] = []
    monkeypatch.setattr(TaskProbe, "scores", lambda self, encoder: asked.append(encoder))
    path = probed(with_head)
    run("pretrain", path, "-o", "out", "--set", "objective=triplet")
    refused = run("pretrain", path, "-o", "out", "--budget", "5m", code=1)
    assert "out holds a run whose objective was named, not chosen" in refused.stderr
    assert not asked
    assert not Path("out/probe.json").exists()


def test_what_else_lies_in_a_folder_called_trials_stays(run: Run, tiny: Path, probed: Probed) -> None:
    kept = Path("out/trials/notes.txt")
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    run("pretrain", probed(tiny, "examples = 8"), "-o", "out", "--budget", "0.00005TFLOP")
    assert kept.read_text() == "mine"
    assert list(kept.parent.iterdir()) == [kept]


def test_a_budget_that_scoring_would_eat_up_is_refused_before_a_trial(
    run: Run, with_head: Path, probed: Probed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where only the clock showed it, the chosen objective gets as much as a trial, with a warning."""
    from encodeonce.cli import pretrain_trials
    from encodeonce.cli.pretrain_pace import Pace

    def probe(self: Pace, *given: Any) -> None:
        self.sentence, self.batch = 0.0, 8.0

    clock, slow = [0.0], [40.0]

    def scores(self: TaskProbe, encoder: str) -> list[float]:
        clock[0] += slow[0]
        return [50.0, 50.0]

    monkeypatch.setattr(Pace, "probe", probe)
    monkeypatch.setattr(TaskProbe, "scores", scores)
    monkeypatch.setattr(pretrain_trials.time, "perf_counter", lambda: clock[0])
    path = probed(with_head, "part = 0.2\nobjectives = ['both', 'masked']")
    refused = run("pretrain", path, "-o", "out", "--budget", "150s", code=1)
    assert "takes 40 s, so 2 trials and as many scorings more take 180 s" in refused.stderr
    assert not (tmp_path / "out/trials/both/encoder").exists()
    assert not (tmp_path / "out/probe.json").exists(), "so that more may be given"
    slow[0] = 1.0
    original = TaskProbe.scores

    def slower(self: TaskProbe, encoder: str) -> list[float]:
        slow[0] = 1.0 if Path(encoder) == with_head else 100.0
        return original(self, encoder)

    monkeypatch.setattr(TaskProbe, "scores", slower)
    done = run("pretrain", path, "-o", "late", "--budget", "150s", "--json")
    assert "choosing took 201 s of the budget of 150 s" in done.stderr
    assert json.loads(done.stdout)["budget"] == "30.000000s"
    shutil.rmtree(tmp_path / "late/train")
    (tmp_path / "late/report.json").unlink()
    slow[0], before = 0.0, clock[0]
    more = json.loads(run("pretrain", path, "-o", "late", "--budget", "400s", "--json").stdout)
    assert more["budget"] == "199.000000s", "more may be given once there is a choice, and nothing is tried again"
    assert clock[0] == before + 100


def test_gains_are_paired_by_seed() -> None:
    scores = {"untouched": [10.0, 20.0, 40.0], "both": [11.0, 22.0, 39.0]}
    assert gain(scores, "both") == pytest.approx((2 / 3, stdev([1, 2, -1]) / 3**0.5))
    assert gain({"untouched": [10.0], "both": [11.0]}, "both") == (1.0, None)


def test_objectives_that_score_the_same_are_said_to(caplog: pytest.LogCaptureFixture) -> None:
    scores = {"untouched": [10.0], "both": [50.0], "masked": [40.0], "combined": [50.0]}
    inspect.unwrap(_say)(SimpleNamespace(name="task.toml", metric="f1"), scores, ["both", "masked", "combined"], "both")
    assert "combined scores the same: of equals the first is taken" in caplog.text
    assert "masked scores the same" not in caplog.text


def test_without_a_masked_head_there_is_nothing_to_choose(run: Run, tiny: Path, probed: Probed) -> None:
    done = run("pretrain", probed(tiny), "-o", "out", "--budget", "0.0001TFLOP", "--json")
    report = json.loads(done.stdout)
    assert report["chosen"] == "both"
    assert set(report["probe"]["scores"]) == {"untouched", "trained"}
    assert "hold no masked-language-model head" in report["probe"]["left_out"]["masked"]
    assert "both is the only objective to try: there is nothing to choose" in done.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([], "spends a budget: add --budget 5m"),
        (["budget=5m", "probe={}"], "needs probe.config, a config file of `train`"),
        (["budget=5m", "probe.part=0.5"], "at most 0.30 each"),
        (["budget=5m", "probe.objectives=['maskt']"], "Did you mean 'masked'"),
        (["budget=5m", "probe.config='absent.toml'"], "absent.toml cannot be read"),
        (
            ["budget=1s", "probe.part=0.000001"],
            "trying both, with a part of the budget: a budget of 1e-06 s does not pay",
        ),
    ],
)
def test_what_is_refused(run: Run, with_head: Path, probed: Probed, changes: list[str], message: str) -> None:
    sets = [part for change in changes for part in ("--set", change)]
    assert message in run("pretrain", probed(with_head), "-o", "out", *sets, code=1).stderr


def test_settings_that_no_objective_reads_are_said(run: Run, with_head: Path, probed: Probed) -> None:
    """Here windows are read by one of the two, and `far` and another rate by none."""
    path = probed(with_head, "part = 0.2\nobjectives = ['both', 'combined']\nexamples = 8")
    changes = ("options.far=0.5", "windows_per_batch=2", "train.inside_learning_rate=0.1")
    given = ("pretrain", path, "-o", "out", "--budget", "1s", *(part for one in changes for part in ("--set", one)))
    said = run(*given, "--set", "probe.part=0.000001", code=1).stderr
    assert "options.far = 0.5: this run does not read it" in said
    assert "train.inside_learning_rate = 0.1: this run does not read it" in said
    assert "windows_per_batch" not in said
    assert "probe." not in said.replace("probe.part", "")


def test_a_task_without_dev_is_refused(run: Run, with_head: Path, probed: Probed, tmp_path: Path) -> None:
    path, task = probed(with_head), tmp_path / "task.toml"
    task.write_text("\n".join(line for line in task.read_text().splitlines() if not line.startswith("dev")))
    done = run("pretrain", path, "-o", "out", "--budget", "5m", code=1)
    assert "the choice is made on dev: set data.dev, or data.dev_fraction = 0.1" in done.stderr


def test_a_new_head_for_a_base_that_has_none(run: Run, tiny: Path, tmp_path: Path) -> None:
    """It is trained, the export has no place for it, and it lies beside; without the option the next step is named."""
    from transformers import BertModel

    path = config(tmp_path, tiny)
    refused = run("pretrain", path, "-o", "out", "--set", "objective=masked", code=1)
    assert "options = { new_head = true } trains a new one" in refused.stderr
    for objective in ("masked", "combined"):
        sets = ("--set", f"objective={objective}", "--set", "options={new_head=true}")
        report = json.loads(run("pretrain", path, "-o", objective, *sets, "--json").stdout)
        assert report["export"]["head"] is False
        base, new = load_file(tiny / "model.safetensors"), load_file(tmp_path / objective / "encoder/model.safetensors")
        assert base.keys() == new.keys()
        assert not torch.equal(base["embeddings.word_embeddings.weight"], new["embeddings.word_embeddings.weight"])
        beside = load_file(tmp_path / objective / "heads.safetensors")
        assert {name for name in beside if name.startswith("masked.")} == {
            *(f"masked.{part}.{kind}" for part in ("dense", "norm") for kind in ("weight", "bias")),
            "masked.bias",
        }
        assert beside["masked.bias"].abs().sum() > 0, "it was trained from zero"
        BertModel.from_pretrained(tmp_path / objective / "encoder")


def test_a_tokenizer_without_a_mask_is_refused_before_anything_is_encoded(
    run: Run, with_head: Path, tmp_path: Path
) -> None:
    tokenizer = json.loads((with_head / "tokenizer.json").read_text())
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32}
    (with_head / "tokenizer_config.json").write_text(json.dumps(settings))
    (with_head / "tokenizer.json").write_text(json.dumps(tokenizer))
    path = config(tmp_path, with_head)
    done = run("pretrain", path, "-o", "out", "--set", "objective=masked", code=1)
    assert "its tokenizer has no mask" in done.stderr
    assert not (tmp_path / "sentences").exists()


def test_masked_language_alone_reads_no_category(run: Run, with_head: Path, tmp_path: Path) -> None:
    path = config(tmp_path, with_head)
    rows = [json.loads(line) for line in (tmp_path / "articles.jsonl").read_text().splitlines()]
    (tmp_path / "articles.jsonl").write_text("".join(json.dumps({**row, "category_path": 7}) + "\n" for row in rows))
    given = ("--set", "objective=masked", "--set", "data.held_out=0", "--budget", "0.002TFLOP")
    report = json.loads(run("pretrain", path, "-o", "out", *given, "--json").stdout)
    assert report["costs"]["windows"] > 0
    assert report["tuples"] == 0
