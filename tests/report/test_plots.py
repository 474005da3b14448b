"""Pictures are drawn without a display, and refuse what they cannot show."""

import builtins
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from encodeonce.errors import ConfigError, MissingExtra
from encodeonce.report import plots
from encodeonce.report.plots import Heat, cost, heat, improvement
from encodeonce.report.table import Score

PANEL = Heat("case", ["lower", "Title"], [10, 2], [0, 1, 2], np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
SCORES = {"upos": {"frozen": Score((80.0, 81.0)), "linear": Score((90.0, 91.0))}, "ner": {"frozen": Score((50.0,))}}


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def test_heat_writes_a_picture(tmp_path: Path) -> None:
    assert is_png(heat([PANEL, PANEL], tmp_path / "new" / "heat.png", "title"))


def test_a_label_is_no_formula(tmp_path: Path) -> None:
    panel = Heat("$x_$", ["$x_$", "$a$b$"], [10, 2], [0, 1, 2], PANEL.weights)
    assert is_png(heat([panel], tmp_path / "heat.png", "$y^$"))
    scores = {"$t_$": {"frozen": Score((80.0,)), "$m^$": Score((81.0,))}}
    assert is_png(improvement(scores, tmp_path / "gain.png", title="$y^$"))
    assert is_png(cost(scores, {"$t_$": {"frozen": 1.0, "$m^$": 200.0}}, tmp_path / "cost.png", "$z_$"))


def test_improvement_writes_a_picture(tmp_path: Path) -> None:
    assert is_png(improvement(SCORES, tmp_path / "gain.png"))


def test_cost_writes_a_picture_of_what_is_known(tmp_path: Path) -> None:
    taken = {task: {name: 3.0 + len(name) for name in by} for task, by in SCORES.items()}
    assert is_png(cost(SCORES, taken, tmp_path / "cost.png", "title"))
    with pytest.raises(ConfigError, match="no training time is known"):
        cost(SCORES, {}, Path("never.png"))


def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved from now on, laid out as they will be."""
    figures: list[Any] = []

    def kept(figure: Any, path: Path) -> Path:
        figure.draw_without_rendering()
        figures.append(figure)
        return path

    monkeypatch.setattr(plots, "saved", kept)
    return figures


@pytest.mark.parametrize(
    ("least", "most"), [(119.0, 136.0), (515.0, 835.0), (3.0, 40.0), (70.0, 9000.0), (0.02, 4000.0)]
)
def test_costs_are_read_off_plain_numbers_that_do_not_touch(
    monkeypatch: pytest.MonkeyPatch, least: float, most: float
) -> None:
    figures = drawn(monkeypatch)
    cost({"ner": SCORES["upos"]}, {"ner": {"frozen": least, "linear": most}}, Path("cost.png"))
    (axis,) = figures[0].axes
    boxes = [t.get_window_extent() for t in axis.get_xticklabels(which="both") if t.get_text()]
    inside = [box for box in boxes if axis.bbox.x0 - 1 <= box.x0 + box.width / 2 <= axis.bbox.x1 + 1]
    assert len(inside) >= 2
    assert all(left.x1 < right.x0 for left, right in pairwise(inside))
    marked = [(t.get_position()[0], t.get_text()) for t in axis.get_xticklabels(which="both") if t.get_text()]
    assert all(re.fullmatch(r"[\d,.]*", text) for _, text in marked)
    assert [float(text.replace(",", "")) for _, text in marked] == pytest.approx([place for place, _ in marked])


def test_methods_that_cost_alike_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names beside the points would lie upon each other: they stand in a legend, each with its mark."""
    figures = drawn(monkeypatch)
    names = ["frozen", "linear", "live_mix (compute=bf16)", "live_mix (compute=bf16 live=1)", "finetune"]
    found = {name: Score((90.0, 91.0)) for name in names}
    cost({"ner": found, "upos": found}, dict.fromkeys(("ner", "upos"), dict.fromkeys(names, 100.0)), Path("cost.png"))
    improvement({"ner": found}, Path("gain.png"))
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == names
    assert len({line.get_color() for line in legend.get_lines()}) == len(names)
    assert all(not axis.texts for axis in figures[0].axes)
    for figure in figures:
        box = figure.legends[0].get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_a_method_has_one_colour_in_both_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = drawn(monkeypatch)
    names = ["linear", "frozen", "adapted"]
    found = {"ner": {"finetune": Score((1.0,))}, "upos": {name: Score((90.0, 91.0)) for name in names}}
    cost(found, {"upos": dict.fromkeys(names, 100.0)}, Path("cost.png"))
    improvement(found, Path("gain.png"))
    points, bars = (figure.legends[0] for figure in figures)
    by_point = {t.get_text(): line.get_color() for t, line in zip(points.get_texts(), points.get_lines(), strict=True)}
    filled = zip(bars.get_texts(), bars.get_patches(), strict=True)
    by_bar = {text.get_text(): to_hex(patch.get_facecolor()).upper() for text, patch in filled}
    assert list(by_bar) == ["linear", "adapted"]
    assert by_bar == {name: by_point[name] for name in by_bar}


def test_upwards_is_better_where_the_score_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pearson 70 and 85 the gain is 15; of mse 1.2 and 0.5 it is 0.7, on an axis of its own unit."""
    figures = drawn(monkeypatch)
    found = {
        "sts mse": {"frozen": Score((1.2,)), "linear": Score((0.5,)), "agg": Score((1.3,))},
        "sts pearson": {"frozen": Score((70.0,)), "linear": Score((85.0,))},
    }
    metric = {"sts mse": "mse", "sts pearson": "pearson"}
    improvement(found, Path("gain.png"), metric=metric)
    points, error = figures[0].axes
    assert [bar.get_height() for bar in points.patches] == [15.0]
    assert [bar.get_height() for bar in error.patches] == pytest.approx([0.7, -0.1])
    assert [text.get_text() for text in error.texts] == ["+0.7", "-0.1"]
    assert [axis.get_ylabel() for axis in (points, error)] == ["points over frozen", "decrease of mse from frozen"]
    cost(found, {task: {"frozen": 1.0, "linear": 2.0} for task in found}, Path("cost.png"), metric=metric)
    error, points = figures[1].axes
    assert error.yaxis_inverted()
    assert not points.yaxis_inverted()
    assert [axis.get_ylabel() for axis in (error, points)] == ["mse, the lowest on top", "pearson"]


def test_bars_of_many_methods_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = drawn(monkeypatch)
    found = {"frozen": Score((80.0,)), **{f"method {n}": Score((81.0 + n,)) for n in range(25)}}
    improvement({"upos": found}, Path("gain.png"))
    bars = figures[0].axes[0].patches
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in bars}) == len(bars) == 25


def test_a_title_fits_its_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = drawn(monkeypatch)
    said = "a data set with a long name, an encoder with a longer one: score by cost of training"
    cost({"ner": SCORES["upos"]}, {"ner": {"frozen": 1.0, "linear": 2.0}}, Path("cost.png"), said)
    improvement(SCORES, Path("gain.png"), title=said)
    heat([PANEL], Path("heat.png"), said)
    for figure in figures:
        assert figure.get_suptitle().split() == said.split()
        assert figure._suptitle.get_window_extent().x1 <= figure.bbox.width


def test_improvement_needs_the_base() -> None:
    with pytest.raises(ConfigError, match="no task has a 'frozen' row and another"):
        improvement({"upos": {"linear": Score((1.0,))}}, Path("never.png"))


def test_heat_refuses_shapes_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match=r"2 labels and 3 layers needs weights of shape \(2, 3\)"):
        Heat("t", ["a", "b"], [1, 1], [0, 1, 2], np.zeros((2, 2)))


def test_without_matplotlib_the_message_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'encodeonce\[plots\]'"):
        heat([PANEL], Path("never.png"))
