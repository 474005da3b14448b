"""Retrieved vectors inside BERT, RoBERTa and T5: identities 20, 21, 24, 26, 28-32, 37 of the spec, and the search."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from encodeonce.batching import Batch, Cut
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, RunError
from encodeonce.heads import Head
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.methods.multitask import Part
from encodeonce.methods.refusion import FUSINGS, Fusing, Near, Refusion, Retrieved, refusion
from encodeonce.nn.rows import Rows
from encodeonce.store import Search
from encodeonce.tasks import named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.train.upper import Upper
from encodeonce.types import Document

FAMILIES = ["bert", "roberta", "t5"]
WORDS = ("the", "cat", "sat", "on", "mat", "river", "banks", "running", "naive", "cafe")
K, WIDTH = 4, 32


def documents(n: int, seed: int = 0) -> list[Document]:
    draw = np.random.default_rng(seed)
    return [
        Document(
            f"d{seed}-{i}",
            text=" ".join([*draw.choice(WORDS, int(draw.integers(2, 9))), f"{seed}", f"{i}"]),
            meta={"label": "ab"[i % 2]},
            place=f"file:{i}",
        )
        for i in range(n)
    ]


class World:
    """A checkpoint, its documents as pieces, and random neighbours."""

    def __init__(self, folder: Path, n: int = 11) -> None:
        self.model = Pretrained(folder)
        self.documents = documents(n)
        self.task = named("classification").learn(self.documents)
        self.cut = Cut(self.model.spec(), self.model.cut(self.documents))
        self.corpus = np.random.default_rng(1).standard_normal((50, WIDTH)).astype(np.float32)

    def near(self, ids: np.ndarray | None = None, corpus: np.ndarray | None = None) -> Near:
        n = len(self.documents)
        ids = np.random.default_rng(2).integers(0, 50, (n, 1, K)) if ids is None else ids
        keys = tuple(document.key for document in self.documents)
        return Near(keys, ids, np.zeros(ids.shape, np.float32), Search(self.corpus if corpus is None else corpus))

    def plain(self, tuning: Tuning | None = None) -> Finetune:
        tuning = tuning or Tuning("finetune", dropout=0.0)
        return Finetune.build(tuning, self.model, self.model.spec(), [self.task], seed=3, read_ahead=0)

    def made(self, fusing: Fusing, **changes: Any) -> Refusion:
        method = refusion(self.plain(), fusing, WIDTH, **changes)
        with torch.no_grad():
            for parameter in method.fusion.lower():
                if parameter.abs().sum() == 0 or parameter.ndim == 3:
                    parameter.copy_(torch.randn_like(parameter))
        return method

    def batch(self, method: Finetune, near: Near | None = None, n: int = 11) -> Batch:
        source: Any = self.cut if near is None else Retrieved(self.cut, near)
        examples = method.read(source, self.documents[:n], [self.task])
        return next(iter(method.batches(examples, size=n, order=None)))


@pytest.fixture(scope="module", params=FAMILIES)
def world(request: pytest.FixtureRequest, checkpoint: Callable[..., Path]) -> World:
    return World(checkpoint(request.param))


@pytest.fixture(scope="module")
def small(checkpoint: Callable[..., Path]) -> World:
    return World(checkpoint("bert"))


def logits(method: Finetune, batch: Batch) -> Tensor:
    method.eval()
    with torch.no_grad():
        (found,) = method.scores(batch, method.names).values()
    assert isinstance(found, Tensor)
    return found


EVERY = Fusing(
    slots=["query", "key", "value", "feed_forward"], schemes=["add", "reranker", "mask"], k=K, scale="convex"
)


def test_I20_without_neighbours_or_with_zero_ones_it_is_the_plain_model_bit_for_bit(world: World) -> None:
    plain = logits(world.plain(), world.batch(world.plain()))
    method = world.made(EVERY)
    assert not torch.equal(logits(method, world.batch(method, world.near())), plain)
    for batch in (
        world.batch(method),
        world.batch(method, world.near(np.zeros((11, 1, 0), np.int64))),
        world.batch(method, world.near(corpus=np.zeros((50, WIDTH), np.float32))),
    ):
        assert torch.equal(logits(method, batch), plain)


def test_I20_I21_identity_is_the_plain_model_bit_for_bit_in_either_ending(world: World) -> None:
    plain = logits(world.plain(), world.batch(world.plain()))
    for fusing in (Fusing(k=K), Fusing(k=K, schemes=["identity"])):
        method = world.made(fusing)
        if method.fusion.architecture is not None:
            method.fusion.architecture.data[:, 0] = 1e4
        for ending in ("argmax", "soft"):
            method.ending = ending
            assert torch.equal(logits(method, world.batch(method, world.near())), plain)


def test_I26_evaluation_twice_gives_the_same_logits(world: World) -> None:
    method = world.made(Fusing(k=K, schemes=["mask"]))
    batch = world.batch(method, world.near())
    assert torch.equal(logits(method, batch), logits(method, batch))
    method.train()
    first, second = (method.scores(batch, method.names)["classification"] for _ in range(2))
    assert not torch.equal(first, second)


def test_an_item_gets_its_own_neighbours_whatever_the_batch(world: World) -> None:
    """Items run in groups sorted by length; each group must be handed its own vectors."""
    method = world.made(EVERY)
    every = logits(method, world.batch(method, world.near()))
    for n in (0, 4, 10):
        examples = method.read(Retrieved(world.cut, world.near()), [world.documents[n]], [world.task])
        alone = logits(method, next(iter(method.batches(examples, size=1, order=None))))
        torch.testing.assert_close(alone[0], every[n], atol=1e-5, rtol=1e-5)


def watched(world: World, method: Finetune, batch: Batch) -> dict[str, Tensor]:
    """Of block 0, one item: what the projections gave before any edit, and the attention's context."""
    (part,) = method.parts
    live = part.adapter.live if isinstance(method, Refusion) else part.adapter
    stack, seen, handles = live.blocks.stack, {}, []
    block = stack.blocks[0]
    for slot in ("query", "key", "value"):
        module = block.get_submodule(stack.paths[slot])
        handles.append(module.register_forward_hook(lambda m, x, y, s=slot: seen.update({s: y.clone()})))
    after = block.get_submodule(stack.paths["attention"])
    handles.append(after.register_forward_pre_hook(lambda m, x: seen.update(context=x[0].clone())))
    logits(method, batch)
    for handle in handles:
        handle.remove()
    return {name: tensor[0] for name, tensor in seen.items()}


