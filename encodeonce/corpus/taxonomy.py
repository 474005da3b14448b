"""Category paths of documents, and the taxonomies they lie in (FastDoc; spec A6, A8).

A class is a whole path from the root, never a node's name alone: two "Accessories" under different parents differ.

Axes: N documents   H levels of the taxonomy   V width of a word vector
"""

import csv
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..errors import ConfigError, DataError
from ..types import Document
from ._files import text_of
from .text import MARKS

__all__ = [
    "Mapped",
    "Taxonomy",
    "last_name",
    "last_nodes",
    "map_categories",
    "map_category",
    "names_of",
    "path_of",
    "read_codes",
    "read_taxonomy",
    "spelled",
]

Path_ = tuple[str, ...]
Row = Mapping[str, str]
"""Of a table: column -> value."""
SEPARATOR = ">"
"""Between the nodes of a path that is written as one string."""
ENDINGS = ("", ".txt", ".text", ".tsv", ".json")
"""Of taxonomy files: lines in all but the last two."""

_NUMBERED = re.compile(r"(?:(\d+)\s+-\s+)?(.*)")
_WORD = re.compile(rf"[^\W\d_](?:[^\W\d_]|[{MARKS}])*")
_JOINT = re.compile(r"(?<=\w)[-_](?=\w)")


def path_of(document: Document, field: str = "category_path") -> Path_:
    """The category path that a document's `meta` has under `field`: a list of names, or one string ("A > B > C").

    Nothing, or a null, is the empty path. DataError for any other kind of value.
    """
    value = document.meta.get(field)
    if isinstance(value, str):
        return tuple(part for part in (part.strip() for part in value.split(SEPARATOR)) if part)
    return _strings(value, document, field, "a list of names, from the root, or one string such as 'A > B'")


def names_of(document: Document, field: str) -> Path_:
    """The names (concepts, cited ids, one brand) in `meta` under `field`: a list, or one string with "|" between."""
    value = document.meta.get(field)
    if isinstance(value, str):
        return tuple(dict.fromkeys(part for part in (part.strip() for part in value.split("|")) if part))
    return tuple(dict.fromkeys(_strings(value, document, field, "a list of names, or one string such as 'a|b'")))


def _strings(value: Any, document: Document, field: str, form: str) -> Path_:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) and part.strip() for part in value):
        raise DataError(f"{document.place or document.id}: {field!r} is {value!r}; it must be {form}.")
    return tuple(part.strip() for part in value)


@dataclass(frozen=True)
class Taxonomy:
    """The classes of every level: `classes[h]` are the paths of h + 1 nodes in order; id 0 is the null class.

    A document whose path ends above a level is in the null class there (spec A6).
    """

    classes: tuple[tuple[Path_, ...], ...]

    @classmethod
    def of(cls, paths: Sequence[Path_]) -> "Taxonomy":
        """From the paths of documents, or of a whole taxonomy. DataError where every path is empty."""
        depth = max(map(len, paths), default=0)
        if not depth:
            raise DataError(
                f"all of {len(paths)} documents have an empty category path, so there is nothing to classify. In "
                "`pretrain` data.path names the field; objective = 'triplet' reads no classes, and without metadata "
                "sample.rule = 'rouge' and sample.topic_levels will do."
            )
        return cls(tuple(tuple(sorted({p[: h + 1] for p in paths if len(p) > h})) for h in range(depth)))

    @property
    def n_classes(self) -> tuple[int, ...]:
        """Classes of each level, the null class included."""
        return tuple(len(level) + 1 for level in self.classes)

    def labels(self, paths: Sequence[Path_]) -> Int[np.ndarray, "N H"]:
        """The class of each path at each level. DataError for a path that is not in the taxonomy."""
        ids = [{path: number for number, path in enumerate(level, 1)} for level in self.classes]
        found = np.zeros((len(paths), len(ids)), np.int64)
        for n, path in enumerate(paths):
            if len(path) > len(ids) or (path and path not in ids[len(path) - 1]):
                raise DataError(f"the path {' > '.join(path)!r} is not in this taxonomy of {len(ids)} levels.")
            for h in range(len(path)):
                found[n, h] = ids[h][path[: h + 1]]
        return found

    def statistics(self, paths: Sequence[Path_] = ()) -> list[dict[str, int]]:
        """For each level: classes, and of these paths how many reach it, how many classes have any, the largest."""
        found = []
        for h, level in enumerate(self.classes):
            counts: dict[Path_, int] = {}
            for path in paths:
                if len(path) > h:
                    counts[path[: h + 1]] = counts.get(path[: h + 1], 0) + 1
            found.append(
                {
                    "level": h + 1,
                    "classes": len(level),
                    "documents": sum(counts.values()),
                    "used": len(counts),
                    "largest": max(counts.values(), default=0),
                }
            )
        return found


