"""The nouns: small frozen values that cross the walls between rooms. Nothing here imports torch.

Axes: L views (layers)   T rows of one item (pieces)   D width   B items of a batch   Q queries   K neighbours
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from .errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "APART",
    "DTYPES",
    "IGNORE",
    "Answer",
    "Corpus",
    "Document",
    "Edit",
    "Encoder",
    "Encoding",
    "Method",
    "Neighbours",
    "Passage",
    "Pieces",
    "Question",
    "Spec",
    "Texts",
    "item_key",
    "texts_digest",
]

DTYPES = ("fp32", "fp16", "bf16", "int8")
"""Storage types a store knows."""

LATER = ("first_position", "segment")
"""Fields of a Spec that came after the first stores of its format."""

IGNORE = -100
"""Gold id that counts for nothing: unlabelled, or labelled with something training never saw."""

APART = "document-apart"
"""The `piece` of a task that compares two texts which are read one by one."""

Edit = Callable[[int, str, "Tensor", "Tensor"], "Tensor"]
"""`edit(block, slot, x, y) -> y`: called at a named slot inside a block with input x and output y; may replace y."""


def item_key(words: Sequence[str], text: str = "", pair: str = "", apart: bool = False) -> str:
    """SHA-256 (hex) of what an encoder is shown: the words (or the running text where there are none), a second text.

    The same content has the same key in every process, file and order; nothing else enters it. `pair` enters it only
    where there is one, and whether its texts are shown `apart` only there.
    """
    first = ["words", *words] if words else ["text", text]
    shown = ["apart" if apart else "pair", first, pair] if pair else first
    return hashlib.sha256(json.dumps(shown, ensure_ascii=True).encode("ascii")).hexdigest()


def texts_digest(texts: Sequence[str]) -> str:
    """SHA-256 (hex) of texts in their order."""
    return hashlib.sha256(json.dumps(list(texts), ensure_ascii=True).encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Document:
    """One item of a corpus: a sentence or a text, with what its file says of it.

    `columns` holds one string a word under the reader's column names ("upos", "tag", ...); `meta` holds one value a
    document ("label", "url", ...). `place` is "file:line" and goes into every error about this document. `pair` is the
    second text of a pair input ("" where there is none, white space where it is empty); an encoder is shown both at
    once, or with `apart` one after the other, each as a text of its own. `sentences` are the text's, for encoders that
    give one vector a sentence (`corpus.text.with_sentences` cuts them).
    """

    id: str
    words: tuple[str, ...] = ()
    text: str = ""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    pair: str = ""
    sentences: tuple[str, ...] = ()
    apart: bool = False

    def __post_init__(self) -> None:
        for name, values in self.columns.items():
            if len(values) != len(self.words):
                raise ConfigError(
                    f"{self.place or self.id}: column {name!r} has {len(values)} values for {len(self.words)} words."
                )

    @property
    def key(self) -> str:
        """Content address of this document; see `item_key`."""
        return item_key(self.words, self.text, self.pair, self.apart)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read: no word and no text, or of a pair no second text."""
        return not (self.words or self.text.strip()) or bool(self.pair and not self.pair.strip())

    @property
    def n_first(self) -> int:
        """Words of the text, of a pair's first; a running text is cut at white space."""
        return len(self.words or self.text.split())

    @property
    def n_words(self) -> int:
        """Words, of both texts where it is a pair."""
        return self.n_first + len(self.pair.split())

    def key_in(self, unit: str) -> str:
        """Content address of what a store of this `Spec.unit` keeps: pieces (`key`), a row a sentence, or one row.

        Of the same document these three differ. A row a sentence is addressed by the sentences alone.
        """
        if unit not in ("sentence", "text"):
            return self.key
        shown = ["sentences", *self.sentences] if unit == "sentence" else ["row", self.key]
        return hashlib.sha256(json.dumps(shown, ensure_ascii=True).encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that questions are answered from, often a window of a longer one.

    A window's `source` is the id of the longer text, and `start` the character of it at which this one begins, so that
    character c of `text` is character start + c of the source. A whole text has no source. `place` is "file:line".
    """

    id: str
    title: str = ""
    text: str = ""
    source: str = ""
    start: int = 0
    place: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A text, gold or given, and where it stands: characters `start`:`end` of the passage with id `passage`.

    Both are -1 for one that stands nowhere in particular: generated, or gold of a file that gives strings only.
    The empty text says "no answer", which is an outcome like any other.
    """

    text: str
    passage: str = ""
    start: int = -1
    end: int = -1
    score: float = 0.0

    def __post_init__(self) -> None:
        if not (self.start == self.end == -1 or (self.passage and 0 <= self.start <= self.end)):
            raise ConfigError(
                f"an answer stands at characters start:end of a passage, or nowhere (-1, -1); not at "
                f"{self.start}:{self.end} of {self.passage!r}."
            )

    @property
    def located(self) -> bool:
        """Whether it is known where it stands."""
        return self.start >= 0


@dataclass(frozen=True, slots=True)
class Question:
    """A question with what its file says of it.

    `answers` are alternatives, each right; () where none is known. That nothing is the right answer is an answer, the
    one with the empty text. `passages` are those given with the question, in the file's order, and `relevant` the ids
    of passages judged to answer it, given or not. `unlisted` are passages with an answer that were not given: to learn
    from, never to be found. `meta` and `place` are as a Document's.
    """

    id: str
    text: str
    answers: tuple[Answer, ...] = ()
    passages: tuple[Passage, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    relevant: tuple[str, ...] = ()
    unlisted: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Pieces:
    """A document cut by a tokenizer, special pieces included, windows already planned.

    `ids` int32 [T] and `word` int32 [T] describe the whole item; word −1 marks a special piece; every word has at least
    one piece. `windows` are `(start, stop, keep_start, keep_stop)` over the T rows: the model sees rows start:stop,
    with the special pieces around them, and its vectors for rows keep_start:keep_stop are kept. A short item has one.

    The words of a pair's second text are numbered on from those of the first. `segments` int32 [T] tells the texts of a
    pair apart where the tokenizer does (BERT's token types); None: a single text, or a tokenizer that does not. Texts
    that are shown apart stand end to end, each with its special pieces and its own windows: `texts` says how many.
    """

    key: str
    ids: np.ndarray
    word: np.ndarray
    n_words: int
    windows: tuple[tuple[int, int, int, int], ...]
    unknown_words: tuple[int, ...] = ()
    segments: np.ndarray | None = None
    texts: int = 1

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def per_word(self) -> np.ndarray:
        """Pieces of each word, int64 [n_words]."""
        return np.bincount(self.word[self.word >= 0], minlength=self.n_words)

    @property
    def n_windowed(self) -> int:
        """1 where this is longer than a window, else 0."""
        return int(len(self.windows) > self.texts)

    @property
    def n_unknown(self) -> int:
        """Words without a piece of their own."""
        return len(self.unknown_words)


@dataclass(frozen=True, slots=True)
class Texts:
    """An item whose rows are whole texts (its sentences, or one), each cut into pieces; a text may be there twice."""

    key: str
    texts: tuple[Pieces, ...]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def word(self) -> np.ndarray:
        """Int32 [T]: rows are numbered, none is special."""
        return np.arange(len(self.texts), dtype=np.int32)

    @property
    def n_windowed(self) -> int:
        """Texts longer than a window."""
        return sum(text.n_windowed for text in self.texts)

    @property
    def n_unknown(self) -> int:
        """Words without a piece of their own."""
        return sum(text.n_unknown for text in self.texts)


@dataclass(frozen=True, slots=True)
class Encoding:
    """What a store keeps of one item: `states` [L, T, D], and for each of the T rows its word (−1: none)."""

    key: str
    states: np.ndarray
    word: np.ndarray


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything that made a store. Two stores with equal Specs hold equal vectors for equal content.

    `encoder` and `revision` are names for people and are not compared; the three hashes are.
    `layers` are view numbers, 0 the embeddings, `n_blocks` the last block. `unit` says what a row is: a "piece", a
    "sentence" (an item is a document), or a whole "text"; `pooling` how the pieces of a row were made one vector:
    "mean" or "cls", "+l2" where it was then scaled to length 1. `first_position` and `segment` say where in an input
    the items stood: both are 0 but for a memory of passages, which are read behind a question (spec L-10).
    """

    encoder: str
    weights: str
    config: str
    tokenizer: str
    n_blocks: int
    width: int
    layers: tuple[int, ...]
    window: int
    overlap: int
    unit: str = "piece"
    pooling: str = "none"
    empty_words: str = "unknown"
    compute: str = "fp32"
    dtype: str = "fp16"
    revision: str = ""
    format: int = 1
    first_position: int = 0
    segment: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(int(layer) for layer in self.layers))
        if self.dtype not in DTYPES:
            raise ConfigError(f"dtype={self.dtype!r} is not a storage type. There is: {', '.join(DTYPES)}.")
        if not self.layers or list(self.layers) != sorted(set(self.layers)):
            raise ConfigError(f"layers={self.layers} must be ascending, without repeats, and at least one.")
        if self.layers[0] < 0 or self.layers[-1] > self.n_blocks:
            raise ConfigError(f"layers={self.layers} must lie between 0 (embeddings) and {self.n_blocks} (last block).")

    def differences(self, other: "Spec") -> list[str]:
        """Each compared field on which the two differ, as "field: mine is X, theirs is Y"; empty when they agree."""
        mine, theirs = self.compared(), other.compared()
        return [f"{name}: {mine[name]!r} here, {theirs[name]!r} there" for name in mine if mine[name] != theirs[name]]

    def compared(self) -> dict[str, Any]:
        """All fields but those that are names for people, as JSON values."""
        names = [f.name for f in fields(self) if f.name not in ("encoder", "revision")]
        return {name: getattr(self, name) for name in names} | {"layers": list(self.layers)}

    def to_json(self) -> dict[str, Any]:
        """A plain dict of JSON values. Fields that stores of this format did not always have are left out where they
        are 0: what was stored before them says the same, byte for byte."""
        left_out = {name for name in LATER if not getattr(self, name)}
        values = {name: value for name, value in asdict(self).items() if name not in left_out}
        return {**values, "layers": list(self.layers)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Spec":
        """The inverse of `to_json`; unknown or missing fields are named in a ConfigError."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"unknown Spec fields {unknown}; this version knows {sorted(known)}.")
        try:
            return cls(**{**values, "layers": tuple(values["layers"])})
        except (TypeError, KeyError) as problem:
            raise ConfigError(f"incomplete Spec: {problem}.") from None


@dataclass(frozen=True)
class Corpus:
    """The texts whose vectors are searched: how many, a SHA-256 of them in their order, what made the vectors."""

    texts: int
    sha256: str
    spec: Spec

    @classmethod
    def of(cls, texts: Sequence[str], spec: Spec) -> "Corpus":
        """Of these texts, in this order."""
        return cls(len(texts), texts_digest(texts), spec)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"texts": self.texts, "sha256": self.sha256, "spec": self.spec.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Corpus":
        """The inverse of `to_json`."""
        return cls(values["texts"], values["sha256"], Spec.from_json(values["spec"]))


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Of each query its K nearest rows, nearest first: `ids` int64 [Q, K], never -1, and `scores` fp32 [Q, K].

    A score is the squared distance ("l2"; 0 is nearest), the inner product ("ip") or the cosine ("cosine").
    """

    ids: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


@runtime_checkable
class Encoder(Protocol):
    """A stack that can be entered and left anywhere. One class a family in `encoders/`."""

    n_blocks: int
    width: int
    window: int
    slots: tuple[str, ...]

    def lookup(self, ids: "Tensor") -> "Tensor":
        """Int [B T] -> Float [B T D]: piece vectors, before positions."""

    def place(self, vectors: "Tensor", positions: "Tensor | None" = None, segments: "Tensor | None" = None) -> "Tensor":
        """Float [B T D] -> Float [B T D]: view 0, positions and the embedding norm added.

        `segments` Int [B T] tells the texts of a pair apart; families without segment vectors take no notice.
        """

    def run(
        self,
        states: "Tensor",
        mask: "Tensor | None",
        start: int = 0,
        stop: int | None = None,
        *,
        positions: "Tensor | None" = None,
        edit: Edit | None = None,
    ) -> "list[Tensor]":
        """States [B T D] before block `start` -> the states after each of the blocks start+1 ... stop."""


@runtime_checkable
class Method(Protocol):
    """What `train` knows of a method."""

    def loss(self, batch: Any) -> "Tensor":
        """A scalar to go down."""

    def predict(self, batch: Any) -> list[Any]:
        """One plain Python prediction for each example of the batch, in order."""

    def batches(self, examples: Sequence[Any], *, size: int, order: "np.random.Generator | None") -> Iterator[Any]:
        """Batches over all examples once; shuffled by `order`, in the given order where it is None."""
