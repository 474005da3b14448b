"""What is in the files of a task, and what is wrong with them: counts, labels, repeats, overlaps, schemes, lengths."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from math import isfinite
from statistics import fmean
from typing import Any

from ..errors import ConfigError, DataError
from ..types import Document, Pieces
from .graph_report import SHOWN, GraphReport, graph_problems, graph_report
from .spans import detect, to_spans

__all__ = ["ColumnReport", "Diagnosis", "SplitReport", "diagnose", "why_no_column"]

MANY = 20
"""More values than so many, all of them numbers, are numbers and no labels."""


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """One column in one split. `labels` by falling frequency; `missing` counts values that are null, empty or left out,
    and "_" in a list; `unseen` are the labels that train never has, with their counts and first places. `unfit` are
    documents whose field of that name is no label a word, and why the first is not. `scheme` and what follows are None
    where no spans are. `numbers` are least, mean and greatest of a column of numbers, of which no value is unseen; else
    None.
    """

    labels: dict[str, int]
    missing: int
    unseen: dict[str, int]
    unseen_places: dict[str, str]
    unfit: int = 0
    unfit_places: list[str] = field(default_factory=list)
    scheme: str | None = None
    scheme_evidence: str | None = None
    spans: int | None = None
    spans_beginning_with_i: int | None = None
    numbers: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split. `duplicates` are documents whose content was seen before in the split; `empty` have neither word nor
    text, or no second text of a pair. `graphs` says what there is of entities and relations, None where there is
    nothing. What comes from a tokenizer is None where none was given: `over_long` documents need more than one window.
    """

    documents: int
    words: int
    longest: int
    empty: int
    empty_places: list[str]
    duplicates: int
    duplicate_places: list[str]
    repeated_ids: int
    columns: dict[str, ColumnReport]
    graphs: GraphReport | None = None
    pieces: int | None = None
    words_without_pieces: int | None = None
    words_without_pieces_places: list[str] = field(default_factory=list)
    over_long: int | None = None
    over_long_places: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All splits; `overlap` ("train/dev": documents of dev whose content is in train too); `problems` in words."""

    splits: dict[str, SplitReport]
    overlap: dict[str, int]
    problems: list[str]

    def to_json(self) -> dict[str, Any]:
        """A plain dict of JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        """A page to read: a paragraph a split, then the problems."""
        blocks = ["\n".join(_split_lines(name, split)) for name, split in self.splits.items()]
        found = [f"- {problem}" for problem in self.problems] or ["none"]
        return "\n\n".join([*blocks, "\n".join(["Problems", *found])])


def diagnose(
    splits: Mapping[str, Sequence[Document]],
    columns: Sequence[str] = (),
    *,
    pieces: Mapping[str, Sequence[Pieces]] | None = None,
) -> Diagnosis:
    """Look through the documents of each split ("train", and any others) and at the named columns or meta fields.

    `pieces` holds what a tokenizer made of each document, split by split. Labels of other splits are compared with
    those of "train" where there is one. Raises ConfigError for a column no document has and for pieces of others.
    """
    known = {column: _labels_of(splits.get("train", ()), column) for column in columns}
    numeric = {column for column in columns if _numeric(splits, column)}
    reports = {
        name: _split(
            name,
            documents,
            columns,
            {column: known[column] for column in columns if column not in numeric}
            if "train" in splits and name != "train"
            else {},
            numeric,
            pieces,
            splits.get("train") if name != "train" else None,
        )
        for name, documents in splits.items()
    }
    for column in columns:
        if not any(column in d.columns or column in d.meta for documents in splits.values() for d in documents):
            found = sorted({name for documents in splits.values() for d in documents for name in (*d.columns, *d.meta)})
            raise ConfigError(f"no document has a column or field {column!r}. There is: {', '.join(found) or 'none'}.")
    keys = {name: {document.key for document in documents} for name, documents in splits.items()}
    overlap = {
        f"{one}/{other}": sum(document.key in keys[one] for document in splits[other])
        for one, other in combinations(splits, 2)
    }
    return Diagnosis(reports, overlap, list(_problems(reports, overlap)))


def _split(
    name: str,
    documents: Sequence[Document],
    columns: Sequence[str],
    known: Mapping[str, set[str]],
    numeric: set[str],
    pieces: Mapping[str, Sequence[Pieces]] | None,
    train: Sequence[Document] | None,
) -> SplitReport:
    seen: set[str] = set()
    repeated = []
    for document in documents:
        if document.key in seen:
            repeated.append(document)
        seen.add(document.key)
    empty = [document for document in documents if document.empty]
    return SplitReport(
        documents=len(documents),
        words=sum(document.n_words for document in documents),
        longest=max((document.n_words for document in documents), default=0),
        empty=len(empty),
        empty_places=_places(empty),
        duplicates=len(repeated),
        duplicate_places=_places(repeated),
        repeated_ids=len(documents) - len({document.id for document in documents}),
        columns={column: _column(documents, column, known.get(column), column in numeric) for column in columns},
        graphs=graph_report(documents, train),
        **(_pieces(name, documents, pieces[name]) if pieces and name in pieces else {}),
    )