def read_taxonomy(path: str | Path) -> list[Path_]:
    """Every path of a taxonomy file, each once, in the file's order; `.gz` is seen through.

    Three forms: a text line a path with " > " between nodes and maybe an "id - " before (Google's product taxonomy); a
    tsv with columns `group`, `archive`, `name` and perhaps `category` (arXiv's) or `level`, `code`, `label`, `parent`
    (EuroVoc's); a JSON object name -> list of nodes (what FastDoc's authors published). They are told apart by the
    file's ending: .txt (or none), .tsv, .json. Raises DataError with file:line, and for another ending; of a table also
    for a parent that is no row of it, and for parents that go round.
    """
    return list(dict.fromkeys(nodes for _, nodes in _entries(Path(path))))


def read_codes(path: str | Path) -> dict[str, Path_]:
    """What a taxonomy file calls its paths beside their names: the ids of Google's list, arXiv's `category` ("cs.CL"),
    EuroVoc's `code`, the category names of the authors' JSON. Empty where it has none. Raises as `read_taxonomy`."""
    return {code: nodes for code, nodes in _entries(Path(path)) if code}


def _entries(path: Path) -> list[tuple[str, Path_]]:
    """(code, path) of every entry, in order; "" for no code."""
    suffix = Path(str(path).removesuffix(".gz")).suffix
    if suffix not in ENDINGS:
        raise DataError(
            f"{path}: no taxonomy is read from a {suffix} file. There is: .txt, a path a line with ' > ' between its "
            "nodes; .tsv with columns group, archive, name or code, label, parent; .json, name -> list of nodes."
        )
    text = text_of(path)
    if suffix == ".json":
        found = _of_json(text, path)
    elif suffix == ".tsv":
        found = _of_table(text, path)
    else:
        found = _of_lines(text, path)
    if not found:
        raise DataError(f"{path}: no path in it.")
    found = [(code, tuple(node.strip() for node in nodes)) for code, nodes in found]
    nameless = next((nodes for _, nodes in found if not all(nodes)), None)
    if nameless is not None:
        shown = f" {SEPARATOR} ".join(nameless)
        raise DataError(f"{path}: the path {shown!r} has a node without a name. Name it, or leave its level out.")
    return found


def _of_lines(text: str, path: Path) -> list[tuple[str, Path_]]:
    found = []
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        cut = _NUMBERED.fullmatch(line)
        if not cut or not line or line.startswith("#"):
            continue
        nodes = tuple(part.strip() for part in cut[2].split(SEPARATOR))
        if not all(nodes):
            raise DataError(f"{path}:{number}: {line!r} has a node without a name. Name it, or take a '>' away.")
        found.append((cut[1] or "", nodes))
    return found


def _of_json(text: str, path: Path) -> list[tuple[str, Path_]]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as problem:
        raise DataError(f"{path}:{problem.lineno}:{problem.colno}: bad JSON: {problem.msg}.") from None
    if not isinstance(values, dict):
        raise DataError(f"{path}: a {type(values).__name__}; it must be an object: name -> list of nodes.")
    bad = next(
        (k for k, v in values.items() if not isinstance(v, list) or not all(isinstance(n, str) for n in v)), None
    )
    if bad is not None:
        raise DataError(f"{path}: {bad!r} is no list of nodes from the root.")
    if any(re.fullmatch(r"level_\d+", name) for name in values):
        raise DataError(
            f"{path}: lists of what is at {', '.join(values)}, without parents, so there are no paths in it. Give a "
            "table with columns code, label, parent."
        )
    return [(name, tuple(nodes)) for name, nodes in values.items() if nodes]


