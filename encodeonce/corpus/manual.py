"""Real text that every Python carries: its manual (`pydoc_data.topics`) and the docstrings of the standard library.

Sources are parsed, never imported. Their paragraphs are cut into sentences, of which those stay that read as English
prose: a capital first, a mark last, plain words between, no code. `restore` turns a sentence into a task whose labels
come from the text itself: lower-cased words without punctuation, and for each its case and the mark that followed it.
"""

import ast
import hashlib
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from inspect import cleandoc
from itertools import chain
from pathlib import Path

from ..errors import DataError
from ..types import Document
from .text import sentences

__all__ = ["CASES", "MARKS", "SPLITS", "corpus", "prose", "restore", "restored", "split_of", "task"]

CASES = ("lower", "Capitalised", "UPPER", "mixed")
"""Labels of column "case"; a word without letters is "lower"."""

MARKS = {",": "comma", ".": "period", ":": "colon", ";": "semicolon", "?": "question", "!": "exclamation"}
"""Labels of column "punct" by mark; "none" where no mark follows. Quotes, brackets and dashes leave no label."""

SPLITS = {"train": 0.8, "dev": 0.1, "test": 0.1}
"""Share of each split, by hash of the sentence: the same sentence is in the same split in every Python."""

_CHUNK = re.compile(r"^(\W*)(.*?)(\W*)$", re.DOTALL)
_DOTTED = re.compile(r"(?:\w\.)+\w")
_PLAIN = re.compile(r"[A-Za-z0-9]+(?:[-'’/][A-Za-z0-9]+)*|\d+(?:[.,]\d+)+|e\.g\.|i\.e\.")
_AROUND = set("\"'“”‘’()[].,;:?!*`")
_ITEM = re.compile(r"^\s*(?:[*•-]|\(?\w{1,2}[.)])\s+", re.MULTILINE)
_RULE = re.compile(r"^\s*([=*\-~^+|#])\1{2,}", re.MULTILINE)
_DIRECTIVE = re.compile(r"(?:Changed in|New in|Deprecated since) version [\d., to]+:\s*")


def restore(sentence: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """(words, case, punct) of a sentence: lower-cased words without punctuation, a label of each kind a word.

    The first mark of MARKS behind a word counts; a chunk without letter or digit is no word, and its mark counts for
    the word before. A sentence without words gives three empty tuples.
    """
    words: list[str] = []
    cases: list[str] = []
    marks: list[str] = []
    for chunk in re.sub(r"([—–]|--+)", r" \1 ", sentence).split():
        core, trail = _core(chunk)
        if core:
            words.append(core.lower())
            cases.append(_case(core))
            marks.append("none")
        if words and marks[-1] == "none":
            marks[-1] = next((MARKS[character] for character in trail if character in MARKS), "none")
    return tuple(words), tuple(cases), tuple(marks)


def restored(words: Sequence[str], case: Sequence[str], punct: Sequence[str]) -> str:
    """The sentence that words and labels spell; a "mixed" word stays as it is, for its label does not say how."""
    written = {name: mark for mark, name in MARKS.items()}
    shown = []
    for word, kind, mark in zip(words, case, punct, strict=True):
        cased = word.upper() if kind == "UPPER" else word[:1].upper() + word[1:] if kind == "Capitalised" else word
        shown.append(cased + written.get(mark, ""))
    return " ".join(shown)


def corpus(limit: int | None = None) -> list[tuple[str, str]]:
    """(sentence, source) of the prose of this Python's manual, then docstrings, without repeats, in a fixed order.

    Raises DataError where this Python was stripped of its manual.
    """
    seen: dict[str, str] = {}
    for text, source in chain(_topics(), _docstrings()):
        if limit is not None and len(seen) >= limit:
            break
        for sentence in prose(text):
            seen.setdefault(sentence, source)
    return list(seen.items())[:limit]


def task(limit: int | None = None) -> dict[str, list[Document]]:
    """The restoring task's documents by split; `limit` keeps the first sentences of the corpus.

    Columns "case" and "punct"; `meta` holds the sentence as "text"; `place` says where it comes from.
    """
    found: dict[str, list[Document]] = {name: [] for name in SPLITS}
    for sentence, source in corpus(limit):
        words, case, punct = restore(sentence)
        split = split_of(sentence)
        found[split].append(
            Document(
                f"manual-{split}:{len(found[split]) + 1}",
                words,
                columns={"case": case, "punct": punct},
                meta={"text": sentence},
                place=source,
            )
        )
    return found


def split_of(sentence: str) -> str:
    """The split a sentence is in: SHA-256 of its words, case aside, against the shares of SPLITS."""
    key = " ".join(restore(sentence)[0])
    point = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) / 16**8
    for name, share in SPLITS.items():
        point -= share
        if point < 0:
            return name
    return name


def prose(text: str) -> Iterator[str]:
    """The sentences of a text that read as English prose: code, tables, headings and mark-up are left out."""
    for paragraph in re.split(r"\n\s*\n", _ITEM.sub("\n\n", text)):
        if _RULE.search(paragraph):
            continue
        line = re.sub(r"\s*\[\d+\]|\s*\(\d\)", "", " ".join(paragraph.split()))
        line = _DIRECTIVE.sub("", line)
        for start, stop in sentences(line):
            if _reads_as_prose(line[start:stop]):
                yield line[start:stop]


def _reads_as_prose(sentence: str) -> bool:
    chunks = sentence.split()
    if (
        not 8 <= len(chunks) <= 40
        or not re.match(r"[\"“(]?[A-Z]", sentence)
        or sentence.rstrip('"”)*')[-1:] not in ".?!"
    ):
        return False
    lower = 0
    for chunk in chunks:
        core, trail = _core(chunk)
        lead = chunk[: chunk.find(core)] if core else ""
        if core and not _PLAIN.fullmatch(core):
            return False
        if (not core and chunk not in ("—", "–", "--", "-", "…")) or not set(lead + trail) <= _AROUND:
            return False
        lower += len(core) > 1 and core.islower()
    return lower >= 0.6 * len(chunks) and sentence.count("(") == sentence.count(")") and "..." not in sentence


def _core(chunk: str) -> tuple[str, str]:
    """A blank-free chunk's word and what follows it; an abbreviation keeps its last dot ("e.g.")."""
    match = _CHUNK.match(chunk)
    core, trail = (match[2], match[3]) if match else ("", "")
    if not core:
        return "", chunk
    if _DOTTED.fullmatch(core) and trail.startswith("."):
        return core + ".", trail[1:]
    return core, trail


def _case(word: str) -> str:
    letters = [character for character in word if character.isalpha()]
    if not letters or word == word.lower():
        return "lower"
    if letters[0].isupper() and "".join(letters[1:]) == "".join(letters[1:]).lower():
        return "Capitalised"
    return "UPPER" if word == word.upper() else "mixed"


def _topics() -> Iterator[tuple[str, str]]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise DataError(
            "This Python has no pydoc_data.topics, its own manual (some systems package it apart). "
            "Use another Python, or read a file of your own."
        ) from None
    for name in sorted(topics):
        yield topics[name], f"pydoc_data.topics:{name}"


def _docstrings() -> Iterator[tuple[str, str]]:
    """Docstrings of the standard library's single-file modules."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[!_]*.py")):
        for docstring in _of_source(path.read_bytes()):
            yield docstring, path.name


def _of_source(source: bytes) -> Iterable[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # some systems put files of another Python beside the library's
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                yield cleandoc(docstring)
