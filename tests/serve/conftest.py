"""The small corpus of tests/methods, here too."""

from ..methods.conftest import checkpoint, make_corpus

__all__ = ["checkpoint", "make_corpus"]
