"""The store: what an encoder gave, kept once, found by content. It knows arrays and a Spec, never an encoder."""

from .format import estimate
from .reader import Store
from .removal import Removal, keep_only
from .search import Search
from .stored import Stored
from .upkeep import gc, info, ls, verify
from .writer import FillReport, Source, check_room, runs_of

__all__ = [
    "FillReport",
    "Removal",
    "Search",
    "Source",
    "Store",
    "Stored",
    "check_room",
    "estimate",
    "gc",
    "info",
    "keep_only",
    "ls",
    "runs_of",
    "verify",
]
