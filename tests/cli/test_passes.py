"""Seconds of the encoder's pass over a batch, against a clock that the test turns."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from encodeonce.cli import passes
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.types import Document


class Clock(Pretrained):
    """Stands in for `time`, and for an encoder that takes a second a document."""

    def __init__(self) -> None:
        self.now, self.batches, self.held_up = 0.0, 0, 3

    def perf_counter(self) -> float:
        return self.now

    def cut(self, documents: Sequence[Document]) -> Any:
        self.now += 1000.0  # is no part of the pass
        return documents

    def encode(self, pieces: Any, layers: Any = "all") -> Iterator[Any]:
        self.batches += 1
        self.now += len(pieces) + 500.0 * (self.batches == self.held_up)
        yield from ((i, None) for i in range(len(pieces)))


@pytest.mark.parametrize(("documents", "batches"), [(100, 9), (40, 4), (3, 2)])
def test_a_batch_that_the_machine_held_up_spoils_nothing(
    monkeypatch: pytest.MonkeyPatch, documents: int, batches: int
) -> None:
    clock: Any = Clock()
    monkeypatch.setattr(passes, "time", clock)
    found = passes.pass_seconds(clock, [Document(str(i), text="a") for i in range(documents)], (0, 1), 10)
    assert found == pytest.approx(10.0), "a batch of ten, also where the last one is smaller"
    assert clock.batches == batches