def _of_table(text: str, path: Path) -> list[tuple[str, Path_]]:
    read = csv.DictReader(text.split("\n"), delimiter="\t", quoting=csv.QUOTE_NONE)
    columns = set(read.fieldnames or ())
    rows: list[Row] = []
    lines: list[int] = []
    for cells in read:
        if None in cells or None in cells.values():
            kind = "more" if None in cells else "fewer"
            raise DataError(
                f"{path}:{read.line_num}: {kind} values than the header has columns, {len(columns)}. Cells are divided "
                "by a tab."
            )
        rows.append(cells)
        lines.append(read.line_num)
    if {"group", "archive", "name"} <= columns:
        return [(row.get("category", ""), (row["group"], row["archive"], row["name"])) for row in rows]
    if not {"code", "label", "parent"} <= columns:
        raise DataError(f"{path}:1: columns {sorted(columns)}; it needs group, archive, name or code, label, parent.")
    coded: dict[str, list[Row]] = {}
    for row in rows:
        coded.setdefault(row["code"], []).append(row)
    for row, line in zip(rows, lines, strict=True):
        if row["parent"] and row["parent"] not in coded:
            raise DataError(
                f"{path}:{line}: {row['code']!r} has the parent {row['parent']!r}, and no row has this code. Add its "
                "row, or leave the parent of a root empty."
            )
    levels = list(dict.fromkeys(row.get("level", "") for row in rows))
    above = partial(_above, coded=coded, levels=levels)
    return [(row["code"], _down_to(row, above, f"{path}:{line}")) for row, line in zip(rows, lines, strict=True)]


def _above(row: Row, *, coded: Mapping[str, Sequence[Row]], levels: Sequence[str]) -> Row:
    """The parent of a row that has one. Of several rows with its code (EuroVoc's domain 20 and descriptor 20) it is
    that of the nearest level before the row's own, in the order in which the file has them."""

    def rank(one: Row) -> int:
        return levels.index(one.get("level", ""))

    alike = coded[row["parent"]]
    return max([one for one in alike if rank(one) < rank(row)] or alike, key=rank)


def _down_to(row: Row, above: Callable[[Row], Row], place: str) -> Path_:
    """The labels from the root to a row. DataError where its parents go round."""
    chain = [row]
    while chain[-1]["parent"]:
        chain.append(above(chain[-1]))
        if any(chain[-1] is one for one in chain[:-1]):
            codes = ", ".join(repr(one["code"]) for one in chain[1:])
            raise DataError(
                f"{place}: {row['code']!r} has no root: its parents are {codes}, which go round. Leave the parent of a "
                "root empty."
            )
    return tuple(one["label"] for one in reversed(chain))


@dataclass(frozen=True, slots=True)
class Mapped:
    """Where a category went: `leaf` (empty where nothing was known or near enough) and the cosine, 1 for its name."""

    category: str
    leaf: Path_
    cosine: float
    exact: bool


Embed = Callable[[str], Float[np.ndarray, " V"] | None] | Mapping[str, Float[np.ndarray, " V"]]


def map_category(
    category: str,
    leaves: Sequence[Path_],
    embed: Embed,
    min_cos: float | None = None,
    codes: Mapping[str, Path_] | None = None,
) -> Mapped:
    """The leaf that a category belongs to (spec A8): of the same name, else of the nearest last two nodes.

    A category is a name, a whole path ("A > B > C"), or one of `codes` (`read_codes`). A path that the leaves have is
    that leaf; of any other its last name counts, and of several leaves of this name the one with most of the path's
    names. Names are the same up to case, white space and hyphens between words. `embed` gives a word's vector (None, or
    absent: unknown, skipped) or, as a function, a sentence encoder's vector of the whole name; for it names are
    lower-cased and cut at everything but letters (`spelled`), and ties go to the earlier leaf. Where no word is known,
    or the cosine is under `min_cos`, the leaf is the empty path.
    """
    return map_categories([category], leaves, embed, min_cos, codes)[0]


