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
from ...store.search import Search
from ...types import Edit
from ..finetune import Live
from .fusing import SLOTS
from .fusion import Fusion

__all__ = ["Fused"]

Watch = Callable[[int, Tensor, Tensor], None]

Places = Int[Tensor, " G"] | int | None
"""The changed row of each item, one number where it is the same in all; None: every row."""


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
        """Called with a module's number, what it adds [G O] and the rows it adds to [G O]."""

    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """The chosen rows. A batch without neighbours (None, or 0 of them) is the plain model's, bit for bit."""
        below = self.live.below(batch)
        if self.search is None and (batch.near is None or not batch.near.shape[1]):
            return self.live.blocks(below, batch.lengths, rows, edits=lambda items: _unchanged, slots=self._slots)
        found = None if self.search is not None or batch.near is None else self.fusion.sums(batch.near)
        places = self._places(batch, rows)

        def edits(items: Int[np.ndarray, " G"]) -> Edit:
            whole = len(items) == len(batch.lengths) and bool((items == np.arange(len(items))).all())
            group = None if whole else torch.from_numpy(items)
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
                added = self._asked(number, x, own, left_out) if deltas is None else deltas[number]
                return y if added is None else self._added(number, y, added.to(y.dtype), own)

            return edit

        return self.live.blocks(below, batch.lengths, rows, edits=edits, slots=self._slots)

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

    def _added(
        self, number: int, y: Float[Tensor, "G T O"], added: Float[Tensor, "G O"], places: Places
    ) -> Float[Tensor, "G T O"]:
        if self.watch is not None:
            self.watch(number, added.detach(), _rows(y, places).detach())
        if places is None:
            return y + added[:, None]
        if not torch.is_grad_enabled():
            return _add(y, added, places)
        third = y._base is not None and y._base.numel() > y.numel()  # the others' gradients look at the whole
        return _Added.apply(y.clone() if third else y, added, places)

    def _asked(
        self, number: int, x: Float[Tensor, "G T I"], places: Places, left_out: Sequence[Sequence[int]] | None
    ) -> Float[Tensor, "G O"] | None:
        """What a module adds whose input asks for neighbours itself; no gradient goes through the search."""
        assert self.search is not None
        if x.shape[-1] != self.search.width:
            raise ConfigError(
                f"queries='hidden': the module's input is {x.shape[-1]} wide, the stored vectors {self.search.width}."
                " Use the vectors of this encoder, or queries='input'."
            )
        asked = _rows(x, places).detach().float().numpy()
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


def _rows(y: Float[Tensor, "G T O"], places: Places) -> Float[Tensor, "G O"]:
    """The changed row of each item; its mean row where all are."""
    if places is None:
        return y.mean(1)
    return y[:, places] if isinstance(places, int) else y[torch.arange(len(y)), places]


def _unchanged(block: int, slot: str, x: Tensor, y: Tensor) -> Tensor:
    return y
