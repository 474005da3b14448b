"""Dry runs: everything is checked from a folder that holds a config.json and nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from encodeonce.cli.config import load
from encodeonce.cli.contenders import contender
from encodeonce.cli.dry_run import dry_run
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.finetune import Tuning

Run = Callable[..., Any]
LARGE = {
    "bert-large": ("BertConfig", {"vocab_size": 28996, "hidden_size": 1024, "num_hidden_layers": 24}, 333_579_264),
    "roberta-large": (
        "RobertaConfig",
        {"vocab_size": 50265, "hidden_size": 1024, "num_hidden_layers": 24, "max_position_embeddings": 514,
         "type_vocab_size": 1},
        355_359_744,
    ),
    "gpt2": ("GPT2Config", {}, 124_439_808),
}  # fmt: skip
"""Name -> config class of transformers, its values, parameters of the whole model with its pooler."""
POOLER = {"bert-large": 1024 * 1025, "roberta-large": 1024 * 1025, "gpt2": 0}


@pytest.fixture(scope="module", params=list(LARGE))
def outline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A folder with the config.json of a published encoder."""
    import transformers

    kind, values, _ = LARGE[request.param]
    if kind != "GPT2Config":
        values = {**values, "num_attention_heads": 16, "intermediate_size": 4096}
    folder = tmp_path_factory.mktemp(request.param)
    getattr(transformers, kind)(**values).save_pretrained(folder)
    return request.param, folder


def config_of(folder: Path, encoder: object, corpus: Path, more: str = "") -> Path:
    path = folder / "config.toml"
    path.write_text(
        f'encoder = "{encoder}"\nstore = "states"\ntasks = ["upos"]\nmethod = "adapted"\n[data]\n'
        f'train = "{corpus}/train.conllu"\ndev = "{corpus}/dev.conllu"\n' + more
    )
    return path


