"""Tables: quotes and "NA" stay what they are, wrong rows are named. Oracle: the csv module, where it is right."""

import csv
import io
import json
import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodeonce.corpus import read, table, write
from encodeonce.errors import ConfigError, DataError
from encodeonce.types import Document


def rewritten(path: Path, columns: dict, **options: object) -> bytes:
    stream = io.BytesIO()
    write(stream, path, columns, **options)  # type: ignore[arg-type]
    return stream.getvalue()


def test_CLS1_quotes_and_na_stay_what_they_are(cases: Path) -> None:
    expected = json.loads((cases / "CLS-1.expected.json").read_text("utf-8"))
    a = read(cases / "CLS-1a.tsv", columns={"text": "sentence1"})
    assert len(a) == expected["CLS-1a"]["rows"]
    assert a[1].text == expected["CLS-1a"]["sentence1_row1"]
    assert [d.meta["label"] for d in a] == ["1", "0", "1", "0"]
    assert [d.meta["sentence2"] for d in a] == ["She left.", "Go on.", 'Really"', "B"]
    b = read(cases / "CLS-1b.csv", columns={"label": 0, "text": 1})
    assert [d.text for d in b] == expected["CLS-1b"]["texts"]
    assert [d.meta for d in b] == [{"label": label} for label in "01010"]
    c = read(cases / "CLS-1c-passages.tsv")
    assert len(c) == expected["CLS-1c"]["passages"]
    assert c[0].text == expected["CLS-1c"]["text_1"]
    assert [d.id for d in c] == ["1", "2", "3", "4"]
    assert (
        rewritten(
            cases / "CLS-1a.tsv", {"label": [d.meta["label"] for d in a]}, layout_columns={"text": 1}, header=True
        )
        == (cases / "CLS-1a.tsv").read_bytes()
    )


def test_csv_with_an_unclosed_quote_keeps_its_rows_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.csv"
    path.write_text('text,label\nHe said "yes.,1\n"Stop,0\n"Blue" is a colour,1\nA 5" pipe,0\n', encoding="utf-8")
    with caplog.at_level(logging.WARNING, "encodeonce"):
        documents = read(path)
    assert [d.text for d in documents] == ['He said "yes.', '"Stop', '"Blue" is a colour', 'A 5" pipe']
    assert [r.getMessage().split("/")[-1] for r in caplog.records] == [
        "x.csv:3: a quote that is not closed is read as a character.",
        "x.csv:4: a quote that is not closed is read as a character.",
    ]
    with pytest.raises(DataError, match=r"x.csv:3:1: a quote opened here is not closed as it must be"):
        read(path, quoting=True)


def test_a_quote_that_would_swallow_whole_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('text,label\n"Unclosed,Red\nplain,Green\nends with quote",Grey\n', encoding="utf-8")
    with pytest.raises(
        DataError, match=r"x.csv:2: a quote opened here is closed 2 lines on.*quoting=False .*quoting=True"
    ):
        read(path)
    assert [d.meta["label"] for d in read(path, quoting=False)] == ["Red", "Green", "Grey"]
    assert [d.meta["label"] for d in read(path, quoting=True)] == ["Grey"]


