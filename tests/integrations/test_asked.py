"""A few-shot estimator that asks its model by a prompt: it trains the method's own, reloads, names what is wrong."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from encodeonce.batching import Source
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.t5_decoder import T5Decoder
from encodeonce.errors import ConfigError, EncoderError, RunError
from encodeonce.integrations._fused import Neighbourhood
from encodeonce.integrations._material import TextVectors, as_documents
from encodeonce.integrations.few_shot import METHODS, FewShot
from encodeonce.methods.fewshot import prompted
from encodeonce.methods.fewshot.prompted import source_of
from encodeonce.methods.finetune import Finetune
from encodeonce.methods.refusion import FUSINGS, refusion
from encodeonce.prompts import Prompt
from encodeonce.tasks import named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

from ..encoders import conftest as tiny

Texts = tuple[list[str], list[str]]

PROMPT = Prompt("kinds", "{text} by the {mask} .", {"places": "river", "animals": "cat"}, max_pieces=12)


@pytest.fixture
def encoder(checkpoint: Callable[..., Path]) -> Pretrained:
    """With a mask piece, which the tiny tokenizers do not name."""
    model = Pretrained(checkpoint("bert", masked=True))
    model._cutter.tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    return model


def estimator(encoder: Pretrained, **settings: Any) -> FewShot:
    return FewShot(encoder, **{"folds": 2, "steps": 6, "compute": "fp32", **settings})


@pytest.mark.parametrize("name", ["prompt", "add"])
def test_it_is_prompted_fine_tuning_on_all_labels(
    name: str, encoder: Pretrained, labelled: Texts, others: Texts
) -> None:
    """By hand: the method and the loop of the library, labels by name; the estimator numbers them. A fusion goes inside
    what the prompt asks."""
    model = estimator(encoder, methods=(name,), prompt=PROMPT, neighbours=8).fit(*labelled, unlabelled=others[0][20:])
    documents = [
        Document(f"d{n}", text=text, meta={"label": label})
        for n, (text, label) in enumerate(zip(*labelled, strict=True))
    ]
    task = named("label", kind="classification", piece="document-words").learn(documents)
    prompter = encoder.prompter(PROMPT)
    near = Neighbourhood.of(as_documents(others[0][20:], "other"), TextVectors(encoder))
    method: Finetune = prompted(encoder, prompter, task)
    if name == "add":
        method = refusion(method, replace(FUSINGS["add"], k=8), 32)

    def laid(own: list[Document]) -> Source:
        source = source_of(encoder, prompter, own)
        return near.around(source, own, 8) if name == "add" else source

    settings = Settings(
        learning_rate=1e-4, num_train_epochs=6, per_device_train_batch_size=32, warmup_ratio=0.1, seed=42
    )
    fit(method, method.read(laid(documents), documents, [task]), {"label": task}, settings)
    asked = [Document(f"q{n}", text=text) for n, text in enumerate(others[0][:9])]
    examples = method.eval().read(laid(asked), asked)
    said = [
        one["label"][1] for batch in method.batches(examples, size=9, order=None) for one in method.predict(batch, True)
    ]
    expected = np.array([[one["animals"], one["places"]] for one in said]) ** (1 / model.mixture_.temperatures[name])
    np.testing.assert_allclose(model.predict_proba(others[0][:9]), expected / expected.sum(1, keepdims=True), atol=1e-5)


def test_it_is_tried_beside_the_others_takes_long_texts_and_reloads(
    encoder: Pretrained, labelled: Texts, others: Texts, tmp_path: Path
) -> None:
    (tmp_path / "kinds.toml").write_text(
        'template = "{text} by the {mask} ."\nmax_pieces = 12\n[words]\nplaces = "river"\nanimals = "cat"\n'
    )
    default = estimator(encoder, prompt=tmp_path / "kinds.toml", steps=1).fit(*labelled)
    single = [name for name in METHODS if name not in ("cosine", "late", "self_training")]
    assert [one.name for one in default.tried_] == [*single, "prompt", "mixture"]
    long = " ".join(["cat"] * (encoder.window + 5))
    model = estimator(encoder, methods=("probe", "prompt"), prompt=tmp_path / "kinds.toml", steps=30)
    model.fit([*labelled[0], long, labelled[0][0]], [*labelled[1], "animals", labelled[1][0]])
    asked = [*others[0][:9], long, others[0][0]]
    answers = model.predict_proba(asked)
    np.testing.assert_allclose(answers[0], answers[-1], atol=1e-6)
    assert "prompt" in model.mixture_.weights
    model.save(tmp_path / "kept")
    again = FewShot.load(tmp_path / "kept", encoder)
    np.testing.assert_array_equal(again.predict_proba(asked), answers)
    assert again.prompt.words == {"places": "river", "animals": "cat"}
    again.save(tmp_path / "twice")
    np.testing.assert_array_equal(FewShot.load(tmp_path / "twice", encoder).predict_proba(asked), answers)
    (tmp_path / "kept" / "prompt" / "prompt.json").write_text("{}")
    with pytest.raises(RunError, match="prompt does not hold the files"):
        FewShot.load(tmp_path / "kept", encoder)


def test_a_fusion_inside_it_is_searched_takes_long_texts_and_reloads(
    encoder: Pretrained, labelled: Texts, others: Texts, tmp_path: Path
) -> None:
    texts = [*labelled[0], " ".join(["cat"] * (encoder.window + 5))]
    model = estimator(encoder, methods=("refusion",), prompt=PROMPT, neighbours=8)
    model.fit(texts, [*labelled[1], "animals"], unlabelled=others[0])
    assert [one.name for one in model.tried_] == ["refusion", "mixture"]
    assert len(model.architecture_["refusion"]) == 2 * encoder.spec().n_blocks
    answers = model.predict_proba([*others[0][:9], texts[-1]])
    assert abs(answers[-1, 0] - 0.5) > 1e-4
    model.save(tmp_path / "kept")
    again = FewShot.load(tmp_path / "kept", encoder)
    np.testing.assert_array_equal(again.predict_proba([*others[0][:9], texts[-1]]), answers)
    assert again.prompt == PROMPT


@pytest.mark.parametrize("name", ["prompt", "add"])
def test_t5_writes_its_labels(name: str, labelled: Texts, others: Texts, tmp_path: Path) -> None:
    tokenizer = tiny.unigram(begin=False)
    tokenizer.backend_tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.save_pretrained(tmp_path)
    sizes = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 48, "num_decoder_layers": 2}
    ends = {"eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 1, "dropout_rate": 0.0}
    T5Decoder.shaped(tmp_path, vocab_size=len(tokenizer), **sizes, **ends)
    words = {"places": "river bank", "animals": "cat"}
    prompt = Prompt("kinds", "the {text} is the", words)
    model = estimator(Pretrained(tmp_path), methods=(name,), prompt=prompt, neighbours=8)
    answers = model.fit(*labelled, unlabelled=others[0]).predict_proba(others[0][:9])
    np.testing.assert_allclose(answers.sum(1), 1)
    model.save(tmp_path / "kept")
    again = FewShot.load(tmp_path / "kept", Pretrained(tmp_path))
    np.testing.assert_array_equal(again.predict_proba(others[0][:9]), answers)


def test_what_cannot_be_asked_is_named_before_anything_is_trained(
    encoder: Pretrained, checkpoint: Callable[..., Path], labelled: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FewShot, "_cross_validated", lambda *_: pytest.fail("trained"))
    texts, labels = labelled
    other = {"places": "river", "animals": "banks cat"}
    pairs = Prompt("kinds", "{text}{mask} {pair}", PROMPT.words)
    headless = Pretrained(checkpoint("bert"))
    headless._cutter.tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    for model, error, message in (
        (estimator(encoder, prompt=Prompt("p", "{text}", other)), ConfigError, r"label 'animals': the word .* pieces"),
        (estimator(encoder, prompt="sst2"), ConfigError, "sst2: the prompt has no word for label 'animals'"),
        (estimator(encoder, prompt=pairs), ConfigError, "is for pairs of texts, and these are single texts"),
        (estimator(encoder, methods=("prompt",)), ConfigError, "a prompt and the method 'prompt' go together"),
        (
            estimator(encoder, methods=("probe",), prompt=PROMPT),
            ConfigError,
            "neither 'prompt' nor a fusion is among the methods: probe",
        ),
        (estimator(headless, prompt=PROMPT), EncoderError, "hold no masked-language-model head"),
    ):
        with pytest.raises(error, match=message):
            model.fit(texts, labels)
