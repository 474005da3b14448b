"""Fusion in compiled passes (bf16, post-norm blocks) against the blocks' own modules, padded and in fp32."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fusion_world import WIDTH, K, World, logits, stopping
from torch import Tensor

from encodeonce.batching import Batch
from encodeonce.encoders.live import LiveBlocks
from encodeonce.methods.fewshot.prompted import prompted, source_of
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.methods.refusion import FUSINGS, Fusing, Refusion, Retrieved, refusion
from encodeonce.nn import step_kernel
from encodeonce.prompts import Prompt
from encodeonce.tasks import named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.train.upper import Upper


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if step_kernel._library() is None:
        pytest.skip("needs a C compiler (cc, gcc or clang)")


HEADS = {"bert": "num_attention_heads", "roberta": "num_attention_heads", "distilbert": "n_heads"}


@pytest.fixture(scope="module", params=HEADS)
def world(request: pytest.FixtureRequest, checkpoint: Callable[..., Path]) -> World:
    """Two heads, so that one has the width of a vector unit."""
    return World(checkpoint(request.param, **{HEADS[request.param]: 2}))


def pair(plain: Callable[[str], Finetune], fusing: Fusing) -> tuple[Refusion, Refusion]:
    """One fusion in bf16 and in fp32, nothing at its start value."""
    packed, padded = (refusion(plain(compute), fusing, WIDTH) for compute in ("bf16", "fp32"))
    with torch.no_grad():
        for parameter in packed.fusion.parameters():
            parameter.copy_(torch.randn_like(parameter))
    padded.load_state_dict(packed.state_dict())
    return packed, padded


def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way the blocks of a method went, call by call."""
    gone, whole, padded = [], LiveBlocks.forward, LiveBlocks._padded

    def forward(self: LiveBlocks, *given: Any, **options: Any) -> Tensor:
        gone.append("packed")
        return whole(self, *given, **options)

    def by_modules(self: LiveBlocks, *given: Any) -> Tensor:
        gone[-1] = "padded"
        return padded(self, *given)

    monkeypatch.setattr(LiveBlocks, "forward", forward)
    monkeypatch.setattr(LiveBlocks, "_padded", by_modules)
    return gone


def near_to(ours: Tensor, theirs: Tensor, what: str) -> None:
    assert (ours - theirs).norm() <= 0.03 * theirs.norm(), what


