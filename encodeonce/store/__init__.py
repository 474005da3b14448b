"""The store: what an encoder gave, kept once, found by content. It knows arrays and a Spec, never an encoder."""

from .format import estimate
from .reader import Store
from .search import Search
from .stored import Stored
from .upkeep import gc, info, ls, verify
from .writer import FillReport, Source

__all__ = ["FillReport", "Search", "Source", "Store", "Stored", "estimate", "gc", "info", "ls", "verify"]
