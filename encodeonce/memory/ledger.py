"""Which passages a memory holds: a log of additions and removals, never rewritten in place.

    passages-000000.jsonl     the first change: a line that says what it is, then a line a passage
    passages-000001.jsonl     the next one, and so on; read in order

{"format", "lines", "check", "afresh"} opens a file: how many lines follow, their xxh3, and whether everything before is
forgotten. {"passage_id", "title", "text", "source", "start"} adds a passage or takes the place of the one with this id;
{"removed": ID} takes it out. A change is a new file, written whole or not at all, so others can read meanwhile.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import xxhash

from ..errors import CorruptStore, StoreError
from ..store.claim import write_atomically
from ..types import Passage

__all__ = ["Ledger", "size_of"]

FORMAT = 1
NAME = re.compile(r"passages-(\d{6})\.jsonl")


class Ledger:
    """The passages by id, in the order they came. One writer at a time (`Memory` sees to that), any readers."""

    def __init__(self, folder: Path) -> None:
        """Reads what is there. CorruptStore naming the file where a byte differs from what was written."""
        self.folder, self.passages, self.next = folder, dict[str, Passage](), 0
        self.refresh()

    def refresh(self) -> None:
        """Read the changes that came since. CorruptStore naming a file that is not there although later ones are."""
        while True:
            files = {int(match[1]): file for file in self.folder.iterdir() if (match := NAME.fullmatch(file.name))}
            try:
                self._read({number: file for number, file in files.items() if number >= self.next})
                return
            except FileNotFoundError as problem:
                if os.path.lexists(problem.filename):
                    raise  # else `rewrite` took it away since it was listed, and wrote another before that

    def _read(self, files: Mapping[int, Path]) -> None:
        if not files:
            return
        contents = {number: _opened(files[number]) for number in sorted(files)}
        first = max((number for number, (_, afresh) in contents.items() if afresh), default=self.next)
        last = max(contents)
        lost = next((number for number in range(first, last) if number not in contents), None)
        if lost is not None:
            raise CorruptStore(
                f"{self.folder / f'passages-{lost:06d}.jsonl'} is not there, and {files[last].name} came after it. Put "
                "it back, or build the memory again."
            )
        for number in range(first, last + 1):
            self._apply(*contents[number])
        self.next = last + 1

    def put(self, added: Iterable[Passage] = (), removed: Iterable[str] = ()) -> None:
        """Write one change: what is removed, then what is added; nothing where there is neither."""
        lines = [json.dumps({"removed": one}, ensure_ascii=False) for one in removed]
        lines += map(_line, added)
        if lines:
            self._write(lines, afresh=False)

    def rewrite(self) -> None:
        """All changes become one file; the older ones are removed after it is there."""
        old = [file for file in self.folder.iterdir() if NAME.fullmatch(file.name)]
        if len(old) < 2:
            return
        self._write(list(map(_line, self.passages.values())), afresh=True)
        for file in sorted(old):
            file.unlink(missing_ok=True)

    def _write(self, lines: Sequence[str], afresh: bool) -> None:
        write_atomically(self.folder / f"passages-{self.next:06d}.jsonl", _change(lines, afresh))
        self.refresh()

    def _apply(self, body: bytes, afresh: bool) -> None:
        if afresh:
            self.passages.clear()
        for line in body.decode().split("\n")[:-1]:
            values = json.loads(line)
            if "removed" in values:
                self.passages.pop(values["removed"], None)
            else:
                passage = _passage(values)
                self.passages[passage.id] = passage


def size_of(passages: Iterable[Passage]) -> int:
    """Bytes of the file that a new ledger keeps these passages in."""
    return len(_change(list(map(_line, passages)), afresh=False))


def _change(lines: Sequence[str], afresh: bool) -> bytes:
    """What a file holds."""
    body = "".join(line + "\n" for line in lines).encode()
    head = {"format": FORMAT, "lines": len(lines), "check": xxhash.xxh3_64_hexdigest(body), "afresh": afresh}
    return json.dumps(head).encode() + b"\n" + body


def _line(passage: Passage) -> str:
    """A passage without the place that it was read from, which says nothing on another machine."""
    own: dict[str, Any] = {"passage_id": passage.id, "title": passage.title, "text": passage.text}
    window = {"source": passage.source, "start": passage.start} if passage.source else {}
    return json.dumps(own | window, ensure_ascii=False)


def _opened(file: Path) -> tuple[bytes, bool]:
    """The lines of a change, and whether it forgets everything before; checked."""
    head, _, body = file.read_bytes().partition(b"\n")
    try:
        values = json.loads(head)
        version, check, afresh = values["format"], values["check"], values["afresh"]
    except (ValueError, KeyError, TypeError) as problem:
        raise CorruptStore(f"{file} was cut or changed: {problem!r}. Build the memory again.") from None
    if version != FORMAT:
        raise StoreError(f"{file} has format {version!r}; this version reads {FORMAT}. Upgrade encodeonce.")
    if xxhash.xxh3_64_hexdigest(body) != check:
        raise CorruptStore(f"{file} was cut or changed after it was written. Build the memory again.")
    return body, bool(afresh)


def _passage(values: Mapping[str, Any]) -> Passage:
    return Passage(
        values["passage_id"], values["title"], values["text"], values.get("source", ""), values.get("start", 0)
    )
