"""Collections of passages in each form."""

import json
import os
from pathlib import Path

import pytest

from encodeonce.corpus.folder import read as read_folder
from encodeonce.corpus.passages import passage_formats, read_passages, write_passages
from encodeonce.errors import ConfigError, DataError
from encodeonce.types import Passage

TWO = [Passage("1", "T", 'say "hi" now'), Passage("2", "", "b")]


def plain(passages: list[Passage]) -> list[tuple[str, str, str, str, int]]:
    return [(p.id, p.title, p.text, p.source, p.start) for p in passages]


@pytest.mark.parametrize("name", ["p.tsv", "p.jsonl", "p.tsv.gz", "p.jsonl.gz"])
def test_written_and_read_again(tmp_path: Path, name: str) -> None:
    write_passages(tmp_path / name, TWO)
    assert plain(read_passages(tmp_path / name)) == plain(TWO)


def test_tsv_as_dpr_has_it(tmp_path: Path) -> None:
    rows = 'id\ttext\ttitle\n1\t"Aaron ( or ; ""Ahärôn"") is"\tAaron\n2\tsay "hi" now\t"quoted" words "here"\n'
    (tmp_path / "p.tsv").write_text(rows, encoding="utf-8")
    assert plain(read_passages(tmp_path / "p.tsv")) == [
        ("1", "Aaron", 'Aaron ( or ; "Ahärôn") is', "", 0),
        ("2", '"quoted" words "here"', 'say "hi" now', "", 0),
    ]


def test_tsv_keeps_any_text(tmp_path: Path) -> None:
    texts = ['"a"', '""', 'a""b', '"a""b"', '"', '"a"b"', "x"]
    write_passages(tmp_path / "p.tsv", [Passage(str(i), "t", text) for i, text in enumerate(texts)])
    assert [passage.text for passage in read_passages(tmp_path / "p.tsv")] == texts
    with pytest.raises(DataError, match="a tab or line end in a cell"):
        write_passages(tmp_path / "p.tsv", [Passage("1", "", "a\tb")])


def test_tsv_without_header_and_with_columns_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tx\tT\n2\ty\n", encoding="utf-8")
    assert plain(read_passages(tmp_path / "a.tsv")) == [("1", "T", "x", "", 0), ("2", "", "y", "", 0)]
    (tmp_path / "b.tsv").write_text("title\tid\ttext\nT\t1\tx\nU\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"b.tsv:3: 1 cells; there must be 3: title, id, text"):
        read_passages(tmp_path / "b.tsv")


def test_flashrag_contents(tmp_path: Path) -> None:
    rows = [{"id": "0", "contents": '"Title"\nthe text\nmore'}, {"id": "1", "contents": "no title\nhere"}]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert plain(read_passages(tmp_path / "c.jsonl")) == [
        ("0", "Title", "the text\nmore", "", 0),
        ("1", "", "no title\nhere", "", 0),
    ]


def test_folder_of_texts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "my_notes.md").write_text("\ufeffline\r\nmore", encoding="utf-8", newline="")
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    (tmp_path / "b.bin").write_bytes(b"\xff")
    assert plain(read_passages(tmp_path)) == [
        ("a.txt", "a", "x", "", 0),
        ("sub/my_notes.md", "my notes", "line\r\nmore", "", 0),
    ]
    assert "1 of 3 files are no texts (.txt, .text, .md) and are left out, the first b.bin" in caplog.text
    assert plain(read_passages(tmp_path / "a.txt")) == [("a.txt", "a", "x", "", 0)]
    write_passages(tmp_path / "out", read_passages(tmp_path), format="folder")
    assert (tmp_path / "out" / "sub" / "my_notes.md").read_bytes() == b"line\r\nmore"
    with pytest.raises(DataError, match="leads out of"):
        write_passages(tmp_path / "out", [Passage("../x.txt", "", "t")], format="folder")
    with pytest.raises(DataError, match=r"'sub/.net' would be a hidden file"):
        write_passages(tmp_path / "out", [Passage("sub/.net", "", "t")], format="folder")
    (tmp_path / "out" / ".cache").mkdir()
    (tmp_path / "out" / ".cache" / "b.txt").write_text("y", encoding="utf-8")
    assert [one.id for one in read_passages(tmp_path / "out")] == ["a.txt", "sub/my_notes.md"]


def test_a_source_that_is_null_is_none(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "text": "x", "source": null, "start": null}\n', encoding="utf-8")
    assert [(one.source, one.start) for one in read_passages(tmp_path / "p.jsonl")] == [("", 0)]


def test_errors_name_the_place(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    for row, message in (
        ({"text": "x"}, r"p.jsonl:1: a passage without an id: one of passage_id, _id, id, docid. There is: text"),
        ({"id": 1}, r"p.jsonl:1: no field 'text'. There is: id"),
        ({"id": 1, "text": 3}, r"p.jsonl:1: 'text' is a int; it must be a string"),
        ({"id": 1, "text": "x", "title": 3}, r"p.jsonl:1: 'title' is a int"),
        ({"id": 1, "text": " "}, r"p.jsonl:1: passage '1' is empty"),
        ({"id": 1, "text": "x", "source": "d", "start": -1}, r"p.jsonl:1: 'start' is -1"),
    ):
        path.write_text(json.dumps(row) + "\n", encoding="utf-8")
        with pytest.raises(DataError, match=message):
            read_passages(path)
    path.write_text('{"id": 1, "text": "x"}\n{"id": "1", "text": "y"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"p.jsonl:2: a second passage '1'; the first is at .*p.jsonl:1"):
        read_passages(path)
    with pytest.raises(ConfigError, match=r"says no format. Name one with format=...; there is: folder"):
        read_passages(tmp_path / "p.xml")


def test_the_real_pool_has_18912_passages(shared: Path) -> None:
    files = sorted((shared / "data" / "qa").glob("*/passages.jsonl.gz"))
    passages = [passage for file in files for passage in read_passages(file)]
    assert len({passage.id for passage in passages}) == len(passages) == 18912


def test_formats_have_names_of_their_own() -> None:
    assert set(passage_formats()) == {"beir", "folder", "jsonl", "tsv"}


@pytest.mark.parametrize("header", ["id\tcontents\ttitle", "ID\tText\tTitle", "doc\ttext", "Title\tpassage\tid"])
def test_a_header_of_other_names_is_no_passage(tmp_path: Path, header: str) -> None:
    (tmp_path / "p.tsv").write_text(f"{header}\n1\tb\tT\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"p\.tsv:1: \[.*\] look like the names of columns, which must be id, text"):
        read_passages(tmp_path / "p.tsv")


@pytest.mark.parametrize(("name", "text"), [("p.tsv", "id\ttext\n\tb\n"), ("p.jsonl", '\n{"id": "", "text": "b"}\n')])
def test_a_passage_needs_an_id(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=rf"{name}:2: the id of 'b' is empty. Give it one"):
        read_passages(tmp_path / name)


def test_a_file_name_that_is_no_text_is_said(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(tmp_path / "caf") + b"\xe9.txt")).write_text("b", encoding="utf-8")
    except OSError:
        pytest.skip("this file system has no such names")
    for read in (read_passages, read_folder):
        with pytest.raises(DataError, match=r"the file name b'caf\\xe9.txt' is not UTF-8.* Rename the file"):
            read(tmp_path)
