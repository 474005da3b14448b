"""Rows chosen and rounded in one pass against torch's index, conversion and copy, to the bit."""

import pytest
import torch

from encodeonce.nn import frozen_rows
from encodeonce.nn.frozen_rows import copy_rows


@pytest.mark.parametrize("rounded", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [1, 16, 37, 384])
@pytest.mark.parametrize("compiled", [True, False])
def test_rows_equal_torch(rounded: torch.dtype, width: int, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(frozen_rows, "kernel", lambda: "no kernel")
    x = torch.randn(300, width) * torch.logspace(-9, 6, 300)[:, None]
    x[7], x[8] = float("inf"), 1 + 2**-9  # a tie of bfloat16, whose even neighbour is below
    chosen = torch.randperm(300)[:211]
    out = torch.full((2, 211, width), 5.0)
    copy_rows(x, chosen, rounded, out[1])
    assert torch.equal(out[1], x[chosen].to(rounded).float())
    assert (out[0] == 5).all()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    copy_rows(x, chosen, rounded, out[0])
    assert torch.equal(out[0], out[1])
    copy_rows(x, chosen[:0], rounded, out[0][:0])


def test_nan_stays_nan() -> None:
    x, out = torch.full((1, 20), float("nan")), torch.zeros(1, 20)
    for rounded in (torch.float16, torch.bfloat16):
        copy_rows(x, torch.zeros(1, dtype=torch.int64), rounded, out)
        assert out.isnan().all()
