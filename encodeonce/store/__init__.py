"""The store: what an encoder gave, kept once, found by content. It knows arrays and a Spec, never an encoder."""

from .format import estimate
from .reader import Store
from .upkeep import gc, info, ls, verify
from .writer import FillReport, Source

__all__ = ["FillReport", "Source", "Store", "estimate", "gc", "info", "ls", "verify"]
