"""Trainable blocks of every family against `transformers` itself, in fp32."""

import copy
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from encodeonce.encoders import checkpoint as files
from encodeonce.encoders.live import LiveBlocks
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.stack import Stack
from encodeonce.errors import ConfigError, EncoderError, MissingExtra
from encodeonce.nn.post_norm import PostNorm

from .conftest import close

FAMILIES = files.families()
LOW_RANK = {
    **dict.fromkeys(("bert", "roberta", "xlm_roberta", "electra"), ("attention.self.query", "attention.self.value")),
    "albert": ("attention.query", "attention.value"),
    "deberta_v2": ("attention.self.query_proj", "attention.self.value_proj"),
    "distilbert": ("attention.q_lin", "attention.v_lin"),
    "gpt2": ("attn.c_attn",),
    "modernbert": ("attn.Wqkv",),
    "mpnet": ("attention.attn.q", "attention.attn.v"),
    "t5": ("layer.0.SelfAttention.q", "layer.0.SelfAttention.v"),
}
"""Spec A-09: the projections of query and value as `transformers` calls them inside a block, or what fuses them."""
LENGTHS = (7, 1, 11, 4, 4, 9, 2, 11, 6, 3)
"""More items than are padded together."""


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def stack(family: str, checkpoint: Callable[..., Path]) -> Stack:
    return Pretrained(checkpoint(family)).stack()


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return torch.randint(5, 30, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))


def views_of(stack: Stack, ids: Tensor) -> Tensor:
    """All views [L, P, D] as transformers gives them, one item after the other; the last without its final norm."""
    items = [stack.model(item[None], output_hidden_states=True).hidden_states for item in ids.split(LENGTHS)]
    return torch.stack([torch.cat([item[layer][0] for item in items]) for layer in range(stack.n_blocks + 1)])


def live(stack: Stack, blocks: list[int], **options: Any) -> LiveBlocks:
    return LiveBlocks(stack, blocks, **options).eval()


def test_all_blocks_from_piece_ids_equal_transformers(stack: Stack, ids: Tensor) -> None:
    everything = live(stack, list(range(stack.n_blocks)), final=True, embeddings=True)
    expected = views_of(stack, ids)
    entered = everything.enter(ids, LENGTHS)
    close(entered, expected[0])
    close(everything(entered, LENGTHS), expected[-1])


def test_more_pieces_than_one_window_enter_together(stack: Stack) -> None:
    everything = live(stack, [0], embeddings=True)
    ids = torch.randint(5, 30, (20,))
    once = everything.enter(ids, (20,))
    torch.testing.assert_close(everything.enter(ids.repeat(30), (20,) * 30), once.repeat(30, 1))
    if stack.LIMITED:
        with pytest.raises(EncoderError, match="position 40 asked for, but its table holds"):
            everything.enter(torch.zeros(41, dtype=torch.long), (41,))


def test_every_run_of_blocks_equals_that_part_of_the_stack(stack: Stack, ids: Tensor) -> None:
    views = views_of(stack, ids)
    for start in range(stack.n_blocks):
        for stop in range(start + 1, stack.n_blocks + 1):
            top = stop == stack.n_blocks
            ours = live(stack, list(range(start, stop)), final=top)(views[start], LENGTHS)
            close(ours, views[stop])


def test_chosen_rows_and_any_order_of_blocks(stack: Stack, ids: Tensor) -> None:
    states = views_of(stack, ids)[1]
    rows = torch.tensor([3, 0, 20, 57])
    turned = live(stack, [1, 0])
    expected = live(stack, [0])(live(stack, [1])(states, LENGTHS), LENGTHS)
    close(turned(states, LENGTHS, rows), expected[rows])


