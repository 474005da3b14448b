"""Peak memory: what is allocated is seen, what is mapped from a file or was held before is not."""

from pathlib import Path

import numpy as np
import pytest
import torch

from encodeonce.cli import peak_memory
from encodeonce.cli.peak_memory import measured_peak

MB = 1_000_000
linux = pytest.mark.skipif(not peak_memory.STATM.exists(), reason="reads /proc")


@linux
def test_memory_that_is_held_for_a_while_is_seen() -> None:
    held = np.ones(20 * MB, np.uint8)
    with measured_peak() as peak:
        short = np.ones(60 * MB, np.uint8)
        for _ in range(20):
            short += 1
        del short
    assert held.sum() == 20 * MB
    assert peak.mb is not None
    assert 55 < peak.mb < 75


@linux
def test_pages_of_a_mapped_file_are_not_counted(tmp_path: Path) -> None:
    np.zeros(60 * MB, np.uint8).tofile(tmp_path / "file")
    with measured_peak() as peak:
        mapped = np.memmap(tmp_path / "file", np.uint8, "r")
        total = sum(int(mapped[start : start + MB].sum()) for start in range(0, 60 * MB, MB))
    assert total == 0
    assert peak.mb is not None
    assert peak.mb < 15


@linux
def test_a_gpu_that_only_the_encoder_uses_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("reset_peak_memory_stats", "memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    with measured_peak() as peak:
        held = np.ones(40 * MB, np.uint8)
    assert held.sum() == 40 * MB
    assert peak.mb is not None
    assert 35 < peak.mb < 55


def test_a_system_that_does_not_say_gives_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peak_memory, "STATM", tmp_path / "none")
    with measured_peak() as peak:
        pass
    assert peak.mb is None
