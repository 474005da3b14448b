"""C sources become libraries where there is a compiler; where there is none, the reason is given and nothing breaks."""

import ctypes
import os
import shutil
from pathlib import Path

import pytest

from encodeonce.nn import compiled


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "twice.c"
    path.write_text("int twice(int x) { return 2 * x; }")
    return path


def test_a_library_is_built_once_and_answers(source: Path) -> None:
    if not shutil.which("cc"):
        assert compiled.library(source, ("-O1",)) == "there is no C compiler (cc, gcc or clang)"
        return
    found = compiled.library(source, ("-O1",))
    assert isinstance(found, ctypes.CDLL)
    assert found.twice(21) == 42
    (built,) = (source.parent / "cache" / "encodeonce").glob("twice-*.so")
    before = built.stat().st_mtime_ns
    compiled.library(source, ("-O1",))
    assert built.stat().st_mtime_ns == before
    compiled.library(source, ("-O2",))
    source.write_text("int twice(int x) { return x + x; }")
    compiled.library(source, ("-O1",))
    assert len(list(built.parent.glob("twice-*.so"))) == 3


def test_without_a_compiler_the_reason_is_given(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    assert compiled.library(source, ()) == "there is no C compiler (cc, gcc or clang)"
    monkeypatch.setenv("CC", "no-such-compiler-anywhere")
    assert "twice.c cannot be built or loaded" in str(compiled.library(source, ()))
    monkeypatch.setenv("CC", "false")
    assert "false cannot build twice.c" in str(compiled.library(source, ()))


def test_a_library_that_was_left_damaged_is_built_again(source: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    compiled.library(source, ("-O1",))
    (built,) = (source.parent / "cache" / "encodeonce").glob("twice-*.so")
    other = built.with_name("moved")  # what is loaded already stays as it is
    built.rename(other)
    built.write_bytes(b"")
    found = compiled.library(source, ("-O1",))
    assert isinstance(found, ctypes.CDLL)
    assert found.twice(21) == 42


def test_the_library_is_kept_only_where_nobody_else_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiled.private_folder() == tmp_path / "encodeonce"
    os.chmod(tmp_path / "encodeonce", 0o777)
    elsewhere = compiled.private_folder()
    assert elsewhere != tmp_path / "encodeonce"
    assert compiled.private_folder() == elsewhere, "one a process"
    assert caplog.text.count("is no folder that only you can write to") == 1
