"""From fp32 states to the stored type and back.

fp16, bf16  rounding to nearest; a value the type cannot hold is refused, not made inf.
int8        x / rms_c, where rms_c is the root mean square of (layer, channel) over the shard's first rows, clamped to
            1 % of the layer's median channel; then one fp16 scale s for each (layer, row), the absolute maximum / 127
            rounded up: x ~ q * s * rms_c. Dividing first keeps outlier channels from taking the range of their row.

Axes: L layers   T rows of one item   D width
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import NonFinite

__all__ = ["NUMPY", "TORCH", "calibrate", "quantise", "refuse_non_finite", "stored_bytes"]

CALIBRATION_ROWS = 2048
TORCH = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8}
NUMPY = {"fp32": np.float32, "fp16": np.float16, "bf16": np.int16, "int8": np.int8}
"""NumPy has no bfloat16: there its bits travel as int16."""

LIMITS = {name: torch.finfo(kind).max for name, kind in TORCH.items() if name != "int8"} | {
    "int8": torch.finfo(torch.float32).max
}


def refuse_non_finite(states: Float[Tensor, "L T D"], dtype: str, layers: tuple[int, ...], where: str) -> None:
    """NonFinite naming layer, item, row and channel where a value is NaN, inf or beyond what `dtype` holds (NUM-1)."""
    limit = LIMITS[dtype]
    low, high = torch.aminmax(states)
    if bool(low >= -limit) and bool(high <= limit):
        return
    wrong = ~(states.abs() <= limit)
    layer, row, channel = (int(axis[0]) for axis in torch.nonzero(wrong, as_tuple=True))
    value = float(states[layer, row, channel])
    if np.isfinite(value):
        way_out = "Store it as bf16 or fp32 (dtype='bf16')."
    else:
        way_out = "The encoder itself gave it: run it in fp32 (compute='fp32') or bf16 and store bf16 or fp32."
    raise NonFinite(
        f"{where}: layer {layers[layer]}, row {row}, channel {channel} is {value:g}; {dtype} holds finite values up to "
        f"{limit:g}. Nothing of this shard was stored. {way_out}"
    )


def calibrate(items: list[Float[Tensor, "L _ D"]]) -> Float[Tensor, "L D"]:
    """Root mean square of every (layer, channel) over all rows, clamped to 1 % of the layer's median channel."""
    rows = sum(item.shape[1] for item in items)
    squares = torch.stack([item.double().square().sum(1) for item in items]).sum(0)
    rms = (squares / rows).sqrt().float()
    floor = rms.median(dim=1, keepdim=True).values * 0.01
    # a layer in which half of the channels are dead has no median: fall back on the mean, then on 1
    floor = torch.where(floor > 0, floor, rms.mean(dim=1, keepdim=True) * 0.01)
    rms = torch.maximum(rms, floor)
    return torch.where(rms > torch.finfo(torch.float32).tiny, rms, torch.ones_like(rms))


def quantise(
    states: Float[Tensor, "L T D"], rms: Float[Tensor, "L D"], where: str
) -> tuple[Tensor, Float[Tensor, "L T"]]:
    """Int8 [L T D] and fp16 scales [L T]; raises NonFinite where a scale leaves fp16."""
    standard = states / rms[:, None]
    exact = standard.abs().amax(-1) / 127
    scales = exact.half()
    # round up, so that no value is clipped: the next fp16 number is the next bit pattern
    scales = torch.where(scales.float() < exact, (scales.view(torch.int16) + 1).view(torch.float16), scales)
    if not bool(scales.isfinite().all()):
        raise NonFinite(
            f"{where}: a row is {float(exact.max()) * 127:g} times its channels' usual size, beyond what an int8 scale "
            "holds. Nothing of this shard was stored. Store it as bf16 or fp32 (dtype='bf16')."
        )
    divisor = torch.where(scales > 0, scales, torch.ones_like(scales)).float()
    return (standard / divisor[..., None]).round_().clamp_(-127, 127).to(torch.int8), scales


def stored_bytes(
    states: Float[Tensor, "L T D"], dtype: str, rms: Float[Tensor, "L D"] | None, where: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Uint8 [L, T*D*size] ready to be written, one line a layer, and for int8 the scales as uint8 [L, T*2]."""
    scales = None
    if dtype == "int8":
        assert rms is not None
        states, scales = quantise(states, rms, where)
    flat = states.to(TORCH[dtype]).contiguous().view(states.shape[0], -1).view(torch.uint8).numpy()
    return flat, None if scales is None else scales.contiguous().view(torch.uint8).numpy()