def attended(seen: dict[str, Tensor], key: Tensor, value: Tensor, n_heads: int = 4) -> Tensor:
    """Attention by hand: rows of the softmax of query key / sqrt(d) over the values, head by head."""
    parts = []
    for q, k, v in zip(seen["query"].chunk(n_heads, 1), key.chunk(n_heads, 1), value.chunk(n_heads, 1), strict=True):
        parts.append((q @ k.T / math.sqrt(q.shape[1])).softmax(1) @ v)
    return torch.cat(parts, 1)


@pytest.mark.parametrize("slot", ["key", "value"])
def test_I24_only_the_first_row_of_the_slot_changes(slot: str, small: World) -> None:
    """B1: key fusion adds q_t delta to the first column of scores, value fusion p_t,first delta to each context."""
    method = small.made(Fusing(slots=[slot], blocks=[0], schemes=["add"], k=K))
    batch = small.batch(method, small.near(), n=1)
    plain, fused = watched(small, method.plain(), small.batch(method.plain(), n=1)), watched(small, method, batch)
    assert batch.packed.near is not None
    delta = batch.packed.near[0].mean(0)
    changed = plain[slot].clone()
    changed[0] += delta
    key, value = (changed, plain["value"]) if slot == "key" else (plain["key"], changed)
    torch.testing.assert_close(fused["context"], attended(plain, key, value), atol=1e-5, rtol=1e-5)
    assert torch.equal(fused[slot], plain[slot])
    if slot == "value":
        share = torch.cat(
            [
                (q @ k.T / math.sqrt(8)).softmax(1)[:, :1] * d
                for q, k, d in zip(plain["query"].chunk(4, 1), plain["key"].chunk(4, 1), delta.chunk(4), strict=True)
            ],
            1,
        )
        torch.testing.assert_close(fused["context"], plain["context"] + share, atol=1e-5, rtol=1e-5)


