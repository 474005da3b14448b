"""How fast a `pretrain` goes, from a little of each pass: the estimate, and how much a budget pays for."""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int

from ..corpus.text import joined
from ..encoders.live import LiveBlocks
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..methods.fastdoc.masking import Window
from ..methods.fastdoc.objective import Objective
from ..methods.fastdoc.reading import shown_in
from ..methods.fastdoc.sampling import Sample
from ..store import Store
from ..train.atomic import write_bytes
from ..train.settings import Settings
from ..types import Document
from .advice import seconds_text
from .pretrain_config import PretrainConfig
from .pretrain_costs import Budget, Prices, encoding, fitting, masked_windows, masking, training

__all__ = ["Pace"]

log = logging.getLogger("encodeonce")

Tuples = Int[np.ndarray, "Q K"]

PROBED, FEW, WINDOWS = 48, 6, 8
"""Sentences encoded, and documents trained on, to know how fast it goes before it starts; documents where their pieces
are trained on; windows of pieces."""


class Pace:
    """`probe` comes first: `sentence` is then seconds of encoding a sentence, `batch` of training on a batch, and
    `masked_flop` of a floating point operation of masked-language training."""

    def __init__(
        self,
        config: PretrainConfig,
        settings: Settings,
        objective: Objective,
        base: Pretrained,
        source: Pooled,
        store: Store,
    ) -> None:
        self.config, self.objective, self.base, self.source, self.store = config, objective, base, source, store
        self.size, self.epochs, self.seed = (
            settings.per_device_train_batch_size,
            settings.num_train_epochs,
            settings.seed,
        )
        self.sentence = self.batch = self.masked_flop = 0.0

    def probe(
        self, needed: Sequence[Document], documents: Sequence[Document], tuples: Tuples, windows: Sequence[Window]
    ) -> None:
        """Measure on sentences of the `needed` documents that are not stored, on the first tuples and windows."""
        missing = self.missing(needed)
        if missing:
            picked = [missing[i] for i in np.random.default_rng(0).permutation(len(missing))[:PROBED]]
            cut = self.source.cut([Document(str(n), sentences=(s,)) for n, s in enumerate(picked)])
            list(self.source.encode(cut[:4]))
            began = time.perf_counter()
            list(self.source.encode(cut))
            self.sentence = (time.perf_counter() - began) / len(picked)
        if len(tuples):
            chosen = tuples[: max(1, PROBED // tuples.shape[1])].T.ravel()
            lengths = [len(documents[i].sentences) for i in chosen]
            taken = self.step(self.base, self.shown(lengths), self.objective.lora)
            self.batch += taken * self.size * tuples.shape[1] / len(lengths)
            if self.config.full:
                few = chosen[:FEW]
                lengths = [size for own in self.sizes([documents[i] for i in few.tolist()]) for size in own]
                self.batch += self.step(self.source.model, lengths) * self.size * tuples.shape[1] / len(few)
        lengths = [len(window.ids) for window in windows[:WINDOWS]] or self.pieces(documents)
        self.masked_flop = self.step(self.base, lengths) / training(self.base.shape, lengths)
        if windows:
            n_windows = self.config.windows_per_batch if len(tuples) else self.size
            self.batch += self.masked_flop * self.masking(lengths) * n_windows / len(lengths)

    def missing(self, documents: Sequence[Document]) -> list[str]:
        """The different sentences of those that are not stored."""
        absent = self.store.missing(self.store.keys(documents))
        return list(dict.fromkeys(s for i in absent for s in documents[i].sentences))

    def sizes(self, documents: Sequence[Document]) -> list[list[int]]:
        """The pieces of each document's sentences."""
        return [[len(text) for text in cut.texts] for cut in self.source.cut(documents)]

    def pieces(self, documents: Sequence[Document]) -> list[int]:
        """The lengths of some windows of these documents' pieces, as a masked loss would read them."""
        cut = self.base.cut(list(map(joined, documents[:WINDOWS])))
        return masked_windows([len(one) for one in cut], self.config.window, self.base.window)[:WINDOWS]

    def step(self, model: Pretrained, lengths: Sequence[int], lora: int = 0) -> float:
        """Seconds of forward, backward and optimiser of a model's blocks over random rows, the second time; of low-rank
        terms beside their weights, where `lora` is a rank."""
        stack, made = model.stack(), self.objective
        terms = (lora, made.lora_alpha) if lora else None
        every = range(stack.n_blocks)
        blocks = LiveBlocks(stack, every, final=True, embeddings=True, compute=made.compute, lora=terms)
        width = int(stack.model.get_input_embeddings().weight.shape[1])
        optimiser = torch.optim.AdamW(blocks.parameters(), lr=1e-9, fused=True)
        vectors, taken = torch.randn(sum(lengths), width, generator=torch.Generator().manual_seed(0)), 0.0
        with torch.random.fork_rng(devices=[]):
            for _ in range(2):
                began = time.perf_counter()
                blocks(blocks.place(vectors, lengths), lengths).square().mean().backward()
                optimiser.step()
                taken = time.perf_counter() - began
        return taken

    def shown(self, lengths: Sequence[int]) -> tuple[int, ...]:
        """The runs that documents of so many sentences are shown in, those of a padded document's rows."""
        stack = self.base.stack()
        return shown_in(self.objective.rows(lengths), stack.window if stack.LIMITED else 0)

    def masking(self, lengths: Sequence[int]) -> int:
        """FLOPs of a masked loss over windows of these lengths."""
        made, vocabulary = self.objective, int(self.base.config["vocab_size"])
        return masking(self.base.shape, lengths, made.probability, vocabulary, made.lora)

    def sized(
        self,
        folder: Path,
        documents: Sequence[Document],
        sample: Sample,
        windows: list[Window],
        apart: Sequence[Document],
    ) -> tuple[Sample, list[Window]]:
        """Tuples, doubled where that is asked for, and windows; with a budget as many tuples as it pays for, or windows
        where there are no tuples. `apart` are held-out documents, whose encoding a budget of time pays too.

        What was bought is kept in the folder: a run that goes on does not measure anew.
        """
        doubles = self.config.sample.doubled and sample.symmetric and sample.tuples.shape[1] == 3
        if not self.config.budget:
            return (sample.doubled() if doubles else sample), windows
        kept = folder / "size.json"
        if not kept.is_file():
            bought = self.bought(documents, sample.tuples, windows, apart, 1 + doubles)
            write_bytes(kept, json.dumps({"budget": self.config.budget, "bought": bought}).encode())
        bought = int(json.loads(kept.read_text())["bought"])
        there = len(sample.tuples) or len(windows)
        what = "tuples" if len(sample.tuples) else "windows"
        whole = Budget.read(self.config.budget)
        log.info("budget %s: %s %s, of %s different ones", whole.said(whole.amount), f"{bought:,}", what, f"{there:,}")
        if not len(sample.tuples):
            order = np.random.default_rng(self.seed).permutation(len(windows))
            return sample, [windows[i] for i in np.resize(order, bought)]
        first = replace(sample, tuples=sample.tuples[:bought])
        first = first.doubled() if doubles else first
        shape = (bought * (1 + doubles), sample.tuples.shape[1])
        return replace(first, tuples=np.resize(first.tuples, shape)), windows

    def bought(
        self,
        documents: Sequence[Document],
        tuples: Tuples,
        windows: Sequence[Window],
        apart: Sequence[Document],
        times: int,
    ) -> int:
        """How many tuples, each read `times` times, or windows the budget pays for."""
        budget = Budget.read(self.config.budget)
        prices = self.flops(documents, tuples, windows) if budget.of_flops else self.seconds(documents, tuples, windows)
        if not budget.of_flops:
            held_out = self.sentence * len(self.missing(apart))
            prices = replace(prices, fixed=prices.fixed + held_out)
        if not len(tuples):
            return fitting(budget, prices, None, self.size)
        return fitting(budget, replace(prices, each=times * prices.each), tuples, -(-self.size // times))

    def flops(self, documents: Sequence[Document], tuples: Tuples, windows: Sequence[Window]) -> Prices:
        """Whatever is stored already: what a run costs does not depend on those before it."""
        once, shape = np.zeros(len(documents)), self.base.shape
        beside = np.array([self.masking([len(window.ids)]) for window in windows], np.float64)
        if not len(tuples):
            return Prices(once, beside)
        lengths = np.array([len(document.sentences) for document in documents], np.int64)[tuples]
        lora = self.objective.lora
        each = np.array([training(shape, self.shown(row), lora=lora) for row in lengths.tolist()], np.float64)
        if len(beside):
            each += self.config.windows_per_batch / self.size * beside.mean()
        clustered, used = self.config.sample.clustered, np.unique(tuples)
        if self.config.full:
            live = np.zeros(len(documents))
            live[used] = [training(self.source.shape, own) for own in self.sizes([documents[i] for i in used])]
            each += live[tuples].sum(1)
        if self.config.full and not clustered:
            return Prices(once, each)
        read = np.arange(len(documents)) if clustered else used
        once[read] = [encoding(self.source.shape, own) for own in self.sizes([documents[i] for i in read.tolist()])]
        return Prices(np.zeros(len(documents)), each, once.sum()) if clustered else Prices(once, each)

    def seconds(self, documents: Sequence[Document], tuples: Tuples, windows: Sequence[Window]) -> Prices:
        """As probed; what is stored costs nothing. All documents are paid for first where clusters are made of them."""
        once, each = np.zeros(len(documents)), np.full(len(tuples) or len(windows), self.batch / self.size)
        if self.config.sample.clustered:
            return Prices(once, each, self.sentence * len(self.missing(documents)))
        used = [] if self.config.full else np.unique(tuples).tolist()
        known = [documents[i] for i in used]
        for place in self.store.missing(self.store.keys(known)):
            once[used[place]] = self.sentence * len(known[place].sentences)
        return Prices(once, each)

    def estimate(self, documents: Sequence[Document], tuples: Tuples, windows: Sequence[Window]) -> None:
        """Say how long encoding these documents and training will take."""
        n_sentences = len(self.missing(documents))
        batches = -(-(len(tuples) or len(windows)) // self.size) * self.epochs
        once, train = self.sentence * n_sentences, batches * self.batch
        log.info(
            "estimate: encode %s sentences %s, train %s batches %s, in all %s",
            f"{n_sentences:,}",
            seconds_text(once),
            f"{batches:,}",
            seconds_text(train),
            seconds_text(once + train),
        )
