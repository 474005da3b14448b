"""Passages encoded once, and kept up: built, added to, replaced, removed, without encoding or touching the rest.

    MEMORY/
      memory.json              what a passage is shown as, and which stores there are
      passages-000000.jsonl    texts and titles, a file a change (`Ledger`)
      states/                  a store: the view that live blocks start from; none where nothing is stored
      vectors/                 a store with one vector a passage, for retrieval; none where BM25 is to find them
      bm25.safetensors         the index that BM25 asks; made anew by the first question after a change
      hits.json                how often each passage was found, and how often it gave the answer

The stores are addressed by content: equal texts are stored once, whatever their ids are, and a passage that comes back
is found again. Adding writes shards of its own; removing changes the ledger alone, until `gc` frees the room.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..corpus.passages import refuse_repeated
from ..errors import CorruptStore, DataError, NotStored, StoreError
from ..methods.lumen.forms import passage_document
from ..store import FillReport, Removal, Store, gc, info, keep_only
from ..store.claim import Claim, write_atomically
from ..store.format import FORMAT, manifest_names, parse_sealed, sealed
from ..store.writer import Source
from ..types import Document, Passage, Spec
from .ledger import Ledger

__all__ = ["Added", "Memory"]

log = logging.getLogger("encodeonce")

Progress = Callable[[int, int], None]

STORES = ("states", "vectors")


@dataclass(frozen=True, slots=True)
class Added:
    """Passages that are new, that took another's place, that were there already, the same, and that went with the text
    they were of. What was encoded."""

    new: int
    replaced: int
    same: int
    removed: int
    states: FillReport | None
    vectors: FillReport | None


class Memory:
    """Made by `create` or `open`. Any number of processes may read it; one at a time may change it. `lost` names the
    stores that it had and that are there no more."""

    def __init__(
        self, path: Path, form: str, states: Store | None, vectors: Store | None, lost: Sequence[str] = ()
    ) -> None:
        self.path, self.form, self.states, self.vectors, self.lost = path, form, states, vectors, tuple(lost)
        self.ledger = Ledger(path)
        for _, store in self._stores():  # what the ledger names may have been encoded since they were opened
            store.refresh()
        self._asked, self._found, self._answered = 0, Counter[str](), Counter[str]()

    @classmethod
    def create(
        cls, path: str | Path, states: Spec | None, vectors: Spec | None = None, *, form: str = "plain"
    ) -> "Memory":
        """A new memory, or the one that is there if it is the same; a store of it that was lost is begun anew.

        `states` is the Spec of what live blocks start from (`Design.encoder(...).spec(layers)`; None: passages are
        encoded when asked for), `vectors` that of one vector a passage (`Pooled(...).spec()`), `form` how passages are
        shown (`methods.lumen.forms`). Raises StoreError for a folder that holds something else, SpecMismatch with every
        difference where it was made by another model or with other settings.
        """
        folder = Path(path)
        if not (folder / "memory.json").exists():
            other = _other_content(folder) if folder.is_dir() else []
            if other or folder.is_file():
                raise StoreError(
                    f"{folder} is no memory and not empty ({(other or ['a file'])[0]}). Choose a new folder."
                )
            folder.mkdir(parents=True, exist_ok=True)
            for name, spec in (("states", states), ("vectors", vectors)):
                if spec is not None:
                    Store.open(folder / name, spec)
            kinds = {"states": states is not None, "vectors": vectors is not None}
            write_atomically(folder / "memory.json", sealed({"format": FORMAT, "form": form, **kinds}), replace=False)
        memory = cls._opened(folder, states)
        if memory.form != form or memory.has_vectors != (vectors is not None):
            advice = "Choose another folder."
            if memory.form == form and vectors is None:
                advice = "Name what makes its vectors (memory build: --vectors ENCODER)" + (
                    ", or give it more passages with `encodeonce memory add`, which knows." if not memory.lost else "."
                )
            raise StoreError(
                f"{folder} shows passages as {memory.form!r} and has {'some' if memory.has_vectors else 'no'} "
                f"vectors; asked for are {form!r} and {'no' if vectors is None else 'some'}. {advice}"
            )
        left = next((folder / name for name in memory.lost if manifest_names(folder / name)), None)
        if left is not None:
            raise CorruptStore(
                f"{left} has shards and no store.json that says what made them. Put that file back, or remove {left}: "
                f"{memory.restoring()} then encodes them anew."
            )
        if vectors is not None:
            Store.open(folder / "vectors", vectors)
        if states is not None and "states" in memory.lost:
            Store.open(folder / "states", states)
        return cls._opened(folder, states) if memory.lost else memory

    @classmethod
    def open(cls, path: str | Path, states: Spec | None = None) -> "Memory":
        """The memory at `path`; with the Spec that a reader needs, compared with what made the states.

        Raises StoreError where there is none, SpecMismatch naming every difference, CorruptStore naming a damaged file
        and states that were lost where they are needed.
        """
        folder = Path(path)
        memory = cls._opened(folder, states)
        if states is not None:
            memory.refuse_lost("states")
        return memory

    @classmethod
    def _opened(cls, folder: Path, states: Spec | None) -> "Memory":
        """With the stores that are there; nothing is made."""
        if not (folder / "memory.json").exists():
            inside = folder / "memory"
            if (inside / "memory.json").exists():
                raise StoreError(f"There is no memory at {folder}, but one at {inside}: name that.")
            raise StoreError(
                f"There is no memory at {folder}. Build one: encodeonce memory build RUN FILE... -o {folder}"
            )
        values = parse_sealed(folder / "memory.json")
        if states is not None and not values["states"]:
            raise StoreError(f"{folder} stores no states; a reader with memory needs view {list(states.layers)}.")
        lost = [name for name in STORES if values[name] and not (folder / name / "store.json").exists()]
        held, vectors = (
            Store.open(folder / name, spec) if values[name] and name not in lost else None
            for name, spec in zip(STORES, (states, None), strict=True)
        )
        return cls(folder, values["form"], held, vectors, lost)

    @property
    def has_vectors(self) -> bool:
        """Whether it keeps vectors, or did until they were lost."""
        return self.vectors is not None or "vectors" in self.lost

    def refuse_lost(self, *names: str) -> None:
        """CorruptStore, with the step that makes them again, where one of these stores was lost."""
        for name in names:
            if name in self.lost:
                raise CorruptStore(
                    f"{self.path / name} is lost: {self.path} had {name}, and there is no store.json. "
                    f"{self.restoring()} encodes the {name} of all passages in these files anew."
                    + " Until then BM25 finds passages: ask --retriever bm25."
                    * (name == "vectors")
                )

    def restoring(self) -> str:
        """The command that makes a lost store again."""
        return f"`encodeonce memory build RUN FILE... -o {self.path}{' --vectors ENCODER' * self.has_vectors}`"

    def __len__(self) -> int:
        return len(self.ledger.passages)

    def __contains__(self, passage: str) -> bool:
        return passage in self.ledger.passages

    def __getitem__(self, passage: str) -> Passage:
        """A passage by id; NotStored where there is none."""
        try:
            return self.ledger.passages[passage]
        except KeyError:
            raise NotStored(f"{self.path} has no passage {passage!r} among its {len(self)}.") from None

    @property
    def revision(self) -> int:
        """Another number after every change of the passages that was made or seen here."""
        return self.ledger.next

    @property
    def passages(self) -> list[Passage]:
        """All of them, in the order they came."""
        return list(self.ledger.passages.values())

    def documents(self, passages: Iterable[Passage]) -> list[Document]:
        """Passages as they are shown and addressed."""
        return [passage_document(passage, self.form) for passage in passages]

    def add(
        self,
        passages: Sequence[Passage],
        source: Source | None = None,
        vectors: Source | None = None,
        *,
        replacing: bool = False,
        max_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> Added:
        """Add passages; what is stored already is not encoded again, what was lost is. Nothing else is touched.

        `source` encodes states and `vectors` vectors, where the memory has them; both load nothing if nothing is
        missing. `max_bytes` caps the states. With `replacing`, a passage takes the place of the one with its id, and
        windows of the same source that are not among the new ones go: the text has changed; without, a warning counts
        them. Raises DataError for ids that repeat, and for an id that another text has unless `replacing`;
        CorruptStore where a whole store was lost; StoreFull, NonFinite as the store does. Killed, it has added nothing
        or everything.
        """
        refuse_repeated(passages)
        self.refuse_lost(*STORES)
        with self._writing():
            held = self.ledger.passages
            fresh = [one for one in passages if not _same(held.get(one.id), one)]
            other = [one for one in fresh if one.id in held]
            if other and not replacing:
                raise DataError(
                    f"{other[0].place or other[0].id}: {len(other)} passages have ids of other texts in {self.path}, "
                    f"the first {other[0].id!r}. Say that they replace them (`encodeonce memory add --replace`, in "
                    "Python replacing=True), or give them ids of their own."
                )
            stale = self._stale(passages)
            if stale and not replacing:
                log.warning(
                    "%s keeps %d windows of texts that were given without them, the first %r: if the texts changed, "
                    "their old windows still answer. `encodeonce memory add --replace` takes them out.",
                    self.path, len(stale), stale[0],
                )  # fmt: skip
                stale = []
            documents = self.documents(passages)
            done = [
                _filled(store, documents, encoder, name, cap, progress)
                for store, encoder, name, cap in (
                    (self.states, source, "states", max_bytes),
                    (self.vectors, vectors, "vectors", None),
                )
            ]
            self.ledger.put(fresh, stale)
        return Added(len(fresh) - len(other), len(other), len(passages) - len(fresh), len(stale), *done)

    def remove(self, ids: Iterable[str]) -> int:
        """Take passages out, by their ids or by that of the text they were cut from; how many went. An id that is both,
        as of a text that was long once and is a passage of its own now, takes out all of it.

        NotStored naming the first id that is neither. `gc` frees their room.
        """
        with self._writing():
            of_source: dict[str, list[str]] = {}
            for passage in self.ledger.passages.values():
                of_source.setdefault(passage.source, []).append(passage.id)
            gone: dict[str, None] = {}
            for one in ids:
                found = [*([one] if one in self else []), *(of_source.get(one, []) if one else [])]
                if not found:
                    raise NotStored(f"{self.path} has no passage {one!r} and none cut from a text of that name.")
                gone |= dict.fromkeys(found)
            self.ledger.put(removed=gone)
        return len(gone)

    def gc(self, slack: float = 0.0, dry_run: bool = False) -> list[Removal]:
        """Free what no passage needs, in the states and the vectors; `slack` as in `store.keep_only`.

        Leftovers of killed writers go too, and the changes become one file.
        """
        with self._writing():
            documents = self.documents(self.passages)
            done = []
            for store in (self.states, self.vectors):
                if store is not None:
                    gc(store.path, dry_run=dry_run)
                    done.append(keep_only(store.path, store.keys(documents), slack=slack, dry_run=dry_run))
            if not dry_run:
                self.ledger.rewrite()
                self._reopen()
        return done

    def info(self) -> dict[str, Any]:
        """What `memory info` shows. `bytes_per_passage` counts all of the folder; `unused_items` wait for `gc`,
        and `lost_items` for their passages to be given again; `lost` are whole stores that are not there."""
        sizes = {name: info(store.path) for name, store in self._stores()}
        nbytes = sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())
        words = sum(len(passage.text.split()) for passage in self.ledger.passages.values())
        documents = self.documents(self.passages)
        needed = {name: list(dict.fromkeys(store.keys(documents))) for name, store in self._stores()}
        lost = {name: len(store.missing(needed[name])) for name, store in self._stores()}
        unused = {name: len(store) - (len(needed[name]) - lost[name]) for name, store in self._stores()}
        found, answered = self.hits()
        return {
            "path": str(self.path),
            "passages": len(self),
            "words": words,
            "sources": len({passage.source or passage.id for passage in self.ledger.passages.values()}),
            "form": self.form,
            "bytes": nbytes,
            "bytes_per_passage": nbytes / len(self) if len(self) else None,
            "states": sizes.get("states"),
            "vectors": sizes.get("vectors"),
            "unused_items": unused,
            "lost_items": lost,
            "lost": list(self.lost),
            "asked": self._hits()["asked"] + self._asked,
            "never_found": sum(one not in found for one in self.ledger.passages),
            "most_found": found.most_common(5),
            "most_answered": answered.most_common(5),
        }

    def count(self, found: Iterable[str], answered: str = "") -> None:
        """Note one question: which passages were found, and which gave the answer. `save_hits` keeps it."""
        self._asked += 1
        self._found.update(found)
        if answered:
            self._answered[answered] += 1

    def hits(self) -> tuple[Counter[str], Counter[str]]:
        """How often each passage was found, and how often it gave the answer, of those that are still there."""
        kept = self._hits()
        found, answered = (
            Counter({one: n for one, n in (Counter(kept[name]) + noted).items() if one in self})
            for name, noted in (("found", self._found), ("answered", self._answered))
        )
        return found, answered

    def save_hits(self) -> None:
        """Add what `count` noted to hits.json, and begin again from nothing."""
        if not self._asked:
            return
        with self._writing():
            found, answered = self.hits()
            values = {"asked": self._hits()["asked"] + self._asked, "found": found, "answered": answered}
            write_atomically(self.path / "hits.json", (json.dumps(values, ensure_ascii=False) + "\n").encode())
        self._asked, self._found, self._answered = 0, Counter(), Counter()

    def _hits(self) -> dict[str, Any]:
        path = self.path / "hits.json"
        if not path.exists():
            return {"asked": 0, "found": {}, "answered": {}}
        try:
            values = json.loads(path.read_bytes())
            counts = {name: {one: int(n) for one, n in values[name].items()} for name in ("found", "answered")}
            return {"asked": int(values["asked"]), **counts}
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise CorruptStore(f"{path} was cut or changed: {problem!r}. Delete it: the counts begin again.") from None

    def _stale(self, given: Sequence[Passage]) -> list[str]:
        """Passages of the same texts that are not among those given."""
        ids, texts = {one.id for one in given}, {one.source or one.id for one in given}
        held = self.ledger.passages.values()
        return [one.id for one in held if one.id not in ids and (one.source or one.id) in texts]

    def _stores(self) -> list[tuple[str, Store]]:
        own = zip(STORES, (self.states, self.vectors), strict=True)
        return [(name, store) for name, store in own if store is not None]

    def _reopen(self) -> None:
        """Shards went: positions are new."""
        if self.states is not None:
            self.states = Store.open(self.states.path, replace(self.states.spec, layers=self.states.layers))
        if self.vectors is not None:
            self.vectors = Store.open(self.vectors.path)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The right to change it, and everything that others changed before; StoreError where another has it."""
        claim = Claim.take(self.path / "writing.tmp")
        if claim is None:
            raise StoreError(f"{self.path} is being changed by another process. Try again when it is done.")
        with claim:
            self.ledger.refresh()
            for _, store in self._stores():
                store.refresh()
            yield


def _other_content(folder: Path) -> list[str]:
    """What lies there, apart from what a killed `create` leaves: stores without a shard, and an unfinished file."""
    return [
        file.name
        for file in sorted(folder.iterdir())
        if not (file.name in STORES and file.is_dir() and not manifest_names(file))
        and not file.name.startswith("memory.json.")
    ]


def _same(held: Passage | None, given: Passage) -> bool:
    """Whether it is the passage that is there, wherever it was read."""
    if held is None:
        return False
    mine, theirs = ((one.title, one.text, one.source, one.start) for one in (held, given))
    return mine == theirs


def _filled(
    store: Store | None,
    documents: Sequence[Document],
    source: Source | None,
    name: str,
    max_bytes: int | None,
    progress: Progress | None,
) -> FillReport | None:
    if store is None:
        return None
    if source is None:
        missing = store.missing(store.keys(documents))
        if missing:
            raise NotStored(f"{len(missing)} passages are not in {store.path}, and nothing encodes {name}: give one.")
        return None
    return store.fill(documents, source, max_bytes=max_bytes, progress=progress)
