"""What the tests of fusion share: tiny checkpoints with a task, and random neighbours for its documents."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from encodeonce.batching import Batch, Cut
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.methods.refusion import Fusing, Near, Refusion, Retrieved, refusion
from encodeonce.store import Search
from encodeonce.tasks import named
from encodeonce.types import Document

FAMILIES = ["bert", "roberta", "t5"]
WORDS = ("the", "cat", "sat", "on", "mat", "river", "banks", "running", "naive", "cafe")
K, WIDTH = 4, 32


def documents(n: int, seed: int = 0) -> list[Document]:
    draw = np.random.default_rng(seed)
    return [
        Document(
            f"d{seed}-{i}",
            text=" ".join([*draw.choice(WORDS, int(draw.integers(2, 9))), f"{seed}", f"{i}"]),
            meta={"label": "ab"[i % 2]},
            place=f"file:{i}",
        )
        for i in range(n)
    ]


class World:
    """A checkpoint, its documents (by default 11 of any length) as pieces, and random neighbours."""

    def __init__(self, folder: Path, own: list[Document] | None = None) -> None:
        self.model = Pretrained(folder)
        self.documents = own or documents(11)
        self.task = named("classification").learn(self.documents)
        self.cut = Cut(self.model.spec(), self.model.cut(self.documents))
        self.corpus = np.random.default_rng(1).standard_normal((50, WIDTH)).astype(np.float32)

    def near(self, ids: np.ndarray | None = None, corpus: np.ndarray | None = None) -> Near:
        n = len(self.documents)
        ids = np.random.default_rng(2).integers(0, 50, (n, 1, K)) if ids is None else ids
        keys = tuple(document.key for document in self.documents)
        return Near(keys, ids, np.zeros(ids.shape, np.float32), Search(self.corpus if corpus is None else corpus))

    def plain(self, tuning: Tuning | None = None) -> Finetune:
        tuning = tuning or Tuning("finetune", dropout=0.0)
        return Finetune.build(tuning, self.model, self.model.spec(), [self.task], seed=3, read_ahead=0)

    def made(self, fusing: Fusing, **changes: Any) -> Refusion:
        method = refusion(self.plain(), fusing, WIDTH, **changes)
        with torch.no_grad():
            for parameter in method.fusion.lower():
                if parameter.abs().sum() == 0 or parameter.ndim == 3:
                    parameter.copy_(torch.randn_like(parameter))
        return method

    def batch(self, method: Finetune, near: Near | None = None, n: int = 11) -> Batch:
        source: Any = self.cut if near is None else Retrieved(self.cut, near)
        examples = method.read(source, self.documents[:n], [self.task])
        return next(iter(method.batches(examples, size=n, order=None)))


def logits(method: Finetune, batch: Batch) -> Tensor:
    method.eval()
    with torch.no_grad():
        (found,) = method.scores(batch, method.names).values()
    assert isinstance(found, Tensor)
    return found


def stopping(method: Refusion, at: int) -> None:
    """From now on its training is interrupted at this step, counted from 1 (0: never)."""
    true, calls = method.losses, []

    def losses(batch: Batch, names: Any) -> Any:
        calls.append(1)
        if at and len(calls) == at:
            raise KeyboardInterrupt
        return true(batch, names)

    method.losses = losses  # type: ignore[method-assign]
