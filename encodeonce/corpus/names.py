"""Any name (of a model, a task, an item) as one safe part of a path, on every system and disk."""

import hashlib
import re

__all__ = ["path_part"]

LONGEST = 100

_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$|clock\$)(\..*)?", re.IGNORECASE)


def path_part(name: str) -> str:
    """1 to 100 characters of [A-Za-z0-9._-], no reserved name, and different for different names on a case-blind disk.

    A name of lower-case letters, digits, ".", "_" and "-" that is short and not reserved is its own part. Any other
    keeps what can be read of it and ends in "-" and 12 hex digits of its SHA-256 (48 bits: two of a million names agree
    with probability 0.002). A name that ends so itself is treated as any other, so no plain name can imitate one.
    """
    plain = re.fullmatch(r"[a-z0-9_][a-z0-9._-]*", name) and len(name) <= LONGEST and not name.endswith(".")
    if plain and not _RESERVED.fullmatch(name) and not re.search(r"-[0-9a-f]{12}$", name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    shown = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[: LONGEST - 13].rstrip(".-")
    if not shown or _RESERVED.fullmatch(shown):
        shown = f"name-{shown}".rstrip("-")
    return f"{shown[: LONGEST - 13]}-{digest}"
