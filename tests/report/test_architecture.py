"""A searched architecture as a table and as a picture."""

from pathlib import Path

import pytest

from encodeonce.errors import ConfigError
from encodeonce.methods.refusion import Decision
from encodeonce.report.architecture import architecture_picture, architecture_table

LINES = [
    Decision(block, slot, {"identity": 0.25, "mask": 0.75}, "mask", 0.5)
    for block in range(2)
    for slot in ("key", "value")
]


def test_the_table_says_shares_choice_and_lead() -> None:
    lines = architecture_table(LINES).splitlines()
    assert lines[0] == "| block | slot | identity | mask | chosen | ahead by |"
    assert lines[2] == "| 0 | key | 25.0 | 75.0 | mask | 50.0 |"
    assert len(lines) == 6


def test_the_picture_is_written(tmp_path: Path) -> None:
    path = architecture_picture(LINES, tmp_path / "new" / "architecture.png", "title")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_nothing_to_show_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without a module"):
        architecture_table([])
