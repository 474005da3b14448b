"""A trained encoder as an ordinary folder (spec A11, identity 9)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from encodeonce.encoders.export import export
from encodeonce.encoders.live import LiveBlocks
from encodeonce.encoders.masked_lm import MaskedLM
from encodeonce.encoders.pooled import Pooled
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import EncoderError
from encodeonce.types import Document

Checkpoint = Callable[..., Path]
FAMILIES = ("bert", "roberta", "mpnet", "modernbert")


def live(folder: Path, **settings: Any) -> LiveBlocks:
    stack = Pretrained(folder).stack()
    return LiveBlocks(stack, range(stack.n_blocks), final=True, embeddings=True, **settings)


def stepped(blocks: LiveBlocks) -> LiveBlocks:
    """A step of a loss over vectors in the place of piece vectors."""
    blocks.stack.model.get_input_embeddings().weight.requires_grad_(False)
    optimiser = torch.optim.SGD([p for p in blocks.parameters() if p.requires_grad], lr=0.1)
    blocks(blocks.place(torch.randn(6, 32), (4, 2)), (4, 2)).square().sum().backward()
    optimiser.step()
    return blocks


def with_head(checkpoint: Checkpoint, family: str, folder: Path) -> Path:
    """The tiny encoder inside the class that owns its masked-language head (and a pooler, in BERT)."""
    import transformers

    base = checkpoint(family)
    config = Pretrained(base).stack().model.config
    auto = transformers.AutoModelForPreTraining if family == "bert" else transformers.AutoModelForMaskedLM
    torch.manual_seed(3)
    auto.from_config(config).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_fd9_no_step_gives_the_base_back_bit_for_bit(checkpoint: Checkpoint, family: str, tmp_path: Path) -> None:
    base = with_head(checkpoint, family, tmp_path / "base")
    done = export(live(base), base, tmp_path / "out", MaskedLM.load(base), trained=False)
    old, new = load_file(base / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    assert (done.changed, done.piece_vectors_equal, done.head) == (0, True, True)
    assert json.loads((tmp_path / "out/config.json").read_text()) == json.loads((base / "config.json").read_text())


@pytest.mark.parametrize("family", [*FAMILIES, "albert", "deberta_v2", "electra", "distilbert"])
def test_fd9_an_untied_head_comes_back_bit_for_bit_and_a_trained_one_is_what_answers(
    checkpoint: Checkpoint, family: str, tmp_path: Path
) -> None:
    """Its two biases differ, and one of them alone is added: the logits of the export are those of the trained head."""
    import transformers

    base = checkpoint(family, masked=True, tie_word_embeddings=False)
    done, head = export(live(base), base, tmp_path / "out", MaskedLM.load(base), trained=False), MaskedLM.load(base)
    old, new = load_file(base / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    assert (done.changed, done.head) == (0, True)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    trained = export(live(base), base, tmp_path / "moved", head)
    assert trained.changed == len(list(head.parameters()))
    model, ids = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "moved").eval(), torch.tensor([[7, 9, 8]])
    stack = Pretrained(base).stack()
    with torch.no_grad():
        due = head(stack.run(stack.place(stack.lookup(ids)), None)[-1][0])
        torch.testing.assert_close(model(input_ids=ids).logits[0], due, atol=2e-4, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_fd9_trained_it_loads_whole_and_gives_the_trained_vectors(
    checkpoint: Checkpoint, family: str, tmp_path: Path
) -> None:
    """By transformers: nothing missing or unexpected, head and pooler kept, piece vectors bit-equal, same outputs."""
    import transformers

    base = with_head(checkpoint, family, tmp_path / "base")
    blocks = stepped(live(base))
    done = export(blocks, base, tmp_path / "out")
    old, new = load_file(base / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    kept = [name for name in old if "pooler" in name or "cls." in name or "lm_head" in name or name.startswith("head.")]
    assert kept
    assert all(torch.equal(old[name], new[name]) for name in kept)
    assert 0 < done.changed < len(old)
    assert done.piece_vectors_equal
    auto = transformers.AutoModelForPreTraining if family == "bert" else transformers.AutoModelForMaskedLM
    _, report = auto.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    model = transformers.AutoModel.from_pretrained(tmp_path / "out").eval()
    ids = torch.tensor([[7, 9, 8, 11]])
    blocks.eval()
    with torch.no_grad():
        due = blocks(blocks.enter(ids[0], (4,)), (4,))
        torch.testing.assert_close(model(input_ids=ids).last_hidden_state[0], due, atol=1e-5, rtol=0)
    assert Pretrained(tmp_path / "out").spec().weights != Pretrained(base).spec().weights


@pytest.mark.parametrize("auto", ["T5EncoderModel", "T5ForConditionalGeneration"])
def test_an_encoder_whose_piece_vectors_have_several_names_is_exported(
    checkpoint: Checkpoint, tmp_path: Path, auto: str
) -> None:
    """T5's files keep them as "shared"; a decoder beside the encoder stays as it was, bit for bit."""
    import transformers

    base, encoder = tmp_path / "base", checkpoint("t5")
    config = transformers.AutoConfig.from_pretrained(encoder)
    getattr(transformers, auto)(config).save_pretrained(base)
    transformers.AutoTokenizer.from_pretrained(encoder).save_pretrained(base)
    blocks = stepped(live(base))
    done = export(blocks, base, tmp_path / "out")
    old, new = load_file(base / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert old.keys() == new.keys()
    assert done.piece_vectors_equal
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed
    assert all(name.startswith("encoder.") for name in changed)
    model, ids = transformers.T5EncoderModel.from_pretrained(tmp_path / "out").eval(), torch.tensor([[7, 9, 8, 11]])
    blocks.eval()
    with torch.no_grad():
        due = blocks(blocks.enter(ids[0], (4,)), (4,))
        torch.testing.assert_close(model(input_ids=ids).last_hidden_state[0], due, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("with_modules", [True, False])
def test_the_export_is_a_model_of_sentence_transformers_and_an_encoder_here(
    checkpoint: Checkpoint, tmp_path: Path, with_modules: bool
) -> None:
    """Its modules come along where the base has any; its vectors are those that the store would keep."""
    made = pytest.importorskip("sentence_transformers").SentenceTransformer
    base = checkpoint("bert")
    if with_modules:
        made(str(base), device="cpu").save_pretrained(str(tmp_path / "base"))
        base = tmp_path / "base"
    export(stepped(live(base)), base, tmp_path / "out")
    texts = ["the cat sat", "a red dog on the mat"]
    found = made(str(tmp_path / "out"), device="cpu").encode(texts)
    source = Pooled(Pretrained(tmp_path / "out"), "text")
    cut = source.cut([Document(text, text=text) for text in texts])
    for i, views in source.encode(cut):
        np.testing.assert_allclose(views[-1, 0], found[i], atol=1e-5)
    assert (tmp_path / "out/modules.json").is_file() == with_modules


@pytest.mark.filterwarnings("ignore")
def test_the_export_is_a_transformer_of_spacy(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Its curated transformer gives the pieces the vectors that they have here."""
    spacy = pytest.importorskip("spacy")
    pytest.importorskip("spacy_curated_transformers")
    export(stepped(live(checkpoint("bert"))), checkpoint("bert"), tmp_path / "out")
    tokenizer = tmp_path / "out/tokenizer_config.json"  # spaCy knows tokenizers by their class, and this has none
    tokenizer.write_text(json.dumps({**json.loads(tokenizer.read_text()), "tokenizer_class": "BertTokenizer"}))
    shape, made = json.loads((tmp_path / "out/config.json").read_text()), "spacy-curated-transformers"
    model = {
        "@architectures": f"{made}.BertTransformer.v1",
        "vocab_size": shape["vocab_size"],
        "hidden_width": shape["hidden_size"],
        "intermediate_width": shape["intermediate_size"],
        "num_attention_heads": shape["num_attention_heads"],
        "num_hidden_layers": shape["num_hidden_layers"],
        "max_position_embeddings": shape["max_position_embeddings"],
        "model_max_length": shape["max_position_embeddings"],
        "piece_encoder": {"@architectures": f"{made}.BertWordpieceEncoder.v1"},
        "with_spans": {"@architectures": f"{made}.WithStridedSpans.v1"},
    }
    nlp = spacy.blank("en")
    nlp.add_pipe("curated_transformer", config={"model": model})
    nlp.config["initialize"]["components"]["curated_transformer"] = {
        part: {"@model_loaders": f"{made}.{loader}.v1", "name": str(tmp_path / "out")}
        for part, loader in (
            ("encoder_loader", "HFTransformerEncoderLoader"),
            ("piecer_loader", "HFPieceEncoderLoader"),
        )
    }
    nlp.initialize()
    doc = nlp("a red dog sat on the mat")
    here = Pretrained(tmp_path / "out")
    ((_, views),) = here.encode(here.cut([Document("d", words=tuple(word.text for word in doc))]), "last")
    np.testing.assert_allclose(doc._.trf_data.last_hidden_layer_state.dataXd, views[-1, 1:-1], atol=1e-5)


def test_low_rank_terms_are_merged_and_stay_apart_in_the_trained_blocks(checkpoint: Checkpoint, tmp_path: Path) -> None:
    base, lora = checkpoint("bert"), live(checkpoint("bert"), lora=(2, 4.0))
    for name, parameter in lora.named_parameters():
        if ".lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    lora.eval()
    done = export(lora, base, tmp_path / "out")
    assert done.changed == 2 * lora.stack.n_blocks
    again, ids = Pretrained(tmp_path / "out").stack(), torch.tensor([7, 9, 8])
    with torch.no_grad():
        due = lora(lora.enter(ids, (3,)), (3,))
        found = again.run(again.place(again.lookup(ids[None])), None)[-1][0]
    torch.testing.assert_close(found, due, atol=1e-5, rtol=0)


def test_half_precision_bases_come_out_in_fp32_with_their_other_files(checkpoint: Checkpoint, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for path in checkpoint("bert").iterdir():
        (base / path.name).write_bytes(path.read_bytes())
    weights = {name: tensor.half() for name, tensor in load_file(base / "model.safetensors").items()}
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "dtype": "float16"}))
    (base / "modules.json").write_text(json.dumps([{"path": ""}, {"path": "1_Pooling"}]))
    (base / "1_Pooling").mkdir()
    (base / "1_Pooling/config.json").write_text("{}")
    export(live(base), base, tmp_path / "out", trained=False)
    new = load_file(tmp_path / "out/model.safetensors")
    assert all(torch.equal(new[name], tensor.float()) for name, tensor in weights.items())
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "float32"
    assert (tmp_path / "out/1_Pooling/config.json").is_file()


def test_what_is_wrong_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    base = checkpoint("bert")
    with pytest.raises(EncoderError, match="the base itself"):
        export(live(base), base, base)
    with pytest.raises(EncoderError, match="nothing was trained"):
        export(live(base), base, tmp_path / "a")
    moved = live(base)
    with torch.no_grad():
        table = moved.stack.model.get_input_embeddings().weight.requires_grad_(False)
        table += 1
    with pytest.raises(EncoderError, match="piece vectors differ"):
        export(moved, base, tmp_path / "b")
    with pytest.raises(EncoderError, match="hold no "):
        export(live(base), checkpoint("distilbert"), tmp_path / "c")
