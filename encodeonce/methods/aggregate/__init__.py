"""Aggregate (Basirat 2024): a frozen encoder's stored views, mixed by a small adapter, read by a head."""

from .aggregate import Aggregate
from .variant import VARIANTS, Variant

__all__ = ["VARIANTS", "Aggregate", "Variant"]
