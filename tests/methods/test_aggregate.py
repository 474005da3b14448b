"""The method against padded plain Python, and its identities."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from encodeonce.batching import Encodings
from encodeonce.encoders import checkpoint as files
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError
from encodeonce.methods.aggregate import VARIANTS, Aggregate, Variant
from encodeonce.store import Store
from encodeonce.tasks import named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

from ..encoders.conftest import close

Corpus = Callable[..., tuple[list[Document], Encodings]]
SMALL = {"key_width": 4, "n_heads": 2, "dropout": 0.0}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("piece", ["first", "last", "mean"])
def test_packed_loss_equals_one_item_at_a_time(make_corpus: Corpus, name: str, piece: str) -> None:
    documents, memory = make_corpus(9)
    tasks = [named(task, piece=piece).learn(documents) for task in ("upos", "ner")]
    method = Aggregate.build(Variant(name, **SMALL), memory.spec, tasks)
    examples = method.read(memory, documents, tasks)
    mean_words = np.mean([len(document.words) for document in documents])
    batch = next(iter(method.batches(examples, size=4, order=np.random.default_rng(1))))
    total = 0.0
    for item in batch.items:
        alone = next(iter(method.batches(method.read(memory, [documents[item]]), size=1, order=None)))
        for task in tasks:
            scores = method.part(task.name)(alone)
            for word, gold in enumerate(task.gold([documents[item]])[0]):
                total += float(cross_entropy(scores[word], torch.tensor(task.labels.index(gold))).detach())
    assert float(method.loss(batch).detach()) == pytest.approx(total / (4 * mean_words), rel=1e-5)


def test_normaliser_is_a_constant_of_the_corpus(make_corpus: Corpus) -> None:
    """The mean over an epoch's batches weighs every word alike, whatever batch it is in (design/performance.md, 4)."""
    documents, memory = make_corpus(12)
    task = named("upos").learn(documents)
    method = Aggregate.build(Variant("linear", **SMALL), memory.spec, [task])
    examples = method.read(memory, documents, [task])
    losses = [method.loss(b).item() for b in method.batches(examples, size=3, order=np.random.default_rng(0))]
    whole = method.loss(next(iter(method.batches(examples, size=12, order=None)))).item()
    assert np.mean(losses) == pytest.approx(whole, rel=1e-5)


def test_predictions_are_the_best_scores_in_the_given_order(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(7)
    task = named("upos").learn(documents)
    method = Aggregate.build(Variant("agg", **SMALL), memory.spec, [task])
    answers = [a for b in method.batches(method.read(memory, documents), size=3, order=None) for a in method.predict(b)]
    for document, answer in zip(documents, answers, strict=True):
        alone = next(iter(method.batches(method.read(memory, [document]), size=1, order=None)))
        best = method.part("upos")(alone).argmax(-1)
        assert answer == {"upos": tuple(task.labels[i] for i in best)}


@pytest.mark.parametrize("name", VARIANTS)
def test_CA1_layer_weights_of_words_sum_to_one(make_corpus: Corpus, name: str) -> None:
    documents, memory = make_corpus(4)
    task = named("upos", piece="mean").learn(documents)
    method = Aggregate.build(Variant(name, **SMALL), memory.spec, [task])
    batch = next(iter(method.batches(method.read(memory, documents), size=4, order=None)))
    weights = method.layer_weights(batch, "upos")
    assert weights.shape == (sum(batch.choices["mean"].rows.lengths), len(method.layers))
    torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)))


