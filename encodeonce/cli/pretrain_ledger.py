"""What a finished `pretrain` cost: encode once, train, total, in seconds and FLOPs, beside a masked-language epoch."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..corpus.text import joined
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..methods.fastdoc.examples import DocumentExamples
from ..methods.fastdoc.fastdoc import FastDoc
from ..methods.fastdoc.reading import shown_in
from ..train.fit import Fit
from ..train.settings import Settings
from ..types import Document
from .pretrain_config import PretrainConfig
from .pretrain_costs import encoding, masked_windows, masking, training

__all__ = ["Ledger"]


@dataclass(frozen=True)
class Ledger:
    """`seconds` are those of encoding and of training, by name; `stored` how many documents an earlier run had encoded,
    and of how many; `masked_flop` the seconds of a floating point operation of masked-language training, as probed."""

    config: PretrainConfig
    settings: Settings
    base: Pretrained
    source: Pooled
    seconds: Mapping[str, float]
    stored: tuple[int, int]
    masked_flop: float

    def of(
        self, documents: Sequence[Document], examples: DocumentExamples, method: FastDoc, done: Fit
    ) -> dict[str, Any]:
        """`documents` are those that tuples number, or, without tuples, those that windows are of.

        Three lines: encode once, train, total; and one epoch of masked-language training on the same documents, as
        it is and as a multiple of the run and of its training alone, which is what the paper counts (spec A15)."""
        used = [documents[i] for i in np.unique(examples.tuples)] if len(examples.tuples) else list(documents)
        read = self.source.cut(used) if method.objective.of_documents else []
        sizes = [len(text) for cut in read for text in cut.texts]
        lengths = examples.lengths[examples.tuples].ravel().tolist() if len(examples.tuples) else []
        own_lengths = examples.lengths[np.unique(examples.tuples)].tolist()
        rows = method.objective.rows(lengths)
        real, seen = sum(map(min, lengths, rows)) * self.settings.num_train_epochs, method.positions
        run = round(real * seen["run"] / seen["real"]) if seen["real"] else real
        full = method.lower is not None
        once = 0 if full else encoding(self.source.shape, sizes)
        shown = shown_in(rows * self.settings.num_train_epochs, method.blocks.window)
        train = training(self.base.shape, shown, run - sum(shown))
        if full:
            own = {
                d: [len(text) for text in cut.texts] for d, cut in zip(np.unique(examples.tuples), read, strict=True)
            }
            visits = [size for d in examples.tuples.ravel() for size in own[d]] * self.settings.num_train_epochs
            train += training(self.source.shape, visits)
        vocabulary, share = int(self.base.config["vocab_size"]), method.objective.probability
        pieces = partial(masking, self.base.shape, probability=share, vocabulary=vocabulary)
        windows = [len(window.ids) for window in examples.windows]
        if windows:
            in_all = len(windows) * self.settings.num_train_epochs
            n_read = self.config.windows_per_batch * done.batches if len(examples.tuples) else in_all
            train += round(pieces(windows) / len(windows) * n_read)
        cut = [len(one) for one in self.base.cut(list(map(joined, used)))]
        epoch = pieces(masked_windows(cut, self.config.window, self.base.window))
        seconds = {**self.seconds, "total": sum(self.seconds.values())}
        flops = {"encode": once, "train": train, "total": once + train}
        masked = epoch * self.masked_flop
        return {
            "seconds": {name: round(value, 2) for name, value in seconds.items()},
            "flops": flops,
            "stored": {"before": self.stored[0], "of": self.stored[1]},
            "masked_epoch_flops": epoch,
            "masked_epoch_seconds": round(masked, 2),
            "masked_epoch_over": {
                name: {"seconds": masked / seconds[name] if seconds[name] else None, "flops": epoch / flops[name]}
                for name in ("total", "train")
            },
            "positions": {"real": real, "run": run, "padded_share": 1 - real / run if run else 0.0},
            "pieces_per_sentence": sum(sizes) / len(sizes) if sizes else None,
            "documents": len(used),
            "cut": sum(map(operator.gt, own_lengths, method.objective.rows(own_lengths))),
            "visits": int(examples.tuples.size) * self.settings.num_train_epochs,
            "windows": len(windows),
            "steps": done.steps,
        }
