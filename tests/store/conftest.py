"""`fake_source`, and child processes that share what the test has imported."""

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of small shards are written here and no test can cut the power; one looks at the order of calls."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def forked() -> Callable[[Callable[[], object]], int]:
    """`forked(function)`: run it in a child and give its process id; the child exits with 0, or 1 where it raised."""

    def start(function: Callable[[], object]) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            function()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    return start
