"""`init` writes a config that works at once, and replaces nothing unasked."""

from pathlib import Path
from typing import Any

import pytest

from encodeonce.cli.config import AdapterSection, FinetuneSection, TrainSection, load
from encodeonce.cli.contenders import NAMES, contender
from encodeonce.cli.init import METHODS, OPTIONS
from encodeonce.methods.aggregate import VARIANTS, Variant
from encodeonce.methods.finetune import ENCODER_RATES, TUNINGS, Tuning
from encodeonce.tasks import named
from encodeonce.train.settings import Settings

from .conftest import Run

OWN: dict[str, dict[str, Any]] = {"lora": {"lora": 8}, "live_mix": {"live": 2}}
"""Options that a template writes out: they are the method's defaults, in words."""


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_gives_a_valid_config(run: Run, method: str, corpus: Path, tiny: Path, tmp_path: Path) -> None:
    args = ("--task", "upos", "--task", "feats:Number", "--train", corpus / "train.conllu", "--encoder", tiny)
    run("init", method, *args, "-o", tmp_path / "new" / "c.toml")
    config = load(tmp_path / "new" / "c.toml")
    assert (config.method, config.tasks, config.data.dev) == (method, ["upos", "feats:Number"], [])
    assert Path(config.encoder).resolve() == tiny.resolve()
    assert Path(config.data.train[0]).resolve() == (corpus / "train.conllu").resolve()
    assert contender(config).training(config) == Settings(encoder_learning_rate=ENCODER_RATES.get(method, 0.0))
    assert contender(config).settings() == (
        Variant(method) if method in VARIANTS else Tuning(method, **OWN.get(method, {}))
    )


@pytest.mark.parametrize("task", ["upos", "ner", *OPTIONS, "cola", "stsb"])
def test_the_task_option_that_is_shown_holds_where_it_is_uncommented(
    run: Run, task: str, corpus: Path, tiny: Path
) -> None:
    run("init", "linear", "--task", task, "--train", corpus / "train.conllu", "--encoder", tiny)
    text = Path("config.toml").read_text(encoding="utf-8")
    shown = text.partition(f"# [task.{task}]\n# ")[2].partition("\n")[0]
    assert shown
    Path("config.toml").write_text(f"{text}\n[task.{task}]\n{shown}\n", encoding="utf-8")
    options = load(Path("config.toml")).task[task]
    assert options
    assert named(task, **options).name == task


def test_the_config_trains_at_once(run: Run, corpus: Path, tiny: Path) -> None:
    files = [arg for split in ("train", "dev", "test") for arg in (f"--{split}", corpus / f"{split}.conllu")]
    run("init", "linear", "--task", "upos", *files, "--encoder", tiny)
    assert "upos" in run("train", "config.toml", "-o", "run", "--set", "train.num_train_epochs=1").stdout


def test_a_name_given_in_full_stays_and_a_relative_one_starts_at_the_config(
    run: Run, corpus: Path, tiny: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.conllu").write_bytes((corpus / "train.conllu").read_bytes())
    files = ("--train", "train.conllu", "--dev", corpus / "dev.conllu")
    run("init", "linear", "--task", "upos", *files, "--encoder", tiny.resolve(), "-o", "new/c.toml")
    text = Path("new/c.toml").read_text(encoding="utf-8")
    for line in (f'encoder = "{tiny.resolve()}"', 'train = "../train.conllu"', f'dev = "{corpus / "dev.conllu"}"'):
        assert f"\n{line}" in text


def test_a_file_that_is_there_stays(run: Run, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("mine")
    args = ("init", "linear", "--task", "upos", "--train", corpus / "train.conllu")
    assert "is there already" in run(*args, code=1).stderr
    assert (tmp_path / "config.toml").read_text() == "mine"
    run(*args, "--force")


def test_an_unknown_method_names_the_nearest(run: Run, corpus: Path) -> None:
    wrong = run("init", "adaptd", "--task", "upos", "--train", corpus / "train.conllu", code=1)
    assert "Did you mean 'adapted'?" in wrong.stderr


def test_the_tables_here_are_those_of_the_rooms_below() -> None:
    """The command line repeats names so that help and init need no torch; they must not drift apart."""
    assert list(METHODS) == [*VARIANTS, *TUNINGS] == list(NAMES)
    assert {**TrainSection().model_dump(), "encoder_learning_rate": 0.0} == Settings().to_json()
    for section, made in ((AdapterSection, Variant()), (FinetuneSection, Tuning())):
        assert set(section.model_fields) == set(made.to_json()) - {"name"}
