"""Trained blocks with retrieved vectors added at their slots.

Axes: B items   T pieces, padding included   P rows of all items   R chosen rows   D width   I, O widths of a slot
G items that run together
"""

from collections.abc import Callable

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


class Fused(Adapter):
    """`live` (blocks over piece ids or one stored view) with `fusion` inside. `search` answers hidden queries."""

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
        deltas = None if self.search is not None or batch.near is None else self.fusion.deltas(batch.near)
        places = self._places(batch, rows)

        def edits(items: Int[np.ndarray, " G"]) -> Edit:
            whole = len(items) == len(batch.lengths) and bool((items == np.arange(len(items))).all())
            group = slice(None) if whole else torch.from_numpy(items)
            own = None if places is None else places[group]

            def edit(block: int, slot: str, x: Tensor, y: Tensor) -> Tensor:
                number = self.fusion.places.get((block, slot))
                if number is None:
                    return y
                if deltas is None:
                    added = self._asked(number, x, own)
                else:
                    every = deltas[number]
                    added = None if every is None else every[group]
                return y if added is None else self._added(number, y, added.to(y.dtype), own)

            return edit

        return self.live.blocks(below, batch.lengths, rows, edits=edits, slots=self._slots)

    @property
    def _slots(self) -> tuple[str, ...]:
        return tuple(SLOTS[slot] for slot in self.fusion.fusing.slots)

    def _places(self, batch: Packed, rows: Int[Tensor, " R"] | None) -> Int[Tensor, " B"] | None:
        """The row of each item that is changed; None: all."""
        position, n = self.fusion.fusing.position, len(batch.lengths)
        if position == "all":
            return None
        if position == "first":
            return torch.zeros(n, dtype=torch.long)
        owned = rows is not None and len(rows) == n and bool((batch.item[rows] == torch.arange(n)).all())
        if rows is None or not owned:
            raise ConfigError("position='mask' needs a head that reads one row an item: the gap of a prompt.")
        return rows - torch.from_numpy(batch.starts)

    def _added(
        self, number: int, y: Float[Tensor, "G T O"], added: Float[Tensor, "G O"], places: Int[Tensor, " G"] | None
    ) -> Float[Tensor, "G T O"]:
        if self.watch is not None:
            self.watch(number, added.detach(), _rows(y, places).detach())
        if places is None:
            return y + added[:, None]
        # a slot's output is new memory that no gradient needs; of a third of a fused one the other thirds do
        out = y.clone() if y._is_view() and torch.is_grad_enabled() else y
        if self.fusion.fusing.position == "first":
            out[:, 0].add_(added)
        else:
            out[torch.arange(len(out)), places] += added
        return out

    def _asked(
        self, number: int, x: Float[Tensor, "G T I"], places: Int[Tensor, " G"] | None
    ) -> Float[Tensor, "G O"] | None:
        """What a module adds whose input asks for neighbours itself; no gradient goes through the search."""
        assert self.search is not None
        if x.shape[-1] != self.search.width:
            raise ConfigError(
                f"queries='hidden': the module's input is {x.shape[-1]} wide, the stored vectors {self.search.width}."
                " Use the vectors of this encoder, or queries='input'."
            )
        asked = _rows(x, places).detach().float().numpy()
        found = self.search.find(np.ascontiguousarray(asked), self.fusion.fusing.k)
        near = torch.from_numpy(self.search.vectors(found.ids))
        return self.fusion.delta(number, near)

    def layer_weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """The blocks'."""
        return self.live.layer_weights(batch, rows)


def _rows(y: Float[Tensor, "G T O"], places: Int[Tensor, " G"] | None) -> Float[Tensor, "G O"]:
    """The changed row of each item; its mean row where all are."""
    return y.mean(1) if places is None else y[torch.arange(len(y)), places]


def _unchanged(block: int, slot: str, x: Tensor, y: Tensor) -> Tensor:
    return y
