"""The compiled transformer block against the same arithmetic in tensor operations, dropout masks included."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from encodeonce.nn import step_kernel
from encodeonce.nn.barrier import Barrier
from encodeonce.nn.dropout import Dropout
from encodeonce.nn.post_norm import PostNorm, Shift

WIDTH, WIDE, LENGTHS = 64, 112, (6, 1, 17, 3, 33)
CHOSEN = {"all": None, "some": torch.tensor([0, 5, 6, 22, 59, 7])}
ONE = torch.tensor([0, 6, 15, 25, 27])
"""A row of each item."""


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if step_kernel._library() is None:
        pytest.skip("needs a C compiler (cc, gcc or clang)")


def block(rate: float, feed: bool = True) -> tuple[PostNorm, nn.ModuleList]:
    """Weights of size one, so that no part of the block is nearly linear."""
    lines = nn.ModuleList(nn.Linear(i, o) for i, o in [(WIDTH, WIDTH)] * 4 + [(WIDTH, WIDE), (WIDE, WIDTH)])
    norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
    for parameter in (*lines.parameters(), *norms.parameters()):
        nn.init.normal_(parameter, std=0.15)
    for norm in norms:
        norm.weight.data.add_(1)
    drops = tuple(Dropout(rate) for _ in range(3))
    first, second = norms
    assert isinstance(first, nn.LayerNorm)
    assert isinstance(second, nn.LayerNorm)
    *attention, up, down = ((line.weight, line.bias) for line in lines)
    made = PostNorm(*attention, (up, down) if feed else None, (first, second), drops, n_heads=2)
    return made, nn.ModuleList([lines, norms])


def kept(words: Tensor, scale: float) -> Tensor:
    """Words of bits as factors."""
    return torch.stack([(words.int() >> bit) & 1 for bit in range(16)], -1).flatten().float() * scale


def shifted(y: Tensor, slot: str, shift: Shift | None) -> Tensor:
    """y with each item's vector at its row, or at all rows of the item, one by one."""
    if shift is None or slot not in shift.slots:
        return y
    lines, start = list(y), 0
    for item, n in enumerate(LENGTHS):
        for row in range(start, start + n):
            if shift.rows is None or row == int(shift.rows[item]):
                lines[row] = lines[row] + shift.slots[slot][item]
        start += n
    return torch.stack(lines)


