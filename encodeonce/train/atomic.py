"""A file is there whole or not at all: written under another name, synced, renamed."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["json_bytes", "write_bytes"]


def write_bytes(path: Path, content: bytes) -> None:
    """Put `content` at `path`; a crash at any moment leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def json_bytes(values: Mapping[str, Any]) -> bytes:
    """Readable JSON, UTF-8; NaN and infinity are refused."""
    return (json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
