"""Texts encoded once, and for each example the nearest of them: by content, without itself, computed once (spec B2).

Axes: N texts   D width
"""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as array_bytes

from ...errors import ConfigError, CorruptStore, DataError, SpecMismatch
from ...store import FillReport, Search, Store, Stored
from ...store.claim import write_atomically
from ...store.search import check_search
from ...types import Corpus, Document, Spec, texts_digest
from .near import Leakage, Near, asked, leakage, nearest_of, own_rows, same, texts_of

__all__ = ["Retriever", "TextEncoder"]

log = logging.getLogger("encodeonce")


@runtime_checkable
class TextEncoder(Protocol):
    """One vector a text: `encoders.pooled.Pooled(model, "text")`."""

    def spec(self, layers: str | int | Sequence[int] = "last", dtype: str = "fp16") -> Spec:
        """What would make the vectors."""

    def cut(self, documents: Sequence[Document]) -> Any:
        """See `store.Source`."""

    def encode(self, pieces: Any, layers: Any = "last") -> Any:
        """See `store.Source`."""


class Retriever:
    """`Retriever.build(folder, documents, encoder)` encodes what is missing and keeps texts, vectors and a manifest;
    `Retriever.open(folder, encoder)` needs the encoder for queries alone. Labels are never stored. `metric` and `kind`
    (`store.Search`) are how a corpus is searched, and may be others each time.

    The folder holds `states/` (a store, queries included), `texts.jsonl`, `corpus.json` and `near/` (neighbours by
    content). Empty texts are counted and left out, of equal texts (`same`) the first is kept.
    """

    def __init__(self, folder: Path, texts: Sequence[str], store: Store, encoder: TextEncoder, search: Search) -> None:
        self.folder, self.texts, self.store, self.encoder, self.search = folder, tuple(texts), store, encoder, search

    @classmethod
    def build(
        cls,
        folder: str | Path,
        documents: Sequence[Document],
        encoder: TextEncoder,
        *,
        metric: str = "l2",
        kind: str = "exact",
        dtype: str = "fp32",
    ) -> "Retriever":
        """A corpus of these documents' texts (both of a pair), each text once; words are joined by spaces.

        A folder that holds this corpus already is opened; several processes may build it at once. Raises DataError
        where there is no text, ConfigError where the folder holds another corpus, SpecMismatch where another encoder
        made its vectors, CorruptStore where its manifest cannot be read; ConfigError, before anything is encoded, for
        an unknown metric or kind.
        """
        check_search(metric, kind)
        folder = Path(folder)
        every = [text for document in documents for text in texts_of(document)]
        texts = list({same(text): text for text in reversed(every) if text.strip()}.values())[::-1]
        if not texts:
            raise DataError(f"{folder}: no text to retrieve among {len(documents)} documents.")
        if len(texts) < len(every):
            log.info(
                "%s: %d of %d texts are kept, the others are empty or stand there twice", folder, len(texts), len(every)
            )
        described = {"texts": len(texts), "sha256": texts_digest(texts), "dtype": dtype}
        if (folder / "corpus.json").exists():
            _refuse_other(folder, described)
        folder.mkdir(parents=True, exist_ok=True)
        store = Store.open(folder / "states", encoder.spec(dtype=dtype))
        store.fill(_documents(texts), encoder)
        _keep(folder, texts, described, {"metric": metric, "kind": kind})
        return cls.open(folder, encoder)

    @classmethod
    def open(
        cls, folder: str | Path, encoder: TextEncoder, *, metric: str | None = None, kind: str | None = None
    ) -> "Retriever":
        """What `build` left, searched as then where nothing else is said.

        Raises SpecMismatch for another encoder, CorruptStore where manifest or texts were changed.
        """
        folder = Path(folder)
        described, texts = _described(folder), _texts(folder)
        spec = encoder.spec(dtype=described["dtype"])
        corpus = Corpus.of(texts, spec)
        if corpus.sha256 != described["sha256"]:
            raise CorruptStore(f"{folder / 'texts.jsonl'} was changed since the corpus was built. Build it anew.")
        if spec.unit != "text":
            raise SpecMismatch(f"{folder}: the encoder gives a row a {spec.unit}; retrieval needs one a text.")
        store = Store.open(folder / "states", spec)
        rows = Stored(store, store.keys(_documents(texts)))
        search = Search(rows, metric or described["metric"], kind or described["kind"], corpus=corpus)
        return cls(folder, texts, store, encoder, search)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def width(self) -> int:
        """D."""
        return self.search.width

    @cached_property
    def _digest(self) -> str:
        return texts_digest(self.texts)

    @cached_property
    def _rows(self) -> dict[str, int]:
        """The row of each text, by `same`."""
        return {same(text): row for row, text in enumerate(self.texts)}

    def leakage(self, documents: Sequence[Document]) -> Leakage:
        """Which examples have a text in the corpus, up to case, white space and Unicode form."""
        return leakage(documents, self._rows)

    def near(
        self, documents: Sequence[Document], k: int = 64, *, exclude_same: bool = True, allow_fewer: bool = False
    ) -> Near:
        """The k nearest texts of every document; each text of a pair is searched by itself.

        An example never gets its own texts or copies of them (`same`) unless `exclude_same=False`: at distance 0 they
        would be there in training and missing in use. Kept in the folder by content. Raises TooFewVectors where fewer
        are left, unless `allow_fewer`: then all get as many as the poorest has, and it is logged; DataError for an
        empty text. Neighbours that were kept and cannot be read are found anew, which is said.
        """
        empty = next((one for one in documents if not all(text.strip() for text in texts_of(one))), None)
        if empty is not None:
            raise DataError(
                f"{empty.place or empty.id}: a text is empty, so nothing is near it. Leave the example out."
            )
        texts = asked(documents)
        path = self.folder / "near" / f"{self._mark(texts, len(documents), k, exclude_same, allow_fewer)}.safetensors"
        kept = _kept(path)
        if kept is not None:
            own = own_rows(documents, self._rows) if exclude_same else ()
            return Near(tuple(document.key for document in documents), *kept, self.search, own)
        near = nearest_of(
            documents,
            self.vectors(texts),
            self.search,
            self._rows,
            k,
            exclude_same=exclude_same,
            allow_fewer=allow_fewer,
        )
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, array_bytes({"ids": near.ids, "scores": near.scores}))
        return near

    def vectors(self, texts: Sequence[str]) -> Float[np.ndarray, "N D"]:
        """Vectors of any texts, encoded where they are not stored yet. DataError for an empty one."""
        empty = next((n for n, text in enumerate(texts) if not text.strip()), None)
        if empty is not None:
            raise DataError(f"text {empty + 1} is empty, so nothing is near it. Leave the example out.")
        documents = _documents(texts)
        report: FillReport = self.store.fill(documents, self.encoder)
        log.debug("%d queries encoded, %d known", report.written, report.hits)
        return Stored(self.store, self.store.keys(documents))[:]

    def _mark(self, texts: Sequence[str], n: int, k: int, exclude_same: bool, allow_fewer: bool) -> str:
        """Of what decides the neighbours of n documents; the texts alone could be those of pairs or of single texts."""
        search = [self._digest, self.search.metric, self.search.kind, self.store.spec.to_json()]
        shown = json.dumps([search, texts_digest(texts), n, k, exclude_same, allow_fewer], sort_keys=True)
        return hashlib.sha256(shown.encode()).hexdigest()