def test_I37_values_at_all_positions_add_delta_to_every_context_and_keys_nothing(small: World) -> None:
    method = small.made(Fusing(slots=["value"], blocks=[0], schemes=["add"], k=K, position="all"))
    batch = small.batch(method, small.near(), n=1)
    plain, fused = watched(small, method.plain(), small.batch(method.plain(), n=1)), watched(small, method, batch)
    assert batch.packed.near is not None
    delta = batch.packed.near[0].mean(0)
    torch.testing.assert_close(fused["context"], plain["context"] + delta, atol=1e-5, rtol=1e-5)
    stack = small.model.stack()
    states = stack.place(stack.lookup(torch.tensor([[5, 6, 7, 8]])))
    same = stack.run(states, None, 0, 1, edit=lambda b, s, x, y: y + delta if s == "key" else y)[0]
    torch.testing.assert_close(same, stack.run(states, None, 0, 1)[0], atol=2e-5, rtol=1e-4)
    with pytest.raises(ConfigError, match=r"'key' at position='all' change nothing: every score of a query moves"):
        Fusing(slots=["key", "value"], position="all")


class Words(Head):
    """A masked-language-model head over label words, as prompts use one."""

    def __init__(self, words: nn.Module, labels: Sequence[str]) -> None:
        super().__init__()
        self.words, self.labels = words, labels

    def forward(self, vectors: Float[Tensor, "R D"], rows: Rows) -> Float[Tensor, "R C"]:
        found: Tensor = self.words(vectors)
        return found

    def loss(self, scores: Any, gold: Any, counts: tuple[int, ...]) -> Float[Tensor, ""]:
        return nn.functional.cross_entropy(scores, gold, reduction="sum")

    def decode(self, scores: Any, rows: Rows) -> list[Any]:
        return [self.labels[i] for i in scores.argmax(1).tolist()]


def test_a_prompted_model_takes_the_vectors_at_its_gap(checkpoint: Callable[..., Path]) -> None:
    from encodeonce.prompts import Prompt

    world = World(checkpoint("bert", masked=True))
    world.model._cutter.tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    prompter = world.model.prompter(Prompt("p", "{text} is{mask}.", {"a": "the", "b": "cat"}))
    world.cut = Cut(world.model.spec(), prompter(world.documents).pieces)
    plain = world.plain()
    words = world.model.masked_lm().only(torch.from_numpy(prompter.label_pieces))
    part = Part(plain.part("classification").adapter, Words(words, ("a", "b")), "document-words")
    prompted = Finetune({"classification": part}, (), 0, window=world.model.window)
    method = refusion(prompted, Fusing(slots=["value"], schemes=["add"], blocks=[0], k=K, position="mask"), WIDTH)
    batch = world.batch(method, world.near(), n=1)
    fused, before = watched(world, method, batch), watched(world, prompted, world.batch(prompted, n=1))
    gap = int(prompter(world.documents[:1]).pieces[0].word.tolist().index(0))
    assert batch.packed.near is not None
    changed = before["value"].clone()
    changed[gap] += batch.packed.near[0].mean(0)
    torch.testing.assert_close(fused["context"], attended(before, before["key"], changed), atol=1e-5, rtol=1e-5)
    over_rows = refusion(world.plain(), Fusing(k=K, position="mask"), WIDTH)
    several = world.batch(over_rows, world.near())
    with pytest.raises(ConfigError, match="position='mask' needs a head that reads one row an item"):
        logits(over_rows, several)


