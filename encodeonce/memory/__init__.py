"""A memory of passages: their states encoded once, their texts, and what makes them findable."""

from .ledger import Ledger
from .memory import Added, Memory

__all__ = ["Added", "Ledger", "Memory"]
"""`Memory` is the front; a `Ledger` is its list of passages."""
