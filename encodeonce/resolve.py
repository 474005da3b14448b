"""A name in a file or on the command line becomes a class: `adapters/linear.py` is found by "linear".

No registry: the folder is the list. A name with a colon ("mypackage.mine:MyHead") reaches outside.
"""

import difflib
import importlib
from pathlib import Path
from typing import Any

from .errors import ConfigError

__all__ = ["available", "nearest", "resolve"]

ROOT = Path(__file__).parent


def available(room: str) -> list[str]:
    """Names a room offers: its files, without those that start with an underscore."""
    return sorted(path.stem for path in (ROOT / room).glob("*.py") if not path.stem.startswith("_"))


def nearest(name: str, allowed: list[str]) -> str:
    """' Did you mean X?' for the closest allowed name, or nothing where none is close."""
    close = difflib.get_close_matches(name, allowed, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def resolve(room: str, name: str) -> Any:
    """The one public class of `encodeonce/{room}/{name}.py`, or of "package.module:Class".

    Raises ConfigError naming what there is and the nearest name.
    """
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        try:
            return getattr(importlib.import_module(module_name), attribute)
        except (ImportError, AttributeError) as problem:
            raise ConfigError(f"{name!r} cannot be imported: {problem}. Write it as 'package.module:Class'.") from None
    names = available(room)
    if name not in names:
        raise ConfigError(f"No {name!r} in encodeonce/{room}. There is: {', '.join(names)}.{nearest(name, names)}")
    module = importlib.import_module(f"encodeonce.{room.replace('/', '.')}.{name}")
    return getattr(module, module.__all__[0])