def test_gradients_equal_those_of_the_whole_model(stack: Stack, ids: Tensor) -> None:
    """Shared tables, the final norm and the embeddings are trained too, as in ordinary fine-tuning."""
    model = copy.deepcopy(stack.model).requires_grad_(True).eval()
    slope = torch.randn(sum(LENGTHS), stack.width)
    for item, part in zip(ids.split(LENGTHS), slope.split(LENGTHS), strict=True):
        (model(item[None]).last_hidden_state[0] * part).sum().backward()
    everything = live(stack, list(range(stack.n_blocks)), final=True, embeddings=True)
    (everything(everything.enter(ids, LENGTHS), LENGTHS) * slope).sum().backward()
    ours = {name: parameter for name, parameter in everything.stack.model.named_parameters() if parameter.numel()}
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    assert set(expected) <= set(ours)
    for name, gradient in expected.items():
        found = ours[name].grad
        assert found is not None, name
        assert (found - gradient).norm() <= 2e-4 * gradient.norm() + 1e-3, name
    trained = {id(p) for p in everything.parameters()}
    assert {id(ours[name]) for name in expected} <= trained


def test_attention_alone_is_the_block_whose_feed_forward_adds_nothing(stack: Stack, ids: Tensor) -> None:
    """Against `transformers`' own block with the last map of its feed-forward network at 0; its maps are not held."""
    states, model = views_of(stack, ids)[0], copy.deepcopy(stack)
    for parameter in model.blocks[0].get_submodule(model.paths["down"]).parameters():
        parameter.data.zero_()
    ours = live(stack, [0], attention_only=[0])
    close(ours(states, LENGTHS), views_of(model, ids)[1])
    lost = sum(p.numel() for p in live(stack, [0]).parameters()) - sum(p.numel() for p in ours.parameters())
    maps = [model.blocks[0].get_submodule(model.paths[slot]) for slot in ("up", "gate", "down") if slot in model.paths]
    assert lost == sum(p.numel() for one in maps for p in one.parameters())
    ours.train()(states, LENGTHS).square().sum().backward()
    query = model.paths["query"].partition("/")[0]
    assert ours.stack.blocks[0].get_submodule(query).weight.grad.abs().sum() > 0
    again = LiveBlocks(stack, [0], attention_only=[0])
    again.load_state_dict(ours.state_dict())
    torch.testing.assert_close(again.eval()(states, LENGTHS), ours.eval()(states, LENGTHS))


def test_A17_the_frozen_stack_is_untouched(stack: Stack, ids: Tensor) -> None:
    before = {name: tensor.clone() for name, tensor in stack.state_dict().items()}
    blocks = LiveBlocks(stack, [0, stack.n_blocks - 1], final=True)
    assert all(parameter.requires_grad for parameter in blocks.parameters())
    optimiser = torch.optim.SGD(blocks.parameters(), lr=0.1)
    blocks(torch.randn(sum(LENGTHS), stack.width), LENGTHS).square().sum().backward()
    optimiser.step()
    assert not stack.training
    for name, tensor in stack.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in stack.parameters())


@pytest.mark.parametrize("name", ["bert", "roberta", "xlm_roberta", "electra"])
def test_a_block_in_training_is_transformers_own_bit_for_bit(name: str, checkpoint: Callable[..., Path]) -> None:
    """Dropouts, mask and gradients included."""
    live = LiveBlocks(Pretrained(checkpoint(name)).stack(), [0]).train()
    stack, states = live.stack, torch.randn(2, 7, live.width)
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, 5:] = False
    context = stack.context(states, mask, torch.arange(7)[None])
    found = []
    for run in (lambda: stack.block(0, states, context), lambda: stack.blocks[0](states, **context)):
        live.zero_grad()
        torch.manual_seed(5)
        out = run()
        out.square().sum().backward()
        found.append([out, *(weight.grad for weight in live.parameters())])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


@pytest.mark.parametrize(("compute", "within"), [("fp32", 2e-5), ("bf16", 0.05)])
def test_settled_blocks_give_the_same_and_no_gradient(
    compute: str, within: float, stack: Stack, ids: Tensor, family: str
) -> None:
    blocks = live(stack, list(range(stack.n_blocks)), final=True, embeddings=True, compute=compute)
    names = {name: tensor.clone() for name, tensor in blocks.state_dict().items()}
    states = blocks.enter(ids, LENGTHS).detach()
    with torch.no_grad():
        expected = LiveBlocks(stack, blocks.blocks, final=True).eval()(states, LENGTHS)
        blocks.settle()
        found = blocks(states, LENGTHS)
        edited = blocks(states, LENGTHS, edits=lambda items: lambda block, slot, x, y: y)
    assert (found - expected).norm() <= within * expected.norm()
    assert torch.equal(edited, found)
    assert blocks.state_dict().keys() == names.keys()
    assert all(torch.equal(tensor, names[name]) for name, tensor in blocks.state_dict().items())
    assert blocks.settled == (family != "gpt2")
    assert blocks.settled != any(parameter.requires_grad for parameter in blocks.parameters())


