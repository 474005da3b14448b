"""What the runs of reading.py and lookup.py share: a reader with its memory, trained and scored, and its rows."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.lumen import Design, Lumen, passage_document
from encodeonce.metrics.answers import AnswerScorer
from encodeonce.report.results import ResultsRow, append_rows, surroundings
from encodeonce.store import Store
from encodeonce.train.evaluate import evaluate
from encodeonce.train.fit import Fit, fit
from encodeonce.train.settings import Settings
from encodeonce.types import Question

SETTINGS = Settings(
    learning_rate=1e-3, optim="adamw", lr_scheduler_type="linear", warmup_ratio=0.1, max_grad_norm=1.0, save_steps=100
)
"""Of all runs: AdamW, warmed up, then linear to 0."""
SCORERS = {"answer": AnswerScorer()}


@dataclass(frozen=True)
class Made:
    """A method and the splits as it reads them; `seconds` of the processor went into its memory just now."""

    method: Lumen
    encoder: Pretrained
    splits: dict[str, Any]
    seconds: float


def made(design: Design, home: Path, splits: Mapping[str, Sequence[Question]], seed: int, memories: Path) -> Made:
    """A new reader over the encoder in `home`; its memory of all passages lies in the folder `memories`."""
    encoder = design.encoder(home)
    method, store, seconds = Lumen.build(design, encoder, seed=seed), None, 0.0
    if stored := list(method.plan.stored):
        spec = encoder.spec(stored, method.plan.dtype)
        store = Store.open(memories / f"memory-{home.name}-{spec.weights[:8]}-{'-'.join(map(str, stored))}", spec)
        passages = {p.id: p for own in splits.values() for q in own for p in q.passages}
        began = time.process_time()
        store.fill([passage_document(p) for p in passages.values()], encoder)
        seconds = time.process_time() - began
    return Made(method, encoder, {split: method.read(own, encoder, store) for split, own in splits.items()}, seconds)


def fitted(one: Made, settings: Settings, home: Path) -> Fit:
    """Trained, with its checkpoint in `home`; at once where that is done."""
    return fit(one.method, one.splits["train"], SCORERS, settings, dev=one.splits["dev"], folder=home)


def scored(
    one: Made, settings: Settings, split: str, home: Path
) -> tuple[Mapping[str, float | None], dict[str, int | float | str | None]]:
    """`fitted`; the scores on a split, and what their rows say of the run."""
    done = fitted(one, settings, home)
    found = evaluate(one.method, one.splits[split], SCORERS, settings.per_device_eval_batch_size)
    return found.scores["answer"], {
        "seed": settings.seed,
        "split": split,
        "n": found.n,
        "train_s_per_batch": done.seconds_per_batch,
        "train_s_total": done.seconds,
        "encode_s": one.seconds,
        "infer_s_per_batch": found.seconds_per_batch,
        "params_trainable": done.parameters["total"],
    }


def write(path: Path, live: int, blocks: int, values: Mapping[str, float | None], **rest: Any) -> None:
    """The rows of one run with `live` of so many blocks live, all at once: a value a metric."""
    method = "memory-fid" if live == 0 else "fid" if live == blocks else "lumen"
    whole = {"experiment": "lumen", "task": "answer", "method": method, **rest, **surroundings()}
    append_rows(path, [ResultsRow(metric=name, value=value, **whole) for name, value in values.items()])
