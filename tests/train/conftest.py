"""The small corpus of tests/methods, here too."""

from ..methods.conftest import make_corpus

__all__ = ["make_corpus"]