def _column(documents: Sequence[Document], column: str, known: set[str] | None, numeric: bool) -> ColumnReport:
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    missing = 0
    for document in documents:
        for label in _values(document, column):
            if label is None:
                missing += 1
                continue
            counts[label] += 1
            first.setdefault(label, document.place or document.id)
    unseen = {label: n for label, n in counts.most_common() if known is not None and label not in known}
    unfit = _unfit(documents, column)
    report = ColumnReport(
        dict(counts.most_common()),
        missing,
        unseen,
        {label: first[label] for label in unseen},
        len(unfit),
        unfit[:SHOWN],
    )
    if numeric:
        values = [float(label) for label, n in counts.items() for _ in range(n)]
        return replace(report, numbers=(min(values), fmean(values), max(values)) if values else None)
    sequences = [document.columns[column] for document in documents if column in document.columns]
    try:
        scheme = detect(sequences)
    except DataError:  # labels that mark no spans
        return report
    if not scheme.spans:
        return report
    begun = sum(tags[span.start].startswith("I") for tags in sequences for span in to_spans(tags))
    return replace(
        report,
        scheme=scheme.name,
        scheme_evidence=scheme.evidence,
        spans=scheme.spans,
        spans_beginning_with_i=begun,
    )


def why_no_column(document: Document, column: str) -> str:
    """Why a document's list of that name is no column of one label a word; "" where it is one, and where there is no
    such list of plain values beside words."""
    content = document.meta.get(column)
    if not document.words or column in document.columns or not isinstance(content, list):
        return ""
    if any(isinstance(item, (list, dict)) for item in content):
        return ""
    if len(content) != len(document.words):
        return f"{len(content)} values for {len(document.words)} words"
    at = next((i for i, item in enumerate(content) if not isinstance(item, str)), None)
    return "" if at is None else f"word {at + 1} has {json.dumps(content[at], default=repr)}; labels are strings"


def _unfit(documents: Sequence[Document], column: str) -> list[str]:
    """Place and reason of each document that lacks a label a word, in a column that most have or that is as long as the
    words; a list of another kind, such as the labels of a document, is none."""
    mostly = 2 * sum(column in document.columns for document in documents) >= len(documents)
    found = []
    for document in documents:
        why = why_no_column(document, column)
        if why and (mostly or len(document.meta[column]) == len(document.words)):
            found.append(f"{document.place or document.id}: {why}")
    return found


def _pieces(name: str, documents: Sequence[Document], pieces: Sequence[Pieces]) -> dict[str, Any]:
    for document, cut in zip(documents, pieces, strict=False):
        if cut.key != document.key:
            raise ConfigError(
                f"pieces of {name!r} are not those of its documents: {document.place or document.id} differs."
            )
    if len(pieces) != len(documents):
        raise ConfigError(f"{len(pieces)} pieces for the {len(documents)} documents of {name!r}.")
    lacking = [(d, word) for d, cut in zip(documents, pieces, strict=True) for word in cut.unknown_words]
    long = [document for document, cut in zip(documents, pieces, strict=True) if cut.n_windowed]
    return {
        "pieces": sum(map(len, pieces)),
        "words_without_pieces": len(lacking),
        "words_without_pieces_places": [
            f"{d.place or d.id}: word {at} {d.words[at]!a}" if at < len(d.words) else d.place or d.id
            for d, at in lacking[:SHOWN]
        ],
        "over_long": len(long),
        "over_long_places": _places(long),
    }


def _values(document: Document, column: str) -> list[str | None]:
    """The labels as tasks read them; None for each that is missing: "_" in a list, null and the empty string, and for
    a text without such a field."""
    if column not in document.columns and column not in document.meta:
        return [None] if document.text and not document.words else []
    value = document.columns[column] if column in document.columns else document.meta[column]
    listed = isinstance(value, (list, tuple))
    missing = (None, "", "_") if listed else (None, "")
    labels = value if listed else [value]
    return [None if one in missing else str(one).lower() if isinstance(one, bool) else str(one) for one in labels]


