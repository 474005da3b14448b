"""The store: what an encoder gave, kept once, found by content. It knows arrays and a Spec, never an encoder."""

from .format import estimate
from .reader import Store
from .removal import Removal, keep_only
from .upkeep import gc, info, ls, verify
from .writer import FillReport, Source

__all__ = ["FillReport", "Removal", "Source", "Store", "estimate", "gc", "info", "keep_only", "ls", "verify"]