def map_categories(
    categories: Sequence[str],
    leaves: Sequence[Path_],
    embed: Embed,
    min_cos: float | None = None,
    codes: Mapping[str, Path_] | None = None,
) -> list[Mapped]:
    """`map_category` of each, the leaves embedded once."""
    if not leaves:
        raise ConfigError("no leaves to map a category to: read_taxonomy(path) gives those of a file.")
    known_as = _Names(leaves, codes or {})
    found: dict[str, Mapped] = {}
    for name in categories:
        leaf = known_as.leaf(name)
        if leaf is not None:
            found[name] = Mapped(name, leaf, 1.0, True)
    asked = [name for name in dict.fromkeys(categories) if name not in found]
    vectors = [_mean(last_nodes(leaf), embed) for leaf in leaves] if asked else []
    known = {n: vector for n, vector in enumerate(vectors) if vector is not None}
    places, table = list(known), np.stack(list(known.values())) if known else np.zeros((0, 0))
    for name in asked:
        query = _mean(last_name(name), embed)
        cosines = (table * query).sum(1) if query is not None and known else np.zeros(0)
        best = int(cosines.argmax()) if len(cosines) else -1
        near = float(cosines[best]) if best >= 0 else 0.0
        far = best < 0 or (min_cos is not None and near < min_cos)
        found[name] = Mapped(name, () if far else leaves[places[best]], near, False)
    return [found[name] for name in categories]


class _Names:
    """Leaves by whole path, by code and by name."""

    def __init__(self, leaves: Sequence[Path_], codes: Mapping[str, Path_]) -> None:
        self.whole = {tuple(map(_called, leaf)): leaf for leaf in reversed(leaves)}
        self.codes = {code.lower(): leaf for code, leaf in codes.items()}
        self.named: dict[str, list[Path_]] = {}
        for leaf in leaves:
            self.named.setdefault(_called(leaf[-1]), []).append(leaf)

    def leaf(self, category: str) -> Path_ | None:
        """None where nothing is called so."""
        nodes = tuple(map(_called, category.split(SEPARATOR)))
        if len(nodes) > 1 and nodes in self.whole:
            return self.whole[nodes]
        last = last_name(category)
        if last.lower() in self.codes:
            return self.codes[last.lower()]
        alike = self.named.get(_called(last), ()) if last else ()
        return max(alike, key=lambda leaf: len(set(nodes) & set(map(_called, leaf))), default=None)


def last_name(category: str) -> str:
    """Of a path that is written as one string the last node's name; of a name itself."""
    return category.rsplit(SEPARATOR, 1)[-1].strip()


def _called(name: str) -> str:
    """What names have in common that are the same; digits and signs tell them apart ("B6" and "B12", "C" and "C++")."""
    return " ".join(_JOINT.sub(" ", _composed(name).casefold()).split())


def _composed(name: str) -> str:
    """However its accents are written."""
    return unicodedata.normalize("NFC", name)


def spelled(name: str) -> str:
    """Lower-cased words of letters alone: what is embedded."""
    return " ".join(_WORD.findall(_composed(name).lower()))


def last_nodes(leaf: Path_) -> str:
    """What a leaf is compared by: the last two nodes of its path."""
    return " ".join(leaf[-2:])


def _mean(name: str, embed: Embed) -> Float[np.ndarray, " V"] | None:
    """The mean of the known words' vectors, scaled to length 1; of the whole string by a function."""
    if not spelled(name):
        return None
    if callable(embed):
        vector = embed(spelled(name))
    else:
        known = [embed[word] for word in spelled(name).split() if word in embed]
        vector = np.mean(known, axis=0) if known else None
    norm = 0.0 if vector is None else float(np.linalg.norm(vector))
    return None if vector is None or norm == 0 else np.asarray(vector, np.float64) / norm