def _numeric(splits: Mapping[str, Sequence[Document]], column: str) -> bool:
    """Whether a field of documents holds numbers: more than `MANY` values, and nothing else."""
    seen = {
        value
        for documents in splits.values()
        for document in documents
        if column not in document.columns
        for value in _values(document, column)
        if value is not None
    }
    try:
        return len(seen) > MANY and all(isfinite(float(value)) for value in seen)
    except ValueError:
        return False


def _labels_of(documents: Sequence[Document], column: str) -> set[str]:
    return {label for document in documents for label in _values(document, column) if label is not None}


def _places(documents: Sequence[Document]) -> list[str]:
    return [document.place or document.id for document in documents[:SHOWN]]


def _problems(reports: Mapping[str, SplitReport], overlap: Mapping[str, int]) -> Iterator[str]:
    for name, split in reports.items():
        if not split.documents:
            yield f"{name}: no examples"
        if split.documents == 1:
            yield f"{name}: one example"
        for count, what, places in (
            (split.empty, "documents without word or text, or second text of a pair", split.empty_places),
            (split.duplicates, "documents repeat an earlier one", split.duplicate_places),
            (split.words_without_pieces, "words have no piece of their own", split.words_without_pieces_places),
            (
                split.over_long,
                "documents are longer than the encoder's window, and are read in parts",
                split.over_long_places,
            ),
        ):
            if count:
                yield f"{name}: {count:,} {what} ({_some(places, count)})"
        if split.repeated_ids:
            yield f"{name}: {split.repeated_ids:,} documents have an id that is used before"
        for column, report in split.columns.items():
            yield from _column_problems(name, column, report)
        if split.graphs is not None:
            yield from graph_problems(name, split.graphs)
    yield from _schemes_that_differ(reports)
    for (one, other), count in zip(combinations(reports, 2), overlap.values(), strict=True):
        if count:
            yield f"{other}: {count:,} of {reports[other].documents:,} documents are in {one} too"


def _column_problems(name: str, column: str, report: ColumnReport) -> Iterator[str]:
    if report.missing:
        yield f"{name}: column {column!r} has {report.missing:,} empty values"
    if report.unfit:
        what = "documents do not have one label a word"
        yield f"{name}: column {column!r}: {report.unfit:,} {what} ({_some(report.unfit_places, report.unfit)})"
    if len(report.labels) == 1:
        yield f"{name}: column {column!r} has one label only: {next(iter(report.labels))!r}"
    if report.unseen:
        shown = ", ".join(
            f"{label} ({n:,}, {report.unseen_places[label]})" for label, n in [*report.unseen.items()][:SHOWN]
        )
        more = f" and {len(report.unseen) - SHOWN} more" if len(report.unseen) > SHOWN else ""
        yield f"{name}: column {column!r} has {len(report.unseen)} labels that train never has: {shown}{more}"
    if report.scheme == "mixed":
        yield f"{name}: column {column!r} keeps to no tagging scheme: {report.scheme_evidence}"
    if report.spans_beginning_with_i and report.scheme != "IOB1":
        yield f"{name}: column {column!r} has {report.spans_beginning_with_i:,} spans that begin with I-"


def _schemes_that_differ(reports: Mapping[str, SplitReport]) -> Iterator[str]:
    for column in next(iter(reports.values())).columns if reports else ():
        schemes = {
            name: split.columns[column].scheme for name, split in reports.items() if split.columns[column].scheme
        }
        if len(set(schemes.values())) > 1:
            named = ", ".join(f"{name} {scheme}" for name, scheme in schemes.items())
            yield f"column {column!r} is tagged by different schemes: {named}"


def _some(places: Sequence[str], count: int) -> str:
    return ", ".join(places) + (", ..." if count > len(places) else "")


def _split_lines(name: str, split: SplitReport) -> Iterator[str]:
    yield f"{name}: {split.documents:,} documents, {split.words:,} words, the longest of {split.longest:,} words"
    if split.pieces is not None:
        yield f"  pieces: {split.pieces:,}, {split.pieces / max(split.words, 1):.2f} a word"
    for column, report in split.columns.items():
        if report.numbers is not None:
            least, mean, greatest = report.numbers
            yield f"  {column}: numbers from {least:g} to {greatest:g}, {mean:.4g} on average"
            continue
        shown = ", ".join(f"{label} {count:,}" for label, count in [*report.labels.items()][:12])
        more = f", ... ({len(report.labels)} labels)" if len(report.labels) > 12 else ""
        yield f"  {column}: {shown}{more}"
        if report.scheme:
            yield f"  {column}: {report.spans:,} spans, {report.scheme} ({report.scheme_evidence})"
    if split.graphs is not None:
        yield from split.graphs.lines()
