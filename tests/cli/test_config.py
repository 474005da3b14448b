"""The config file: round trip, overrides, and errors that name the key."""

from pathlib import Path

import pytest
from pydantic import Field

from encodeonce.cli.config import Config, EncoderName, FileName, Files, Section, load, parse, to_toml
from encodeonce.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_relative_paths_start_at_the_config_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    text = 'encoder = "model"\nstore = "s"\n[data]\ntrain = "a.conllu"\ntest = ["b.conllu", "/c.conllu"]\n'
    config = load(written(tmp_path, text))
    assert config.encoder == str(tmp_path / "model")
    assert config.store == str(tmp_path / "s")
    assert config.data.train == [str(tmp_path / "a.conllu")]
    assert config.data.test == [str(tmp_path / "b.conllu"), "/c.conllu"]


def test_a_byte_order_mark_is_no_key(tmp_path: Path) -> None:
    assert load(written(tmp_path, '\ufeffencoder = "org/model"\n')).encoder == "org/model"


def test_a_hub_name_stays_a_hub_name(tmp_path: Path) -> None:
    assert load(written(tmp_path, 'encoder = "org/model"\n')).encoder == "org/model"


def test_resolved_config_written_and_read_is_the_same(tmp_path: Path) -> None:
    values = {
        "encoder": 'a "quoted" \\ name\twith tab',
        "layers": [0, 3],
        "tasks": ["upos", "feats:Number"],
        "data": {"train": [str(tmp_path / "x.conllu")], "columns": {"form": 0, "tag": 3}},
        "task": {"feats:Number": {"piece": "first"}},
        "adapter": {"key_width": 64, "pre_norm_layers": True},
        "train": {"learning_rate": 1e-5},
    }
    config = parse(values, "here").model_copy(update={"store": str(tmp_path / "s")})
    assert load(written(tmp_path, to_toml(config, tmp_path))) == config


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ("train.learning_rate=1e-4", "train.learning_rate", 1e-4),
        ("tasks=['upos', 'xpos']", "tasks", ["upos", "xpos"]),
        ("tasks=ner", "tasks", ["ner"]),
        ("encoder=org/model", "encoder", "org/model"),
        ("adapter.pre_norm_layers=true", "adapter.pre_norm_layers", True),
    ],
)
def test_set_replaces_a_key(tmp_path: Path, change: str, path: str, value: object) -> None:
    found: object = load(written(tmp_path, 'encoder = "e"\n'), [change])
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[train]\nlearning_rat = 1\n",
            r"unknown key 'train\.learning_rat'. Did you mean 'learning_rate'\?",
        ),
        ("[train]\nlearning_rat = 1\n", r"\[train\] takes: .*num_train_epochs"),
        ("metod = 'x'\n", r"unknown key 'metod'. Did you mean 'method'\? The file takes: .*train, methods\."),
        ("", r"config\.toml: 'encoder' is missing"),
        ("encoder = 'e'\ndtype = 'fp8'\n", r"dtype = 'fp8': Input should be 'fp32', 'fp16', 'bf16' or 'int8'"),
        ("encoder = 'e'\ntrain = 3\n", r"train = 3: .*\[train\] is a table of: learning_rate"),
        ("encoder = \n", r"config\.toml is not TOML: "),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(written(tmp_path, text))


def test_a_wrong_set_says_how_to_write_it(tmp_path: Path) -> None:
    path = written(tmp_path, 'encoder = "e"\n')
    with pytest.raises(ConfigError, match="write it as key=value"):
        load(path, ["train.seed"])
    with pytest.raises(ConfigError, match="'encoder' is a value, not a table"):
        load(path, ["encoder.x=1"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file"):
        load(tmp_path / "none.toml")


def test_need_names_the_empty_key() -> None:
    config = Config(encoder="e", tasks=["upos"])
    config.need("tasks")
    with pytest.raises(ConfigError, match=r"data\.train is not set.*--set data\.train="):
        config.need("tasks", "data.train")


class Corpus(Section):
    passages: Files = Field(default_factory=list)
    index: FileName = "index"


class Other(Section):
    """What another command might bring."""

    reader: EncoderName
    corpus: Corpus = Corpus()
    cache: FileName | None = None
    stages: dict[str, Corpus] = Field(default_factory=dict)


def test_another_model_is_read_moved_and_written(tmp_path: Path) -> None:
    (tmp_path / "t5").mkdir()
    text = 'reader = "t5"\n[corpus]\npassages = "p.jsonl"\n'
    found = load(written(tmp_path, text), ["corpus.index=here", "cache=c", "stages.one.passages=q"], model=Other)
    assert found == Other(
        reader=str(tmp_path / "t5"),
        corpus=Corpus(passages=[str(tmp_path / "p.jsonl")], index=str(tmp_path / "here")),
        cache=str(tmp_path / "c"),
        stages={"one": Corpus(passages=[str(tmp_path / "q")], index=str(tmp_path / "index"))},
    )
    assert load(written(tmp_path, to_toml(found, tmp_path)), model=Other) == found
    assert load(written(tmp_path, 'reader = "a/b"\n'), model=Other).reader == "a/b"


def test_another_models_errors_name_its_own_keys(tmp_path: Path) -> None:
    path = written(tmp_path, 'reader = "r"\n[corpus]\npasages = "p"\n[stages.one]\nindx = "a"\n')
    with pytest.raises(
        ConfigError, match=r"'corpus.pasages'.*'passages'.*\[corpus\] takes: passages, index\."
    ) as found:
        load(path, model=Other)
    assert "[stages.one] takes: passages, index." in str(found.value)
    with pytest.raises(ConfigError, match=r"corpus\.index is not set|corpus\.passages is not set"):
        Other(reader="r").need("corpus.passages")


def test_only_what_a_method_sets_is_its_own(tmp_path: Path) -> None:
    text = (
        'encoder = "e"\n[train]\nnum_train_epochs = 5\n'
        "[methods.lora]\nnum_train_epochs = 10\nseeds = 3\ngrid = { learning_rate = [1e-3, 2e-3] }\n"
        "[methods.wide]\nmethod = 'adapted'\nadapter = { key_width = 64 }\n"
    )
    config = load(written(tmp_path, text), ["methods.lora.seed=7"])
    again = load(written(tmp_path, to_toml(config, tmp_path)))
    for found in (config, again):
        assert found.methods["lora"].own() == {"num_train_epochs": 10, "seed": 7}
        assert found.methods["lora"].grid == {"learning_rate": [1e-3, 2e-3]}
        assert found.methods["wide"].own() == {}
        assert found.methods["wide"].adapter.chosen() == {"key_width": 64}
    with pytest.raises(ConfigError, match=r"'methods.lora.livee'.*Did you mean|\[methods.lora\] takes: .*grid"):
        load(written(tmp_path, text), ["methods.lora.livee=1"])
