"""Attention through the compiled kernel against torch in float64; where there is no kernel, `attends` says no."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from encodeonce.nn import frozen_attention, frozen_kernel
from encodeonce.nn.frozen_attention import LONGEST, attend, attends

HAS_KERNEL = not isinstance(frozen_kernel.kernel(), str)


def heads(items: int, length: int, n_heads: int, depth: int) -> Tensor:
    """As transformers hands them over: heads moved forward by a view."""
    return torch.randn(items, length, n_heads, depth).transpose(1, 2)


@pytest.mark.parametrize("shape", [(1, 1, 1, 16), (3, 5, 2, 32), (2, 33, 3, 64), (4, 16, 1, 48), (1, LONGEST, 2, 32)])
@pytest.mark.parametrize("masked", ["no", "keys", "pairs", "heads"])
def test_attention_equals_float64(
    shape: tuple[int, int, int, int], masked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, length, n_heads, depth = shape
    q, k, v = (heads(items, length, n_heads, depth) for _ in range(3))
    mask = None
    if masked == "keys":
        mask = torch.zeros(items, 1, 1, length)
        mask[0, ..., (length + 1) // 2 :] = torch.finfo(torch.float32).min
    elif masked == "pairs":
        mask = torch.zeros(1, 1, length, length).masked_fill_(torch.ones(length, length).triu(1) > 0, -torch.inf)
    elif masked == "heads":
        mask = torch.randn(items, n_heads, length, length)
    assert attends(q, k, v, mask) is HAS_KERNEL
    if not HAS_KERNEL:
        return
    wide = None if mask is None else mask.double()
    exact = functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), wide, scale=0.3).transpose(1, 2)
    found = attend(q, k, v, mask, 0.3)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=3e-6)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(attend(q, k, v, mask, 0.3), found)


@pytest.mark.parametrize("length", [1, 21, 40])
def test_bfloat16_is_computed_in_fp32_and_rounded_once(length: int) -> None:
    if not HAS_KERNEL:
        return
    q, k, v = (heads(3, length, 2, 32).bfloat16() for _ in range(3))
    mask = torch.randn(3, 1, length, length)
    assert attends(q, k, v, mask)
    found = attend(q, k, v, mask, 0.2)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, attend(q.float(), k.float(), v.float(), mask, 0.2).bfloat16())


def test_padding_changes_no_bit_and_scale_has_its_default() -> None:
    if not HAS_KERNEL:
        return
    q, k, v = (heads(2, 9, 2, 32) for _ in range(3))
    mask = torch.zeros(2, 1, 1, 9)
    mask[..., 6:] = torch.finfo(torch.float32).min
    short = attend(q[:, :, :6], k[:, :, :6], v[:, :, :6])
    assert torch.equal(attend(q, k, v, mask)[:, :6], short)
    assert torch.equal(attend(q, k, v, None, 32**-0.5), attend(q, k, v))


def test_what_the_kernel_is_not_made_for_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    q = heads(1, 4, 2, 32)
    assert not attends(q.double(), q.double(), q.double(), None)
    assert not attends(q, q, q, torch.ones(1, 1, 1, 4) > 0)
    assert not attends(q.bfloat16(), q, q, None)
    assert not attends(q, q[:, :1], q[:, :1], None)
    assert not attends(*(heads(1, 4, 2, 24),) * 3, None)
    assert not attends(*(heads(1, LONGEST + 1, 2, 32),) * 3, None)
    assert not attends(q.clone().requires_grad_(), q, q, None)
    monkeypatch.setattr(frozen_attention, "kernel", lambda: "no kernel")
    assert not attends(q, q, q, None)