def test_hidden_queries_search_with_the_modules_input(small: World) -> None:
    search = Search(small.corpus)
    fusing = Fusing(slots=["value"], blocks=[0], schemes=["add"], k=K, queries="hidden")
    method = refusion(small.plain(), fusing, WIDTH, search=search)
    batch = small.batch(method, n=1)
    plain, fused = watched(small, method.plain(), batch), watched(small, method, batch)
    stack = small.model.stack()
    ids = torch.from_numpy(small.model.cut(small.documents[:1])[0].ids.astype(np.int64))[None]
    with torch.no_grad():
        first = stack.place(stack.lookup(ids))[0, :1].numpy()
    delta = small.corpus[search.find(first, K).ids[0]].mean(0)
    changed = plain["value"].clone()
    changed[0] += torch.from_numpy(delta)
    torch.testing.assert_close(fused["context"], attended(plain, plain["key"], changed), atol=1e-5, rtol=1e-5)
    with pytest.raises(ConfigError, match="go together"):
        refusion(small.plain(), fusing, WIDTH)


def test_other_widths_are_refused_or_projected_from_zero(world: World) -> None:
    with pytest.raises(ConfigError, match=r"block 0, key: the slot is 32 wide and the retrieved vectors are 20"):
        refusion(world.plain(), Fusing(k=K), 20)
    method = refusion(world.plain(), Fusing(k=K, schemes=["reranker"], scale="convex", project="linear"), 20)
    near = world.near(corpus=np.random.default_rng(5).standard_normal((50, 20)).astype(np.float32))
    batch = world.batch(method, near)
    plain = logits(method.plain(), world.batch(method.plain()))
    assert torch.equal(logits(method, batch), plain)
    method.loss(batch).backward()
    assert method.fusion.projections is not None
    assert all(p.grad is not None and p.grad.any() for p in method.fusion.projections[:-2])
    with torch.no_grad():
        for projection in method.fusion.projections:
            projection.normal_()
    assert not torch.equal(logits(method, batch), plain)


def test_I28_the_architecture_step_leaves_no_gradient_at_any_weight(world: World) -> None:
    for order in (1, 2):
        method = world.made(Fusing(k=K, order=order))
        method.train()
        train, dev = (world.batch(method, world.near(), n=n) for n in (6, 11))
        (gradient,) = method.upper_gradients(dev, train, 1e-3)
        assert gradient is not None
        assert gradient.any()
        assert all(parameter.grad is None for parameter in method.parameters())
        before = [parameter.detach().clone() for parameter in method.parameters()]
        method.upper_gradients(dev, train, 1e-3)
        assert all(torch.equal(a, b) for a, b in zip(before, method.parameters(), strict=True))


def test_I28_a_weight_step_leaves_the_architecture_alone(small: World) -> None:
    method = small.made(Fusing(k=K))
    method.train()
    method.loss(small.batch(method, small.near())).backward()
    assert method.fusion.architecture is not None
    assert method.fusion.architecture.grad is None
    assert method.fusion.rank is not None
    assert method.fusion.rank.grad is not None


def test_I28_the_release_leaks_dev_gradients_and_never_moves(small: World) -> None:
    release = FUSINGS["release"].to_json()
    method = small.made(Fusing(**{**release, "k": K}))
    method.train()
    dev = small.batch(method, small.near())
    assert method.upper_gradients(dev, dev, 1e-3) == [None]
    trained = [parameter for own in method.groups(method.name).values() for parameter in own]
    assert all(parameter.grad is not None for parameter in trained)
    assert method.fusion.architecture is not None
    assert method.fusion.architecture.grad is None
    assert method.fusion.architecture.abs().max() > 0.1


