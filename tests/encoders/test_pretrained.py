"""The handle as a whole: what is loaded when, strict loading, and a real encoder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import EncoderError
from encodeonce.types import Document

from .test_checkpoint import rewrite

TEXT = "The river banks, naïve as they were, held: 1,234 boats \u200b sailed past Ljubljana."


def test_each_step_loads_no_more_than_it_needs(checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint("bert"))
    model.spec()
    pieces = model.cut([Document("x", ("the", "cat"))])
    assert not model.loaded
    stream = model.encode(pieces)
    assert not model.loaded
    next(stream)
    assert model.loaded
    assert model.stack() is model.stack()


def test_a_weight_that_is_missing_would_be_random_and_is_refused(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(checkpoint("bert"), tmp_path / "encoder"))
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith("pooler")}
    safetensors.torch.save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    assert Pretrained(folder).stack().n_blocks == 3  # no view needs the pooler
    del kept["encoder.layer.2.attention.self.key.weight"]
    safetensors.torch.save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        EncoderError, match=r"1 weights are missing and would be random.*layer\.2\.attention\.self\.key"
    ):
        Pretrained(folder).stack()


@pytest.mark.parametrize("before", ["", "bert."])
def test_a_weight_of_a_block_that_would_be_left_out_is_refused(
    before: str, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """BERT with relative positions: `transformers` 5 reads such a checkpoint as if it had none."""
    folder = Path(shutil.copytree(checkpoint("bert"), tmp_path / "encoder"))
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    relative = "encoder.layer.1.attention.self.distance_embedding.weight"
    others = {"encoder.layer.0.attention.inv_freq": torch.ones(4), "cls.predictions.bias": torch.ones(4)}

    def write(more: dict[str, Tensor]) -> None:
        named = {before + name: weight.clone() for name, weight in {**weights, **more}.items()}
        safetensors.torch.save_file(named, folder / "model.safetensors", metadata={"format": "pt"})

    write(others)
    assert Pretrained(folder).stack().n_blocks == 3  # what heads and older versions leave there changes no view
    write({**others, relative: torch.ones(79, 8)})
    with pytest.raises(EncoderError, match=rf"1 weights of its blocks would be left out, among them \['{before}enc"):
        Pretrained(folder).stack()
    rewrite(folder / "config.json", num_hidden_layers=1)
    assert Pretrained(folder).stack().n_blocks == 1  # blocks that the config leaves out are left out on purpose


@pytest.mark.parametrize("kept", [-100, 0, 5])
def test_weights_that_were_cut_short_are_said_to_be(kept: int, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint("bert"), tmp_path / "encoder"))
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:kept])
    with pytest.raises(EncoderError, match=rf"{folder}: the weights cannot be read: .*Copy or download it again"):
        Pretrained(folder).stack()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": "32"}, "hidden_size"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, "cannot be loaded: .*bits"),
    ],
)
def test_a_config_that_no_model_can_be_made_of_is_one_sentence(
    settings: dict[str, Any], message: str, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(checkpoint("bert"), tmp_path / "encoder"))
    rewrite(folder / "config.json", **settings)
    with pytest.raises(EncoderError, match=message):
        Pretrained(folder).stack()


def test_the_folder_around_an_encoder_names_it(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """As `pretrain` leaves it, and `memory train --whole`."""
    inside = shutil.copytree(checkpoint("bert"), tmp_path / "run" / "encoder")
    with pytest.raises(EncoderError, match=rf"config\.json: no such file, but {inside} holds an encoder: take that"):
        Pretrained(tmp_path / "run")
    with pytest.raises(EncoderError, match=r"config\.json: no such file; a checkpoint folder needs it"):
        Pretrained(tmp_path)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing")
def test_a_folder_with_an_adapter_is_refused(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """`transformers` adds it unasked, and the hashes of the model's own files stay the same."""
    peft = pytest.importorskip("peft")
    folder = Path(shutil.copytree(checkpoint("bert"), tmp_path / "encoder"))
    tuned = peft.get_peft_model(Pretrained(folder).stack().model, peft.LoraConfig(r=2, target_modules=["query"]))
    tuned.save_pretrained(folder)
    with pytest.raises(EncoderError, match=r"adapter_config\.json: the folder holds an adapter beside its model"):
        Pretrained(folder)
    tuned.save_pretrained(tmp_path / "alone")
    with pytest.raises(EncoderError, match=r"the folder holds an adapter, and .*merge_and_unload"):
        Pretrained(tmp_path / "alone")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / name).unlink()
    assert Pretrained(folder).spec().weights == Pretrained(checkpoint("bert")).spec().weights


def test_a_piece_that_the_model_was_not_given_is_named(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = Path(shutil.copytree(checkpoint("bert"), tmp_path / "encoder"))
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    known = len(tokenizer)
    tokenizer.add_tokens(["zebra"])
    tokenizer.save_pretrained(folder)
    model = Pretrained(folder)
    assert len(dict(model.encode(model.cut([Document("1", ("the", "cat"))])))) == 1
    with pytest.raises(EncoderError, match=rf"piece {known} asked for, but its table holds {known} .*resize_token"):
        dict(model.encode(model.cut([Document("1", ("the", "zebra"))])))


def test_half_precision_files_are_computed_in_fp32(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint("gpt2"), tmp_path / "encoder"))
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    halves = {name: weight.bfloat16() if weight.is_floating_point() else weight for name, weight in weights.items()}
    safetensors.torch.save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    assert {p.dtype for p in Pretrained(folder).stack().parameters()} == {torch.float32}


def test_a_folder_with_its_own_code_runs_none_of_it(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint("bert"), tmp_path / "encoder"))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["auto_map"] = {"AutoModel": "mine.Model", "AutoConfig": "mine.Config"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    Pretrained(folder).stack()
    assert not (tmp_path / "ran").exists()


def test_vectors_to_be_stored_equal_live_ones_with_a_real_encoder(minilm: Path) -> None:
    model = Pretrained(minilm)
    documents = [Document("1", tuple(TEXT.split())), Document("2", text=TEXT), Document("3", text=TEXT * 60)]
    pieces = model.cut(documents)
    assert pieces[0].unknown_words == pieces[1].unknown_words == (TEXT.split().index("\u200b"),)
    assert [len(cut.windows) for cut in pieces] == [1, 1, 3]
    stack = model.stack()
    for index, views in model.encode(pieces):
        cut = pieces[index]
        start, stop, keep_start, keep_stop = cut.windows[0]
        ids = torch.tensor([[*cut.ids[:1], *cut.ids[start:stop], *cut.ids[-1:]]])
        live = torch.stack(stack.model(ids, output_hidden_states=True).hidden_states)[:, 0].detach().numpy()
        stored = views[:, keep_start:keep_stop]
        assert np.abs(stored - live[:, keep_start:keep_stop]).max() < 1e-4
        assert np.linalg.norm(stored - live[:, keep_start:keep_stop]) < 1e-5 * np.linalg.norm(stored)


def test_the_packaged_encoder_is_the_one_its_hash_says(minilm: Path) -> None:
    spec = Pretrained(minilm).spec()
    assert spec.weights == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert (spec.n_blocks, spec.width, spec.window, spec.layers) == (6, 384, 512, tuple(range(7)))
