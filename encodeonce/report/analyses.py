"""FastDoc's figures: change of weights (2), scores of similar and of dissimilar documents (6 and 8), documents (7).

Axes: N documents   D width
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import ConfigError
from .plots import COLOURS, INK, bare, legend_below, new_figure, saved, titled

__all__ = ["changed", "distributions", "projected"]

GREY = "#b8bdc4"
BINS = (6, 30)
"""Fewest and most; between, the square root of the number of values."""


def changed(values: Mapping[str, Mapping[str, float]], path: Path, title: str = "Relative change of weights") -> Path:
    """encoder -> group of weights -> relative L1 change, as bars on a logarithmic axis (Figure 2). A group that did not
    change has no bar."""
    groups = list(dict.fromkeys(group for by in values.values() for group in by))
    figure = new_figure((1.6 + 1.1 * len(groups), 3.6))
    axis = figure.subplots()
    width = 0.8 / len(values)
    for e, (encoder, by) in enumerate(values.items()):
        places = [g + (e - (len(values) - 1) / 2) * width for g, group in enumerate(groups) if by.get(group)]
        heights = [by[group] for group in groups if by.get(group)]
        axis.bar(places, heights, 0.88 * width, color=COLOURS[e % len(COLOURS)], label=encoder)
    axis.set_yscale("log")
    moved = [r1 for by in values.values() for r1 in by.values() if r1]
    if moved:
        axis.set_ylim(10 ** np.floor(np.log10(min(moved))), 10 ** np.ceil(np.log10(max(moved))))
    axis.set_xticks(range(len(groups)), groups, fontsize=9)
    axis.set_ylabel("sum |W' - W| / sum |W|", fontsize=9, color=INK)
    _plain(axis)
    handles, labels = axis.get_legend_handles_labels()
    legend_below(figure, dict(zip(labels, handles, strict=True)))
    titled(figure, title)
    return saved(figure, path)


def distributions(
    panels: Mapping[str, Mapping[str, Sequence[float]]], path: Path, what: str, title: str, counted: str
) -> Path:
    """A panel each, in it the values of every name as steps, in per cent of their number, on common bins; a line at
    each mean (Figures 6 and 8). `what` names the values, `counted` whose share it is. ConfigError for no value."""
    names = list(dict.fromkeys(name for by in panels.values() for name in by))
    empty = [name for by in panels.values() for name, values in by.items() if not len(values)]
    if not names or empty:
        raise ConfigError(f"nothing to draw of {', '.join(empty) or 'no values at all'}.")
    figure, axes = _panels(len(panels), (4.4, 3.0))
    for axis, (panel, by) in zip(axes, panels.items(), strict=True):
        every = np.concatenate([np.asarray(values, np.float64) for values in by.values()])
        low, high = float(every.min()), float(every.max())
        bins = int(np.clip(max(map(len, by.values())) ** 0.5, *BINS))
        edges = np.linspace(low, high if high > low else low + 1, bins + 1)
        for name, values in by.items():
            colour = COLOURS[names.index(name) % len(COLOURS)]
            share = 100 * np.histogram(values, edges)[0] / len(values)
            axis.stairs(share, edges, color=colour, linewidth=1.6, label=name)
            axis.stairs(share, edges, color=colour, fill=True, alpha=0.12)
            axis.axvline(float(np.mean(values)), color=colour, linewidth=1, linestyle="--")
        axis.set_title(panel, loc="left", fontsize=10, color=INK)
        axis.set_xlabel(f"{what} (dashed: mean)", fontsize=9, color=INK)
        _plain(axis)
    axes[0].set_ylabel(f"% of {counted}", fontsize=9, color=INK)
    handles = {label: h for axis in axes for h, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    legend_below(figure, handles)
    titled(figure, title)
    return saved(figure, path)


def projected(
    panels: Mapping[str, Float[np.ndarray, "N D"]], groups: Sequence[str], path: Path, title: str = "Documents"
) -> Path:
    """Documents on the first two principal components of each panel's own vectors, a colour a group (Figure 7); without
    groups all alike. Groups beyond ten, the smallest, are grey. ConfigError where groups are not one a document."""
    if groups and any(len(vectors) != len(groups) for vectors in panels.values()):
        raise ConfigError(f"{len(groups)} groups for {[len(vectors) for vectors in panels.values()]} documents.")
    sizes = {name: groups.count(name) for name in dict.fromkeys(groups)}
    shown = sorted(sizes, key=lambda name: -sizes[name])[: len(COLOURS)]
    figure, axes = _panels(len(panels), (3.6, 3.4))
    for axis, (panel, vectors) in zip(axes, panels.items(), strict=True):
        points, explained = _components(vectors)
        rest = np.array([group not in shown for group in groups]) if groups else np.ones(len(points), bool)
        if rest.any():
            axis.scatter(*points[rest].T, s=16, color=GREY, label="others" if groups else None)
        for c, name in enumerate(shown):
            own = np.array([group == name for group in groups])
            axis.scatter(*points[own].T, s=16, color=COLOURS[c], label=name, alpha=0.85, linewidths=0)
        axis.set_title(f"{panel} ({100 * explained:.0f} % of variance)", loc="left", fontsize=10, color=INK)
        axis.set_xticks([])
        axis.set_yticks([])
        for side in axis.spines.values():
            side.set_color(GREY)
    if groups:
        handles, labels = axes[0].get_legend_handles_labels()
        legend_below(figure, dict(zip(labels, handles, strict=True)), 8.0)
    titled(figure, title)
    return saved(figure, path)


def _components(vectors: Float[np.ndarray, "N D"]) -> tuple[Float[np.ndarray, "N 2"], float]:
    """Coordinates, and the share of the variance that these two hold (1 where there is none)."""
    centred = vectors.astype(np.float64) - vectors.mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(vectors), 2))
    points[:, : min(2, len(sizes))] = (left * sizes)[:, :2]
    whole = float((sizes**2).sum())
    return points, float((sizes[:2] ** 2).sum()) / whole if whole else 1.0


def _panels(n: int, size: tuple[float, float]) -> tuple[Any, list[Any]]:
    """So many panels of this size in inches, two or three beside each other."""
    across = 2 if n in (2, 4) else min(3, n)
    down = -(-n // across)
    figure = new_figure((max(5.2, size[0] * across), size[1] * down + 0.7))
    grid = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for axis in grid[n:]:
        axis.set_axis_off()
    return figure, grid[:n]


def _plain(axis: Any) -> None:
    """Grid behind the data, no frame."""
    bare(axis)
    axis.tick_params(labelsize=9)
    axis.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    axis.set_axisbelow(True)