def test_I29_one_candidate_has_no_architecture_and_no_dev_pass(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    method = small.made(Fusing(k=K, schemes=["reranker"]))
    assert method.fusion.architecture is None
    assert method.upper_parameters() == []
    examples = method.read(Retrieved(small.cut, small.near()), small.documents, [small.task])
    asked = []
    true = Refusion.batches
    monkeypatch.setattr(Refusion, "batches", lambda self, e, **o: asked.append(o["size"]) or true(self, e, **o))
    settings = Settings(num_train_epochs=1, per_device_train_batch_size=4, learning_rate=1e-4)
    fit(method, examples, {"classification": small.task}, settings, upper=Upper(examples, batch_size=5))
    assert 5 not in asked
    searching = small.made(Fusing(k=K))
    fit(searching, examples, {"classification": small.task}, settings, upper=Upper(examples, batch_size=5))
    assert 5 in asked


def test_I30_second_order_with_rate_0_is_first_order(small: World) -> None:
    first, second = (small.made(Fusing(k=K, order=order)) for order in (1, 2))
    second.load_state_dict(first.state_dict())
    gradients = []
    for method in (first, second):
        method.eval()
        method.ending = "soft"
        batch = small.batch(method, small.near())
        (gradient,) = method.upper_gradients(batch, batch, 0.0)
        gradients.append(gradient)
    assert torch.equal(*gradients)


def test_second_order_equals_the_derivative_through_the_virtual_step(checkpoint: Callable[..., Path]) -> None:
    """d/da L_dev(w - rate dL_train/dw(w, a), a) by double backward, against the finite difference."""
    world = World(checkpoint("bert"))
    method = world.made(Fusing(k=K, order=2, schemes=["identity", "reranker"], scale="convex", ending="soft"))
    method.eval().double()
    train, dev = (world.batch(method, world.near(), n=n) for n in (6, 11))
    for batch in (train, dev):
        object.__setattr__(batch.packed, "near", batch.packed.near.double())
    rate = 0.1
    (found,) = method.upper_gradients(dev, train, rate)
    (first_order,) = method.upper_gradients(dev, train, 0.0)
    weights = {name: p for name, p in method.named_parameters() if not name.endswith("architecture")}
    (alpha,) = method.upper_parameters()

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = method

        def forward(self, batch: Batch) -> Tensor:
            return self.inner.loss(batch)

    loss = Loss()
    with method.fusion.searching(), sdpa_kernel(SDPBackend.MATH):
        slopes = torch.autograd.grad(loss(train), list(weights.values()), create_graph=True, allow_unused=True)
        moved = {
            f"inner.{name}": weight if slope is None else weight - rate * slope
            for (name, weight), slope in zip(weights.items(), slopes, strict=True)
        }
        (expected,) = torch.autograd.grad(torch.func.functional_call(loss, moved, (dev,)), alpha)
    assert (found - expected).norm() < 0.05 * (expected - first_order).norm()


@pytest.mark.parametrize("right", ["add", "identity"])
def test_the_architecture_finds_the_scheme_of_a_planted_problem(right: str, checkpoint: Callable[..., Path]) -> None:
    """Texts say nothing and the neighbours everything; or neighbours say in training what is wrong on dev."""
    world = World(checkpoint("bert"), n=48)
    labels = np.arange(48) % 2
    ids = np.repeat(labels[:, None, None], K, 2)
    if right == "identity":
        ids[24:] = 1 - ids[24:]
        marked = [
            Document(d.id, text=f"{'cat' if i % 2 else 'river'} {d.text}", meta=d.meta)
            for i, d in enumerate(world.documents)
        ]
        world.documents = marked
        world.cut = Cut(world.model.spec(), world.model.cut(marked))
    corpus = np.zeros((50, WIDTH), np.float32)
    corpus[0], corpus[1] = 3.0, -3.0
    corpus[:2, ::2] *= -1
    method = refusion(world.plain(), Fusing(k=K, slots=["value"], blocks=[1, 2], schemes=["identity", "add"]), WIDTH)
    source = Retrieved(world.cut, world.near(ids, corpus))
    train, dev = (method.read(source, part, [world.task]) for part in (world.documents[:24], world.documents[24:]))
    settings = Settings(
        num_train_epochs=20, per_device_train_batch_size=12, learning_rate=2e-3, lr_scheduler_type="constant"
    )
    upper = Upper(dev, batch_size=24, learning_rate=0.05, weight_decay=0.0, warmup=2)
    fit(method, train, {"classification": world.task}, settings, upper=upper)
    decisions = method.architecture()
    assert method.fusion.architecture is not None
    assert method.fusion.architecture.abs().max() > 0.2
    assert {decision.chosen for decision in decisions} == {right}, decisions
    assert sum(decision.shares[right] for decision in decisions) / 2 > 0.6
    fixed = Fusing(k=K, slots=["value"], blocks=[1, 2], choice=method.choice())
    again = refusion(world.plain(), fixed, WIDTH)
    assert again.upper_parameters() == []
    assert [decision.chosen for decision in again.architecture()] == [right, right]


def test_I31_taking_fusion_away_leaves_the_plain_methods_weights(small: World) -> None:
    plain = small.plain()
    before = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    after = refusion(plain, EVERY, WIDTH).plain().state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_I32_saving_and_restoring_gives_the_same_logits(world: World, tmp_path: Path) -> None:
    method = world.made(Fusing(k=K))
    settings = Settings(num_train_epochs=1, per_device_train_batch_size=4, learning_rate=1e-3)
    examples = method.read(Retrieved(world.cut, world.near()), world.documents, [world.task])
    fit(method, examples, {"classification": world.task}, settings, upper=Upper(examples, learning_rate=0.5))
    method.save(tmp_path / "kept")
    again = refusion(world.plain(), Fusing(k=K), WIDTH, seed=8)
    again.restore(tmp_path / "kept")
    batch = world.batch(method, world.near())
    torch.testing.assert_close(logits(again, batch), logits(method, batch), atol=1e-6, rtol=0)
    assert again.choice() == method.choice()
    base = world.plain()
    from safetensors.torch import load_file

    base.load_state_dict(load_file(tmp_path / "kept" / "model.safetensors"))
    with pytest.raises(RunError, match=r"holds fusion made with \{'k': 4\}; this one has \{'k': 5\}"):
        refusion(world.plain(), Fusing(k=5), WIDTH).restore(tmp_path / "kept")


def test_a_search_that_was_stopped_goes_on_bit_by_bit(small: World, tmp_path: Path) -> None:
    settings = Settings(
        num_train_epochs=3, per_device_train_batch_size=4, learning_rate=1e-3, inside_learning_rate=1e-2, save_steps=1
    )

    def run(folder: Path | None, stop: int = 0) -> Refusion:
        torch.manual_seed(5)
        method = small.made(Fusing(k=K))
        examples = method.read(Retrieved(small.cut, small.near()), small.documents, [small.task])
        upper = Upper(examples, batch_size=3, learning_rate=0.1, every=2)
        true, calls = method.losses, []

        def losses(batch: Batch, names: Any) -> Any:
            calls.append(1)
            if stop and len(calls) == stop:
                raise KeyboardInterrupt
            return true(batch, names)

        method.losses = losses  # type: ignore[method-assign]
        fit(method, examples, {"classification": small.task}, settings, folder=folder, upper=upper)
        return method

    whole = run(None)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", stop=8)
    resumed = run(tmp_path / "run")
    for (name, a), b in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert whole.fusion.architecture is not None
    assert whole.fusion.architecture.any()


def test_ratios_are_those_of_the_vectors_and_a_faint_one_is_said(
    small: World, caplog: pytest.LogCaptureFixture
) -> None:
    method = small.made(Fusing(slots=["value"], blocks=[0], schemes=["add"], k=K))
    source = Retrieved(small.cut, small.near())
    examples = method.read(source, small.documents[:1], [small.task])
    caplog.set_level("INFO", logger="encodeonce")
    found = method.ratios(examples)
    batch = small.batch(method, small.near(), n=1)
    assert batch.packed.near is not None
    value = watched(small, method.plain(), small.batch(method.plain(), n=1))["value"][0]
    assert found == {(0, "value"): pytest.approx(float(batch.packed.near[0].mean(0).norm() / value.norm()), rel=1e-5)}
    assert "fused vector to slot output, now: value 0" in caplog.text
    assert "less than 1 %" not in caplog.text
    faint = small.made(Fusing(k=K, schemes=["reranker"]))
    tiny = Retrieved(small.cut, small.near(corpus=small.corpus / 1000))
    faint.loss(next(iter(faint.batches(faint.read(tiny, small.documents, [small.task]), size=4, order=None))))
    assert "6 of 6 fused modules add less than 1 % of their slot's output" in caplog.text


def test_fusion_goes_into_the_top_blocks_and_beside_low_rank_terms(small: World) -> None:
    from encodeonce.batching import Memory
    from encodeonce.types import Encoding

    pieces = small.model.cut(small.documents)
    encodings = [Encoding(pieces[i].key, views, pieces[i].word) for i, views in small.model.encode(pieces)]
    memory = Memory(small.model.spec(dtype="fp32"), encodings)
    for name, blocks in (("top1", (2,)), ("lora", (0, 1, 2))):
        plain = small.plain(Tuning(name, dropout=0.0))
        method = refusion(plain, Fusing(k=K, schemes=["add"]), WIDTH)
        assert sorted({site.block for site in method.fusion.sites}) == list(blocks)
        examples = method.read(Retrieved(memory, small.near()), small.documents, [small.task])
        batch = next(iter(method.batches(examples, size=11, order=None)))
        without = method.plain().read(memory, small.documents, [small.task])
        other = logits(plain, next(iter(plain.batches(without, size=11, order=None))))
        assert not torch.allclose(logits(method, batch), other, atol=1e-4)
    with pytest.raises(ConfigError, match=r"blocks=\[0\]: \[0\] run before the trained ones, which are \[2\]"):
        refusion(small.plain(Tuning("top1")), Fusing(k=K, blocks=[0]), WIDTH)
    with pytest.raises(ConfigError, match="fusion needs trained blocks over piece ids or one stored view"):
        refusion(small.plain(Tuning("live_mix")), Fusing(k=K), WIDTH)


def test_rates_of_what_is_inside(small: World) -> None:
    method = small.made(Fusing(k=K))
    groups = method.groups(method.name)
    assert set(groups) == {"head", "encoder", "inside"}
    inside = {id(parameter) for parameter in groups["inside"]}
    assert inside == {id(method.fusion.rank), id(method.fusion.chain)}
    assert id(method.fusion.architecture) not in {id(p) for own in groups.values() for p in own}


def test_named_settings_and_what_is_refused() -> None:
    assert Fusing(**FUSINGS["release"].to_json()) == FUSINGS["release"]
    for changes, message in (
        ({"slots": ["keys"]}, "slot 'keys' is not known.*Did you mean 'key'"),
        ({"schemes": ["rerank"]}, "scheme 'rerank' is not known.*Did you mean 'reranker'"),
        ({"schemes": []}, r"schemes=\[\]: give at least one, each once"),
        ({"slots": ["key", "key"]}, r"slots=\['key', 'key'\]: give at least one, each once"),
        ({"k": 0}, "k must be at least 1"),
        ({"order": 3}, "the order 1 or 2"),
        ({"position": "last"}, "position 'last' is not known"),
        ({"ending": "hard"}, "ending 'hard' is not known"),
    ):
        with pytest.raises(ConfigError, match=message):
            Fusing(**changes)


def test_what_does_not_fit_is_refused(small: World) -> None:
    with pytest.raises(ConfigError, match="choice names 2 schemes for 6 modules"):
        refusion(small.plain(), Fusing(k=K, choice=["add", "mask"]), WIDTH)
    method = small.made(Fusing(k=2))
    with pytest.raises(ConfigError, match="4 neighbours an item, but the model is made for k=2"):
        logits(method, small.batch(method, small.near()))
    plain = small.plain()
    examples = plain.read(small.cut, small.documents, [small.task])
    with pytest.raises(ConfigError, match="Finetune has no upper level"):
        fit(plain, examples, {"classification": small.task}, upper=Upper(examples))