def test_train_mode_drops_and_eval_mode_does_not(stack: Stack, family: str) -> None:
    blocks, states = LiveBlocks(stack, [1]), torch.randn(sum(LENGTHS), stack.width)
    alike = torch.equal(blocks(states, LENGTHS), blocks(states, LENGTHS))
    assert alike == (family in ("modernbert", "albert")), "these two have no dropout in their blocks by default"
    blocks.eval()
    assert torch.equal(blocks(states, LENGTHS), blocks(states, LENGTHS))


def test_bf16_stays_near_fp32(stack: Stack, ids: Tensor) -> None:
    states = views_of(stack, ids)[1]
    expected, rounded = (live(stack, [1, 2], compute=compute)(states, LENGTHS) for compute in ("fp32", "bf16"))
    assert rounded.dtype == torch.float32
    assert (rounded - expected).norm() < 0.03 * expected.norm()


def test_weights_travel_by_state_dict(stack: Stack, ids: Tensor) -> None:
    states = views_of(stack, ids)[1]
    trained, fresh = live(stack, [1], final=True), live(stack, [1], final=True)
    for parameter in trained.parameters():
        parameter.data.add_(0.01)
    assert not torch.equal(trained(states, LENGTHS), fresh(states, LENGTHS))
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(trained(states, LENGTHS), fresh(states, LENGTHS))


def test_CA17_lora_starts_as_the_base_and_merges_exactly(stack: Stack, ids: Tensor) -> None:
    pytest.importorskip("peft")
    states = views_of(stack, ids)[1]
    low = live(stack, [1, 2], lora=(2, 4.0)).requires_grad_(False)
    base = live(stack, [1, 2]).requires_grad_(False)(states, LENGTHS)
    assert torch.equal(low(states, LENGTHS), base)
    for name, parameter in low.named_parameters():
        if ".lora_" in name:
            parameter.normal_(std=0.05, generator=torch.Generator().manual_seed(len(name)))
    moved = low(states, LENGTHS)
    assert (moved - base).abs().max() > 1e-3
    low.merge_lora()
    close(low(states, LENGTHS), moved, within=4e-6)
    low.unmerge_lora()
    close(low(states, LENGTHS), moved, within=4e-6)


def test_merged_low_rank_terms_come_out_for_training_and_for_other_weights(stack: Stack, ids: Tensor) -> None:
    """Merged, they would get no gradient; and other terms would be taken out than were put in."""
    pytest.importorskip("peft")
    states = views_of(stack, ids)[1]
    low, other = live(stack, [1, 2], lora=(2, 4.0)), live(stack, [1, 2], lora=(2, 4.0))
    for seed, blocks in enumerate((low, other)):
        for name, parameter in blocks.named_parameters():
            if ".lora_" in name:
                parameter.data.normal_(std=0.05, generator=torch.Generator().manual_seed(seed + len(name)))
    low.merge_lora()
    low.load_state_dict(other.state_dict())
    close(low(states, LENGTHS), other(states, LENGTHS), within=4e-6)
    low.merge_lora()
    low.train()
    low(states, LENGTHS).square().sum().backward()
    assert all((parameter.grad is not None) == (".lora_" in name) for name, parameter in low.named_parameters())


def test_low_rank_terms_without_their_package_say_how_to_get_it(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"LoRA needs PEFT\. Install it with: pip install 'encodeonce\[lora\]'"):
        LiveBlocks(Pretrained(checkpoint("bert")).stack(), [0], lora=(2, 4.0))


