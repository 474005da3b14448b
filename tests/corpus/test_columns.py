"""CoNLL columns: layouts, sentence breaks, document marks, replaced and added columns."""

import gzip
import io
import json
from pathlib import Path

import pytest

from encodeonce.corpus import columns, read
from encodeonce.errors import ConfigError, DataError
from encodeonce.types import Document

CONLL_2003 = (
    "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects  VBZ B-VP O\n\n-DOCSTART- -X- O O\n\nPeter NNP B-NP B-PER\n"
)


def rewritten(path: Path, values: dict, **options: object) -> str:
    stream = io.BytesIO()
    columns.write(stream, path, values, **options)  # type: ignore[arg-type]
    return stream.getvalue().decode("utf-8")


@pytest.mark.parametrize("variant", ["crlf", "manyblank", "noeol", "space", "spaceblank", "tabblank"])
def test_READ_1_sentence_breaks_and_line_ends(cases: Path, variant: str) -> None:
    expected = json.loads((cases / "READ-1.expected.json").read_text("utf-8"))["every_variant"]
    path = cases / f"READ-1-{variant}.conll"
    documents = read(path)
    assert [len(d.words) for d in documents] == expected["tokens"]
    assert [list(d.columns["tag"]) for d in documents] == expected["tags"]
    assert documents[0].words == ("Ana", "ran")
    assert rewritten(path, {"tag": [d.columns["tag"] for d in documents]}).encode() == path.read_bytes()
    assert columns.layout(path).separator == ("blank" if variant == "space" else "tab")


def test_LONG_1_the_reader_keeps_all_700_words(cases: Path) -> None:
    (document,) = read(cases / "LONG-1.conll")
    assert len(document.words) == json.loads((cases / "LONG-1.expected.json").read_text())["words"]


def test_docstart_rows_are_kept_and_are_no_words(tmp_path: Path) -> None:
    path = tmp_path / "x.conll"
    path.write_text(CONLL_2003, encoding="utf-8")
    documents = read(path, columns={"form": 0, "pos": 1, "chunk": -2, "tag": 3})
    assert [d.words for d in documents] == [("EU", "rejects"), ("Peter",)]
    assert documents[0].columns["chunk"] == ("B-NP", "B-VP")
    assert [d.place for d in documents] == [f"{path}:3", f"{path}:8"]
    assert list(documents[0].meta["lines"]) == [3, 4]
    assert rewritten(path, {"tag": [["B-ORG", "O"], ["B-PER"]]}) == CONLL_2003
    assert rewritten(path, {"tag": [["O", "O"], ["O"]]}) == CONLL_2003.replace("B-ORG", "O").replace("B-PER", "O")
    changed = rewritten(path, {"pos": [["A", "B"], ["C"]]}, layout_columns={"form": 0, "pos": 1})
    assert changed == CONLL_2003.replace("EU NNP", "EU A").replace("VBZ", "B").replace("Peter NNP", "Peter C")
    added = rewritten(path, {"predicted": [["X", "Y"], ["Z"]]})
    wanted = CONLL_2003.replace("B-ORG\n", "B-ORG X\n").replace("B-VP O\n", "B-VP O Y\n")
    assert added == wanted.replace("B-PER", "B-PER Z")


def test_docstart_without_a_blank_line_ends_the_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.conll"
    path.write_text("a\tO\n-DOCSTART-\nb\tO\n-DOCSTART-x\tO\n", encoding="utf-8")
    assert [d.words for d in read(path)] == [("a",), ("b", "-DOCSTART-x")]


def test_words_with_blanks_and_hashes_in_a_tab_separated_file(tmp_path: Path) -> None:
    path = tmp_path / "x.conll"
    text = "New York\tB-LOC\n#\tO\na\u00a0b\u2028\tO\n"
    path.write_text(text, encoding="utf-8")
    (document,) = read(path)
    assert document.words == ("New York", "#", "a\u00a0b\u2028")
    assert rewritten(path, {"tag": [["B-LOC", "O", "O"]], "more": [["x", "y y", "z"]]}) == (
        "New York\tB-LOC\tx\n#\tO\ty y\na\u00a0b\u2028\tO\tz\n"
    )


