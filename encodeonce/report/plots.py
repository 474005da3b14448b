"""Pictures, as PNG (or whatever the file's ending says): layers by label, gain over Frozen, score by training cost.

Needs matplotlib (extra `plots`), which is imported when a picture is drawn; no display and no global state is touched.

Axes: C labels   L views (layers)
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConfigError, MissingExtra
from .table import LOWER, Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Heat", "cost", "drawable", "heat", "improvement", "legend_below"]

INK = "#22272e"
TITLE = 12
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#6e7681", "#882255", "#999933", "#22272e")
"""Okabe and Ito's colours and three more: told apart by readers with any colour vision."""
MARKS = ("o", "s", "^", "D")
"""Shapes of points, one more for each time that the colours are used up."""
HATCHES = ("", "///", "...", "xxx")
"""Of bars, the same."""


@dataclass(frozen=True)
class Heat:
    """One panel: `weights` [C, L] whose lines sum to 1, a name for each label and how many words carried it."""

    title: str
    labels: Sequence[str]
    counts: Sequence[int]
    layers: Sequence[int]
    weights: np.ndarray

    def __post_init__(self) -> None:
        shape = (len(self.labels), len(self.layers))
        if self.weights.shape != shape or len(self.counts) != shape[0]:
            raise ConfigError(
                f"a heat map of {shape[0]} labels and {shape[1]} layers needs weights of shape {shape} and a count a "
                f"label; got {self.weights.shape} and {len(self.counts)} counts."
            )

    def most_frequent(self, top: int) -> "Heat":
        """The first `top` labels by falling count."""
        order = sorted(range(len(self.labels)), key=lambda row: -self.counts[row])[:top]
        labels, counts = [self.labels[row] for row in order], [self.counts[row] for row in order]
        return Heat(self.title, labels, counts, self.layers, self.weights[order])


def heat(panels: Sequence[Heat], path: Path, title: str = "") -> Path:
    """Panels below each other on one colour scale: a row a label, a column a layer, per cent in the cells."""
    rows = [len(panel.labels) for panel in panels]
    widest = max(len(panel.layers) for panel in panels)
    longest = max(len(_row_name(panel, c)) for panel in panels for c in range(len(panel.labels)))
    size = (1.6 + 0.085 * longest + 0.62 * widest, 1.1 + 0.30 * sum(rows) + 0.85 * len(panels))
    figure = new_figure(size)
    axes = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": rows})[:, 0]
    top = max(float(panel.weights.max()) for panel in panels)
    for axis, panel in zip(axes, panels, strict=True):
        image = axis.imshow(panel.weights, cmap=blues(), vmin=0, vmax=top, aspect="auto")
        _cells(axis, panel.weights, top)
        axis.set_title(panel.title, loc="left", fontsize=10, color=INK)
        axis.set_yticks(range(len(panel.labels)), [_row_name(panel, c) for c in range(len(panel.labels))], fontsize=9)
        axis.set_xticks(
            range(len(panel.layers)), [str(layer) if layer else "emb" for layer in panel.layers], fontsize=9
        )
        bare(axis)
    axes[-1].set_xlabel("layer (emb: the embeddings)", fontsize=9, color=INK)
    bar = figure.colorbar(image, ax=list(axes), shrink=0.9, aspect=30, pad=0.02)
    bar.set_label("mean share of the layer, %", fontsize=9, color=INK)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
    bar.ax.tick_params(labelsize=8, length=0)
    bar.outline.set_visible(False)
    titled(figure, title)
    return saved(figure, path)


