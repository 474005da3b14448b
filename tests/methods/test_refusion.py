"""Retrieved vectors inside BERT, RoBERTa and T5: identities 20, 21, 24, 26, 31, 32, 37 of the spec."""

import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fusion_world import FAMILIES, WIDTH, K, World, logits
from torch import Tensor

from encodeonce.batching import Batch
from encodeonce.encoders.pooled import Pooled
from encodeonce.errors import ConfigError, RunError, SpecMismatch
from encodeonce.methods.fewshot.prompted import prompted, source_of
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.methods.refusion import FUSINGS, Fusing, Refusion, Retrieved, Retriever, refusion
from encodeonce.prompts import Prompt
from encodeonce.store import Search
from encodeonce.tasks import named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.train.upper import Upper
from encodeonce.types import Document, Spec


@pytest.fixture(scope="module", params=FAMILIES)
def world(request: pytest.FixtureRequest, checkpoint: Callable[..., Path]) -> World:
    return World(checkpoint(request.param))


@pytest.fixture(scope="module")
def small(checkpoint: Callable[..., Path]) -> World:
    return World(checkpoint("bert"))


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


@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_I21_training_with_identity_is_training_the_plain_model_bit_for_bit(
    compute: str, checkpoint: Callable[..., Path]
) -> None:
    """In bf16 too, where the plain model runs in compiled passes."""
    small = World(checkpoint("bert", num_attention_heads=2))
    tuning = Tuning("finetune", dropout=0.0, compute=compute)
    plain = small.plain(tuning)
    fused = refusion(small.plain(tuning), Fusing(k=K, schemes=["identity"]), WIDTH)
    settings = Settings(num_train_epochs=2, per_device_train_batch_size=4, learning_rate=1e-2)
    for method, source in ((plain, small.cut), (fused, Retrieved(small.cut, small.near()))):
        fit(method, method.read(source, small.documents, [small.task]), {"classification": small.task}, settings)
    due = logits(plain, small.batch(plain))
    assert torch.equal(logits(fused, small.batch(fused, small.near())), due)
    assert torch.equal(logits(fused, small.batch(fused)), due)


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
    seen = {name: tensor[0] for name, tensor in seen.items()}
    n = len(seen["query"])
    states, positions = torch.zeros(1, n, WIDTH), torch.arange(n)[None]
    bias = stack.context(states, None, positions).get("position_bias")
    return seen if bias is None else {**seen, "bias": bias[0].detach()}


def shares(seen: dict[str, Tensor], key: Tensor, n_heads: int = 4) -> list[Tensor]:
    """Attention by hand, a head each: the softmax of query key / sqrt(d), in T5 of query key + bias."""
    found = []
    for head, (q, k) in enumerate(zip(seen["query"].chunk(n_heads, 1), key.chunk(n_heads, 1), strict=True)):
        scores = q @ k.T + seen["bias"][head] if "bias" in seen else q @ k.T / math.sqrt(q.shape[1])
        found.append(scores.softmax(1))
    return found


def attended(seen: dict[str, Tensor], key: Tensor, value: Tensor) -> Tensor:
    """The context vectors of these shares."""
    return torch.cat([p @ v for p, v in zip(shares(seen, key), value.chunk(4, 1), strict=True)], 1)


