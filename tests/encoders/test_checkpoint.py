"""What a Spec is made of, from files alone: cases CACHEKEY-1 and CACHEKEY-2, LONG-2, and refusals by name."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.torch

from encodeonce.encoders import checkpoint as files
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, EncoderError
from encodeonce.types import Document, Spec


@pytest.fixture
def folder(checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint("bert"), tmp_path / "encoder"))


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), encoding="utf-8")


def differing(first: Spec, second: Spec) -> list[str]:
    return [line.partition(":")[0] for line in first.differences(second)]


def test_a_spec_says_what_the_files_say(folder: Path) -> None:
    model = Pretrained(folder)
    spec = model.spec(layers=2, dtype="bf16")
    assert (model.n_blocks, model.width, model.window, model.overlap) == (3, 32, 40, 10)
    assert (spec.layers, spec.n_blocks, spec.width, spec.window, spec.overlap) == ((2, 3), 3, 32, 40, 10)
    assert (spec.encoder, spec.revision, spec.unit, spec.empty_words) == (str(folder), "", "piece", "unknown")
    assert not model.loaded


def test_CACHEKEY_1a_a_cased_vocabulary_under_the_same_name(folder: Path, tiny: SimpleNamespace) -> None:
    model = Pretrained(folder)
    before = model.spec()
    kept = {name: (folder / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
    tiny.wordpiece([*tiny.words[:-1], "The"], lowercase=False).save_pretrained(folder)
    for handle in (model, Pretrained(folder)):
        assert differing(before, handle.spec()) == ["tokenizer"]
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    assert differing(before, model.spec()) == []  # undone, it hits again


def test_CACHEKEY_1b_one_weight_changed_in_place(folder: Path) -> None:
    model, path = Pretrained(folder), folder / "model.safetensors"
    before, kept, stamp = model.spec(), path.read_bytes(), path.stat()
    weights = safetensors.torch.load_file(path)
    weights["encoder.layer.1.output.dense.bias"] = weights["encoder.layer.1.output.dense.bias"].clone()
    weights["encoder.layer.1.output.dense.bias"][3] += 1e-3
    safetensors.torch.save_file(weights, path, metadata={"format": "pt"})
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    assert differing(before, Pretrained(folder).spec()) == ["weights"]
    path.write_bytes(kept)
    assert differing(before, Pretrained(folder).spec()) == []


def test_CACHEKEY_1d_layers_windows_and_precision_are_part_of_it(folder: Path) -> None:
    spec = Pretrained(folder).spec()
    assert differing(spec, Pretrained(folder).spec(layers="last")) == ["layers"]
    assert differing(spec, Pretrained(folder, window=20).spec()) == ["window", "overlap"]
    assert differing(spec, Pretrained(folder, overlap=3).spec()) == ["overlap"]
    assert differing(spec, Pretrained(folder, compute="bf16").spec(dtype="fp32")) == ["compute", "dtype"]


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_CACHEKEY_1e_only_a_tokenizer_setting_changed(folder: Path, name: str) -> None:
    before = Pretrained(folder).spec()
    if name == "tokenizer.json":
        normalizer = json.loads((folder / name).read_text("utf-8"))["normalizer"]
        rewrite(folder / name, normalizer={**normalizer, "lowercase": False})
    else:
        rewrite(folder / name, do_lower_case=False)
    assert differing(before, Pretrained(folder).spec()) == ["tokenizer"]


def test_a_config_key_that_changes_vectors_counts_and_others_do_not(folder: Path) -> None:
    before = Pretrained(folder).spec()
    rewrite(
        folder / "config.json",
        transformers_version="4.0.0",
        _name_or_path="elsewhere",
        architectures=["BertForMaskedLM"],
        dtype="bfloat16",
        hidden_dropout_prob=0.3,
        id2label={"0": "x"},
        use_cache=False,
    )
    assert differing(before, Pretrained(folder).spec()) == []
    rewrite(folder / "config.json", layer_norm_eps=1e-5)
    assert differing(before, Pretrained(folder).spec()) == ["config"]


def test_CACHEKEY_2_the_same_encoder_gives_the_same_spec_everywhere(folder: Path, tmp_path: Path) -> None:
    spec = Pretrained(folder).spec()
    tokenizer = Pretrained(folder)._cutter.tokenizer
    tokenizer(["the cat"], padding="max_length", truncation=True, max_length=4)
    tokenizer.save_pretrained(folder)  # b: it keeps padding and truncation in its file
    moved = Path(shutil.move(folder, tmp_path / "moved"))  # c
    relative = os.path.relpath(moved)  # d
    for handle in (Pretrained(moved), Pretrained(relative), Pretrained(moved, batch_pieces=7)):  # e
        found = handle.spec()
        assert differing(spec, found) == []
    line = (
        "import sys; from encodeonce.encoders.pretrained import Pretrained; import json;"
        "spec = Pretrained(sys.argv[1]).spec();"
        "print(json.dumps(spec.to_json()), 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    said = {  # a
        subprocess.run(
            [sys.executable, "-c", line, str(moved)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    text, torch_there, transformers_there = said.pop().rsplit(" ", 2)
    assert json.loads(text) == Pretrained(moved).spec().to_json()
    assert (torch_there, transformers_there.strip()) == ("False", "False")


def test_shards_are_hashed_together_and_a_missing_one_is_named(folder: Path) -> None:
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    names = sorted(weights)
    for number, part in enumerate((names[:5], names[5:]), 1):
        shard = {name: weights[name] for name in part}
        safetensors.torch.save_file(shard, folder / f"model-{number}-of-2.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {name: f"model-{1 if name in names[:5] else 2}-of-2.safetensors" for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    spec = Pretrained(folder).spec()
    assert Pretrained(folder).stack().n_blocks == 3
    (folder / "model-2-of-2.safetensors").write_bytes((folder / "model-1-of-2.safetensors").read_bytes())
    assert differing(spec, Pretrained(folder).spec()) == ["weights"]
    (folder / "model-2-of-2.safetensors").unlink()
    with pytest.raises(EncoderError, match=r"model-2-of-2\.safetensors: no such file; model\.safetensors\.index\.json"):
        Pretrained(folder).spec()


def test_a_pickle_is_refused_with_the_way_out(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(EncoderError, match=r"only as pytorch_model\.bin, a pickle.*Convert it once"):
        Pretrained(folder).spec()
    with pytest.raises(EncoderError, match="a pickle"):
        Pretrained(folder).stack()


def test_RUNTIME_2c_a_missing_file_is_named_with_its_path(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "elsewhere")
    with pytest.raises(EncoderError, match=rf"{folder}/model\.safetensors: no such file"):
        Pretrained(folder).spec()
    (folder / "config.json").rename(folder / "away.json")
    with pytest.raises(EncoderError, match=rf"{folder}/config\.json: no such file"):
        Pretrained(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(EncoderError, match=r"config\.json: not JSON"):
        Pretrained(folder)
    with pytest.raises(EncoderError, match=r"/no/such/place: no such folder"):
        Pretrained("/no/such/place")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(EncoderError, match="there is no vocabulary"):
        files.tokenizer_hash(folder)


def test_what_the_hub_says_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub import constants

    def fails(*given: object, **named: object) -> str:
        raise OSError("No connection.\nTry again..")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(EncoderError, match=r"and the hub gave: No connection\. Try again\. Give a folder\.$"):
        files.locate("nobody/nothing")


def test_a_hub_name_is_looked_up_in_the_local_cache_alone(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"'nobody/nothing' is no folder here.*HF_HUB_OFFLINE"):
        Pretrained("nobody/nothing")
    repository, commit = tmp_path / "hub" / "models--org--tiny", "0123456789" * 4
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    line = "from encodeonce.encoders.pretrained import Pretrained; m = Pretrained('org/tiny');"
    line += "print(m.revision, m.spec().weights)"
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    environment |= {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run([sys.executable, "-c", line], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [commit, Pretrained(folder).spec().weights]


def test_an_unknown_family_is_refused_with_the_nearest(folder: Path) -> None:
    rewrite(folder / "config.json", model_type="deberta-v4")
    with pytest.raises(
        EncoderError, match=r"model_type='deberta-v4'. There is: albert, bert,.*Did you mean 'deberta_v2'"
    ):
        Pretrained(folder)
    for name in ("pretrained", "stack", ""):
        rewrite(folder / "config.json", model_type=name)
        with pytest.raises(EncoderError, match=f"no family for model_type={name!r}"):
            Pretrained(folder)


@pytest.mark.parametrize(
    ("layers", "message"),
    [("first", "'all', 'last', a number"), (9, "has 4 views; ask for the last 1 to 4"), ([4], "0 .embeddings. to 3")],
)
def test_views_that_do_not_exist_are_refused(folder: Path, layers: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Pretrained(folder).spec(layers=layers)


def test_layers_by_name_number_and_list(folder: Path) -> None:
    model = Pretrained(folder)
    chosen = [model.layers(layers) for layers in ("all", "last", 1, "2", [3, 0, 3])]
    assert chosen == [(0, 1, 2, 3), (3,), (3,), (2, 3), (0, 3)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 41}, "window=41 must lie between 1 and 40"),
        ({"window": 10, "overlap": 10}, "overlap=10 must be at least 0 and less than window=10"),
        ({"compute": "fp8"}, "compute='fp8' must be 'fp32', 'bf16x3' or 'bf16'"),
        ({"batch_pieces": 0}, "batch_pieces=0 must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(folder: Path, settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Pretrained(folder, **settings)


@pytest.mark.parametrize(
    ("config", "limit", "window"),
    [
        ({"model_type": "roberta", "max_position_embeddings": 20, "pad_token_id": 1}, 1e30, 18),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514}, 0, 512),
        ({"model_type": "bert", "max_position_embeddings": 512, "pad_token_id": 0}, 1e30, 512),
        ({"model_type": "gpt2", "n_positions": 1024}, 0, 1024),
        ({"model_type": "t5"}, 1e30, 512),
        ({"model_type": "t5"}, 1000, 1000),
    ],
)
def test_LONG_2_the_window_is_known_from_the_config(config: dict[str, Any], limit: float, window: int) -> None:
    assert files.usable_window(config, limit) == window


def test_LONG_2_nineteen_pieces_in_a_table_of_eighteen_are_windowed(checkpoint: Callable[..., Path]) -> None:
    from encodeonce.types import Document

    model = Pretrained(checkpoint("roberta", max_position_embeddings=20))
    assert model.window == 18
    cut = model.cut([Document("x", ("the",) * 17), Document("y", ("the",) * 16)])
    assert [len(pieces) for pieces in cut] == [19, 18]
    assert [len(pieces.windows) for pieces in cut] == [2, 1]
    assert {index: views.shape for index, views in model.encode(cut)} == {0: (4, 19, 32), 1: (4, 18, 32)}


def scaled(folder: Path) -> None:
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    moved = {name: value * 1.1 for name, value in weights.items()}
    safetensors.torch.save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})


def test_files_that_change_after_they_were_loaded_are_refused(folder: Path) -> None:
    """The vectors would be of the old files, the Spec of the new ones: a store of them would be wrong for ever."""
    model = Pretrained(folder)
    before, cut = model.spec(), model.cut([Document("a", text="the cat")])
    old = next(iter(model.encode(cut)))[1]
    (folder / "model.safetensors").touch()
    assert differing(before, model.spec()) == []
    kept = (folder / "model.safetensors").read_bytes()
    scaled(folder)
    with pytest.raises(EncoderError, match=r"files changed in place after .*Make a new Pretrained of the folder"):
        model.spec()
    new = Pretrained(folder)
    assert differing(before, new.spec()) == ["weights"]
    assert np.abs(next(iter(new.encode(cut)))[1] - old).max() > 1e-3
    (folder / "model.safetensors").write_bytes(kept)
    assert differing(before, model.spec()) == []


def test_files_that_change_between_the_spec_and_the_loading_are_refused(folder: Path) -> None:
    model = Pretrained(folder)
    model.spec()
    cut = model.cut([Document("a", text="the cat")])
    scaled(folder)
    with pytest.raises(EncoderError, match="files changed in place"):
        next(iter(model.encode(cut)))
    again = Pretrained(folder)
    again.spec()
    rewrite(folder / "config.json", layer_norm_eps=0.1)
    with pytest.raises(EncoderError, match=r"config\.json changed in place"):
        again.spec()