def test_CA14_only_the_low_rank_terms_are_trained_and_saved(family: str, stack: Stack, ids: Tensor) -> None:
    pytest.importorskip("peft")
    low = LiveBlocks(stack, [0, 1], lora=(2, 4.0))
    low(views_of(stack, ids)[0], LENGTHS).square().sum().backward()
    with_gradient = {name for name, parameter in low.named_parameters() if parameter.grad is not None}
    assert with_gradient == {name for name, _ in low.named_parameters() if ".lora_" in name}
    assert with_gradient == set(low.state_dict())
    blocks = len({id(block) for block in stack.blocks[:2]})
    inside = [name.partition(".lora_")[0].split(".", 3)[3] for name in with_gradient]
    assert Counter(inside) == dict.fromkeys(LOW_RANK[family], 2 * blocks), "an A and a B each"
    other = LiveBlocks(stack, [0, 1], lora=(2, 4.0))
    for parameter in low.parameters():
        parameter.data.add_(0.01 if parameter.requires_grad else 0)
    other.load_state_dict(low.state_dict())
    states = torch.randn(sum(LENGTHS), stack.width)
    assert torch.equal(other.eval()(states, LENGTHS), low.eval()(states, LENGTHS))
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({})


def test_what_cannot_be_live_is_refused(stack: Stack) -> None:
    with pytest.raises(ConfigError, match=rf"blocks=\[9\] must name blocks from 0 to {stack.n_blocks - 1}"):
        LiveBlocks(stack, [9])
    with pytest.raises(ConfigError, match=r"blocks=\[\] must name"):
        LiveBlocks(stack, [])
    with pytest.raises(ConfigError, match=r"compute='fp8' is unknown\. There is: fp32, bf16"):
        LiveBlocks(stack, [0], compute="fp8")
    with pytest.raises(ConfigError, match=r"attention_only=\[1\] must be among the live blocks, \[0\]"):
        LiveBlocks(stack, [0], attention_only=[1])
    if stack.blocks[0] is stack.blocks[1]:
        with pytest.raises(ConfigError, match=r"runs one block's weights again and again, so its live blocks \[0, 1\]"):
            LiveBlocks(stack, [0, 1], attention_only=[1])
        LiveBlocks(stack, [0, 1], attention_only=[0, 1])
    with pytest.raises(ConfigError, match=r"LoRA rank=0, alpha=16\.0: the rank must be at least 1"):
        LiveBlocks(stack, [0], lora=(0, 16.0))


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "roberta", "xlm_roberta", "albert"])
def test_compiled_blocks_equal_their_own_modules(
    family: str, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not PostNorm.fits(32, 2):
        pytest.skip("needs a C compiler (cc, gcc or clang)")
    sizes: dict[str, Any] = {"n_heads": 2} if family == "distilbert" else {"num_attention_heads": 2}
    stack = Pretrained(checkpoint(family, **sizes, **({"hidden_act": "gelu"} if family == "albert" else {}))).stack()
    states, rows, slope = torch.randn(sum(LENGTHS), 32), torch.tensor([0, 6, 20, 57]), torch.randn(4, 32)

    def gradients(lora: tuple[int, float] | None, alone: list[int]) -> dict[str, Tensor]:
        torch.manual_seed(3)
        blocks = live(stack, [0, 1], compute="bf16", lora=lora, attention_only=alone)
        for parameter in blocks.parameters():
            if lora is not None and parameter.requires_grad:
                parameter.data.normal_(std=0.1)
        given = states.clone().requires_grad_(True)
        out = blocks(given, LENGTHS, rows)
        (out * slope).sum().backward()
        found = {
            name: p.grad for name, p in blocks.named_parameters() if p.grad is not None and ".key.bias" not in name
        }
        assert given.grad is not None
        return {"out": out.detach(), "states": given.grad, **found}

    lora = pytest.importorskip("peft") and (2, 4.0)
    for option, alone in ((None, []), (lora, []), (None, [0, 1] if family == "albert" else [1])):
        assert live(stack, [0], compute="bf16").packed
        ours = gradients(option, alone)
        with monkeypatch.context() as patch:
            patch.setattr(LiveBlocks, "packed", False)
            expected = gradients(option, alone)
        assert set(ours) == set(expected)
        for name, value in expected.items():
            if "k_lin.bias" in name or "key.bias" in name:
                continue  # zero but for rounding: a key's bias moves no attention weight
            assert (ours[name] - value).norm() < 0.05 * value.norm(), name
