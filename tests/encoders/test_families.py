"""Checks that hold for every file of the room that is a family, against `transformers` itself."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from encodeonce.encoders import checkpoint as files
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.stack import Stack, ranks
from encodeonce.errors import ConfigError, EncoderError
from encodeonce.resolve import ROOT, resolve
from encodeonce.types import Document, Encoder

from .conftest import close

FAMILIES = files.families()
DOCUMENTS = [
    Document("1", ("the", "cat", "sat", "on", "the", "mat", ".")),
    Document("2", ("running", ",", "a", "naive", "cafe")),
    Document("3", ("x",)),
    Document("4", ("the", "river", "banks", "and", "the", "cat", ",", "sat")),
]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def stack(family: str, checkpoint: Callable[..., Path]) -> Stack:
    return Pretrained(checkpoint(family)).stack()


@pytest.fixture(scope="module")
def ids(stack: Stack) -> Tensor:
    return torch.randint(5, 30, (2, 11), generator=torch.Generator().manual_seed(1))


def through(stack: Stack, ids: Tensor, mask: Tensor | None = None) -> Tensor:
    """All views [L, B, T, D]."""
    first = stack.place(stack.lookup(ids), None if mask is None else ranks(mask))
    return torch.stack([first, *stack.run(first, mask)])


def hooks_of(stack: Stack) -> list[int]:
    """Forward hooks of every module (transformers keeps its own for `output_hidden_states`)."""
    return [len(module._forward_hooks) for module in stack.modules()]


def test_every_other_file_of_the_room_is_listed() -> None:
    names = {path.stem for path in (ROOT / "encoders").glob("*.py") if not path.stem.startswith("_")}
    assert names == {*FAMILIES, *files.NOT_FAMILIES}
    assert all(issubclass(resolve("encoders", name), Stack) for name in FAMILIES)


def test_every_view_equals_transformers(stack: Stack, ids: Tensor) -> None:
    expected = torch.stack(stack.model(ids, output_hidden_states=True).hidden_states)
    assert isinstance(stack, Encoder)
    assert len(expected) == stack.n_blocks + 1
    assert torch.equal(through(stack, ids), expected)


def test_right_padding_equals_transformers(stack: Stack, ids: Tensor) -> None:
    padding = stack.model.config.pad_token_id or 0
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, 6:] = False
    padded = torch.where(mask, ids, padding)
    expected = torch.stack(stack.model(padded, attention_mask=mask.long(), output_hidden_states=True).hidden_states)
    close(through(stack, padded, mask)[:, mask], expected[:, mask], within=2e-6)


def test_every_cut_equals_the_whole_run_bit_for_bit(stack: Stack, ids: Tensor) -> None:
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[0, 3:5] = False
    for seen in (None, mask):
        whole = [view := stack.place(stack.lookup(ids)), *stack.run(view, seen)]
        for cut in range(stack.n_blocks + 1):
            lower = stack.run(whole[0], seen, 0, cut)
            raw = lower[-1] if cut else whole[0]
            upper = stack.run(raw, seen, cut) if cut < stack.n_blocks else []
            assert all(map(torch.equal, [*lower, *upper], whole[1:]))


def test_L03_L04_padding_anywhere_is_invisible(stack: Stack, ids: Tensor) -> None:
    short = ids[:1, :7]
    alone = through(stack, short)
    for where in ([7, 8, 9], [0, 1, 2], [2, 3, 6], [0, 4, 9]):
        mask = torch.ones(1, 10, dtype=torch.bool)
        mask[0, where] = False
        padded = torch.full((1, 10), 29)
        padded[mask] = short[0]
        close(through(stack, padded, mask)[:, mask], alone[:, 0], within=3e-6)


def test_pairwise_mask_keeps_two_items_of_one_row_apart(stack: Stack, ids: Tensor) -> None:
    left, right = ids[:1, :4], ids[1:, :5]
    pairs = torch.block_diag(torch.ones(4, 4), torch.ones(5, 5)).bool()[None]
    positions = torch.cat([torch.arange(4), torch.arange(5)])[None]
    first = stack.place(stack.lookup(torch.cat([left, right], 1)), positions)
    both = torch.stack([first, *stack.run(first, pairs, positions=positions)])
    close(both[:, :, :4], through(stack, left), within=3e-6)
    close(both[:, :, 4:], through(stack, right), within=3e-6)


def test_pairwise_mask_of_the_same_keys_equals_the_plain_one(stack: Stack, ids: Tensor) -> None:
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[0, 8:] = False
    first = stack.place(stack.lookup(ids))
    pairs = mask[:, None].expand(2, 11, 11) & mask[:, :, None]  # rows of padding read nothing
    for plain, paired in zip(stack.run(first, mask), stack.run(first, pairs), strict=True):
        assert paired.isfinite().all()
        close(plain[mask], paired[mask], within=3e-6)


def test_identity_edit_changes_no_bit_and_leaves_no_hook(stack: Stack, ids: Tensor) -> None:
    first, calls, hooks = stack.place(stack.lookup(ids)), [], hooks_of(stack)

    def look(block: int, slot: str, x: Tensor, y: Tensor) -> Tensor:
        calls.append((block, slot, x.shape[:2], y.shape[:2]))
        return y

    seen = stack.run(first, None, 1, edit=look)
    assert all(map(torch.equal, seen, stack.run(first, None, 1)))
    assert sorted(call[:2] for call in calls) == sorted((b, s) for b in range(1, stack.n_blocks) for s in stack.slots)
    assert {shape for call in calls for shape in call[2:]} == {ids.shape}
    assert hooks_of(stack) == hooks


def test_hooks_are_gone_after_an_edit_that_fails(stack: Stack, ids: Tensor) -> None:
    def fail(block: int, slot: str, x: Tensor, y: Tensor) -> Tensor:
        raise KeyError(slot)

    hooks = hooks_of(stack)
    with pytest.raises(KeyError):
        stack.run(stack.place(stack.lookup(ids)), None, edit=fail)
    assert hooks_of(stack) == hooks


def test_an_edit_takes_the_place_of_its_slot_and_of_nothing_before(stack: Stack, ids: Tensor) -> None:
    first = stack.place(stack.lookup(ids))
    plain = stack.run(first, None)
    assert {"query", "key", "value", "attention", "up", "down"} <= set(stack.slots)
    for slot in stack.slots:
        edited = stack.run(first, None, edit=lambda b, s, x, y, at=slot: -y if (b, s) == (1, at) else y)
        assert torch.equal(edited[0], plain[0])
        assert (edited[1] - plain[1]).abs().max() > 1e-4, slot


def test_an_edit_sees_the_output_of_the_linear_map_it_names(stack: Stack, ids: Tensor) -> None:
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def look(block: int, slot: str, x: Tensor, y: Tensor) -> Tensor:
        seen.setdefault(slot, (x, y))
        return y

    stack.run(stack.place(stack.lookup(ids)), None, 0, 1, edit=look)
    for slot, path in stack.paths.items():
        place, _, third = path.partition("/")
        output = stack.blocks[0].get_submodule(place)(seen[slot][0])
        assert torch.equal(output.chunk(3, -1)[int(third)] if third else output, seen[slot][1])


def test_A17_it_stays_in_eval_mode_and_takes_no_gradient(stack: Stack, ids: Tensor) -> None:
    assert not any(module.training for module in stack.train().modules())
    assert not any(parameter.requires_grad for parameter in stack.parameters())
    vectors = stack.lookup(ids).requires_grad_()
    stack.run(stack.place(vectors), None)[-1].sum().backward()  # a gradient passes through, for what lies below
    assert vectors.grad is not None


def test_LONG2_the_window_is_what_the_model_can_hold(stack: Stack, family: str) -> None:
    assert stack.window == {"roberta": 38, "xlm_roberta": 38, "mpnet": 38, "t5": 512}.get(family, 40)
    longest = torch.full((1, stack.window), 7)
    stack.run(stack.place(stack.lookup(longest)), None, 0, 1)
    if stack.LIMITED:
        with pytest.raises(EncoderError, match=rf"position {stack.window} asked for.*holds {stack.window} pieces"):
            stack.place(stack.lookup(torch.full((1, stack.window + 1), 7)))


def test_a_cut_outside_the_stack_is_refused(stack: Stack, ids: Tensor) -> None:
    with pytest.raises(ConfigError, match=r"start=2, stop=1 must satisfy 0 <= start <= stop <= \d"):
        stack.run(stack.place(stack.lookup(ids)), None, 2, 1)


def test_encode_equals_one_plain_forward_a_sentence(family: str, checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint(family), batch_pieces=30)
    pieces = model.cut(DOCUMENTS)
    views = dict(model.encode(pieces))
    assert model.n_blocks == model.stack().n_blocks
    assert sorted(views) == [0, 1, 2, 3]
    for index, cut in enumerate(pieces):
        ids = torch.from_numpy(cut.ids.astype(np.int64))[None]
        expected = torch.stack(model.stack().model(ids, output_hidden_states=True).hidden_states)[:, 0]
        assert views[index].dtype == np.float32
        assert views[index].shape == expected.shape
        close(views[index], expected)


def test_deberta_with_a_convolution(checkpoint: Callable[..., Path]) -> None:
    stack = Pretrained(checkpoint("deberta_v2", conv_kernel_size=3, conv_act="gelu")).stack()
    ids = torch.randint(5, 30, (2, 9))
    assert torch.equal(through(stack, ids), torch.stack(stack.model(ids, output_hidden_states=True).hidden_states))
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, [0, 3, 4]] = False
    close(through(stack, ids, mask)[:, 0, mask[0]], through(stack, ids[:1, mask[0]])[:, 0], within=3e-6)


@pytest.mark.parametrize("settings", [{"feed_forward_proj": "relu"}, {"num_layers": 1}])
def test_other_forms_of_t5(checkpoint: Callable[..., Path], settings: dict[str, object]) -> None:
    stack = Pretrained(checkpoint("t5", **settings)).stack()
    ids = torch.randint(5, 30, (2, 9))
    assert torch.equal(through(stack, ids), torch.stack(stack.model(ids, output_hidden_states=True).hidden_states))
    assert ("gate" in stack.slots) == ("feed_forward_proj" not in settings)


def test_a_decoder_is_refused(checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(EncoderError, match="is_decoder"):
        Pretrained(checkpoint("bert", is_decoder=True)).stack()
