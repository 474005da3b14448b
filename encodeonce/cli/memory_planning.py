"""Encode passages once, or each time they are read? The paper's title question, measured for a reader and its passages.

    e  seconds to encode one passage as far as the cut        r  seconds to answer from k stored passages
    f  seconds to answer where everything is run anew: the same encoder as Fusion-in-Decoder

Storing N different passages costs N e once (equal ones are stored once), and saves k e of each question against the
same reader that encodes on the fly (its answers are the same), and f - r against Fusion-in-Decoder (whose answers are
its own, and better where little is live).
"""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..memory.ledger import size_of
from ..methods.lumen import Design, Lumen
from ..methods.lumen.forms import passage_document
from ..serve.reader_run import ReaderRun
from ..serve.reading import MemoryReader
from ..store import Store, estimate
from ..types import Passage, Pieces, Question
from .advice import bytes_text, seconds_text
from .calibration import Clock
from .sampling import Estimate, spread

__all__ = ["MemoryForecast", "forecast"]

SAMPLE = 64
"""Passages that are measured at most."""
ROUNDS = (3, 12)


@dataclass(frozen=True)
class MemoryForecast:
    """`passages` of them, of which `different` are encoded and stored, `k` read for a question. `bytes` are
    those of the states, `text_bytes` of the passages with their titles and ids. Seconds of one passage
    (`encode`) and of one question from memory (`read`), the same encoding on the fly (`on_the_fly`), and as
    Fusion-in-Decoder (`fid`). From `questions` on storing pays against encoding on the fly, from `questions_fid` on
    against Fusion-in-Decoder (None: never)."""

    passages: int
    different: int
    k: int
    stored: tuple[int, ...]
    dtype: str
    bytes: float
    text_bytes: int
    encode: Estimate
    whole: Estimate
    read: Estimate
    on_the_fly: Estimate
    fid: Estimate
    questions: float | None
    questions_fid: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def text(self) -> str:
        """For people."""
        from ..report.table import aligned

        alike = "" if self.different == self.passages else f", {self.different:,} different ones"
        rows: list[tuple[str, Estimate]] = [
            ("encode a passage", self.encode),
            (f"encode all {self.different:,} once", self.whole),
            (f"a question from memory, {self.k} passages", self.read),
            ("the same, passages encoded on the fly", self.on_the_fly),
            ("as Fusion-in-Decoder, nothing stored", self.fid),
        ]
        cells = [
            [name, seconds_text(one.value), f"{seconds_text(one.low)} to {seconds_text(one.high)}"]
            for name, one in rows
        ]
        views = ", ".join(map(str, self.stored)) or "none"
        lines = [
            f"memory     {self.passages:,} passages{alike}, view {views}, {self.dtype}",
            f"states     {bytes_text(self.bytes)}, {self.bytes / self.passages:,.0f} bytes a passage",
            f"texts      {bytes_text(self.text_bytes)}, titles and ids included",
            "beside     what the first question writes, BM25's index and counts, and vectors (--vectors): not counted",
            "",
            aligned(["time", "", "95 %"], cells),
            "",
            "storing pays",
            f"  against encoding on the fly, the same answers      {_from(self.questions)}",
            f"  against Fusion-in-Decoder, which answers otherwise {_from(self.questions_fid)}",
        ]
        return "\n".join(lines)


