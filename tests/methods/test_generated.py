"""T5 that writes its label: the loss is transformers' own, free writing its greedy search; it trains, and it fuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.t5_decoder import T5Decoder
from encodeonce.errors import ConfigError, EncoderError
from encodeonce.heads.written_labels import WrittenLabels
from encodeonce.methods.fewshot import generated
from encodeonce.methods.fewshot.generated import outputs
from encodeonce.methods.fewshot.prompted import source_of
from encodeonce.methods.refusion import Fusing, Near, Retrieved, refusion
from encodeonce.nn.rows import Rows
from encodeonce.prompts import Prompt, known
from encodeonce.store import Search
from encodeonce.tasks import named
from encodeonce.train.evaluate import evaluate
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

from ..encoders import conftest as tiny
from .test_prompted import drawn

PROMPT = Prompt("kinds", "the {text} is the", {"places": "river bank", "animals": "cat"})


@pytest.fixture(scope="module", params=["t5", "t5.1.1"])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pretrained:
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer = tiny.unigram(begin=False)
    tokenizer.backend_tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.save_pretrained(folder)
    old = {"feed_forward_proj": "relu", "tie_word_embeddings": True} if request.param == "t5" else {}
    sizes = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 48, "num_decoder_layers": 2}
    ends = {"eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 1, "dropout_rate": 0.0}
    T5Decoder.shaped(folder, vocab_size=len(tokenizer), **sizes, **ends, **old)
    return Pretrained(folder)


def whole(encoder: Pretrained) -> Any:
    import transformers

    return transformers.T5ForConditionalGeneration.from_pretrained(encoder.path).eval()


def made(encoder: Pretrained, documents: list[Document]) -> Any:
    prompter = encoder.prompter(PROMPT, written=True)
    task = named("label", kind="classification").learn(documents)
    method = generated(encoder, prompter, task).eval()
    return method, method.read(source_of(encoder, prompter, documents), documents, [task]), task, prompter


def test_a_labels_score_is_minus_transformers_loss_of_its_words_and_writing_is_its_greedy_search(
    encoder: Pretrained,
) -> None:
    documents = drawn(5, seed=0)
    method, examples, task, prompter = made(encoder, documents)
    model, laid = whole(encoder), prompter(documents).pieces
    assert len(prompter.label_words[0]) > len(prompter.label_words[1]) > 0
    batch = next(iter(method.batches(examples, size=5, order=None)))
    with torch.no_grad():
        scores = method.scores(batch, ["label"])["label"]
        for line, item in zip(scores, batch.items, strict=True):
            ids = torch.from_numpy(laid[item].ids.astype(np.int64))[None]
            assert int(ids[0, -1]) == 2
            for score, label in zip(line, task.labels, strict=True):
                target = torch.tensor([[*prompter.label_words[prompter.prompt.labels.index(label)], 2]])
                loss = model(input_ids=ids, labels=target).loss * target.shape[1]
                assert float(score) == pytest.approx(-float(loss), abs=1e-4)
        written = outputs(method, examples, encoder.spell)
        for document, text in zip(laid, written, strict=True):
            ids = torch.from_numpy(document.ids.astype(np.int64))[None]
            kept = model.generate(ids, max_new_tokens=3, do_sample=False, num_beams=1)[0, 1:].tolist()
            assert text == encoder.spell(kept[: kept.index(2)] if 2 in kept else kept).lower()


def test_it_trains_in_the_one_loop_with_one_table_and_then_writes_labels_freely(encoder: Pretrained) -> None:
    train, test = drawn(16, seed=1), drawn(20, seed=2)
    method, examples, task, prompter = made(encoder, train)
    tables = [name for name, own in method.named_parameters() if len(own) == whole(encoder).config.vocab_size]
    assert len(tables) == (1 if method.part("label").head.decoder.tied else 2)
    settings = Settings(learning_rate=1e-2, num_train_epochs=15, per_device_train_batch_size=8)
    fit(method, examples, {"label": task}, settings)
    unseen = method.read(source_of(encoder, prompter, test), test, [task])
    assert evaluate(method, unseen, {"label": task}).scores["label"]["accuracy"] >= 90
    words = {label: PROMPT.words[label] for label in task.labels}
    answers = outputs(method, unseen, encoder.spell, longest=1 + max(map(len, prompter.label_words)))
    assert np.mean([text == words[d.meta["label"]] for text, d in zip(answers, test, strict=True)]) >= 0.9


def test_neighbours_are_fused_into_its_encoder(encoder: Pretrained) -> None:
    documents = drawn(6, seed=3)
    method, examples, task, prompter = made(encoder, documents)
    near = np.random.default_rng(0).standard_normal((9, 32)).astype(np.float32)
    ids = np.random.default_rng(1).integers(0, 9, (6, 1, 4))
    found = Near(tuple(d.key for d in documents), ids, np.zeros(ids.shape, np.float32), Search(near))
    fused = refusion(method, Fusing(schemes=("add",), k=4), 32).eval()
    source = Retrieved(source_of(encoder, prompter, documents), found)
    other = fused.read(source, documents, [task])
    with torch.no_grad():
        plain, changed = (
            next(iter(own.batches(read, size=6, order=None))) for own, read in ((method, examples), (fused, other))
        )
        before, after = method.scores(plain, ["label"])["label"], fused.scores(changed, ["label"])["label"]
    assert (before - after).abs().max() > 1e-4
    assert outputs(fused, other, encoder.spell)


def test_what_cannot_be_written_is_refused(encoder: Pretrained, checkpoint: Callable[..., Path]) -> None:
    documents = drawn(4, seed=4)
    task = named("label", kind="classification").learn(documents)
    with pytest.raises(ConfigError, match="gap before its end"):
        encoder.prompter(Prompt("p", "{mask}: {text}", {"a": "cat", "b": "river"}), written=True)
    with pytest.raises(ConfigError, match="have the same label word"):
        encoder.prompter(Prompt("p", "{text}", {"a": "cat", "b": " cat"}), written=True)
    other = Pretrained(checkpoint("bert"))
    with pytest.raises(EncoderError, match="a bert model writes no label"):
        generated(other, encoder.prompter(PROMPT, written=True), task)
    with pytest.raises(ConfigError, match="no word for places"):
        generated(encoder, encoder.prompter(Prompt("p", "{text}", {"animals": "cat", "b": "mat"}), written=True), task)
    with pytest.raises(EncoderError, match="no mask piece"):
        encoder.prompter(PROMPT)


def test_a_label_without_gold_costs_nothing_and_labels_need_words_of_their_own() -> None:
    class Constant(torch.nn.Module):
        def forward(self, ids: Any, memory: Any, readable: Any) -> torch.Tensor:
            assert readable.sum(1).tolist() == [3, 3, 1, 1]
            return torch.zeros(*ids.shape, 4)

    head = WrittenLabels(Constant(), ("a", "b"), [[0], [1, 2]], start=3, end=3)
    scores = head(torch.randn(4, 8), Rows((3, 1), np.zeros(4, np.int64)))
    torch.testing.assert_close(scores, -torch.tensor([[2.0, 3.0]] * 2) * np.log(4))
    assert head.decode(scores, Rows.of((1, 1))) == ["a", "a"]
    assert float(head.loss(scores, torch.tensor([-100, 1]))) == pytest.approx(3 * np.log(4))
    with pytest.raises(ConfigError, match="words that no other has"):
        WrittenLabels(Constant(), ("a", "b"), [[0], [0]], start=3, end=3)


def test_written_prompts_have_the_labels_of_the_others_and_no_gap_inside() -> None:
    assert list(known(written=True)) == list(known())
    for name, prompt in known(written=True).items():
        assert prompt.labels == known()[name].labels
        assert (prompt.metric, prompt.positive) == (known()[name].metric, known()[name].positive)
        assert [part.kind for part in prompt.parts][-1] == "mask"
        assert prompt.pairs == known()[name].pairs
