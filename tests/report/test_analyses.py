"""FastDoc's figures are drawn without a display; their numbers are those of NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodeonce.errors import ConfigError
from encodeonce.report.analyses import _components, changed, distributions, projected


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def test_change_skips_groups_that_did_not_change(tmp_path: Path) -> None:
    values = {"one": {"query": 0.01, "key": 0.0}, "two": {"query": 0.5, "key": 0.2}}
    assert is_png(changed(values, tmp_path / "change.png"))


def test_distributions_of_several_panels_and_of_one_value(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    panels = {f"p{n}": {"similar": rng.normal(size=50).tolist(), "dissimilar": [0.5]} for n in range(4)}
    assert is_png(distributions(panels, tmp_path / "d.png", "cosine", "title", "pairs"))
    assert is_png(distributions({"": {"one": [1.0, 1.0]}}, tmp_path / "e.png", "cosine", "title", "pairs"))
    with pytest.raises(ConfigError, match="nothing to draw of dissimilar"):
        distributions({"p": {"similar": [1.0], "dissimilar": []}}, Path("never.png"), "", "", "")


def test_documents_on_their_components(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    groups = tuple(f"g{n}" for n in range(12))
    assert is_png(projected({"a": vectors, "b": vectors[:, :1]}, groups, tmp_path / "p.png"))
    assert is_png(projected({"a": vectors}, (), tmp_path / "q.png"))
    with pytest.raises(ConfigError, match="2 groups for \\[12\\] documents"):
        projected({"a": vectors}, ("x", "y"), Path("never.png"))


def test_components_hold_the_largest_variances() -> None:
    vectors = np.random.default_rng(1).normal(size=(30, 6)) * [9, 5, 1, 1, 1, 1]
    points, explained = _components(vectors)
    variances = np.linalg.eigvalsh(np.cov(vectors.T))[::-1]
    np.testing.assert_allclose(points.var(0, ddof=1), variances[:2])
    assert explained == pytest.approx(variances[:2].sum() / variances.sum())
    assert _components(np.ones((3, 4)))[1] == 1


def test_legends_of_long_names_stay_inside_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six encoders' names were laid in four columns, whatever their length, and cut off at both edges."""
    outside = []

    def noted(figure: Any, path: Path) -> Path:
        figure.canvas.draw()
        (legend,) = figure.legends
        box, whole = legend.get_window_extent(), figure.bbox
        outside.append(max(whole.x0 - box.x0, box.x1 - whole.x1, whole.y0 - box.y0))
        return path

    monkeypatch.setattr("encodeonce.report.analyses.saved", noted)
    names = [f"science-objective-{n}, science-another-objective-{n}" for n in range(6)]
    changed({name: {"query": 0.01, "key": 0.1} for name in names}, tmp_path / "a.png")
    distributions({"": {name: [0.1, 0.2] for name in names}}, tmp_path / "b.png", "r", "title", "pairs")
    vectors = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    projected({"a": vectors}, tuple(names * 2), tmp_path / "c.png")
    assert len(outside) == 3
    assert max(outside) <= 0
