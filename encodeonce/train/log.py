"""A run's record: JSON Lines, one object a line, readable while the run goes on."""

import json
from pathlib import Path
from typing import Any

from .atomic import write_bytes

__all__ = ["RunLog"]


class RunLog:
    """`log.jsonl` of a run's folder, or nothing at all where there is no folder."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "log.jsonl"

    def write(self, **values: Any) -> None:
        """Add one line."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(values, ensure_ascii=False) + "\n")

    def back_to(self, step: int, epochs: int = 0) -> None:
        """Forget what was logged after `step`, and of epochs after the first `epochs`: they are about to be run again.
        A step's line has `losses`, an epoch's has none."""
        if self._path is None or not self._path.is_file():
            return
        kept = []
        *lines, _ = self._path.read_text(encoding="utf-8").split("\n")
        for line in lines:
            try:
                said = json.loads(line)
                if said["step"] <= step and ("losses" in said or said["epoch"] <= epochs):
                    kept.append(line + "\n")
            except (ValueError, KeyError):
                continue  # half a line, left by a run that was killed while it wrote
        write_bytes(self._path, "".join(kept).encode())