def forecast(
    run: ReaderRun,
    passages: Sequence[Passage],
    questions: Sequence[Question],
    k: int,
    budget: float,
    clock: Clock = time.perf_counter,
) -> MemoryForecast:
    """Measures on a sample of the passages, drawn over all of them, for about `budget` seconds.

    No more passages are read for a question than there are. Without questions, made-up ones of the sample's own words
    are asked. ConfigError where the reader stores nothing.
    """
    plan, encoder = run.method.plan, run.encoder
    if run.spec is None:
        raise ConfigError(
            f"this reader stores nothing (cut={plan.cut}, memory={run.method.design.memory!r}): there is nothing to be "
            "encoded once. Plan for one whose memory is stored."
        )
    k = min(k, len(passages))
    different = list({passage_document(one, run.method.form).key: one for one in passages}.values())
    sample = _sample(different, max(k, SAMPLE))
    documents = [passage_document(one, run.method.form) for one in sample]
    pieces = encoder.cut(documents)
    all_rows = _rows(different, sample, [len(one) for one in pieces])
    asked = _asked(questions, sample, k)
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "states", run.spec)
        store.fill(documents, encoder)
        each = _measured(run, store, pieces, asked, budget, clock)
    encode, read, other = (spread(np.array(each[name][1:])) for name in ("encode", "read", "fid"))
    share = all_rows / sum(len(one) for one in pieces) / (len(different) / len(pieces))
    encode = encode.times(share)
    whole, on_the_fly = encode.times(len(different)), read.plus(k * encode.value)
    return MemoryForecast(
        passages=len(passages),
        different=len(different),
        k=k,
        stored=plan.stored,
        dtype=run.dtype,
        bytes=float(estimate(run.spec, round(all_rows), len(different))),
        text_bytes=size_of(passages),
        encode=encode,
        whole=whole,
        read=read,
        on_the_fly=on_the_fly,
        fid=other,
        questions=whole.value / (k * encode.value),
        questions_fid=whole.value / (other.value - read.value) if other.value > read.value else None,
    )


def _measured(
    run: ReaderRun, store: Store, pieces: Sequence[Pieces], asked: Sequence[Question], budget: float, clock: Clock
) -> dict[str, list[float]]:
    """Seconds of each round, the first of which warms up: to encode a passage, to answer a question from the store, and
    as Fusion-in-Decoder."""
    plan, encoder, fid = run.method.plan, run.encoder, _fusion(run)
    from_memory, anew = MemoryReader(run.method, encoder, store), MemoryReader(fid.method, fid.encoder, None)
    each: dict[str, list[float]] = {"encode": [], "read": [], "fid": []}
    until = clock() + budget

    def timed(name: str, action: Callable[[], Any], count: int) -> None:
        began = clock()
        action()
        each[name].append((clock() - began) / count)

    for number in range(ROUNDS[1] + 1):
        one = [asked[number % len(asked)]]
        timed("read", partial(from_memory.answers, one), 1)
        timed("fid", partial(anew.answers, one), 1)
        timed("encode", lambda: list(encoder.encode(pieces, plan.stored)), len(pieces))
        if number >= ROUNDS[0] and clock() >= until:
            break
    return each


def _sample(passages: Sequence[Passage], count: int) -> list[Passage]:
    """Evenly over all, by length."""
    if not passages:
        raise ConfigError("there is no passage to plan for.")
    order = sorted(passages, key=lambda one: len(one.text))
    return [order[i] for i in np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).astype(int))]


def _rows(passages: Sequence[Passage], sample: Sequence[Passage], pieces: Sequence[int]) -> float:
    """Pieces of all passages, by characters."""
    characters = sum(len(one.text) + len(one.title) + 1 for one in sample)
    return sum(pieces) * sum(len(one.text) + len(one.title) + 1 for one in passages) / characters


def _asked(questions: Sequence[Question], sample: Sequence[Passage], k: int) -> list[Question]:
    given = list(questions[:8]) or [
        Question(f"made up {i}", " ".join(["what", *one.text.split()[:8]]) + "?") for i, one in enumerate(sample[:8])
    ]
    return [
        replace(one, passages=tuple(sample[(i * k + n) % len(sample)] for n in range(k))) for i, one in enumerate(given)
    ]


def _fusion(run: ReaderRun) -> ReaderRun:
    """The same encoder and reader with every block live."""
    design = run.method.design
    design = Design(
        **{
            **design.to_json(),
            "live": run.method.plan.n_blocks,
            "alpha": None,
            "cut": None,
            "blocks": None,
            "layers": (),
        }
        | {"memory": "stored", "question_encoder": "trained"}
    )
    own = run.encoder
    encoder = design.encoder(own.name, compute=own.compute, window=own.window, overlap=own.overlap)
    method = Lumen.build(design, encoder, form=run.method.form, decoder=run.method.decoder)
    return ReaderRun(method, encoder, run.dtype)


def _from(number: float | None) -> str:
    return "never" if number is None else f"from {math.ceil(number - 1e-6):,} questions on"