def _keep(folder: Path, texts: Sequence[str], described: Mapping[str, Any], searched: Mapping[str, str]) -> None:
    """Write manifest and texts. The first manifest stands: ConfigError where another process came first, with another
    corpus; of the same one each writes the same texts."""
    manifest = (json.dumps({**described, **searched}, indent=2) + "\n").encode()
    write_atomically(folder / "corpus.json", manifest, replace=False)
    _refuse_other(folder, described)
    write_atomically(folder / "corpus.json", manifest)
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    write_atomically(folder / "texts.jsonl", lines.encode())


def _refuse_other(folder: Path, described: Mapping[str, Any]) -> None:
    """ConfigError where the manifest describes another corpus, naming each difference."""
    there = _described(folder)
    other = [
        f"{key}: {described[key]} asked for, {there[key]} there" for key in described if there[key] != described[key]
    ]
    if other:
        raise ConfigError(f"{folder} holds another corpus ({'; '.join(other)}). Choose another folder.")


def _kept(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Ids and scores that `near` kept; None where there are none, and where the file is broken."""
    if not path.exists():
        return None
    try:
        arrays = load_file(path)
        return arrays["ids"], arrays["scores"]
    except (SafetensorError, KeyError) as problem:
        log.warning("%s cannot be read, so its neighbours are found anew: %s", path, problem)
        return None


def _described(folder: Path) -> dict[str, Any]:
    """The manifest. ConfigError where there is none, CorruptStore where it cannot be read."""
    try:
        values = json.loads(_read(folder, "corpus.json"))
        return {name: values[name] for name in ("texts", "sha256", "dtype", "metric", "kind")}
    except (ValueError, KeyError, TypeError) as problem:
        raise CorruptStore(f"{folder / 'corpus.json'} was changed ({problem!r}). Build the corpus anew.") from None


def _texts(folder: Path) -> list[str]:
    try:
        return [json.loads(line)["text"] for line in _read(folder, "texts.jsonl").split("\n")[:-1]]
    except (ValueError, KeyError, TypeError) as problem:
        raise CorruptStore(f"{folder / 'texts.jsonl'} was changed ({problem!r}). Build the corpus anew.") from None


def _read(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{folder} is no corpus: {name} is missing. Build it first.") from None


def _documents(texts: Sequence[str]) -> list[Document]:
    return [Document(f"text {row}", text=text) for row, text in enumerate(texts)]
