"""CoNLL-U: what is read, what is written, what is refused. Oracle: the `conllu` package."""

import gzip
import io
import json
from pathlib import Path

import conllu as oracle
import pytest

from encodeonce.corpus import conllu, read
from encodeonce.errors import ConfigError, DataError
from encodeonce.types import Document

TINY = (
    "# sent_id = a\n# text = Go on\n1\tGo\tgo\tVERB\tVB\tMood=Imp|VerbForm=Fin\t0\troot\t_\t_\n"
    "2\ton\ton\tADP\tRP\t_\t1\tcompound\t_\t_\n\n"
)


def rewritten(path: Path, columns: dict | None = None) -> bytes:
    stream = io.BytesIO()
    conllu.write(stream, path, columns or {})
    return stream.getvalue()


def test_CONLLU_1_multiword_tokens_and_empty_nodes(cases: Path) -> None:
    path, expected = cases / "CONLLU-1.conllu", json.loads((cases / "CONLLU-1.expected.json").read_text("utf-8"))
    (document,) = conllu.read(path)
    (block,) = [block for block in conllu.sentences(path) if block.words]
    assert len(document.words) == expected["syntactic_words"]
    assert list(conllu.gold_heads(document)) == expected["heads"]
    assert [list(token) for token in conllu.multiword_tokens(block)] == expected["multiword_tokens"]
    assert rewritten(path) == path.read_bytes()
    assert rewritten(path, {"upos": [document.columns["upos"]]}) == path.read_bytes()
    assert document.id == "m1"
    assert document.meta["text"] == "Vou ao mar e ela, ao rio."
    assert document.place == f"{path}:3"
    assert document.meta["lines"] == (3, 5, 6, 7, 8, 9, 11, 13, 14, 15, 16)


def test_CONLLU_1_words_that_are_no_words_keep_their_bytes_when_a_column_changes(cases: Path) -> None:
    path = cases / "CONLLU-1.conllu"
    written = rewritten(path, {"xpos": [[f"T{i}" for i in range(11)]]}).decode()
    assert "6.1\tvai\tir\tVERB\t_\t" in written
    assert "2-3\tao\t_\t_\t_\t" in written
    assert "11\t.\t.\tPUNCT\tT10\t" in written


def test_CONLLU_2_head_underscore_predicts_but_is_no_gold(cases: Path) -> None:
    path = cases / "CONLLU-2.conllu"
    first, second = conllu.read(path)
    assert [len(first.words), len(second.words)] == [2, 1]
    with pytest.raises(DataError, match=r"CONLLU-2.conllu:2: sentence 'u1', line 2, column HEAD is '_'"):
        conllu.gold_heads(first)
    assert conllu.gold_heads(second) == (0,)
    filled = rewritten(path, {"head": [[2, 0], [0]], "deprel": [["nsubj", "root"], ["root"]]})
    assert b"1\tDogs\tdog\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tbark\tbark\tVERB\t_\t_\t0\troot\t_\t_\n" in filled


def test_READ_2_unusual_white_space_inside_a_form(cases: Path) -> None:
    path, expected = cases / "READ-2.conllu", json.loads((cases / "READ-2.expected.json").read_text("utf-8"))
    (document,) = conllu.read(path)
    assert [[ord(c) for c in word] for word in document.words] == expected["forms_code_points"]
    assert rewritten(path) == path.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        TINY * 2,
        TINY.replace("\n", "\r\n"),
        TINY[:-2],
        TINY[:-1],
        "\ufeff" + TINY,
        "\ufeff" + TINY.split("\n", 2)[2],
        "\n\n \n" + TINY + "\n\n\n" + TINY,
        "# newdoc\n\n" + TINY + "# the end",
        TINY.replace("on\ton", "a\u00a0b\u2028c\u0085d\x0be f\ton"),
        "",
        "\ufeff",
        "\n\n",
    ],
)
def test_round_trip_is_byte_identical(tmp_path: Path, text: str) -> None:
    for name in ("x.conllu", "x.conllu.gz"):
        path = tmp_path / name
        raw = text.encode("utf-8")
        path.write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
        documents = conllu.read(path)
        again = {column: [d.columns[column] for d in documents] for column in conllu.COLUMNS}
        assert rewritten(path, again) == raw
        assert len(documents) == text.count("1\tGo")


