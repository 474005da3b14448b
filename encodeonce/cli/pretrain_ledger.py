"""What a finished `pretrain` cost: encode once, train, total, in seconds and FLOPs, beside a masked-language epoch."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """`seconds` are those of encoding, of drawing tuples and finding topics, of training and of encoding what is scored
    alone, by name ("encode", "draw", "train", "scoring"); `stored` how many documents an earlier run had encoded, and
    of how many, without those; `masked_flop` the seconds of a floating point operation of masked-language training, as
    probed."""

    config: PretrainConfig
    settings: Settings
    base: Pretrained
    source: Pooled
    seconds: Mapping[str, float]
    stored: tuple[int, int]
    masked_flop: float

    def of(
        self,
        documents: Sequence[Document],
        encoded: Sequence[Document],
        scored: Sequence[Document],
        examples: DocumentExamples,
        method: FastDoc,
        done: Fit,
    ) -> dict[str, Any]:
        """`documents` are those that tuples number, or, without tuples, those that windows are of; `encoded` and
        `scored` those whose sentences were stored, to train and to score.

        Three lines: encode once, train, total, with the seconds of drawing in it; and one epoch of masked-language
        training on the same documents, as it is and as a multiple of the run and of its training alone, which is what
        the paper counts (spec A15)."""
        used = [documents[i] for i in np.unique(examples.tuples)] if len(examples.tuples) else list(documents)
        sizes = self._sizes(encoded)
        own_lengths = examples.lengths[np.unique(examples.tuples)].tolist()
        once = encoding(self.source.shape, sizes)
        positions = self._positions(examples, method)
        train = self._training(documents, examples, method, positions["run"]) + self._masked(examples, method, done)
        cut = [len(one) for one in self.base.cut(list(map(joined, used)))]
        epoch = self._pieces(method, masked_windows(cut, self.config.window, self.base.window))
        seconds = {name: self.seconds[name] for name in ("encode", "draw", "train")}
        seconds["total"] = sum(seconds.values())
        flops = {"encode": once, "train": train, "total": once + train}
        masked, read = epoch * self.masked_flop, sizes or (self._sizes(used) if method.lower is not None else [])
        return {
            "seconds": {name: round(value, 2) for name, value in seconds.items()},
            "flops": flops,
            "scoring": {
                "documents": len(scored),
                "seconds": round(self.seconds["scoring"], 2),
                "flops": encoding(self.source.shape, self._sizes(scored)),
            },
            "stored": {"before": self.stored[0], "of": self.stored[1]},
            "masked_epoch_flops": epoch,
            "masked_epoch_seconds": round(masked, 2),
            "masked_epoch_over": {
                name: {"seconds": masked / seconds[name] if seconds[name] else None, "flops": epoch / flops[name]}
                for name in ("total", "train")
            },
            "positions": positions,
            "pieces_per_sentence": sum(read) / len(read) if read else None,
            "documents": len(used),
            "cut": sum(map(operator.gt, own_lengths, method.objective.rows(own_lengths))),
            "visits": int(examples.tuples.size) * self.settings.num_train_epochs,
            "windows": len(examples.windows),
            "steps": done.steps,
        }

    def _sizes(self, documents: Sequence[Document]) -> list[int]:
        """The pieces of every sentence, those of equal documents once."""
        different = list({document.key_in("sentence"): document for document in documents}.values())
        return [len(text) for cut in self.source.cut(different) for text in cut.texts]

    def _positions(self, examples: DocumentExamples, method: FastDoc) -> dict[str, Any]:
        """Sentences of all visits, the positions that were run for them, and the share of these that is padding; the
        same of windows of pieces, whose padding is in no FLOPs."""
        lengths = examples.lengths[examples.tuples].ravel().tolist() if len(examples.tuples) else []
        real = sum(map(min, lengths, method.objective.rows(lengths))) * self.settings.num_train_epochs
        seen = method.positions
        run = round(real * seen["run"] / seen["real"]) if seen["real"] else real
        windows = method.window_positions
        return {
            "real": real,
            "run": run,
            "padded_share": 1 - real / run if run else 0.0,
            "windows": {**windows, "padded_share": 1 - windows["real"] / windows["run"] if windows["run"] else 0.0},
        }

    def _training(
        self, documents: Sequence[Document], examples: DocumentExamples, method: FastDoc, positions: int
    ) -> int:
        """FLOPs of all visits of documents, `positions` in all; of both encoders where both are trained."""
        if not len(examples.tuples):
            return 0
        visits = np.tile(examples.tuples.ravel(), self.settings.num_train_epochs)
        made = method.objective
        shown = shown_in(made.rows(examples.lengths[visits].tolist()), method.blocks.window)
        train = training(self.base.shape, shown, positions - sum(shown), made.lora)
        if method.lower is None:
            return train
        used = np.unique(visits)
        cuts = self.source.cut([documents[d] for d in used])
        own = {d: [len(text) for text in cut.texts] for d, cut in zip(used, cuts, strict=True)}
        return train + training(self.source.shape, [size for d in visits for size in own[d]])

    def _masked(self, examples: DocumentExamples, method: FastDoc, done: Fit) -> int:
        """FLOPs of all windows of pieces."""
        windows = [len(window.ids) for window in examples.windows]
        if not windows:
            return 0
        in_all = len(windows) * self.settings.num_train_epochs
        n_read = self.config.windows_per_batch * done.batches if len(examples.tuples) else in_all
        return round(self._pieces(method, windows, method.objective.lora) / len(windows) * n_read)

    def _pieces(self, method: FastDoc, windows: Sequence[int], lora: int = 0) -> int:
        """FLOPs of masked-language training over windows of so many pieces, of all weights or of low-rank terms."""
        vocabulary, share = int(self.base.config["vocab_size"]), method.objective.probability
        return masking(self.base.shape, windows, share, vocabulary, lora)