def test_comments_are_read_as_such_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "x.conll"
    text = "# id = 1\n#\tO\nb\tO\n\n# id = 2\nc\tO\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"x.conll:2: 2 cells divided by blank; line 1 has 4"):
        read(path)
    assert [d.words for d in read(path, comments=True)] == [("#", "b"), ("c",)]
    assert rewritten(path, {"tag": [["O", "O"], ["O"]]}, comments=True) == text
    path.write_text("a\tO\n# id = 2\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"x.conll:2: 1 cells divided by tab; line 1 has 2. For comment lines, read with"
    ):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tO\nb\n", r"x.conll:2: 1 cells divided by tab; line 1 has 2"),
        ("a O\nb x O\n", r"x.conll:2: 3 cells divided by blank; line 1 has 2"),
    ],
)
def test_rows_of_another_length_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.conll"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read(path)


def test_column_maps_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "x.conll"
    path.write_text("a\tO\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"x.conll:1: no column 3 \('tag'\): the row has 2 cells, divided by tab"):
        read(path, columns={"form": 0, "tag": 3})
    with pytest.raises(ConfigError, match="must name the words' column: 'form'"):
        read(path, columns={"tag": 1})
    with pytest.raises(ConfigError, match="'tag' is 'ner'; columns of this format are numbers"):
        read(path, columns={"form": 0, "tag": "ner"})
    with pytest.raises(DataError, match=r"x.conll:1: 'form' and 'tag' are both column 0 of 2"):
        read(path, columns={"form": 0, "tag": -2})
    with pytest.raises(ConfigError, match=r"separator='comma' is not known. There is: tab, blank"):
        read(path, separator="comma")


def test_a_file_of_words_alone_gets_a_column(tmp_path: Path) -> None:
    path = tmp_path / "x.conll"
    path.write_text("a\nb\n\nc\n", encoding="utf-8")
    assert dict(read(path)[0].columns) == {"form": ("a", "b")}
    assert rewritten(path, {"tag": [["X", "Y"], ["Z"]]}) == "a X\nb Y\n\nc Z\n"
    with pytest.raises(DataError, match="'X X' holds a blank and blanks divide this file's cells"):
        rewritten(path, {"tag": [["X X", "Y"], ["Z"]]})
    with pytest.raises(DataError, match=r"x.conll:4: column 'tag' has 'Z', one value for 1 words; it must be a list"):
        rewritten(path, {"tag": [["X", "Y"], "Z"]})


def test_byte_order_mark_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "x.conll"
    path.write_bytes("\ufeffa\tO\n".encode())
    assert read(path)[0].words == ("a",)
    assert rewritten(path, {"tag": [["B"]]}) == "\ufeffa\tB\n"


def test_documents_are_written_with_tabs(tmp_path: Path) -> None:
    source, out = tmp_path / "x.conll", tmp_path / "y.conll"
    source.write_text("a b\nc d\n\ne f\n", encoding="utf-8")
    columns.write(out, read(source), {"tag": [["1", "2"], ["3"]]})
    assert out.read_text("utf-8") == "a\t1\nc\t2\n\ne\t3\n\n"


@pytest.mark.parametrize(("split", "n", "words"), [("train", 5424, 135701), ("dev", 923, 23969), ("test", 940, 24497)])
def test_ncbi_has_its_published_counts_and_round_trips(
    unchecked: None, shared: Path, split: str, n: int, words: int
) -> None:
    path = shared / "data" / "science" / "ner" / "ncbi-disease" / f"{split}.conll.gz"
    documents = read(path)
    assert (len(documents), sum(len(d.words) for d in documents)) == (n, words)
    again = rewritten(path, {"tag": [d.columns["tag"] for d in documents]})
    assert again.encode() == gzip.decompress(path.read_bytes())


def test_an_empty_cell_of_a_document_is_refused(tmp_path: Path) -> None:
    """Written as it is, the line would be read with another number of cells."""
    documents = [Document("a", ("", "b"), columns={"tag": ("O", "O")})]
    with pytest.raises(DataError, match=r"a: row \('', 'O'\) cannot be written: a cell is blank, or holds a tab"):
        columns.write(tmp_path / "o.conll", documents, {})