def improvement(
    scores: Mapping[str, Mapping[str, Score]],
    path: Path,
    base: str = "frozen",
    title: str = "",
    metric: Mapping[str, str] | None = None,
) -> Path:
    """How much better every method is than `base` in the mean, a group a task; whiskers are the method's sd over seeds.

    `metric` is task -> name of its score. An error (`table.LOWER`) has a panel of its own, as it is in another unit,
    and what is drawn is by how much it falls: upwards is better everywhere. A method has the colour that it has in
    `cost`.
    """
    tasks = [task for task, by in scores.items() if base in by and len(by) > 1]
    if not tasks:
        raise ConfigError(f"no task has a {base!r} row and another to compare with it; tasks are {list(scores)}.")
    shown = {name for task in tasks for name in scores[task] if name != base}
    looks = {name: look for name, look in _looks(scores, HATCHES).items() if name in shown}
    errors = {task: name for task in tasks if (name := (metric or {}).get(task)) in LOWER}
    panels = [own for own in ([task for task in tasks if task not in errors], *([task] for task in errors)) if own]
    figure = new_figure((max(5.0, 1.6 * len(panels) + len(tasks) * (0.5 + 0.42 * len(looks))), 3.8))
    ratios = [len(own) for own in panels]
    axes = figure.subplots(1, len(panels), squeeze=False, gridspec_kw={"width_ratios": ratios})[0]
    drawn: dict[str, Any] = {}
    for axis, own in zip(axes, panels, strict=True):
        error = errors.get(own[0])
        groups = {task: scores[task] for task in own}
        drawn |= _gains(axis, groups, looks, base, is_error=error is not None)
        label = f"decrease of {error} from {base}" if error else f"points over {base}"
        axis.set_ylabel(label, fontsize=9, color=INK)
    legend_below(figure, {name: drawn[name] for name in looks})
    titled(figure, title)
    return saved(figure, path)


def _gains(
    axis: Any,
    scores: Mapping[str, Mapping[str, Score]],
    looks: Mapping[str, tuple[str, str]],
    base: str,
    is_error: bool,
) -> dict[str, Any]:
    """A group of bars a task; what stands for each method in a legend. `looks` are colour and hatch of each; a bar
    of an error is by how much it falls."""
    sign, form = (-1, "{:.3g}") if is_error else (1, "{:.1f}")
    width, drawn = min(0.3, 0.8 / len(looks)), dict[str, Any]()
    for m, (method, (colour, hatch)) in enumerate(looks.items()):
        for t, by in enumerate(scores.values()):
            if method not in by:
                continue
            x, gain = t + (m - (len(looks) - 1) / 2) * width, sign * (by[method].mean - by[base].mean)
            drawn[method] = axis.bar(
                x, gain, 0.88 * width, color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=method
            )
            spread = by[method].sd or 0.0
            if spread:
                axis.errorbar(x, gain, yerr=spread, color=INK, capsize=2, linewidth=1)
            over = gain >= 0
            axis.annotate(
                f"{'+' if over else '-'}{form.format(abs(gain))}",
                (x, gain + (spread if over else -spread)),
                xytext=(0, 3 if over else -3),
                textcoords="offset points",
                ha="center",
                va="bottom" if over else "top",
                fontsize=8,
                color=INK,
            )
    names = [f"{task}\n({base} {form.format(by[base].mean)})" for task, by in scores.items()]
    axis.set_xticks(range(len(scores)), names, fontsize=9)
    axis.set_xlim(-0.6, len(scores) - 0.4)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.margins(y=0.15)
    bare(axis)
    axis.tick_params(labelsize=9)
    axis.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    axis.set_axisbelow(True)
    return drawn