def test_a_part_starts_the_same_in_any_company(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(6)
    tasks = [named(name).learn(documents) for name in ("upos", "deprel", "ner")]
    torch.manual_seed(5)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    together = Aggregate.build(Variant(**SMALL), memory.spec, tasks, seed=7)
    assert torch.equal(torch.rand(3), drawn), "building must not move the global generator"
    for task in tasks:
        alone = Aggregate.build(Variant(**SMALL), memory.spec, [task], seed=7)
        for a, b in zip(alone.parameters(), together.part(task.name).parameters(), strict=True):
            assert torch.equal(a, b)
    other = Aggregate.build(Variant(**SMALL), memory.spec, tasks, seed=8)
    pairs = zip(other.part("upos").parameters(), together.part("upos").parameters(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)


def test_gradients_of_a_joint_loss_are_those_of_each_task_alone(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(8)
    tasks = [named(name).learn(documents) for name in ("upos", "ner")]
    together = Aggregate.build(Variant(**SMALL), memory.spec, tasks)
    batch = next(iter(together.batches(together.read(memory, documents, tasks), size=8, order=None)))
    together.loss(batch).backward()
    for task in tasks:
        alone = Aggregate.build(Variant(**SMALL), memory.spec, [task])
        alone.loss(batch).backward()
        for a, b in zip(alone.parameters(), together.part(task.name).parameters(), strict=True):
            assert torch.equal(a.grad, b.grad)  # type: ignore[arg-type]


def test_views_that_are_read(make_corpus: Corpus) -> None:
    spec = make_corpus(1)[1].spec
    assert Variant("adapted").layers(spec) == (0, 1, 2)
    assert Variant("linear", include_embeddings=False).layers(spec) == (1, 2)
    assert Variant("frozen").layers(spec) == (2,)
    with pytest.raises(ConfigError, match=r"'frozen' reads view 2, the last block; the store holds \[0, 1\]"):
        Variant("frozen").layers(replace(spec, layers=(0, 1)))
    with pytest.raises(ConfigError, match="include_embeddings=False leaves no view"):
        Variant("linear", include_embeddings=False).layers(replace(spec, layers=(0,)))


def test_pre_norm_layers_makes_the_scale_of_a_view_invisible(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(3)
    task = named("upos").learn(documents)
    method = Aggregate.build(Variant("agg", **SMALL, pre_norm_layers=True), memory.spec, [task])
    batch = next(iter(method.batches(method.read(memory, documents), size=3, order=None)))
    louder = replace(
        batch, packed=replace(batch.packed, views=batch.packed.views * torch.tensor([1, 50, 9])[:, None, None])
    )
    torch.testing.assert_close(method.part("upos")(louder), method.part("upos")(batch), atol=1e-4, rtol=1e-3)


def test_what_cannot_be_built_is_refused_by_name(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(3)
    task = named("upos").learn(documents)
    with pytest.raises(ConfigError, match=r"method 'adaptd' is not known. There is: frozen.*Did you mean 'adapted'\?"):
        Variant("adaptd")
    with pytest.raises(ConfigError, match="no task: give at least one"):
        Aggregate.build(Variant(), memory.spec, [])
    with pytest.raises(ConfigError, match="task 'upos' is given twice"):
        Aggregate.build(Variant(), memory.spec, [task, task])
    with pytest.raises(ConfigError, match=r"task 'upos' has no labels yet: task = task.learn"):
        Aggregate.build(Variant(), memory.spec, [named("upos")])


SENTENCES = ("the cat sat on the mat", "running by the river bank , a naive cafe .", "x", "rents and co op x y z")


def sentences() -> list[Document]:
    cut = [text.split() for text in SENTENCES]
    columns = [{"upos": tuple(str(len(word) % 3) for word in words)} for words in cut]
    return [Document(str(i), tuple(w), columns=c) for i, (w, c) in enumerate(zip(cut, columns, strict=True))]


@pytest.mark.parametrize("name", VARIANTS)
def test_CA14_the_encoder_under_a_piped_method_is_never_touched(
    name: str, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Neither a gradient nor a bit, though its weights ask for gradients; case TRAIN-1 asks the same."""
    model, documents = Pretrained(checkpoint("bert")), sentences()
    store = Store.open(tmp_path, model.spec(dtype="fp32"))
    store.fill(documents, model)
    stack = model.stack().requires_grad_(True)
    before = {key: tensor.clone() for key, tensor in stack.state_dict().items()}
    task = named("upos").learn(documents)
    method = Aggregate.build(Variant(name, **SMALL), store.spec, [task])
    ours = {id(parameter) for parameter in method.parameters()}
    assert not ours & {id(parameter) for parameter in stack.parameters()}
    started = {key: tensor.clone() for key, tensor in method.state_dict().items()}
    fit(method, method.read(store, documents, [task]), {"upos": task}, Settings(num_train_epochs=2))
    assert any(not torch.equal(tensor, started[key]) for key, tensor in method.state_dict().items())
    assert all(parameter.grad is None for parameter in stack.parameters())
    assert all(torch.equal(tensor, before[key]) for key, tensor in stack.state_dict().items())


@pytest.mark.parametrize("family", files.families())
def test_CA15_stored_views_are_those_of_a_live_encoder(
    family: str, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """To the bit in batches of the same shape; within rounding of transformers' own views, alone and padded."""
    model, documents = Pretrained(checkpoint(family)), sentences()
    store = Store.open(tmp_path, model.spec(dtype="fp32"))
    store.fill(documents, model)
    stored = store.batch(store.index([document.key for document in documents]), store.spec.layers)
    items = [views.transpose(0, 1) for views in stored.views.transpose(0, 1).split(stored.lengths)]
    pieces = model.cut(documents)
    for i, live in model.encode(pieces):
        assert torch.equal(items[i], torch.from_numpy(live))
    theirs = model.stack().model
    padded = torch.full((len(pieces), max(map(len, pieces))), int(theirs.config.pad_token_id))
    mask = torch.zeros_like(padded)
    for row, cut in enumerate(pieces):
        padded[row, : len(cut)], mask[row, : len(cut)] = torch.from_numpy(cut.ids), 1
    together = torch.stack(theirs(padded, attention_mask=mask, output_hidden_states=True).hidden_states)
    for row, cut in enumerate(pieces):
        alone = theirs(torch.from_numpy(cut.ids)[None].long(), output_hidden_states=True).hidden_states
        close(items[row], torch.stack(alone)[:, 0])
        close(items[row], together[:, row, : len(cut)])