def test_writing_over_the_source_and_gzip_are_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "x.conllu"
    path.write_bytes(TINY.encode())
    conllu.write(path, path, {"upos": [["X", "Y"]]})
    assert conllu.read(path)[0].columns["upos"] == ("X", "Y")
    packed = tmp_path / "deep" / "x.conllu.gz"
    conllu.write(packed, path, {})
    first = packed.read_bytes()
    conllu.write(packed, path, {})
    assert packed.read_bytes() == first
    assert gzip.decompress(first) == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "x.conllu"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\t_\t_\n2", "\t_\n2", r"x.conllu:3:9: a row of 9 tab-separated columns; CoNLL-U has 10"),
        ("2\ton", "3\ton", r"x.conllu:4:1: id '3' where '2' was expected"),
        ("2\ton", "1\ton", r"x.conllu:4:1: id '1' where '2' was expected"),
        ("2\ton", "x\ton", r"x.conllu:4:1: id 'x' where '2' was expected"),
        ("2\ton", "2-\ton", r"x.conllu:4:1: id '2-' where '2' was expected"),
        ("2\ton", "1.2\ton", r"x.conllu:4:1: id '1.2' where .* the empty node 1.1"),
        ("2\ton", "2-3\ton", r"x.conllu:4:1: multiword token '2-3' in a sentence of 1 words"),
        ("\t1\tcompound", "\t3\tcompound", r"x.conllu:4:7: HEAD '3' is not '_' or a number from 0 to 2"),
        ("\t1\tcompound", "\tone\tcompound", r"x.conllu:4:7: HEAD 'one' is not"),
        ("\t1\tcompound", "\t-1\tcompound", r"x.conllu:4:7: HEAD '-1' is not"),
        ("\t1\tcompound", "\t\tcompound", r"x.conllu:4:7: an empty cell; CoNLL-U writes '_'"),
        ("2\ton", "2\t", r"x.conllu:4:2: an empty cell|a row of"),
    ],
)
def test_malformed_rows_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(TINY.replace(old, new), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        conllu.read(path)


def test_two_sentences_without_a_blank_line_between_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(TINY.rstrip("\n") + "\n" + TINY, encoding="utf-8")
    with pytest.raises(DataError, match=r"x.conllu:7:1: id '1' where '3' was expected.*a blank line ends a sentence"):
        conllu.read(path)


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.conllu"
    path.write_bytes(TINY.encode() + b"# caf\xe9\n")
    with pytest.raises(DataError, match=r"x.conllu:6:6: byte 0xe9 is not UTF-8"):
        conllu.read(path)
    with pytest.raises(DataError, match=r"There is no file .*gone.conllu"):
        conllu.read(tmp_path / "gone.conllu")
    (tmp_path / "cut.conllu.gz").write_bytes(gzip.compress(TINY.encode() * 100)[:-20])
    with pytest.raises(DataError, match=r"cut.conllu.gz is a damaged gzip file"):
        conllu.read(tmp_path / "cut.conllu.gz")


def test_one_feature_is_picked_from_feats(tmp_path: Path) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(TINY, encoding="utf-8")
    (document,) = conllu.read(path, columns={"tag": "xpos"})
    assert conllu.feature(document, "Mood") == ("Imp", "_")
    assert conllu.feature(document, "VerbForm") == ("Fin", "_")
    assert conllu.feature(document, "Form") == ("_", "_")
    assert document.columns["tag"] == ("VB", "RP")
    with pytest.raises(ConfigError, match=r"no column 'pos'. There is: form, lemma"):
        conllu.read(path, columns={"tag": "pos"})


def test_writing_wrong_predictions_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(TINY, encoding="utf-8")
    for columns, message in (
        ({"upos": [["X"]]}, r"x.conllu:3: column 'upos' has 1 values for 2 words"),
        ({"upos": []}, r"x.conllu:3: column 'upos' holds 0 sentences"),
        ({"upos": [["X", "Y"], ["Z"]]}, "column 'upos' holds 2 sentences; the file has 1"),
        ({"upos": [["X", ""]]}, "'' cannot be written"),
        ({"upos": [["X", "a\tb"]]}, "cannot be written"),
        ({"upos": ["XY"]}, r"x.conllu:3: column 'upos' has 'XY', one value for 2 words; it must be a list"),
    ):
        with pytest.raises(DataError, match=message):
            conllu.write(tmp_path / "out.conllu", path, columns)
    with pytest.raises(ConfigError, match="no column 'tag'"):
        conllu.write(tmp_path / "out.conllu", path, {"tag": [["X", "Y"]]})
    assert [p.name for p in tmp_path.iterdir()] == ["x.conllu"]


def test_documents_are_written_as_sentences(tmp_path: Path) -> None:
    path, out = tmp_path / "x.conllu", tmp_path / "out.conllu"
    path.write_text(TINY, encoding="utf-8")
    conllu.write(out, conllu.read(path), {"deprel": [["root", "prt"]]})
    assert out.read_text("utf-8") == TINY.replace("compound", "prt")


COUNTS = {
    "en_ewt/en_ewt-ud-train": (12544, 204577, 2614, 37),
    "en_ewt/en_ewt-ud-dev": (2001, 25147, 359, 4),
    "en_ewt/en_ewt-ud-test": (2077, 25094, 354, 2),
    "en_gum/en_gum-train": (10224, 177410, 3147, 92),
    "en_gum/en_gum-dev": (1575, 28119, 517, 12),
    "en_gum/en_gum-test": (1464, 28397, 411, 15),
    "en_gum/en_gum-test2": (1334, 17799, 180, 0),
    "fr_sequoia/fr_sequoia-ud-train": (2231, 50502, 1360, 0),
    "fr_sequoia/fr_sequoia-ud-dev": (412, 9999, 282, 0),
    "fr_sequoia/fr_sequoia-ud-test": (456, 10044, 310, 0),
    "he_iahltwiki/he_iahltwiki-ud-dev": (348, 9395, 2281, 0),
    "he_iahltwiki/he_iahltwiki-ud-test": (393, 10734, 2604, 0),
    "zh_gsdsimp/zh_gsdsimp-ud-dev": (500, 12663, 0, 0),
    "zh_gsdsimp/zh_gsdsimp-ud-test": (500, 12012, 0, 0),
}


@pytest.mark.parametrize("name", COUNTS)
def test_treebanks_have_their_published_counts_and_round_trip(unchecked: None, shared: Path, name: str) -> None:
    path = shared / "data" / "ud" / f"{name}.conllu.gz"
    n_sentences, n_words, n_multiword, n_empty = COUNTS[name]
    blocks = [block for block in conllu.sentences(path) if block.words]
    rows = [line for block in blocks for line in block.lines if line[:1].isdigit()]
    assert len(blocks) == n_sentences
    assert sum(len(block.words) for block in blocks) == n_words
    assert sum(len(conllu.multiword_tokens(block)) for block in blocks) == n_multiword
    assert len(rows) - n_words - n_multiword == n_empty
    again = {
        "form": [[row[1] for row in b.cells] for b in blocks],
        "misc": [[row[9] for row in b.cells] for b in blocks],
    }
    assert rewritten(path, again) == gzip.decompress(path.read_bytes())


def test_columns_equal_the_conllu_package(unchecked: None, shared: Path) -> None:
    path = shared / "data" / "ud" / "fr_sequoia" / "fr_sequoia-ud-dev.conllu.gz"
    documents = read(path)
    for document, sentence in zip(documents, oracle.parse(gzip.decompress(path.read_bytes()).decode()), strict=True):
        words = [token for token in sentence if isinstance(token["id"], int)]
        assert document.id == sentence.metadata["sent_id"]
        assert document.meta["text"] == sentence.metadata["text"]
        assert list(document.words) == [token["form"] for token in words]
        assert list(conllu.gold_heads(document)) == [token["head"] for token in words]
        assert list(document.columns["deprel"]) == [token["deprel"] for token in words]
        assert list(conllu.feature(document, "Gender")) == [(t["feats"] or {}).get("Gender", "_") for t in words]


@pytest.mark.parametrize("document", [Document("a\nb", ("x",)), Document("a", ("x\ry",)), Document("a", ("",))])
def test_documents_that_would_break_the_file_are_refused(tmp_path: Path, document: Document) -> None:
    with pytest.raises(DataError, match=r"holds a line end|cannot be written: an empty cell, a tab"):
        conllu.write(tmp_path / "o.conllu", [document], {})
