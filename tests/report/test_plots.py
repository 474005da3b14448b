"""Pictures are drawn without a display, and refuse what they cannot show."""

import builtins
from pathlib import Path

import numpy as np
import pytest

from encodeonce.errors import ConfigError, MissingExtra
from encodeonce.report.plots import Heat, cost, heat, improvement
from encodeonce.report.table import Score

PANEL = Heat("case", ["lower", "Title"], [10, 2], [0, 1, 2], np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
SCORES = {"upos": {"frozen": Score((80.0, 81.0)), "linear": Score((90.0, 91.0))}, "ner": {"frozen": Score((50.0,))}}


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def test_heat_writes_a_picture(tmp_path: Path) -> None:
    assert is_png(heat([PANEL, PANEL], tmp_path / "new" / "heat.png", "title"))


def test_improvement_writes_a_picture(tmp_path: Path) -> None:
    assert is_png(improvement(SCORES, tmp_path / "gain.png"))


def test_cost_writes_a_picture_of_what_is_known(tmp_path: Path) -> None:
    taken = {task: {name: 3.0 + len(name) for name in by} for task, by in SCORES.items()}
    assert is_png(cost(SCORES, taken, tmp_path / "cost.png", "title"))
    with pytest.raises(ConfigError, match="no training time is known"):
        cost(SCORES, {}, Path("never.png"))


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