@pytest.mark.parametrize("slot", ["key", "value"])
def test_I24_only_the_first_row_of_the_slot_changes(slot: str, world: World) -> None:
    """B1: key fusion adds q_t delta to the first column of scores, value fusion p_t,first delta to each context."""
    method = world.made(Fusing(slots=[slot], blocks=[0], schemes=["add"], k=K))
    batch = world.batch(method, world.near(), n=1)
    plain, fused = watched(world, method.plain(), world.batch(method.plain(), n=1)), watched(world, method, batch)
    assert batch.packed.near is not None
    delta = batch.packed.near[0].mean(0)
    changed = plain[slot].clone()
    changed[0] += delta
    key, value = (changed, plain["value"]) if slot == "key" else (plain["key"], changed)
    torch.testing.assert_close(fused["context"], attended(plain, key, value), atol=1e-5, rtol=1e-5)
    assert torch.equal(fused[slot], plain[slot])
    if slot == "value":
        first = [p[:, :1] * d for p, d in zip(shares(plain, plain["key"]), delta.chunk(4), strict=True)]
        share = torch.cat(first, 1)
        torch.testing.assert_close(fused["context"], plain["context"] + share, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("position", ["first", "all"])
def test_I24_a_slots_output_changes_by_what_is_added_and_only_where_it_is(
    position: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every slot and block, all other rows bit for bit."""
    method = world.made(Fusing(slots=["query", "value"], schemes=["add"], k=K, position=position))
    plain, seen = method.fused._added, []

    def added(y: Tensor, delta: Tensor, places: Tensor | None) -> Tensor:
        before = y.clone()
        after = plain(y, delta, places)
        seen.append((before, after, delta))
        return after

    monkeypatch.setattr(method.fused, "_added", added)
    logits(method, world.batch(method, world.near()))
    assert len(seen) == 2 * len(method.fusion.sites)  # 11 items run as 8 and 3
    for before, after, delta in seen:
        expected = before + delta[:, None] if position == "all" else before
        if position == "first":
            expected[:, 0] += delta
        assert torch.equal(after, expected)


@pytest.mark.parametrize("family", [*FAMILIES, "gpt2"])
def test_what_is_added_in_place_has_the_gradients_of_a_sum(
    family: str, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first row and at a row of each item. GPT-2's queries, keys and values are thirds of one output."""
    world = World(checkpoint(family))
    slots = ["query", "key", "value"] if family == "gpt2" else EVERY.slots
    method = world.made(Fusing(**{**EVERY.to_json(), "slots": slots})).eval()
    batch = world.batch(method, world.near())
    trained = [*method.upper_parameters(), *(p for own in method.groups(method.name).values() for p in own)]

    def gradients() -> tuple[Tensor, ...]:
        with method.fusion.searching():
            return torch.autograd.grad(method.loss(batch), trained, materialize_grads=True)

    def summed(y: Tensor, added: Tensor, places: Tensor | int) -> Tensor:
        at = torch.full((len(y),), places) if isinstance(places, int) else places
        return y + torch.nn.functional.one_hot(at, y.shape[1])[:, :, None] * added[:, None]

    second = torch.ones(11, dtype=torch.long)
    for places in (0, second):
        monkeypatch.setattr(method.fused, "_places", lambda *_, places=places: places)
        found = gradients()
        with monkeypatch.context() as instead:
            instead.setattr(method.fused, "_added", summed)
            expected = gradients()
        assert expected[0].any()
        for own, other in zip(found, expected, strict=True):
            torch.testing.assert_close(own, other)


def test_I37_values_at_all_positions_add_delta_to_every_context_and_keys_nothing(world: World) -> None:
    method = world.made(Fusing(slots=["value"], blocks=[0], schemes=["add"], k=K, position="all"))
    batch = world.batch(method, world.near(), n=1)
    plain, fused = watched(world, method.plain(), world.batch(method.plain(), n=1)), watched(world, method, batch)
    assert batch.packed.near is not None
    delta = batch.packed.near[0].mean(0)
    torch.testing.assert_close(fused["context"], plain["context"] + delta, atol=1e-5, rtol=1e-5)
    stack = world.model.stack()
    states = stack.place(stack.lookup(torch.tensor([[5, 6, 7, 8]])))
    same = stack.run(states, None, 0, 1, edit=lambda b, s, x, y: y + delta if s == "key" else y)[0]
    torch.testing.assert_close(same, stack.run(states, None, 0, 1)[0], atol=2e-5, rtol=1e-4)
    with pytest.raises(ConfigError, match=r"'key' at position='all' change nothing: every score of a query moves"):
        Fusing(slots=["key", "value"], position="all")


def test_a_prompted_model_takes_the_vectors_at_its_gap(checkpoint: Callable[..., Path]) -> None:
    world = World(checkpoint("bert", masked=True))
    world.model._cutter.tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    prompter = world.model.prompter(Prompt("p", "{text} is{mask}.", {"a": "the", "b": "cat"}))
    world.task = named("classification", piece="document-words").learn(world.documents)
    world.cut = source_of(world.model, prompter, world.documents)
    plain = prompted(world.model, prompter, world.task)
    method = refusion(plain, Fusing(slots=["value"], schemes=["add"], blocks=[0], k=K, position="mask"), WIDTH)
    assert set(method.groups(method.name)) == {"encoder"}
    batch = world.batch(method, world.near(), n=1)
    fused, before = watched(world, method, batch), watched(world, plain, world.batch(plain, n=1))
    gap = int(prompter(world.documents[:1]).pieces[0].word.tolist().index(0))
    assert batch.packed.near is not None
    changed = before["value"].clone()
    changed[gap] += batch.packed.near[0].mean(0)
    torch.testing.assert_close(fused["context"], attended(before, before["key"], changed), atol=1e-5, rtol=1e-5)
    world = World(checkpoint("bert"))
    over_rows = refusion(world.plain(), Fusing(k=K, position="mask"), WIDTH)
    several = world.batch(over_rows, world.near())
    with pytest.raises(ConfigError, match="position='mask' needs a head that reads one row an item"):
        logits(over_rows, several)


def test_hidden_queries_search_with_the_modules_input(small: World, caplog: pytest.LogCaptureFixture) -> None:
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
    caplog.set_level("INFO", logger="encodeonce")
    method.loss(batch)
    share = 100 * np.linalg.norm(delta) / float(plain["value"][0].norm())
    said = re.search(r"fused vector to slot output, at the start: value 0: (\d+\.\d\d) %", caplog.text)
    assert said
    assert float(said[1]) == pytest.approx(share, abs=0.02)
    with pytest.raises(ConfigError, match="go together"):
        refusion(small.plain(), fusing, WIDTH)
    own = search.find(first, 2).ids[0].tolist()
    near = replace(small.near(), own=[own, *[[]] * (len(small.documents) - 1)])
    fused = watched(small, method, small.batch(method, near, n=1))
    order = [i for i in np.argsort(((small.corpus - first) ** 2).sum(1)) if i not in own][:K]
    changed = plain["value"].clone()
    changed[0] += torch.from_numpy(small.corpus[order].mean(0))
    torch.testing.assert_close(fused["context"], attended(plain, plain["key"], changed), atol=1e-5, rtol=1e-5)
    whole = small.batch(method, near)
    alone = torch.cat([logits(method, small.batch(method, near, n=n))[-1:] for n in range(1, 4)])
    torch.testing.assert_close(logits(method, whole)[:3], alone, atol=1e-5, rtol=1e-5)


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


def test_I31_taking_fusion_away_leaves_the_plain_methods_weights(world: World) -> None:
    plain = world.plain()
    before = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    after = refusion(plain, EVERY, WIDTH).plain().state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_I32_saving_and_restoring_gives_the_same_logits(world: World, tmp_path: Path) -> None:
    method = world.made(Fusing(k=K))
    settings = Settings(num_train_epochs=1, per_device_train_batch_size=4, learning_rate=1e-3)
    examples = method.read(Retrieved(world.cut, world.near()), world.documents, [world.task])
    fit(method, examples, {"classification": world.task}, settings, upper=Upper(examples, learning_rate=0.5))
    method.save(str(tmp_path / "kept"))
    again = refusion(world.plain(), Fusing(k=K), WIDTH, seed=8)
    again.restore(tmp_path / "kept")
    batch = world.batch(method, world.near())
    torch.testing.assert_close(logits(again, batch), logits(method, batch), atol=1e-6, rtol=0)
    assert again.choice() == method.choice()
    base = world.plain()
    from safetensors.torch import load_file

    base.load_state_dict(load_file(tmp_path / "kept" / "model.safetensors"))
    torch.testing.assert_close(logits(base, world.batch(base)), logits(method, world.batch(method)), atol=1e-6, rtol=0)
    with pytest.raises(RunError, match=r"holds fusion made with \{'k': 4\}; this one has \{'k': 5\}"):
        refusion(world.plain(), Fusing(k=5), WIDTH).restore(tmp_path / "kept")


def test_what_cannot_be_restored_or_would_be_lost_is_named(
    small: World, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    method = small.made(Fusing(k=K))
    method.save(folder)
    method.save(folder)
    fewer = refusion(small.plain(), Fusing(k=K, blocks=[0, 1]), WIDTH)
    with pytest.raises(RunError, match=r"holds fusion made with .*'blocks': \[\]"):
        fewer.restore(folder)
    described = (folder / "fusion.json").read_text()
    refusion(small.plain(), Fusing(k=5), WIDTH).save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "fusion.safetensors", folder)
    with pytest.raises(RunError, match=r"fusion.safetensors is not of a method made like this one: .*size mismatch"):
        method.restore(folder)
    (folder / "fusion.json").write_text(described[:40])
    with pytest.raises(RunError, match=r"fusion.json does not describe a fusion: JSONDecodeError"):
        method.restore(folder)
    (folder / "fusion.safetensors").unlink()
    with pytest.raises(RunError, match=r"fusion.safetensors is missing: .* holds no fusion"):
        method.restore(folder)
    encoder = tmp_path / "encoder"
    shutil.copytree(checkpoint("bert"), encoder)
    before = (encoder / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match="holds another model, whose weights would be lost"):
        method.save(encoder)
    assert (encoder / "model.safetensors").read_bytes() == before


def test_neighbours_of_another_corpus_than_the_one_learned_from_are_noticed(
    small: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = Pooled(small.model, "text")
    texts = [Document(f"c{n}", text=f"the cat {n} sat") for n in range(9)]
    first = Retriever.build(tmp_path / "first", texts, encoder)
    grown = Retriever.build(tmp_path / "grown", [*texts, Document("c9", text="a river")], encoder)
    other = Retriever.build(tmp_path / "other", texts, Pooled(small.model, "text", "cls"))
    found = {
        name: Retrieved(small.cut, one.near(small.documents, K))
        for name, one in (("first", first), ("grown", grown), ("other", other))
    }
    method = small.made(Fusing(k=K))
    method.read(found["first"], small.documents, [small.task])
    method.save(tmp_path / "kept")
    said = json.loads((tmp_path / "kept" / "fusion.json").read_text())["corpus"]
    content = json.dumps([document.text for document in texts]).encode()
    assert (said["texts"], said["sha256"]) == (9, hashlib.sha256(content).hexdigest())
    assert Spec.from_json(said["spec"]) == encoder.spec(dtype="fp32")
    again = refusion(small.plain(), Fusing(k=K), WIDTH)
    again.restore(tmp_path / "kept")
    again.read(found["first"], small.documents)
    assert "another corpus" not in caplog.text
    for _ in range(2):
        again.read(found["grown"], small.documents)
    assert caplog.text.count("learned from neighbours among 9 texts") == 1
    assert "another corpus, of 10 texts" in caplog.text
    with pytest.raises(SpecMismatch, match="pooling: 'cls' here, 'mean' there"):
        again.read(found["other"], small.documents)
    read = refusion(small.plain(), Fusing(k=K), WIDTH)
    read.read(found["other"], small.documents)
    with pytest.raises(SpecMismatch, match="pooling: 'cls' here, 'mean' there"):
        read.restore(tmp_path / "kept")
    hidden = Fusing(k=K, queries="hidden")
    asking = refusion(small.plain(), hidden, WIDTH, search=first.search)
    asking.save(tmp_path / "asking")
    assert json.loads((tmp_path / "asking" / "fusion.json").read_text())["corpus"] == said
    with pytest.raises(SpecMismatch, match="pooling: 'cls' here, 'mean' there"):
        refusion(small.plain(), hidden, WIDTH, search=other.search).restore(tmp_path / "asking")
    unknown = refusion(small.plain(), Fusing(k=K), WIDTH)
    unknown.read(Retrieved(small.cut, small.near()), small.documents)
    unknown.save(tmp_path / "unknown")
    assert json.loads((tmp_path / "unknown" / "fusion.json").read_text())["corpus"] is None
    again.restore(tmp_path / "unknown")


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


@pytest.mark.parametrize("queries", ["input", "hidden"])
def test_at_all_positions_a_text_is_asked_for_and_measured_without_the_padding_beside_it(
    small: World, queries: str
) -> None:
    """Texts of other lengths run padded together; each is what it is alone."""
    fusing = Fusing(slots=["value"], blocks=[0], schemes=["add"], k=K, position="all", queries=queries)
    search = Search(small.corpus) if queries == "hidden" else None
    method = refusion(small.plain(), fusing, WIDTH, search=search)
    source = Retrieved(small.cut, small.near())
    assert len({len(encoded.ids) for encoded in small.model.cut(small.documents[:3])}) > 1
    alone = [method.read(source, [document], [small.task]) for document in small.documents[:3]]
    together = method.read(source, small.documents[:3], [small.task])
    ratio = {place: np.mean([method.ratios(one)[place] for one in alone]) for place in [(0, "value")]}
    assert method.ratios(together) == {place: pytest.approx(value, rel=1e-5) for place, value in ratio.items()}
    parts = [logits(method, next(iter(method.batches(one, size=1, order=None)))) for one in alone]
    whole = logits(method, next(iter(method.batches(together, size=3, order=None))))
    torch.testing.assert_close(whole, torch.cat(parts), atol=1e-5, rtol=1e-5)
    if queries == "input":
        value = watched(small, method.plain(), small.batch(method.plain(), n=1))["value"]
        delta = torch.from_numpy(small.corpus[small.near().ids[0, 0]].mean(0))
        due = float((delta.norm() / value.norm(dim=1)).mean())
        assert method.ratios(alone[0])[0, "value"] == pytest.approx(due, rel=1e-5)


def test_an_architecture_that_was_not_searched_is_said(small: World, caplog: pytest.LogCaptureFixture) -> None:
    method = small.made(Fusing(k=K))
    batch, plain = small.batch(method, small.near()), method.plain()
    for _ in range(2):
        said = method.eval().predict(batch, True)
    assert caplog.text.count("takes its first candidate, 'identity'. Give fit(..., upper=Upper(dev))") == 1
    assert said == plain.eval().predict(small.batch(plain), True)
    caplog.clear()
    searched, fixed = small.made(Fusing(k=K)), small.made(Fusing(k=K, schemes=["add"]))
    with torch.no_grad():
        searched.upper_parameters()[0].normal_()
    for other in (searched, fixed):
        other.eval().predict(batch)
    assert "first candidate" not in caplog.text


def test_fusion_goes_into_the_top_blocks_and_beside_low_rank_terms(small: World) -> None:
    from encodeonce.batching import Encodings
    from encodeonce.types import Encoding

    pieces = small.model.cut(small.documents)
    encodings = [Encoding(pieces[i].key, views, pieces[i].word) for i, views in small.model.encode(pieces)]
    memory = Encodings(small.model.spec(dtype="fp32"), encodings)
    for name, blocks in (("top1", (2,)), ("lora", (0, 1, 2))):
        plain = small.plain(Tuning(name, dropout=0.0))
        method = refusion(plain, Fusing(k=K, schemes=["add"]), WIDTH)
        assert sorted({site.block for site in method.fusion.sites}) == list(blocks)
        examples = method.read(Retrieved(memory, small.near()), small.documents, [small.task])
        batch = next(iter(method.batches(examples, size=11, order=None)))
        without = method.plain().read(memory, small.documents, [small.task])
        other = logits(plain, next(iter(plain.batches(without, size=11, order=None))))
        assert not torch.allclose(logits(method, batch), other, atol=1e-4)
    with pytest.raises(ConfigError, match=r"blocks=\[0\]: 0 not trained; fusion is for trained ones: \[2\]"):
        refusion(small.plain(Tuning("top1")), Fusing(k=K, blocks=[0]), WIDTH)
    with pytest.raises(ConfigError, match="fusion needs trained blocks over piece ids or one stored view"):
        refusion(small.plain(Tuning("live_mix")), Fusing(k=K), WIDTH)


def test_named_settings_and_what_is_refused() -> None:
    assert Fusing(**FUSINGS["release"].to_json()) == FUSINGS["release"]
    for changes, message in (
        ({"slots": "key"}, r"slots='key' is a text\. Give a list: \['key'\]"),
        ({"slots": ["keys"]}, "slot 'keys' is not known.*Did you mean 'key'"),
        ({"schemes": ["rerank"]}, "scheme 'rerank' is not known.*Did you mean 'reranker'"),
        ({"schemes": []}, r"schemes=\[\]: give at least one, each once"),
        ({"slots": ["key", "key"]}, r"slots=\['key', 'key'\]: give at least one, each once"),
        ({"k": 0}, "k must be a whole number of at least 1"),
        ({"k": True}, "k must be a whole number of at least 1"),
        ({"temperature": math.nan}, "the temperature finite and greater than 0"),
        ({"temperature": math.inf}, "the temperature finite and greater than 0"),
        ({"order": 3}, "the order 1 or 2"),
        ({"position": "last"}, "position 'last' is not known"),
        ({"ending": "hard"}, "ending 'hard' is not known"),
        ({"leak": True, "schemes": ["add"]}, "leak=True with .*so give several schemes"),
        ({"leak": True, "order": 2}, "leak=True with .*order=2: dev gradients leak"),
        ({"scale": "convex", "schemes": ["add", "released_mask"]}, "scale='convex' with the scheme 'released_mask'"),
        ({"scale": "convex", "choice": ["released_mask", "mask"]}, "scale='convex' with the scheme 'released_mask'"),
    ):
        with pytest.raises(ConfigError, match=message):
            Fusing(**changes)
    assert Fusing(scale="convex", schemes=["add", "released_mask"], choice=["add", "add"]).scale == "convex"


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
