"""What the commands share: files to documents, a config to an encoder and a store, and filling it.

Imports torch and the rooms below; a command imports this module when it runs, not when its help is shown.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..corpus import read
from ..corpus.text import with_sentences
from ..encoders.checkpoint import label, named
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, RunError
from ..store import FillReport, Store, estimate, runs_of
from ..store.claim import Claim
from ..types import Document, Spec

if TYPE_CHECKING:
    from .config import Config

__all__ = [
    "Encoded",
    "Plan",
    "documents_of",
    "encode",
    "held",
    "names_of",
    "planned",
    "pretrained",
    "recorded",
    "spec_of",
    "with_rows",
]

log = logging.getLogger("encodeonce")

NOTED = 5.0
"""Seconds between two notes of how long an encoding pass has run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What encoding would do: items asked for, stored already, repeated, missing, and left to other parts of the job;
    rows and bytes of the missing. Where `lacks` names a vocabulary a word counts as one row: of a whole job these are
    at least so many."""

    asked: int
    hits: int
    duplicates: int
    missing: int
    rows: int
    bytes: int
    elsewhere: int = 0
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Encoded:
    """What encoding did: the store's report, wall seconds, and whether the encoder's weights were ever loaded."""

    report: FillReport
    seconds: float
    encoder_loaded: bool

    @property
    def rows_per_second(self) -> float | None:
        """Pieces, or sentences or texts where rows are these."""
        return self.report.rows / self.seconds if self.report.rows else None

    def to_json(self) -> dict[str, Any]:
        """Plain values; `seconds` is wall time."""
        rest = {"seconds": self.seconds, "rows_per_s": self.rows_per_second, "encoder_loaded": self.encoder_loaded}
        return {**asdict(self.report), **rest}


def documents_of(
    files: Sequence[str],
    format: str | None = None,
    columns: Mapping[str, int | str] | None = None,
    passages: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[Document]:
    """Every document of these files, in order; `passages` is the file of what they name by id, `options` are the
    reader's own."""
    options = {**(options or {}), **({} if passages is None else {"passages": passages})}
    return [document for name in files for document in read(name, format=format, columns=columns, **options)]


@contextmanager
def held(folder: Path, command: str, harm: str) -> Iterator[None]:
    """Keep another process of the same command from filling a folder meanwhile. RunError where a living one does."""
    folder.mkdir(parents=True, exist_ok=True)
    claim = Claim.take(folder / f"{command}.tmp")
    if claim is None:
        raise RunError(
            f"{folder} is being filled by another `{command}`, and two would {harm}. Wait until it is done, or choose "
            "another folder."
        )
    with claim:
        yield


def pretrained(config: "Config") -> Pretrained:
    """The config's encoder; no weights are loaded."""
    return Pretrained(config.encoder, compute=config.compute, window=config.window)


def with_rows(documents: Sequence[Document], unit: str) -> list[Document]:
    """The documents that have a row of this unit: with their sentences where rows are these. Others are counted."""
    cut = with_sentences(documents) if unit == "sentence" else list(documents)
    kept = [d for d in cut if (d.sentences if unit == "sentence" else d.words or d.text.strip())]
    if len(kept) < len(cut):
        log.warning("%d of %d documents have no %s and are left out", len(cut) - len(kept), len(cut), unit)
    return kept


def spec_of(config: "Config", model: Pretrained | Pooled, *, dry: bool = False) -> Spec:
    """What must have made the config's store.

    With `dry`, an encoder whose folder lacks files has one too, without hashes.
    """
    made = model.outline if dry and isinstance(model, Pretrained) and model.lacks else model.spec
    return made(config.layers, config.dtype)


def recorded(encoder: str) -> str:
    """What results call a config's encoder."""
    return label(named(encoder))


def names_of(encoders: Sequence[str], taken: str = "") -> list[str]:
    """What each is called beside others: by its folder, by the run's where that is `encoder`. ConfigError where two are
    called alike, or one like what stands beside them."""
    names = [own if (own := recorded(one)) != "encoder" else Path(one).resolve().parent.name for one in encoders]
    for name in names:
        alike = [one for one, own in zip(encoders, names, strict=True) if own == name]
        if len(alike) > 1:
            raise ConfigError(f"{' and '.join(alike)} are both called {name!r}: give each once, or rename a folder.")
        if name == taken:
            raise ConfigError(f"{alike[0]} is called {name!r}, as what it is set beside: rename its folder.")
    return names


def planned(
    path: Path, spec: Spec, documents: Sequence[Document], model: Pretrained | Pooled, part: tuple[int, int] = (0, 1)
) -> Plan:
    """Count without writing anything; the encoder's tokenizer is used, its weights are not loaded. `part` is that of
    `Store.fill`.

    A folder that lacks its vocabulary is counted in words, one that lacks anything as if nothing were stored.
    """
    lacks = model.lacks if isinstance(model, Pretrained) else ()
    named = [document.key_in(spec.unit) for document in documents]
    distinct = dict(zip(reversed(named), reversed(documents), strict=True))
    keys = list(dict.fromkeys(named))
    lengths: dict[str, int] = {}
    if (path / "store.json").exists() and not lacks:
        store = Store.open(path, spec)
        absent = {keys[position] for position in store.missing(keys)}
        there = [key for key in keys if key not in absent]
        spec, lengths = store.spec, dict(zip(there, store.rows(store.index(there)).tolist(), strict=True))
    hits, missing = len(lengths), [key for key in keys if key not in lengths]
    wanted = [distinct[key] for key in missing]
    if "vocabulary" in lacks:
        cut = [one.n_words for one in wanted]
    else:
        cut = [len(pieces) for pieces in model.cut(wanted)] if wanted else []
    fresh = dict(zip(missing, cut, strict=True))
    lengths |= fresh
    runs = runs_of(part, [lengths[key] for key in keys], spec)
    own = [fresh[keys[place]] for run in runs for place in run if keys[place] in fresh]
    return Plan(
        asked=len(documents),
        hits=hits,
        duplicates=len(documents) - len(distinct),
        missing=len(own),
        rows=sum(own),
        bytes=estimate(spec, sum(own), len(own)),
        elsewhere=len(fresh) - len(own),
        lacks=lacks,
    )


def encode(
    store: Store,
    documents: Sequence[Document],
    model: Pretrained | Pooled,
    *,
    max_bytes: int | None = None,
    part: tuple[int, int] = (0, 1),
    note: Callable[[float], None] | None = None,
) -> Encoded:
    """Fill the store and say what was done; `note` is told every few seconds how many have gone by."""
    from tqdm import tqdm

    began = told = time.perf_counter()
    with tqdm(unit=f" {store.spec.unit}s", unit_scale=True, desc="encode", disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            nonlocal told
            bar.total = total
            bar.update(done - bar.n)
            if note is not None and time.perf_counter() - told > NOTED:
                told = time.perf_counter()
                note(told - began)

        report = store.fill(documents, model, max_bytes=max_bytes, part=part, progress=progress)
    return Encoded(report, time.perf_counter() - began, model.loaded)
