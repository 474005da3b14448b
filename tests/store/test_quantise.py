"""Storage types: what comes back, and what is refused (NUM-1)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encodeonce.errors import NonFinite
from encodeonce.store.quantise import calibrate, quantise, refuse_non_finite


def restored(states: torch.Tensor, rms: torch.Tensor) -> torch.Tensor:
    values, scales = quantise(states, rms, "item")
    return values.float() * scales.float()[..., None] * rms[:, None]


def relative(states: torch.Tensor, rms: torch.Tensor) -> float:
    return float((restored(states, rms) - states).norm() / states.norm())


def test_int8_error_is_below_one_percent_with_outlier_and_dead_channels() -> None:
    """7.6e-3 whether or not two channels are 60 and 20 times as large; near-dead channels give no NaN."""
    states = torch.randn(3, 3000, 384)
    assert relative(states, calibrate([states[:, :2048]])) < 1e-2
    states[:, :, 7] *= 60
    states[:, :, 9] *= 20
    states[:, :, 11:14] *= 1e-7
    rms = calibrate([states[:, :1000], states[:, 1000:2048]])
    assert relative(states, rms) < 1e-2
    standard = states / states.pow(2).mean(1, keepdim=True).sqrt()
    alive = [c for c in range(384) if c not in (11, 12, 13)]
    error = (restored(states, rms) / states.pow(2).mean(1, keepdim=True).sqrt() - standard)[..., alive]
    assert float(error.pow(2).mean().sqrt()) < 1e-2


def test_int8_scale_never_clips() -> None:
    """The scale is rounded up, so each value is off by at most half a step."""
    states = torch.randn(2, 500, 32) * torch.logspace(-6, 3, 500)[:, None]
    rms = torch.ones(2, 32)
    _, scales = quantise(states, rms, "item")
    assert bool(((restored(states, rms) - states).abs() <= scales.float()[..., None] * 0.5001).all())


def test_calibration_equals_numpy() -> None:
    states = torch.randn(2, 40, 6)
    states[1, :, 2] = 0
    rms = calibrate([states[:, :15], states[:, 15:]]).numpy()
    due = np.sqrt((states.numpy().astype(np.float64) ** 2).mean(1))
    due[1, 2] = 0.01 * np.sort(due[1])[2]  # torch's median is the lower of the two in the middle
    np.testing.assert_allclose(rms, due, rtol=1e-6)


def test_a_layer_of_zeros_stays_zero() -> None:
    zeros = torch.zeros(1, 4, 8)
    assert torch.equal(restored(zeros, calibrate([zeros])), zeros)


@settings(max_examples=50, deadline=None)
@given(scale=st.floats(1e-3, 1e3), rows=st.integers(1, 9), width=st.integers(1, 9))
def test_int8_error_is_bounded_by_half_a_step(scale: float, rows: int, width: int) -> None:
    states = torch.randn(2, rows, width, generator=torch.Generator().manual_seed(rows * 10 + width)) * scale
    rms = calibrate([states])
    _, scales = quantise(states, rms, "item")
    step = scales.float()[..., None] * rms[:, None]
    assert bool(((restored(states, rms) - states).abs() <= step * 0.501 + 1e-30).all())


@pytest.mark.parametrize(
    ("dtype", "value", "refused"),
    [
        ("fp16", 65504.0, False),
        ("fp16", 66246.0, True),
        ("fp16", -66246.0, True),
        ("bf16", 642630.0, False),
        ("fp32", 642630.0, False),
        ("bf16", 3.4e38, True),
        ("int8", 642630.0, False),
        *((dtype, value, True) for dtype in ("fp32", "fp16", "bf16", "int8") for value in (np.nan, np.inf, -np.inf)),
    ],
)
def test_num_1_what_a_type_cannot_hold_is_named(dtype: str, value: float, refused: bool) -> None:
    states = torch.zeros(2, 3, 4)
    states[1, 2, 3] = value
    if not refused:
        refuse_non_finite(states, dtype, (4, 9), "a.txt:3")
        return
    with pytest.raises(NonFinite, match=r"a\.txt:3: layer 9, row 2, channel 3 is .*Nothing of this shard.*bf16"):
        refuse_non_finite(states, dtype, (4, 9), "a.txt:3")


def test_an_int8_row_beyond_its_scale_is_refused() -> None:
    with pytest.raises(NonFinite, match=r"a\.txt:3: a row is 1e\+08 times its channels' usual size.*bf16"):
        quantise(torch.full((1, 1, 2), 1e8), torch.ones(1, 2), "a.txt:3")
