"""Trained blocks with retrieved vectors added at their slots.

Axes: B items   T pieces, padding included   P rows of all items   R chosen rows   D width   I, O widths of a slot
G items that run together
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...adapters import Adapter
from ...errors import ConfigError
from ...nn.packed import Packed
from ...nn.post_norm import Shift
from ...store.search import Search
from ...types import Edit
from ..finetune import Live
from .fusing import SLOTS
from .fusion import Fusion

__all__ = ["Fused"]

Watch = Callable[[int, Float[Tensor, " G"]], None]

Places = Int[Tensor, " G"] | int | None
"""The changed row of each item, one number where it is the same in all; None: every row."""

Sizes = Int[np.ndarray, " G"]
"""Rows of each item, those behind them padding."""


class Fused(Adapter):
    """`live` (blocks over piece ids or one stored view) with `fusion` inside. `search` answers hidden queries, of which
    none gets its item's own rows (`Packed.own`)."""

    def __init__(self, live: Live, fusion: Fusion, search: Search | None = None) -> None:
        super().__init__()
        if (fusion.fusing.queries == "hidden") != (search is not None):
            raise ConfigError("queries='hidden' and a search to ask go together; give both or neither.")
        self.live, self.fusion = live, fusion
        self.search = search
        self.watch: Watch | None = None
        """Called with a module's number and, of each item, the length of what it adds over that of the row it adds to;
        the mean over the item's rows where it adds to all."""

    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """The chosen rows. Where nothing is added (no neighbours, or every module has chosen to add nothing) they are
        the plain model's, bit for bit."""
        below = self.live.below(batch)
        found = None
        if self.search is None:
            if batch.near is None or not batch.near.shape[1]:
                return self.live.blocks(below, batch.lengths, rows)
            found = self.fusion.sums(batch.near)
        places = self._places(batch, rows)
        if found is not None and len(found[1]) == len(self.fusion.sites):
            return self.live.blocks(below, batch.lengths, rows)
        if found is not None and self.live.blocks.packed and self.watch is None:
            at = None if places is None else torch.from_numpy(batch.starts) + places
            return self.live.blocks(below, batch.lengths, rows, shifts=self._shifts(self.fusion.each(*found), at))
        lengths = np.asarray(batch.lengths)

        def edits(items: Int[np.ndarray, " G"]) -> Edit:
            whole = len(items) == len(batch.lengths) and bool((items == np.arange(len(items))).all())
            group = None if whole else torch.from_numpy(items)
            sizes = lengths[items]
            own = places[group] if isinstance(places, Tensor) and group is not None else places
            left_out = [batch.own[i] for i in items] if batch.own else None
            deltas = None
            if found is not None:
                sums, skipped = found
                deltas = self.fusion.each(sums if group is None else sums.index_select(0, group), skipped)

            def edit(block: int, slot: str, x: Tensor, y: Tensor) -> Tensor:
                number = self.fusion.places.get((block, slot))
                if number is None:
                    return y
                added = self._asked(number, _rows(x, own, sizes), left_out) if deltas is None else deltas[number]
                if added is None:
                    return y
                if self.watch is not None:
                    self.watch(number, _share(y.detach().float(), added.detach().float(), own, sizes))
                return self._added(y, added.to(y.dtype), own)

            return edit

        return self.live.blocks(below, batch.lengths, rows, edits=edits, slots=self._slots)

    def _shifts(self, deltas: Sequence[Tensor | None], rows: Int[Tensor, " B"] | None) -> dict[int, Shift]:
        """What the compiled passes add, block by block."""
        slots: dict[int, dict[str, Tensor]] = {}
        for (block, slot), number in self.fusion.places.items():
            delta = deltas[number]
            if delta is not None:
                slots.setdefault(block, {})[slot] = delta
        return {block: Shift(own, rows) for block, own in slots.items()}

    @property
    def _slots(self) -> tuple[str, ...]:
        return tuple(SLOTS[slot] for slot in self.fusion.fusing.slots)

    def _places(self, batch: Packed, rows: Int[Tensor, " R"] | None) -> Places:
        position, n = self.fusion.fusing.position, len(batch.lengths)
        if position == "all":
            return None
        if position == "first":
            return 0
        owned = rows is not None and len(rows) == n and bool((batch.item[rows] == torch.arange(n)).all())
        if rows is None or not owned:
            raise ConfigError("position='mask' needs a head that reads one row an item: the gap of a prompt.")
        return rows - torch.from_numpy(batch.starts)

    def _added(self, y: Float[Tensor, "G T O"], added: Float[Tensor, "G O"], places: Places) -> Float[Tensor, "G T O"]:
        if places is None:
            return y + added[:, None]
        if not torch.is_grad_enabled():
            return _add(y, added, places)
        third = y._base is not None and y._base.numel() > y.numel()  # the others' gradients look at the whole
        return _Added.apply(y.clone() if third else y, added, places)

    def _asked(
        self, number: int, x: Float[Tensor, "G I"], left_out: Sequence[Sequence[int]] | None
    ) -> Float[Tensor, "G O"] | None:
        """What a module adds whose input asks for neighbours itself; no gradient goes through the search."""
        assert self.search is not None
        if x.shape[-1] != self.search.width:
            raise ConfigError(
                f"queries='hidden': the module's input is {x.shape[-1]} wide, the stored vectors {self.search.width}."
                " Use the vectors of this encoder, or queries='input'."
            )
        asked = x.detach().float().numpy()
        found = self.search.find(np.ascontiguousarray(asked), self.fusion.fusing.k, exclude=left_out)
        near = torch.from_numpy(self.search.vectors(found.ids))
        return self.fusion.delta(number, near)

    def layer_weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """The blocks'."""
        return self.live.layer_weights(batch, rows)


class _Added(torch.autograd.Function):
    """`_add`, its result in the memory of y and the slope of y in that of its own: autograd's sum in place copies both
    where y is a view, as a linear map's output is. Nothing may need y's old values for its gradient."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, added: Tensor, places: Tensor | int) -> Tensor:
        ctx.places = places
        return _add(y, added, places).view_as(y)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None]:
        return slopes[0], _rows(slopes[0], ctx.places), None


def _add(y: Float[Tensor, "G T O"], added: Float[Tensor, "G O"], places: Int[Tensor, " G"] | int) -> Tensor:
    """y, changed."""
    if isinstance(places, int):
        y[:, places].add_(added)
    else:
        y[torch.arange(len(y)), places] += added
    return y


def _rows(y: Float[Tensor, "G T O"], places: Places, sizes: Sizes | None = None) -> Float[Tensor, "G O"]:
    """The changed row of each item; the mean of its `sizes` rows where all are."""
    if places is None:
        assert sizes is not None
        return _mean(y, sizes)
    return y[:, places] if isinstance(places, int) else y[torch.arange(len(y)), places]


def _share(y: Float[Tensor, "G T O"], added: Float[Tensor, "G O"], places: Places, sizes: Sizes) -> Float[Tensor, " G"]:
    """Length of what is added over that of the row it is added to, before it is."""
    changed = y if places is None else _rows(y, places)[:, None]
    shares = added.norm(dim=-1)[:, None] / changed.norm(dim=-1).clamp(min=1e-12)
    return _mean(shares[..., None], sizes)[:, 0] if places is None else shares[:, 0]


def _mean(y: Float[Tensor, "G T O"], sizes: Sizes) -> Float[Tensor, "G O"]:
    """Over the first `sizes` rows of each item: what stands behind them is padding."""
    return torch.stack([own[:size].mean(0) for own, size in zip(y, sizes.tolist(), strict=True)])
