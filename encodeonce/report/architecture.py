"""A searched architecture, as a table in Markdown and as a picture: which scheme every fused module prefers.

Axes: M modules   C candidates
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from ..errors import ConfigError
from .plots import INK, bare, blues, new_figure, saved, titled

__all__ = ["Line", "architecture_picture", "architecture_table"]


@runtime_checkable
class Line(Protocol):
    """One module: `methods.refusion.Decision`."""

    @property
    def block(self) -> int: ...
    @property
    def slot(self) -> str: ...
    @property
    def shares(self) -> Mapping[str, float]: ...
    @property
    def chosen(self) -> str: ...
    @property
    def lead(self) -> float: ...


def architecture_table(lines: Sequence[Line]) -> str:
    """Shares in per cent, the chosen scheme, and how far it is ahead of the next. ConfigError for no module."""
    names = _candidates(lines)
    rows = [["block", "slot", *names, "chosen", "ahead by"], ["---"] * (len(names) + 4)]
    for line in lines:
        shares = [f"{100 * line.shares[name]:.1f}" for name in names]
        rows.append([str(line.block), line.slot, *shares, line.chosen, f"{100 * line.lead:.1f}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def architecture_picture(lines: Sequence[Line], path: Path, title: str = "") -> Path:
    """A panel a slot: a row a candidate, a column a block; per cent in the cells, the chosen ones bold."""
    names, slots = _candidates(lines), list(dict.fromkeys(line.slot for line in lines))
    widest = max(sum(line.slot == slot for line in lines) for slot in slots)
    figure = new_figure((2.2 + 0.62 * widest, 0.9 + (0.5 + 0.34 * len(names)) * len(slots)))
    panels = figure.subplots(len(slots), 1, squeeze=False)[:, 0]
    for axes, slot in zip(panels, slots, strict=True):
        own = [line for line in lines if line.slot == slot]
        values = 100 * np.array([[line.shares[name] for line in own] for name in names])
        axes.imshow(values, cmap=blues(), vmin=0, vmax=100, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            chosen = own[column].chosen == names[row]
            colour = "white" if value > 60 else INK
            weight = "bold" if chosen else "normal"
            axes.text(
                column, row, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=8, fontweight=weight
            )
        axes.set_yticks(range(len(names)), names)
        axes.set_xticks(range(len(own)), [str(line.block) for line in own])
        axes.set_title(slot, fontsize=10, loc="left", color=INK)
        bare(axes)
    panels[-1].set_xlabel("block (per cent of each candidate; bold: chosen)", fontsize=9, color=INK)
    titled(figure, title)
    return saved(figure, path)


def _candidates(lines: Sequence[Line]) -> list[str]:
    if not lines:
        raise ConfigError("an architecture without a module: there is nothing to show.")
    return list(lines[0].shares)
