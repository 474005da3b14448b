"""What a `pretrain` costs in FLOPs, and what of it fits into a budget of FLOPs or seconds.

Axes: N documents   Q tuples   K documents of a tuple   W windows
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from .. import costs
from ..costs import Product, Shape
from ..errors import ConfigError

__all__ = ["Budget", "Prices", "encoding", "fitting", "masked_windows", "masking", "training"]

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "TFLOP": 1e12}


def encoding(shape: Shape, sizes: Sequence[int]) -> int:
    """FLOPs of a frozen pass over texts of so many pieces."""
    return costs.flops(costs.forward_macs(costs.encoder_products(shape, sum(sizes), sum(n * n for n in sizes))))


def training(shape: Shape, lengths: Sequence[int], padding: int = 0, lora: int = 0) -> int:
    """FLOPs of training steps on items of so many positions, every block trained, or (`lora`) terms of this rank beside
    the queries' and values' weights; `padding` are positions beside them that are run and not looked at."""
    positions = sum(lengths) + padding
    products = costs.encoder_products(shape, positions, sum(n * n for n in lengths), shape.n_blocks)
    return costs.flops(costs.step_macs(_low_rank(shape, products, positions, lora) if lora else products))


def _low_rank(shape: Shape, products: Iterable[Product], positions: int, rank: int) -> list[Product]:
    """The same products where weights are frozen: of attention's two operands both depend on what is trained, of all
    others the states alone. What enters the lowest block takes no gradient, so nor do its keys."""
    gradients = {"attention": 2, "embedding": 0, "query, key and value of the lowest block": 0}
    kept = {product.name: replace(product, gradients=gradients.get(product.name, 1)) for product in products}
    keys = kept["attention"].macs // (2 * shape.n_blocks)
    kept["attention"] = replace(kept["attention"], macs=kept["attention"].macs - keys)
    down, up = (2 * rank * width * positions for width in (shape.width, shape.attention))
    return [
        *kept.values(),
        Product("scores of the lowest block", keys, 1),
        Product("low-rank terms of the lowest block, down", down, 1),
        Product("low-rank terms, down", (shape.n_blocks - 1) * down, 2),
        Product("low-rank terms, up", shape.n_blocks * up, 2),
    ]


def masking(shape: Shape, lengths: Sequence[int], probability: float, vocabulary: int, lora: int = 0) -> int:
    """The same for windows of pieces, with the masked-language head at the hidden ones alone."""
    head = costs.TRAINING * int(probability * sum(lengths)) * (shape.width**2 + shape.width * vocabulary)
    return training(shape, lengths, lora=lora) + costs.flops(head)


def masked_windows(pieces: Sequence[int], *limits: int) -> list[int]:
    """The lengths of the windows that a masked loss reads texts of so many pieces in; the least limit holds."""
    limit = min(limits)
    return [min(limit, n - at) for n in pieces for at in range(0, n, limit)]


@dataclass(frozen=True)
class Budget:
    """An amount of seconds, or of FLOPs."""

    amount: float
    of_flops: bool

    @classmethod
    def read(cls, text: str) -> "Budget":
        """ "90s", "5m", "1.5h" or "44TFLOP". ConfigError for anything else."""
        found = re.fullmatch(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(UNITS)})\s*", text)
        if found is None or not float(found[1]):
            raise ConfigError(f"budget={text!r}: write it as 90s, 5m, 1.5h or 44TFLOP.")
        return cls(float(found[1]) * UNITS[found[2]], found[2] == "TFLOP")

    @property
    def text(self) -> str:
        """What `read` makes this budget of."""
        return f"{self.amount / 1e12:.12f}TFLOP" if self.of_flops else f"{self.amount:.6f}s"

    def said(self, amount: float) -> str:
        """An amount in this budget's unit."""
        number, unit = (amount / 1e12, "TFLOP") if self.of_flops else (amount, "s")
        return f"{number:,.{2 if self.of_flops else 0}f} {unit}" if number >= 10 else f"{number:.3g} {unit}"


@dataclass(frozen=True)
class Prices:
    """In a budget's unit: to encode each document [N], to train on each tuple [Q] or window [W], and what is spent
    whatever is trained. Tuples and windows are not bought together: windows beside tuples are in their price."""

    documents: Float[np.ndarray, " N"]
    each: Float[np.ndarray, " Q"]
    fixed: float = 0.0

    def totals(self, tuples: Int[np.ndarray, "Q K"] | None) -> Float[np.ndarray, " Q"]:
        """The price of the first 1 ... Q; a document is paid when it is first met."""
        if tuples is None:
            return self.fixed + np.cumsum(self.each)
        met, first = np.unique(tuples.ravel(), return_index=True)
        once = np.bincount(first // tuples.shape[1], weights=self.documents[met], minlength=len(tuples))
        return self.fixed + np.cumsum(once + self.each)


def fitting(budget: Budget, prices: Prices, tuples: Int[np.ndarray, "Q K"] | None, least: int) -> int:
    """How many tuples (windows where there are none) the budget buys: more than there are, where all fit and there is
    money for a second pass. ConfigError where it does not buy `least`."""
    totals = prices.totals(tuples)
    count = int(np.searchsorted(totals, budget.amount, side="right"))
    if count == len(totals):
        count += int((budget.amount - totals[-1]) / prices.each.mean())
    if count < least:
        needed = totals[min(least, len(totals)) - 1] + prices.each.mean() * max(0, least - len(totals))
        raise ConfigError(
            f"a budget of {budget.said(budget.amount)} does not pay for one batch: {budget.said(float(needed))}. Give "
            "more, or take smaller batches (train.per_device_train_batch_size)."
        )
    return count
