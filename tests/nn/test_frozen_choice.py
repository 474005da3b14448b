"""The choice of products is made once a machine and followed by later processes, so that their bits agree."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from encodeonce.nn import frozen_linear
from encodeonce.nn.frozen_backends import Backend
from encodeonce.nn.frozen_linear import choose


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """An empty cache folder, and a line for every time that candidates are timed; the last of them wins."""
    monkeypatch.delenv("ENCODEONCE_MATMUL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    times: list[int] = []

    def last(usable: list[Backend]) -> Backend:
        times.append(len(usable))
        return usable[-1]

    monkeypatch.setattr(frozen_linear, "_fastest", last)
    yield times
    frozen_linear._chosen.cache_clear()


def again() -> str:
    """The choice of a fresh process, whose own memory is empty."""
    frozen_linear._chosen.cache_clear()
    return choose("fp32").name


def test_a_choice_is_measured_once_and_followed(tmp_path: Path, measured: list[int]) -> None:
    assert again() == again() == "plain"
    assert len(measured) == 1
    (file,) = (tmp_path / "encodeonce").glob("products-*.txt")
    assert file.read_text() == "plain\n"


@pytest.mark.parametrize("damaged", ["no such product", "", "\u00e9"])
def test_a_damaged_choice_is_measured_again(tmp_path: Path, measured: list[int], damaged: str) -> None:
    again()
    (file,) = (tmp_path / "encodeonce").glob("products-*.txt")
    file.write_text(damaged, encoding="utf-8")
    assert again() == "plain"
    assert len(measured) == 2
    assert file.read_text() == "plain\n"


def test_of_two_that_choose_at_once_both_follow_the_first(tmp_path: Path) -> None:
    file = tmp_path / "products.txt"
    assert frozen_linear._keep(file, "plain", {"plain", "onednn"}) == "plain"
    assert frozen_linear._keep(file, "onednn", {"plain", "onednn"}) == "plain"
    assert frozen_linear._keep(tmp_path / "nowhere" / "products.txt", "onednn", {"onednn"}) == "onednn"
