"""Trained blocks under heads: what each setting computes at its start, what it trains, how tasks live together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from encodeonce.adapters.linear import Linear
from encodeonce.batching import Batch, Cut, Encodings
from encodeonce.encoders.live import LiveBlocks
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, DataError, NotStored
from encodeonce.methods.finetune import TUNINGS, Finetune, Live, Tuning
from encodeonce.tasks import Task, named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document, Encoding

from ..encoders.conftest import close

FAMILIES = ["bert", "deberta_v2", "gpt2", "modernbert", "t5"]
WORDS = ("the", "cat", "sat", "on", "mat", "river", "banks", "running", "naive", "cafe", "x", "y")
SETTINGS = Settings(
    learning_rate=5e-3, encoder_learning_rate=1e-3, num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1
)


@dataclass
class Corpus:
    """Documents, their stored views, and the encoder that made them."""

    documents: list[Document]
    model: Pretrained
    store: Encodings
    pieces: Cut
    tasks: list[Task]

    def build(self, tuning: Tuning, names: Sequence[str] = ("upos",)) -> Finetune:
        tasks = [task for task in self.tasks if task.name in names]
        return Finetune.build(tuning, self.model, self.store.spec, tasks, seed=3, read_ahead=0)

    def batch(self, method: Finetune, names: Sequence[str] = ("upos",)) -> Batch:
        """All documents as one batch."""
        examples = self.examples(method, names)
        return next(iter(method.batches(examples, size=len(self.documents), order=None)))

    def examples(self, method: Finetune, names: Sequence[str] = ("upos",)) -> Any:
        tasks = [task for task in self.tasks if task.name in names]
        return method.read(self.store if method.layers else self.pieces, self.documents, tasks)


def corpus(model: Pretrained, n: int = 10) -> Corpus:
    random = np.random.default_rng(0)
    documents = []
    for i in range(n):
        words = tuple(random.choice(WORDS, int(random.integers(1, 7))).tolist())
        columns = {
            "upos": tuple(str(len(word) % 3) for word in words),
            "deprel": tuple("ab"[word > "n"] for word in words),
        }
        documents.append(Document(f"s{i}", words, columns=columns, place=f"corpus:{i + 1}"))
    pieces = model.cut(documents)
    encodings = [Encoding(pieces[i].key, views, pieces[i].word) for i, views in model.encode(pieces)]
    tasks = [named("upos").learn(documents), named("deprel", piece="first").learn(documents)]
    spec = model.spec(dtype="fp32")
    return Corpus(documents, model, Encodings(spec, encodings), Cut(spec, pieces), tasks)


@pytest.fixture(scope="module", params=FAMILIES)
def any_corpus(request: pytest.FixtureRequest, checkpoint: Callable[..., Path]) -> Corpus:
    return corpus(Pretrained(checkpoint(request.param)))


@pytest.fixture(scope="module")
def small(checkpoint: Callable[..., Path]) -> Corpus:
    return corpus(Pretrained(checkpoint("bert")))


def vectors(method: Finetune, batch: Batch) -> Tensor:
    """What the adapter gives, of all rows."""
    method.eval()
    return method.part("upos").adapter(batch.packed)


def last_view(material: Corpus) -> Tensor:
    store = material.store
    index = store.index([document.key for document in material.documents])
    return store.batch(index, (store.spec.n_blocks,)).views[0]


def test_every_depth_starts_as_the_frozen_encoder(any_corpus: Corpus) -> None:
    expected, total = last_view(any_corpus), any_corpus.store.spec.n_blocks
    for live in range(total + 1):
        method = any_corpus.build(Tuning("finetune", live=live))
        assert method.layers == (() if live == total else (total - live,))
        close(vectors(method, any_corpus.batch(method)), expected, within=2e-5)


def test_CA17_lora_starts_as_the_frozen_encoder(any_corpus: Corpus) -> None:
    pytest.importorskip("peft")
    method = any_corpus.build(Tuning("lora"))
    assert method.layers == (0,)
    expected = last_view(any_corpus)
    close(vectors(method, any_corpus.batch(method)), expected, within=2e-5)


def test_live_mix_without_feed_forward_learns_and_comes_back(small: Corpus) -> None:
    """The settings reach the blocks, and what was trained answers again in a method that is built from them."""
    tuning = Tuning("live_mix", blocks=(0, 1), attention_only=(-1,))
    method = small.build(tuning)
    blocks = method.part("upos").adapter.blocks
    assert blocks.attention_only == {1}
    batch = small.batch(method)
    again = small.build(Tuning(**tuning.to_json()))
    again.load_state_dict(method.state_dict())
    close(vectors(again, batch), vectors(method, batch), within=1e-6)
    whole = small.build(replace(tuning, attention_only=()))
    assert len(list(whole.parameters())) == len(list(method.parameters())) + 4


@pytest.mark.parametrize("residual", [True, False])
def test_live_mix_is_the_block_over_the_mix_plus_the_mix(any_corpus: Corpus, residual: bool) -> None:
    method = any_corpus.build(Tuning("live_mix", blocks=(1,), over="linear", residual=residual))
    batch = any_corpus.batch(method)
    mean = batch.packed.views.mean(0)
    stack = any_corpus.model.stack()
    items = mean.split(batch.packed.lengths)
    expected = torch.cat([stack.block(1, x, context_of(stack, x))[0] for x in (item[None] for item in items)])
    expected = expected + mean if residual else expected
    close(vectors(method, batch), expected, within=2e-5)
    weights = method.part("upos").adapter.layer_weights(batch.packed)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / len(method.layers)))


def context_of(stack: Any, states: Tensor) -> dict[str, Any]:
    return stack.context(states, None, torch.arange(states.shape[1])[None])


def test_CA14_what_is_pretrained_has_its_own_rate_and_lora_trains_only_its_terms(any_corpus: Corpus) -> None:
    for name in TUNINGS:
        if name == "lora":
            pytest.importorskip("peft")
        method = any_corpus.build(Tuning(name))
        groups = method.groups("upos")
        own = {id(parameter) for group in groups.values() for parameter in group}
        trained = {id(parameter) for parameter in method.parameters() if parameter.requires_grad}
        assert own == trained
        assert sum(map(len, groups.values())) == len(own)
        assert ("encoder" in groups) == (name != "lora")
        method.loss(any_corpus.batch(method)).backward()
        for key, parameter in method.named_parameters():
            assert (parameter.grad is not None) == parameter.requires_grad, key
        if name == "lora":
            assert {
                key.split(".")[-2] for key, p in method.named_parameters() if p.requires_grad and "lora" in key
            } == {"lora"}
    assert all(parameter.grad is None for parameter in any_corpus.model.stack().parameters())


@pytest.mark.parametrize("name", TUNINGS)
def test_each_setting_learns_and_leaves_the_encoder_as_it_was(small: Corpus, name: str) -> None:
    if name == "lora":
        pytest.importorskip("peft")
    before = {key: tensor.clone() for key, tensor in small.model.stack().state_dict().items()}
    method = small.build(Tuning(name, dropout=0.0))
    settings = replace(SETTINGS, learning_rate=2e-2, encoder_learning_rate=4e-3, num_train_epochs=15)
    done = fit(method, small.examples(method), {"upos": small.tasks[0]}, settings)
    assert done.epochs[-1]["loss"] < 0.75 * done.epochs[0]["loss"]
    assert done.parameters["upos"] == sum(p.numel() for p in method.parameters() if p.requires_grad)
    assert all(torch.equal(tensor, before[key]) for key, tensor in small.model.stack().state_dict().items())


def test_tasks_side_by_side_have_blocks_of_their_own(small: Corpus) -> None:
    names = ("upos", "deprel")
    together = small.build(Tuning("top1"), names).eval()
    together.loss(small.batch(together, names)).backward()
    for name in names:
        alone = small.build(Tuning("top1"), (name,)).eval()
        alone.loss(small.batch(alone, (name,))).backward()
        for a, b in zip(alone.parameters(), together.part(name).parameters(), strict=True):
            assert torch.equal(a, b)
            torch.testing.assert_close(a.grad, b.grad, atol=1e-6, rtol=1e-5)


def test_shared_tasks_train_one_trunk_by_the_sum_of_their_losses(small: Corpus) -> None:
    names = ("upos", "deprel")
    joint, apart = (
        small.build(Tuning("live_mix", over="linear", shared=shared), names).eval() for shared in (True, False)
    )
    assert joint.part("upos").adapter is joint.part("deprel").adapter
    assert list(joint.modules_of()) == ["upos+deprel"]
    assert joint.tasks_of("upos+deprel") == names
    batch = small.batch(joint, names)
    single = {name: apart.losses(batch, [name])[name] for name in names}
    torch.testing.assert_close(joint.losses(batch, ["upos+deprel"])["upos+deprel"], sum(single.values()))
    joint.loss(batch).backward()
    torch.stack(list(single.values())).sum().backward()
    pairs = zip(
        joint.part("upos").adapter.parameters(), *(apart.part(n).adapter.parameters() for n in names), strict=True
    )
    for ours, first, second in pairs:
        torch.testing.assert_close(ours.grad, first.grad + second.grad, atol=1e-5, rtol=1e-4)
    assert joint.predict(batch) == apart.predict(batch)
    one = sum(p.numel() for p in apart.part("upos").parameters()) + sum(
        p.numel() for p in apart.part("deprel").head.parameters()
    )
    assert sum(p.numel() for p in joint.parameters()) == one


def test_shared_tasks_keep_the_epoch_of_the_best_mean_score(small: Corpus) -> None:
    names = ("upos", "deprel")
    method = small.build(Tuning("live_mix", shared=True), names)
    values = {"upos": [50.0, 90.0, 60.0], "deprel": [50.0, 20.0, 70.0]}

    class Scripted:
        metric = "accuracy"

        def __init__(self, name: str) -> None:
            self.left = list(values[name])

        def score(self, gold: Any, predicted: Any) -> dict[str, float | None]:
            return {"accuracy": self.left.pop(0)}

    examples = small.examples(method, names)
    scorers: Any = {name: Scripted(name) for name in names}
    done = fit(method, examples, scorers, replace(SETTINGS, num_train_epochs=3), dev=examples)
    assert done.best == {name: {"epoch": 3, "value": 65.0} for name in names}
    assert done.parameters["upos"] == done.parameters["deprel"] == done.parameters["total"]


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize(("name", "shared"), [("finetune", False), ("live_mix", True), ("lora", False)])
def test_TRAIN2_a_resumed_run_is_the_uninterrupted_one(
    small: Corpus, tmp_path: Path, name: str, shared: bool, steps: int
) -> None:
    if name == "lora":
        pytest.importorskip("peft")
    names = ("upos", "deprel")
    settings = replace(SETTINGS, save_steps=1)
    scorers: Any = {task.name: task for task in small.tasks}

    def run(folder: Path, stop: int = -1) -> dict[str, Tensor]:
        torch.manual_seed(stop)
        method = small.build(Tuning(name, shared=shared), names)
        examples = small.examples(method, names)
        if stop >= 0:
            inner, left = method.losses, iter(range(stop))

            def failing(batch: Any, wanted: Any) -> Any:
                if next(left, None) is None:
                    raise StoppedError
                return inner(batch, wanted)

            method.losses = failing  # type: ignore[method-assign]
        fit(method, examples, scorers, settings, dev=examples, folder=folder)
        return {key: tensor.clone() for key, tensor in method.state_dict().items()}

    whole = run(tmp_path / "whole")
    with pytest.raises(StoppedError):
        run(tmp_path / "parts", steps)
    resumed = run(tmp_path / "parts")
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(tensor, resumed[key]) for key, tensor in whole.items())
    logs = [(tmp_path / part / "log.jsonl").read_text().splitlines() for part in ("whole", "parts")]
    losses = [[line.split('"seconds"')[0] for line in log if '"lr"' in line] for log in logs]
    assert losses[0] == losses[1]


def test_batches_of_pieces_hold_their_ids_and_no_view(small: Corpus) -> None:
    pieces = small.model.cut(small.documents)
    index = small.pieces.index([pieces[3].key, pieces[0].key])
    packed = small.pieces.batch(index, ())
    assert packed.lengths == (len(pieces[3]), len(pieces[0]))
    assert packed.ids is not None
    assert packed.ids.tolist() == [*pieces[3].ids.tolist(), *pieces[0].ids.tolist()]
    assert packed.views.shape == (0, sum(packed.lengths), 32)
    assert small.pieces.rows(index).tolist() == list(packed.lengths)
    with pytest.raises(NotStored, match="no pieces of the item with key absent: cut its document too"):
        small.pieces.index(["absent"])
    with pytest.raises(ConfigError, match=r"views \[1\] cannot be read from piece ids: read them from a store"):
        small.pieces.batch(index, (1,))


def test_an_item_longer_than_the_window_is_refused_by_name(small: Corpus) -> None:
    document = Document("long", ("cat",) * 50, columns={"upos": ("0",) * 50}, place="corpus:99")
    pieces = small.model.cut([document])
    encodings = [Encoding(pieces[0].key, next(small.model.encode(pieces))[1], pieces[0].word)]
    for name, source in (("top1", Encodings(small.store.spec, encodings)), ("finetune", Cut(small.store.spec, pieces))):
        method = small.build(Tuning(name))
        with pytest.raises(DataError, match=r"corpus:99 \(long\): 52 pieces, but the encoder's blocks can be given 40"):
            method.read(source, [document])


def test_what_a_name_and_its_numbers_come_to(small: Corpus) -> None:
    spec = small.store.spec
    assert Tuning("top2").plan(spec).blocks == (1, 2)
    assert Tuning("live_mix").plan(spec).layers == (0, 1, 2, 3)
    six = replace(spec, n_blocks=6)
    assert [Tuning("live_mix", live=live).plan(six).blocks for live in (1, 2, 3)] == [(2,), (1, 2), (1, 2, 3)]
    assert Tuning("live_mix", live=3).plan(spec).blocks == (0, 1, 2)
    assert Tuning("finetune").plan(spec).pieces
    assert Tuning("lora", live=1).plan(spec).layers == (2,)
    assert isinstance(Tuning(over="linear").mix(spec), Linear)
    assert Tuning(**Tuning("live_mix", blocks=(2, 0)).to_json()) == Tuning("live_mix", blocks=(2, 0))
    with pytest.raises(ConfigError, match=r"method 'finetun' is not known\. There is: .*Did you mean 'finetune'"):
        Tuning("finetun")
    with pytest.raises(ConfigError, match=r"over 'mean' is not known\. There is: linear, agg, adapted"):
        Tuning(over="mean")
    with pytest.raises(ConfigError, match=r"blocks=\[1\] is a setting of live_mix; top1 takes live=N"):
        Tuning("top1", blocks=(1,))
    with pytest.raises(ConfigError, match=r"attention_only=\[1\] is a setting of live_mix, not of top1"):
        Tuning("top1", attention_only=(1,))
    for alone, wanted in (((2,), (2,)), ((-1,), (2,)), ((-2, 2), (1, 2)), ((), ())):
        assert Tuning("live_mix", attention_only=alone).plan(six).attention_only == wanted
    with pytest.raises(ConfigError, match=r"attention_only=\[-3\] must be among the live blocks, \[1, 2\], or count"):
        Tuning("live_mix", attention_only=(-3,)).plan(six)
    with pytest.raises(ConfigError, match=r"attention_only=\[3\] must be among the live blocks, \[1, 2\]"):
        Tuning("live_mix", attention_only=(3,)).plan(six)
    with pytest.raises(ConfigError, match="live=0 must be 0 or more, and at least 1 for live_mix"):
        Tuning("live_mix", live=0)
    for nothing in ({"name": "lora"}, {"name": "finetune", "lora": 4}):
        with pytest.raises(
            ConfigError, match=r"live=0 leaves (lora|finetune) no block for low-rank terms of rank [84]:"
        ):
            Tuning(**nothing, live=0)
    assert Tuning("lora", live=0, lora=0).rank == 0
    with pytest.raises(ConfigError, match=r"live=1 and blocks=\[1, 2\] do not agree on how many blocks"):
        Tuning("live_mix", live=1, blocks=(1, 2))
    assert Tuning("live_mix", live=2, blocks=(1, 2)).plan(spec).blocks == (1, 2)
    for wrong in ({"lora": -1}, {"lora_alpha": 0.0}):
        with pytest.raises(ConfigError, match=r"must be 0 \(no low-rank terms\) or a rank of at least 1"):
            Tuning("top1", **wrong)
    with pytest.raises(ConfigError, match="live=4 must lie between 0 and 3"):
        Tuning("finetune", live=4).plan(spec)
    with pytest.raises(ConfigError, match=r"blocks=\[3\] must name blocks from 0 to 2"):
        Tuning("live_mix", blocks=(3,)).plan(spec)
    with pytest.raises(ConfigError, match=r"top1 with 1 live blocks reads view 2; the store holds \[0, 3\]"):
        Tuning("top1").plan(replace(spec, layers=(0, 3)))


def test_blocks_say_what_they_cannot_read(small: Corpus) -> None:
    live = Live(LiveBlocks(small.model.stack(), [0]))
    views = small.store.batch(np.array([0]), (0, 1))
    with pytest.raises(ConfigError, match="live blocks read one view, or piece ids and no view; the batch has 2 views"):
        live(views)