def cost(
    scores: Mapping[str, Mapping[str, Score]],
    seconds: Mapping[str, Mapping[str, float]],
    path: Path,
    title: str = "",
    metric: Mapping[str, str] | None = None,
) -> Path:
    """A panel a task: mean score by the seconds that a training took, on a logarithmic axis; whiskers are the sd over
    seeds. `seconds` is task -> method -> seconds; a method without any is left out. `metric` is task -> name of its
    score, which stands at the axis; an error (`table.LOWER`) has its lowest on top, where what is better stands."""
    tasks = [task for task, by in scores.items() if any(name in seconds.get(task, {}) for name in by)]
    if not tasks:
        raise ConfigError(f"no training time is known of tasks {list(scores)}.")
    looks = _looks(scores, MARKS)
    across = min(3, len(tasks))
    down = -(-len(tasks) // across)
    figure = new_figure((4.2 * across, 3.4 * down + 0.6))
    panels = figure.subplots(down, across, squeeze=False).ravel()
    drawn: dict[str, Any] = {}
    for axis in panels[len(tasks) :]:
        axis.set_axis_off()
    for axis, task in zip(panels, tasks, strict=False):
        known = [name for name in looks if name in scores[task] and name in seconds[task]]
        for method in known:
            (colour, mark), score, x = looks[method], scores[task][method], seconds[task][method]
            point, *_ = axis.errorbar(
                x, score.mean, yerr=score.sd, fmt=mark, color=colour, capsize=2, linewidth=1, markersize=6
            )
            drawn[method] = point
        axis.set_xscale("log")
        axis.margins(x=0.1, y=0.1)
        score_of = (metric or {}).get(task, "")
        if score_of in LOWER:
            axis.invert_yaxis()
        label = f"{score_of}, the lowest on top" if score_of in LOWER else score_of
        axis.set_ylabel(label, fontsize=9, color=INK)
        plain_log(axis.xaxis)
        axis.set_title(task, loc="left", fontsize=10, color=INK)
        axis.set_xlabel("seconds of training, encoding included", fontsize=9, color=INK)
        bare(axis)
        axis.tick_params(labelsize=8)
        axis.grid(color="#e6e8eb", linewidth=0.8)
        axis.set_axisbelow(True)
    legend_below(figure, {name: drawn[name] for name in looks if name in drawn})
    titled(figure, title)
    return saved(figure, path)


def new_figure(size: tuple[float, float]) -> "Figure":
    """An empty figure in inches, laid out tightly."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("A picture needs matplotlib. Install it with: pip install 'encodeonce[plots]'") from None
    return Figure(figsize=size, dpi=150, layout="constrained")


def titled(figure: "Figure", title: str) -> None:
    """A title over a figure, in as many lines as its width asks for; none for ""."""
    if title:
        characters = int(figure.get_figwidth() * 72 / (0.6 * TITLE))
        figure.suptitle(textwrap.fill(title, characters), x=0.01, ha="left", fontsize=TITLE, color=INK)


def drawable(path: Path) -> None:
    """What cannot become a picture is refused before the work behind it: ConfigError for an ending that matplotlib does
    not write, MissingExtra without matplotlib."""
    known = new_figure((1.0, 1.0)).canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in known:
        raise ConfigError(f"{path}: a picture ends in one of {', '.join(f'.{ending}' for ending in sorted(known))}.")


def saved(figure: "Figure", path: Path) -> Path:
    """Written on white; folders are made. What is written in it is never read as a formula, whatever a label holds."""
    from matplotlib.text import Text

    drawable(path)
    for text in figure.findobj(Text):
        if isinstance(text, Text) and "$" in text.get_text():
            text.set_parse_math(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor="white")
    return path


def blues() -> Any:
    """White to dark blue."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("layers", ["#f7fafd", "#9ecae1", "#2f7fbc", "#0b3c6f"])


def _looks(scores: Mapping[str, Mapping[str, Score]], further: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour, and what tells apart those of one colour, of every method of any task, in the order they come."""
    names = dict.fromkeys(name for by in scores.values() for name in by)
    looks = [(colour, other) for other in further for colour in COLOURS]
    return {name: looks[n % len(looks)] for n, name in enumerate(names)}


def legend_below(figure: "Figure", drawn: Mapping[str, Any], size: float = 9.0) -> None:
    """Below everything, in as many columns as the figure has room for."""
    room = int(figure.get_figwidth() / (0.6 + 0.075 * max(map(len, drawn))))
    columns = max(1, min(len(drawn), room))
    figure.legend(
        list(drawn.values()), list(drawn), loc="outside lower center", ncols=columns, frameon=False, fontsize=size
    )


def _row_name(panel: Heat, row: int) -> str:
    return f"{panel.labels[row]}  ({panel.counts[row]:,})"


def _cells(axis: Any, weights: np.ndarray, top: float) -> None:
    for (row, column), value in np.ndenumerate(weights):
        colour = "white" if value > 0.55 * top else INK
        axis.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=8, color=colour)


def plain_log(axis: Any) -> None:
    """Plain numbers on a logarithmic axis, as many as its span has room for."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    span = math.log10(high / low)
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9) if span < 0.5 else (1, 2, 3, 5) if span < 1 else (1, 3)
    axis.set_major_locator(LogLocator(subs=steps if span < 3 else (1,)))
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_minor_formatter(NullFormatter())


def bare(axis: Any) -> None:
    """Without spines and ticks."""
    for side in ("top", "right", "left", "bottom"):
        axis.spines[side].set_visible(False)
    axis.tick_params(which="both", length=0, colors=INK)
