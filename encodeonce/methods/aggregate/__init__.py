"""Aggregate (Basirat 2024): a frozen encoder's stored views, mixed by a small adapter, read by a head."""

from .aggregate import Aggregate, Part
from .batch import Batch
from .examples import Examples, Source, TokenTask
from .memory import Memory
from .variant import VARIANTS, Variant

__all__ = ["VARIANTS", "Aggregate", "Batch", "Examples", "Memory", "Part", "Source", "TokenTask", "Variant"]