def reference(
    made: PostNorm, x: Tensor, rows: Tensor | None, barrier: Barrier | None = None, shift: Shift | None = None
) -> Tensor:
    """Item by item and head by head in fp32, with the masks that the generator's state gives the block."""
    if shift is not None and "down" in shift.slots and rows is not None:
        return reference(made, x, None, barrier, shift)[rows]
    heads, n_out = made.n_heads, len(x) if rows is None else len(rows)
    widths = [-(-n // 16) * 16 for n in LENGTHS]
    sizes = (heads * sum(n * s for n, s in zip(LENGTHS, widths, strict=True)),), (n_out, WIDTH), (n_out, WIDTH)
    n_drops = 2 if made.feed is None else 3
    masks = [
        kept(drop.kept(*size), drop.scale) for drop, size in zip(made.drop[:n_drops], sizes[:n_drops], strict=True)
    ]
    query, key, value = (
        shifted(nn.functional.linear(x, *getattr(made, slot)), slot, shift) for slot in ("query", "key", "value")
    )
    attended, start, at = [], 0, 0
    for item, (n, s) in enumerate(zip(LENGTHS, widths, strict=True)):
        own, closed = slice(start, start + n), torch.zeros(n, n)
        if barrier is not None:
            border = barrier.first[item]
            closed[:border, border:] = 0.0 if barrier.first_reads else -torch.inf
            closed[border:, :border] = 0.0 if barrier.second_reads else -torch.inf
        heads_out = []
        for g in range(heads):
            columns = slice(g * WIDTH // heads, (g + 1) * WIDTH // heads)
            scores = query[own, columns] @ key[own, columns].T / math.sqrt(WIDTH / heads)
            weights = torch.softmax(scores + closed, -1)
            mask = masks[0][at : at + n * s].view(n, s)[:, :n]
            heads_out.append((weights * mask) @ value[own, columns])
            at += n * s
        attended.append(torch.cat(heads_out, -1))
        start += n
    joined = torch.cat(attended)
    if rows is not None:
        joined, x = joined[rows], x[rows]
    middle = made.norms[0](x + nn.functional.linear(joined, *made.out) * masks[1].view(n_out, WIDTH))
    if made.feed is None:
        return made.norms[1](middle)
    up, down = made.feed
    inner = shifted(nn.functional.linear(nn.functional.gelu(nn.functional.linear(middle, *up)), *down), "down", shift)
    return made.norms[1](middle + inner * masks[2].view(n_out, WIDTH))


@pytest.mark.parametrize("rows", CHOSEN)
@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_output_and_gradients_equal_tensor_operations(rate: float, rows: str) -> None:
    check(rate, rows, None)


@pytest.mark.parametrize("rows", CHOSEN)
def test_attention_alone_equals_tensor_operations(rows: str) -> None:
    check(0.25, rows, None, feed=False)


@pytest.mark.parametrize(("first_reads", "second_reads"), [(False, True), (True, False), (False, False)])
def test_parts_of_an_item_that_may_not_read_each_other(first_reads: bool, second_reads: bool) -> None:
    check(0.25, "some", Barrier((2, 0, 17, 1, 20), first_reads, second_reads))


@pytest.mark.parametrize("rows", CHOSEN)
@pytest.mark.parametrize(
    ("slots", "at"),
    [
        (("query",), ONE),
        (("key", "value"), ONE),
        (("down",), ONE),
        (("query", "key", "value", "down"), ONE),
        (("query", "value", "down"), None),  # a key's at all rows moves no attention weight
    ],
)
def test_a_vector_an_item_added_at_a_slot(slots: tuple[str, ...], at: Tensor | None, rows: str) -> None:
    vectors = {slot: torch.randn(len(LENGTHS), WIDTH, requires_grad=True) for slot in slots}
    check(0.25, rows, None, shift=Shift(vectors, at))


def test_a_vector_added_where_there_is_attention_alone() -> None:
    vectors = {slot: torch.randn(len(LENGTHS), WIDTH, requires_grad=True) for slot in ("key", "value")}
    check(0.25, "some", None, feed=False, shift=Shift(vectors, ONE))


def test_zeros_added_change_no_bit() -> None:
    made, _ = block(0.0)
    x, zeros = torch.randn(sum(LENGTHS), WIDTH), torch.zeros(len(LENGTHS), WIDTH)
    for rows in (None, ONE):
        assert torch.equal(made(x, LENGTHS, shift=Shift(dict.fromkeys(("key", "down"), zeros), rows)), made(x, LENGTHS))


def check(rate: float, rows: str, barrier: Barrier | None, feed: bool = True, shift: Shift | None = None) -> None:
    """Output and all gradients."""
    (made, weights), chosen = block(rate, feed), CHOSEN[rows]
    vectors = {} if shift is None else shift.slots
    x = torch.randn(sum(LENGTHS), WIDTH)
    slope = torch.randn(len(x) if chosen is None else len(chosen), WIDTH)

    def gradients(compiled: bool) -> dict[str, Tensor]:
        torch.manual_seed(4)
        weights.zero_grad()
        for vector in vectors.values():
            vector.grad = None
        given = x.clone().requires_grad_(True)
        run = partial(made, lengths=LENGTHS) if compiled else partial(reference, made)
        out = run(given, rows=chosen, barrier=barrier, shift=shift)
        (out * slope).sum().backward()
        assert given.grad is not None
        found = {name: p.grad.clone() for name, p in weights.named_parameters() if p.grad is not None}
        of_shift = {slot: vector.grad.clone() for slot, vector in vectors.items() if vector.grad is not None}
        return {"out": out.detach(), "x": given.grad, **of_shift, **found}

    ours, expected = gradients(True), gradients(False)
    assert set(ours) == set(expected) >= set(vectors)
    for name, value in expected.items():
        if name != "0.1.bias":  # a key's bias moves no attention weight: rounding only
            assert (ours[name] - value).norm() < 0.02 * value.norm(), name


def test_gelu_and_its_slope_over_the_whole_range() -> None:
    z = torch.linspace(-30, 30, 16 * 512).bfloat16().view(16, 512).contiguous()
    bias, out, to_z, to_bias = torch.full((512,), 0.125), torch.empty_like(z), torch.empty_like(z), torch.zeros(512)
    step_kernel.call("gelu16", z, bias, 16, 512, out)
    x = (z.double() + 0.125).requires_grad_(True)
    expected = nn.functional.gelu(x)
    torch.testing.assert_close(out.double(), expected.detach(), atol=2e-7, rtol=4e-3)
    step_kernel.call("gelu16_slope", torch.ones_like(z), z, bias, 16, 512, to_z, to_bias)
    expected.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(to_z.double(), x.grad, atol=2e-6, rtol=4e-3)
    torch.testing.assert_close(to_bias.double(), x.grad.sum(0), atol=1e-5, rtol=1e-5)


def test_one_item_does_not_see_another_and_nan_is_not_hidden() -> None:
    made, _ = block(0.0)
    x = torch.randn(sum(LENGTHS), WIDTH)
    whole = made(x, LENGTHS)
    torch.testing.assert_close(made(x[7:24], (17,)), whole[7:24], atol=1e-6, rtol=0)
    x[8, 3] = math.nan
    broken = made(x, LENGTHS)
    assert broken[7:24].isnan().all()
    torch.testing.assert_close(broken[24:], whole[24:])


def test_frozen_weights_get_no_gradient() -> None:
    made, weights = block(0.0)
    weights.requires_grad_(False)
    made.query[0].requires_grad_(True)
    made(torch.randn(sum(LENGTHS), WIDTH), LENGTHS).square().sum().backward()
    assert made.query[0].grad is not None
    assert all(parameter.grad is None for parameter in weights.parameters() if parameter is not made.query[0])