def check(packed: Refusion, padded: Refusion, batches: list[Batch], went: list[str]) -> None:
    """Scores, gradients of all parameters, and those of the architecture."""
    found = []
    for method, batch in zip((packed, padded), batches, strict=True):
        method.eval()
        method._measured = True  # what is logged of the first batch takes the modules
        (scores,) = method.scores(batch, method.names).values()
        method.loss(batch).backward()
        gradients = {name: p.grad for name, p in method.named_parameters() if p.grad is not None}
        (upper,) = method.upper_gradients(batch, batch, {}) if method.upper_parameters() else (None,)
        found.append((scores, gradients, upper))
    assert set(went[: len(went) // 2]) == {"packed"}
    assert set(went[len(went) // 2 :]) == {"padded"}
    (ours, our_slopes, our_upper), (theirs, slopes, upper) = found
    near_to(ours, theirs, "scores")
    assert our_slopes.keys() == slopes.keys()
    largest = max(float(slope.norm()) for slope in slopes.values())
    for name, slope in slopes.items():
        assert (our_slopes[name] - slope).norm() <= 0.05 * slope.norm() + 1e-3 * largest, name
    assert (upper is None) == (our_upper is None)
    if upper is not None and our_upper is not None:
        assert upper.any()
        assert (our_upper - upper).norm() <= 0.05 * upper.norm()


@pytest.mark.parametrize(
    "fusing",
    [
        Fusing(slots=["query", "key", "value", "feed_forward"], schemes=["add", "reranker", "mask"], k=K),
        Fusing(slots=["value", "feed_forward"], schemes=["add"], k=K, position="all"),
        Fusing(slots=["key", "value"], k=K, blocks=[1], scale="convex", ending="soft"),
        Fusing(slots=["query"], schemes=["add"], k=K, project="linear"),
    ],
    ids=["searched", "all", "one-block", "projected"],
)
def test_it_computes_what_the_modules_do(fusing: Fusing, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(compute: str) -> Finetune:
        return world.plain(Tuning("finetune", dropout=0.0, compute=compute))

    packed, padded = pair(plain, fusing)
    batches = [world.batch(method, world.near()) for method in (packed, padded)]
    check(packed, padded, batches, passes(monkeypatch))


def test_I20_zero_vectors_are_the_plain_model_bit_for_bit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = world.plain(Tuning("finetune", dropout=0.0, compute="bf16"))
    due, went = logits(plain, world.batch(plain)), passes(monkeypatch)
    method = refusion(plain, Fusing(slots=["query", "key", "value", "feed_forward"], schemes=["add"], k=K), WIDTH)
    nothing = world.batch(method, world.near(corpus=np.zeros((50, WIDTH), np.float32)))
    assert torch.equal(logits(method, nothing), due)
    assert not torch.equal(logits(method, world.batch(method, world.near())), due)
    assert went == ["packed", "packed"]


def test_it_adds_at_the_gap_of_a_prompt(checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(checkpoint("bert", masked=True, num_attention_heads=2))
    world.model._cutter.tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    prompter = world.model.prompter(Prompt("p", "{text} is{mask}.", {"a": "the", "b": "cat"}))
    world.task = named("classification", piece="document-words").learn(world.documents)
    world.cut = source_of(world.model, prompter, world.documents)

    def plain(compute: str) -> Finetune:
        return prompted(world.model, prompter, world.task, compute=compute)

    slots = ["key", "value", "feed_forward"]
    packed, padded = pair(plain, Fusing(slots=slots, schemes=["add"], k=K, position="mask"))
    batches = [world.batch(method, world.near()) for method in (packed, padded)]
    check(packed, padded, batches, passes(monkeypatch))


def test_shares_are_measured_and_hidden_queries_asked_by_the_modules(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(checkpoint("bert", num_attention_heads=2))
    went = passes(monkeypatch)
    plain = world.plain(Tuning("finetune", dropout=0.0, compute="bf16"))
    method = refusion(plain, replace(FUSINGS["add"], k=K), WIDTH)
    examples = method.read(Retrieved(world.cut, world.near()), world.documents, [world.task])
    batch = next(iter(method.batches(examples, size=11, order=None)))
    method.loss(batch)
    method.loss(batch)
    assert went == ["padded", "packed", "packed"]
    went.clear()
    ratios = method.ratios(examples)
    assert set(went) == {"padded"}
    assert all(value > 0 for value in ratios.values())
    hidden = replace(FUSINGS["add"], k=K, queries="hidden")
    method = refusion(plain, hidden, WIDTH, search=world.near().search)
    went.clear()
    method.loss(world.batch(method))
    method.loss(world.batch(method))
    assert set(went) == {"padded"}


def test_a_training_that_was_stopped_goes_on_bit_by_bit(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """The ratios that are logged at every start move nothing, dropout's draws included."""
    world = World(checkpoint("bert", num_attention_heads=2))
    settings = Settings(num_train_epochs=3, per_device_train_batch_size=4, learning_rate=1e-2, save_steps=1)

    def run(folder: Path | None, stop: int = 0) -> Refusion:
        torch.manual_seed(5)
        plain = world.plain(Tuning("finetune", dropout=0.1, compute="bf16"))
        method = refusion(plain, Fusing(k=K), WIDTH)
        examples = method.read(Retrieved(world.cut, world.near()), world.documents, [world.task])
        stopping(method, stop)
        fit(method, examples, {"classification": world.task}, settings, folder=folder, upper=Upper(examples, every=2))
        return method

    whole = run(None)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", stop=8)
    for (name, a), b in zip(whole.state_dict().items(), run(tmp_path / "run").state_dict().values(), strict=True):
        assert torch.equal(a, b), name
