"""The door of the room: formats by suffix and name, empty files, and the same result in any locale."""

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from encodeonce.corpus import _files, format_of, formats, read, write
from encodeonce.errors import ConfigError, DataError
from encodeonce.types import Document


@pytest.mark.parametrize("at", [20, -30, -6])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, at: int) -> None:
    """In its compressed data, which zlib notices, as in its checksum and its length."""
    packed = bytearray(gzip.compress("".join(f"text {i * i}\n" for i in range(500)).encode(), mtime=0))
    packed[at] ^= 0xFF
    path = tmp_path / "x.txt.gz"
    path.write_bytes(packed)
    with pytest.raises(DataError, match=r"x.txt.gz is a damaged gzip file: "):
        read(path)


def test_every_format_is_found_by_name_and_suffix() -> None:
    assert set(formats()) == {
        "columns",
        "conllu",
        "csv",
        "folder",
        "hub",
        "jsonl",
        "questions",
        "scierc",
        "sections",
        "spert",
        "squad",
        "techqa",
        "text",
        "triples",
        "tsv",
    }
    for name, suffix in (
        ("conllu", ".conllu"),
        ("columns", ".conll.gz"),
        ("csv", ".CSV"),
        ("tsv", ".tsv.gz"),
        ("text", ".txt"),
    ):
        assert format_of(f"a.b/x{suffix}").name == name
    assert format_of("x.dat", "jsonl").name == "jsonl"


def test_an_unknown_format_lists_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"suffix '.dat' says no format.*columns \(.conll .*conllu \(.conllu\).*hub"):
        read(tmp_path / "x.dat")
    with pytest.raises(ConfigError, match=r"format='conlu' is not known. There is: .*Did you mean 'conllu'"):
        read(tmp_path / "x.conllu", format="conlu")
    with pytest.raises(ConfigError, match=r"Documents for a stream: name a format"):
        write(io.BytesIO(), [], {})


@pytest.mark.parametrize("name", ["LABELS-2-empty.jsonl", "LABELS-2-comments.conllu", "LABELS-2-blank.conll"])
def test_LABELS_2_a_file_without_examples_is_named(cases: Path, name: str) -> None:
    with pytest.raises(DataError, match=rf"no examples in .*{name}"):
        read(cases / name)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("columns", [None, {"text": "body"}, {"text": 0}])
def test_LABELS_2_an_empty_table_is_named_whatever_columns_are(
    tmp_path: Path, name: str, columns: dict[str, int | str] | None
) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=rf"no examples in .*{name}: it is empty"):
        read(tmp_path / name, columns=columns)


def test_LABELS_2_one_example_and_one_class_are_read(cases: Path) -> None:
    (one,) = read(cases / "LABELS-2-one.jsonl")
    assert (one.text, one.meta["label"]) == ("only one", "yes")
    assert [d.meta["label"] for d in read(cases / "LABELS-2-single.jsonl")] == ["yes"] * 3


def test_LABELS_1_the_label_list_is_that_of_train(cases: Path) -> None:
    expected = json.loads((cases / "LABELS-1.expected.json").read_text("utf-8"))
    train = read(cases / "LABELS-1-train.conll")
    assert sorted({tag for d in train for tag in d.columns["tag"]}) == expected["label_list"]


SCRIPT = """
import sys
from pathlib import Path
from encodeonce.corpus import read, write
WORD = "\\u00e9\\U0001f600"
here = Path(sys.argv[1])
for name in sys.argv[2:]:
    documents = read(here / name)
    shown = [(d.id, d.words, d.text, dict(d.columns), d.meta.get("label"), d.key) for d in documents]
    sys.stdout.buffer.write(repr(shown).encode("utf-8") + b"\\n")
    column = {"conllu": "upos", "conll": "tag"}.get(name.split(".")[-1], "label")
    values = [(WORD,) * len(d.words) if d.words else WORD for d in documents]
    write(here / ("out-" + name), here / name, {column: values})
"""


def test_RUNTIME_2_a_the_locale_changes_nothing(tmp_path: Path) -> None:
    files = {
        "x.conllu": "# text = é\n1\té😀\té\tX\t_\t_\t0\troot\t_\t_\n\n",
        "x.conll": "é😀\tO\n",
        "x.jsonl": '{"text": "é😀", "label": "ü"}\n',
        "x.csv": "text,label\né😀,ü\n",
        "x.tsv": "text\tlabel\né😀\tü\n",
        "x.txt": "é😀\n",
    }
    results = []
    for name, locale in (
        ("c", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        ("u", {"PYTHONUTF8": "1"}),
    ):
        here = tmp_path / name
        here.mkdir()
        for file, content in files.items():
            (here / file).write_text(content, encoding="utf-8", newline="")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONUTF8"))} | locale
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", SCRIPT, str(here), *files],
            env=environment,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        results.append((done.stdout, [(here / f"out-{file}").read_bytes() for file in files]))
    assert results[0] == results[1]
    assert "é😀".encode() in results[0][1][1]


def test_nothing_heavy_is_imported_by_reading(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("a\tO\n", encoding="utf-8")
    code = (
        "import sys; from encodeonce.corpus import read; from encodeonce.metrics.spans import span_scores; "
        f"read({str(tmp_path / 'x.conll')!r}); "
        "sys.exit(', '.join({'torch', 'transformers', 'datasets', 'scipy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
def test_a_file_is_closed_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Windows renames no open file."""
    renamed, made, opened, held = os.replace, _files.NamedTemporaryFile, [], []

    def temporary(*given: Any, **named: Any) -> Any:
        opened.append(made(*given, **named))
        return opened[-1]

    def replace(source: str, target: Path) -> None:
        held.append([file.name == source and not file.file.closed for file in opened])
        renamed(source, target)

    monkeypatch.setattr(_files, "NamedTemporaryFile", temporary)
    monkeypatch.setattr(os, "replace", replace)
    write(tmp_path / name, [Document("a", text="one")], {"label": ["x"]})
    assert held == [[False]]
    assert [file.name for file in tmp_path.iterdir()] == [name]
