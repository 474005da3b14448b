"""Whatever multiplies: how far encoding may be from transformers, relative to the size of the vectors (case NUM-2)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.nn.frozen_linear import backends
from encodeonce.types import Document

WORDS = ["the", "cat", "sat", "on", "the", "mat", ",", "running", "by", "a", "river", "bank", "."]
ALLOWED = {"fp32": 2e-6, "bf16x3": 4e-5, "bf16": 2e-2}
"""For one sentence of a random model of width 32; over wide vectors errors average out."""
SHARPER = {"t5": 10}
"""T5 does not scale its attention logits, so a random one answers to bf16's rounding this much more; not to fp32's."""
HERE = [(c, name) for c in ALLOWED for name, backend in backends(c).items() if not backend.missing()]
"""What can multiply on this machine; always at least torch itself."""


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize(("compute", "product"), HERE)
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_encoding_is_near_transformers_and_near_itself_in_any_batch(
    family: str, compute: str, product: str, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENCODEONCE_MATMUL", product)
    allowed = ALLOWED[compute] * (1 if compute == "fp32" else SHARPER.get(family, 1))
    draw = np.random.default_rng(7)
    documents = [Document(str(i), tuple(draw.choice(WORDS, size=int(draw.integers(1, 13))))) for i in range(12)]
    model = Pretrained(checkpoint(family), compute=compute, batch_pieces=60)
    pieces = model.cut(documents)
    together = dict(model.encode(pieces))
    for index, cut in enumerate(pieces):
        ids = torch.from_numpy(cut.ids.astype(np.int64))[None]
        plain = torch.stack(model.stack().model(ids, output_hidden_states=True).hidden_states)[:, 0].detach().numpy()
        ((_, alone),) = model.encode([cut])
        assert difference(together[index], plain) < allowed
        assert difference(alone, together[index]) < allowed


def test_torch_itself_is_always_there() -> None:
    assert {("fp32", "plain"), ("bf16x3", "plain"), ("bf16", "plain")} <= set(HERE)
