"""The small corpus of tests/methods, here too."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_made_by = importlib.util.spec_from_file_location("small_corpus", Path(__file__).parents[1] / "methods" / "conftest.py")
assert _made_by is not None
assert _made_by.loader is not None
_small_corpus = importlib.util.module_from_spec(_made_by)
_made_by.loader.exec_module(_small_corpus)


@pytest.fixture
def make_corpus() -> Callable[..., Any]:
    return _small_corpus.corpus


checkpoint = _small_corpus.checkpoint