def test_quoted_cells_by_rfc_4180(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    raw = 'id,text,label\r\n1,"a, ""b""\r\nc",x\r\n"2","",y\r\n\r\n3,é😀,"z"'
    path.write_bytes(("\ufeff" + raw).encode())
    documents = read(path)
    assert [(d.id, d.text, d.meta["label"]) for d in documents] == [
        ("1", 'a, "b"\r\nc', "x"),
        ("2", "", "y"),
        ("3", "é😀", "z"),
    ]
    assert [d.place for d in documents] == [f"{path}:{n}" for n in (2, 4, 6)]
    changed = rewritten(path, {"label": ["p", 'q"', "r"], "new": ["1", "2", "3"]}).decode()
    assert changed == '\ufeffid,text,label,new\r\n1,"a, ""b""\r\nc",p,1\r\n"2","","q""",2\r\n3,é😀,r,3'


CELL = st.text(alphabet='ab ,"\n\té', max_size=5)


@given(st.lists(st.tuples(CELL, CELL, st.sampled_from(["x", "y"])), min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_what_the_csv_module_writes_is_read(tmp_path_factory: pytest.TempPathFactory, cells: list) -> None:
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    with open(path, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([("text", "more", "label"), *cells])
    found = table.table(path, separator=",", quoting=True)
    assert [row.values for row in found.rows] == [tuple(row) for row in cells]


@pytest.mark.parametrize("name", ["x.tsv", "x.csv"])
def test_rows_of_another_length_are_named(tmp_path: Path, name: str) -> None:
    path, comma = tmp_path / name, "\t" if name == "x.tsv" else ","
    path.write_text(f"text{comma}label\na{comma}1\nb\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"{name}:3: 1 cells; line 1 has 2. Cells are divided by"):
        read(path)


def test_empty_lines_before_the_header_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("\n\ntext,label\na,1\n\nb,2\n", encoding="utf-8")
    assert [(one.text, one.meta, one.place) for one in read(path)] == [
        ("a", {"label": "1"}, f"{path}:4"),
        ("b", {"label": "2"}, f"{path}:6"),
    ]
    path.write_text("text,label\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no examples in .*only a header, blank lines and comments"):
        read(path)


def test_rows_that_another_character_divides_say_so_where_a_text_holds_commas(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text;label\none, two;a\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"x.csv:2: 2 cells; line 1 has 1.*--read 'separator=;'.*separator = \";\""):
        read(path)
    assert [one.text for one in read(path, separator=";")] == ["one, two"]


def test_headers_and_maps_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("a\tb\n1\t2\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"no column 'text' in: a, b. Name it: --columns text=NAME .* --columns text=0,"
    ):
        read(path)
    with pytest.raises(DataError, match=r"x.tsv:1: no column 'c' \(text\). The header has: a, b"):
        read(path, columns={"text": "c"})
    with pytest.raises(
        DataError, match=r"no column 'bb' \(text\).*Did you mean 'b'\?.*without a header.*text=0,label=1"
    ):
        read(path, columns={"text": "bb"})
    with pytest.raises(DataError, match=r"in a config columns = \{ text = \"NAME\" \}"):
        read(path)
    with pytest.raises(DataError, match=r"x.tsv:1: no column 2 \('text'\); the table has 2"):
        read(path, columns={"text": 2})
    with pytest.raises(DataError, match=r"x.tsv:1: 'text' and 'label' are both column 1 of 2"):
        read(path, columns={"text": 1, "label": -1})
    with pytest.raises(DataError, match=r"'text' and 'label' are both column 0 of 2"):
        write(tmp_path / "y.tsv", path, {"label": ["3"]}, layout_columns={"text": "a", "label": "a"})
    with pytest.raises(ConfigError, match="mixes numbers and names"):
        read(path, columns={"text": 0, "label": "b"})
    with pytest.raises(ConfigError, match="a table that has no header"):
        read(path, columns={"text": "a"}, header=False)
    assert [d.text for d in read(path, columns={"text": 0})] == ["a", "1"]
    assert [(d.text, d.meta) for d in read(path, columns={"text": 0}, header=True)] == [("1", {"b": "2"})]
    path.write_text("a\ta\n1\t2\n", encoding="utf-8")
    with pytest.raises(DataError, match="names a column twice: a, a"):
        read(path, columns={"text": "a"})


def test_a_table_whose_cells_something_else_divides_is_told_how_to_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("body;label\na cat;x\n")
    for columns in (None, {"text": "body"}, {"text": 0, "label": 1}):
        with pytest.raises(DataError, match=r"Each line is one cell: .*, as in --read 'separator=;' \(in a config"):
            read(tmp_path / "t.csv", columns=columns)
    assert read(tmp_path / "t.csv", columns={"text": "body"}, separator=";")[0].meta == {"label": "x"}
    (tmp_path / "two.csv").write_text("body,label\na cat,x\n")
    with pytest.raises(DataError) as caught:
        read(tmp_path / "two.csv")
    assert "separator" not in str(caught.value)


def test_writing_wrong_predictions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("text\tlabel\na\t1\n", encoding="utf-8")
    with pytest.raises(DataError, match="column 'label' has 2 values for 1 rows"):
        rewritten(path, {"label": ["1", "2"]})
    with pytest.raises(DataError, match=r"x.tsv:2: 'a\\tb' cannot be written"):
        rewritten(path, {"label": ["a\tb"]})


def test_documents_become_a_table(tmp_path: Path) -> None:
    source = tmp_path / "x.jsonl"
    source.write_text('{"text": "a, \\"b\\"", "genre": "x"}\n{"text": "c", "genre": "y"}\n', encoding="utf-8")
    write(tmp_path / "y.csv", read(source), {"label": ["1", "0"]})
    assert (tmp_path / "y.csv").read_text("utf-8") == 'id,text,genre,label\nx:1,"a, ""b""",x,1\nx:2,c,y,0\n'
    assert [d.text for d in read(tmp_path / "y.csv")] == ['a, "b"', "c"]


def test_words_without_a_text_are_no_row(tmp_path: Path) -> None:
    documents = [Document("a", text="x"), Document("b", ("one", "two"), place="in:2")]
    with pytest.raises(DataError, match=r"in:2: words without a text cannot be written as a row of a table. Write js"):
        table.write(tmp_path / "o.csv", documents, {"label": ["L", "M"]})


def test_a_named_column_that_the_table_lacks_is_added_under_its_name_there(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("body,label\na,7\nb,8\n", encoding="utf-8")
    named = {"text": "body", "label": "cls"}
    assert rewritten(path, {"label": ["1", "2"]}, layout_columns=named) == b"body,label,cls\na,7,1\nb,8,2\n"
    assert rewritten(path, {"label": ["1", "2", "3"]}, layout_columns={"text": 0, "label": 2}) == (
        b"body,label,1\na,7,2\nb,8,3\n"
    )
    with pytest.raises(DataError, match="no column 'corpus'"):
        rewritten(path, {"label": ["1", "2"]}, layout_columns={"text": "corpus", "label": "cls"})


def test_cells_of_documents_are_as_json_has_them_and_nothing_is_an_empty_cell(tmp_path: Path) -> None:
    meta = {"label": True, "note": None, "tags": ["x", "y"], "text": "teaser", "n": 0.5}
    write(tmp_path / "x.csv", [Document("x", text="a", meta=meta)], {"said": [None], "number": [np.int64(3)]})
    (found,) = read(tmp_path / "x.csv")
    assert found.text == "a"
    expected = {"label": "true", "note": "", "tags": '["x", "y"]', "text_": "teaser", "n": "0.5"}
    assert found.meta == {**expected, "said": "", "number": "3"}


@pytest.mark.parametrize(("suffix", "due"), [("jsonl", '{"id": "x", "text": "t", "label": 2}\n'), ("txt", "2\tt\n")])
def test_numbers_of_numpy_are_written_as_pythons(suffix: str, due: str, tmp_path: Path) -> None:
    write(tmp_path / f"x.{suffix}", [Document("x", text="t")], {"label": list(np.array([2]))})
    assert (tmp_path / f"x.{suffix}").read_text(encoding="utf-8") == due
    write(tmp_path / "n.txt", [Document("x", text="t")], {"label": [None]})
    assert (tmp_path / "n.txt").read_text(encoding="utf-8") == "\tt\n"
