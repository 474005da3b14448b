"""Prompted fine-tuning: what it computes before training is transformers' own, and it trains in the one loop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError
from encodeonce.methods.fewshot import prompted
from encodeonce.methods.fewshot.prompted import source_of
from encodeonce.prompts import Prompt
from encodeonce.tasks import named
from encodeonce.train.evaluate import evaluate, predicted
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

PROMPT = Prompt("kinds", "{text} by the {mask} .", {"places": "river", "animals": "cat"})
WORDS = {"animals": ["sat", "mat", "on"], "places": ["bank", "cafe", "naive"]}


def drawn(n: int, seed: int) -> list[Document]:
    generator = np.random.default_rng(seed)
    kinds = [list(WORDS)[i % 2] for i in range(n)]
    texts = [" ".join(generator.choice(WORDS[kind], int(generator.integers(2, 6))).tolist()) for kind in kinds]
    return [
        Document(f"d{i}", text=text, meta={"label": kind})
        for i, (text, kind) in enumerate(zip(texts, kinds, strict=True))
    ]


@pytest.fixture(scope="module", params=["bert", "distilbert"])
def encoder(request: pytest.FixtureRequest, checkpoint: Callable[..., Path]) -> Pretrained:
    """With a mask piece, which the tiny tokenizers do not name."""
    model = Pretrained(checkpoint(request.param, masked=True))
    model._cutter.tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    return model


def task_of(documents: list[Document], piece: str = "document-words") -> Any:
    return named("label", kind="classification", piece=piece).learn(documents)


def test_before_training_it_gives_transformers_probabilities_of_the_label_words(encoder: Pretrained) -> None:
    import transformers

    documents, prompter = drawn(5, seed=0), encoder.prompter(PROMPT)
    task = task_of(documents)
    method = prompted(encoder, prompter, task).eval()
    examples = method.read(source_of(encoder, prompter, documents), documents, [task])
    whole = transformers.AutoModelForMaskedLM.from_pretrained(encoder.path).eval()
    places = {"animals": 1, "places": 0}  # in the prompt's order; the task's is the alphabet's
    with torch.no_grad():
        answers = [one for batch in method.batches(examples, size=3, order=None) for one in method.predict(batch, True)]
        for document, answer in zip(documents, answers, strict=True):
            ids = torch.from_numpy(prompter([document]).pieces[0].ids.astype(np.int64))[None]
            logits = whole(ids).logits[0, (ids[0] == prompter.mask).nonzero()[0, 0]]
            expected = logits[torch.from_numpy(prompter.label_pieces)].double().softmax(0)
            for label, place in places.items():
                assert answer["label"][1][label] == pytest.approx(float(expected[place]), abs=1e-4)


def test_it_trains_in_the_one_loop_and_everything_moves_at_the_encoders_rate(encoder: Pretrained) -> None:
    train, test, prompter = drawn(16, seed=1), drawn(20, seed=2), encoder.prompter(PROMPT)
    task = task_of(train)
    method = prompted(encoder, prompter, task)
    before = {name: value.detach().clone() for name, value in method.named_parameters()}
    assert {kind: len(own) for kind, own in method.groups("label").items()} == {"encoder": len(before)}
    source = source_of(encoder, prompter, [*train, *test])
    examples, unseen = method.read(source, train, [task]), method.read(source, test, [task])
    fit(
        method,
        examples,
        {"label": task},
        Settings(learning_rate=2e-3, num_train_epochs=12, per_device_train_batch_size=8),
    )
    moved = [name for name, value in method.named_parameters() if not torch.equal(value, before[name])]
    assert any("head.words" in name for name in moved)
    assert any("embeddings" in name for name in moved)
    assert evaluate(method, unseen, {"label": task}).scores["label"]["accuracy"] >= 90
    assert predicted(method, unseen)[0] == predicted(method, unseen)[0]


def test_texts_laid_before_change_the_answer_and_are_trained_like_any(encoder: Pretrained) -> None:
    documents, prompter = drawn(4, seed=3), encoder.prompter(PROMPT)
    task = task_of(documents)
    method = prompted(encoder, prompter, task)
    bare = method.read(source_of(encoder, prompter, documents), documents, [task])
    laid = method.read(source_of(encoder, prompter, documents, [["the mat", "a b c"]] * 4), documents, [task])
    assert (laid.lengths > bare.lengths).all()
    assert laid.words.words_of_item.tolist() == [1] * 4


def test_low_rank_terms_alone_are_trained_and_start_from_the_same_answers(encoder: Pretrained) -> None:
    documents, prompter = drawn(8, seed=5), encoder.prompter(PROMPT)
    task = task_of(documents)
    plain, low = prompted(encoder, prompter, task), prompted(encoder, prompter, task, lora=(2, 4.0))
    source = source_of(encoder, prompter, documents)
    examples = low.read(source, documents, [task])
    with torch.no_grad():
        batch = next(iter(low.eval().batches(examples, size=8, order=None)))
        expected = plain.eval().predict(batch, True)
        for one, other in zip(low.predict(batch, True), expected, strict=True):
            assert one["label"][1]["places"] == pytest.approx(other["label"][1]["places"], abs=1e-6)
    before = {name: value.detach().clone() for name, value in low.named_parameters()}
    assert list(low.groups("label")) == ["head"]
    fit(low, examples, {"label": task}, Settings(learning_rate=1e-2, num_train_epochs=2))
    moved = {name for name, value in low.named_parameters() if not torch.equal(value, before[name])}
    assert moved
    assert all(".lora_" in name for name in moved)


def test_what_does_not_fit_the_prompt_is_refused(encoder: Pretrained) -> None:
    documents, prompter = drawn(4, seed=4), encoder.prompter(PROMPT)
    with pytest.raises(ConfigError, match="piece='document'; a prompted task needs piece='document-words'"):
        prompted(encoder, prompter, task_of(documents, piece="document"))
    other = [Document("1", text="cat", meta={"label": "things"}), *documents]
    with pytest.raises(ConfigError, match=r"'kinds' has no word for things. It has words for: places, animals"):
        prompted(encoder, prompter, task_of(other))