def test_bytes_steps_and_parameters_from_a_config_alone(
    run: Run, outline: tuple[str, Path], corpus: Path, tmp_path: Path
) -> None:
    name, encoder = outline
    config_of(tmp_path, encoder, corpus, "[train]\nnum_train_epochs = 3\nper_device_train_batch_size = 7\n")
    found = json.loads(run("train", tmp_path / "config.toml", "--dry-run", "--json").stdout)
    views, width = (13, 768) if name == "gpt2" else (25, 1024)
    assert (found["width"], len(found["layers"])) == (width, views)
    assert found["store"]["lacks"] == ["weights", "vocabulary"]
    words, missing = found["store"]["rows"], found["store"]["missing"]
    assert found["store"]["bytes"] >= words * views * width * 2
    assert found["steps"] == 3 * -(-found["examples"]["train"] // 7) == 3 * found["batches_per_epoch"]
    key, labels = 16, found["labels"]["upos"]
    assert found["parameters"]["total"] > width * width + width * key + labels * width
    encoded = json.loads(run("encode", tmp_path / "config.toml", "--dry-run", "--json").stdout)
    assert {key: encoded[key] for key in found["store"]} == found["store"]
    text = run("train", tmp_path / "config.toml", "--dry-run").stdout
    assert f"at least {words:,} rows of {missing:,} documents" in text
    assert "has no weights and no vocabulary: nothing can be encoded yet" in text
    assert not (tmp_path / "states").exists()


def test_parameters_of_whole_models_are_the_published_ones(
    outline: tuple[str, Path], corpus: Path, tmp_path: Path
) -> None:
    """BERT-large has 333.6 million with the pooler that no view needs, RoBERTa-large 355.4 (spec A6), GPT-2 124.4.
    Terms of rank 8 for query and value have 786,432 (spec A-09); GPT-2 has one product for query, key and value."""
    pytest.importorskip("peft")
    name, encoder = outline
    config = load(config_of(tmp_path, encoder, corpus))
    settings = contender(config).training(config)
    found = dry_run(config, settings, Tuning("finetune"))
    frozen = dry_run(config, settings, Tuning("finetune", live=0))
    lora = dry_run(config, settings, Tuning("lora"))
    assert lora.parameters["upos"] - frozen.parameters["upos"] == {"gpt2": 12 * 8 * (768 + 2304)}.get(name, 786_432)
    own = found.parameters["upos"] - frozen.parameters["upos"]
    assert own == LARGE[name][2] - POOLER[name]
    stack = Pretrained(encoder).hollow()
    assert all(parameter.device == torch.device("meta") for parameter in stack.parameters())


def test_a_model_that_is_not_here_is_named(run: Run, corpus: Path, tmp_path: Path) -> None:
    config_of(tmp_path, "org/no-such-model", corpus)
    for command in ("encode", "train"):
        done = run(command, tmp_path / "config.toml", "--dry-run", code=1)
        assert "'org/no-such-model' is no folder here" in done.stderr
        assert "Give a folder" in done.stderr


def test_a_real_run_needs_a_place(run: Run, corpus: Path, tmp_path: Path) -> None:
    assert "--output" in run("train", config_of(tmp_path, tmp_path, corpus), code=2).stderr


def test_what_training_refuses_is_refused_before_anything_is_encoded(run: Run, config: Path, tmp_path: Path) -> None:
    said = ("--set", "start=nowhere")
    for args in (("train", "-o", "run"), ("train", "--dry-run"), ("compare", "-o", "report", "--dry-run"), ("plan",)):
        done = run(args[0], config, *args[1:], *said, code=1)
        assert "nowhere is no saved run, or was not copied whole" in done.stderr
    twice = run("train", config, "-o", "run", "--set", 'tasks=["upos", "upos"]', code=1).stderr
    assert "task 'upos' is given twice" in twice
    assert not list(tmp_path.glob("states/*.safetensors"))


def test_items_that_live_blocks_cannot_be_given_are_refused_as_training_refuses_them(run: Run, config: Path) -> None:
    """The tiny encoder has 32 positions; stored views of longer items are read in windows, live blocks read none."""
    row = {"words": ["cats"] * 60, "upos": ["NOUN"] * 60}
    (config.parent / "long.jsonl").write_text(json.dumps(row) + "\n")
    said = ("--set", "data.train=long.jsonl", "--set", 'tasks=["upos"]')
    for method, end in (("finetune", 1), ("top1", 1), ("linear", 0)):
        done = run("train", config, "--dry-run", *said, "--set", f"method={method}", code=end)
        assert ("62 pieces, but the encoder's blocks can be given 32 at once" in done.stderr) == bool(end)
    real = run("train", config, "-o", "run", *said, "--set", "method=finetune", code=1).stderr
    assert "62 pieces, but the encoder's blocks can be given 32 at once" in real


def test_what_reads_no_store_stores_nothing(run: Run, config: Path) -> None:
    some = ("train", config, "--dry-run", "--json")
    assert json.loads(run(*some, "--set", "method=finetune").stdout)["store"]["missing"] == 0
    for method in ("lora", "linear"):
        assert json.loads(run(*some, "--set", f"method={method}").stdout)["store"]["missing"] > 0


PAPER = Path(__file__).parents[2] / "experiments" / "structures" / "paper"
FAMILIES = {"bert": "BertConfig", "roberta": "RobertaConfig", "gpt2": "GPT2Config"}
CELLS = [
    *((task, family) for task in ("conll", "ud") for family in FAMILIES),
    *((task, family) for task in ("parsing", "webnlg") for family in ("bert", "roberta")),
    *((task, "bert") for task in ("cola", "mrpc", "rte", "sst2", "stsb")),
]
"""The paper's Tables 1 and 2 and Figure 3: task, family of its encoders."""

TREE = "1\tcats\tcat\tNOUN\tN\t_\t2\tnsubj\t_\t_\n2\tsleep\tsleep\tVERB\tV\t_\t0\troot\t_\t_\n\n"
ROWS = "-DOCSTART- -X- -X- O\n\nJapan NNP I-NP I-LOC\nsleeps VBZ I-VP O\n\n"


@pytest.mark.parametrize(("task", "family"), CELLS)
def test_the_papers_configs_are_whole(run: Run, shared: Path, task: str, family: str, tmp_path: Path) -> None:
    """Trained on what they score, as this is small, or on one sentence; the encoder of a family by its config.json."""
    import transformers

    path = PAPER / f"{task}.toml"
    getattr(transformers, FAMILIES[family])().save_pretrained(tmp_path / "encoder")
    config = load(path)
    assert config.encoder == "bert-large-cased"
    if task != "conll":  # it may not be passed on
        assert all(Path(name).is_file() for split in ("train", "dev", "test") for name in getattr(config.data, split))
    changes = [f"encoder={tmp_path / 'encoder'}", f"data.train={Path(config.data.test[0]).resolve()}"]
    if task in ("conll", "ud", "parsing"):
        small = tmp_path / ("rows.conll" if task == "conll" else "tree.conllu")
        small.write_text(ROWS if task == "conll" else TREE)
        changes += [f"data.{split}={small}" for split in ("train", "dev", "test")]
    settings = [part for change in changes for part in ("--set", change)]
    found = json.loads(run("train", path, "--dry-run", "--json", *settings).stdout)
    assert found["steps"] == config.train.num_train_epochs * found["batches_per_epoch"] > 0
    assert (found["method"], set(found["labels"])) == ("adapted", set(config.tasks))
    assert len(found["layers"]) == 13


def test_the_papers_methods_are_its_own() -> None:
    """Low-rank terms for Lora alone (A-09), whole blocks for Finetune at one rate with the rest (A-14), every rate of
    A11 tried."""
    assert {path.stem for path in PAPER.glob("*.toml")} == {task for task, _ in CELLS}
    for task, _ in CELLS:
        config = load(PAPER / f"{task}.toml")
        lora, whole = (contender(config, name) for name in ("lora", "finetune"))
        assert isinstance(lora.settings(), Tuning)
        assert isinstance(whole.settings(), Tuning)
        assert (lora.settings().rank, lora.settings().lora_alpha, whole.settings().rank) == (8, 16.0, 0)
        assert whole.training(config).encoder_learning_rate == 0
        small, large = {"parsing": ((), ()), "cola": ((1e-4, 3e-4, 7e-4), (1e-5, 2e-5, 3e-5))}.get(
            "cola" if config.tasks[0] in ("cola", "mrpc", "rte", "sst2", "stsb") else task, ((1e-5, 1e-4, 1e-3),) * 2
        )
        for one in (*(contender(config, n) for n in ("frozen", "linear", "fusion", "agg_tailor", "adapted")), lora):
            assert tuple(one.grid.get("learning_rate", ())) == small
        assert tuple(whole.grid.get("learning_rate", ())) == large
        if task == "parsing":
            assert whole.training(config).learning_rate == lora.training(config).learning_rate == 2e-3
