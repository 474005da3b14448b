"""How a benchmark ends: its parts as JSON, on the terminal and in a file, and its one figure on the last line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["show"]


def show(parts: Mapping[str, Any], out: str | Path | None, figure: object) -> None:
    """Print, `figure` last, and write to `out` where one is given."""
    text = json.dumps(parts, indent=2)
    print(text)
    if out:
        Path(out).write_text(text + "\n", encoding="utf-8")
    print(figure)
