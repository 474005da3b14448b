"""Rows survive a killed writer, say what is wrong with a line, and name no host or path."""

import json
import logging
import socket
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from encodeonce.errors import DataError
from encodeonce.report.results import ResultsRow, append_row, latest, made_by, provenance, read_rows, surroundings

ROW = ResultsRow("e", "d", "upos", "tiny", "linear", "lr=0.001", 13, "test", "accuracy", 91.5)


def test_a_row_has_the_designs_fields_in_its_order_and_the_encoders_pass() -> None:
    design = (
        "experiment dataset task encoder method variant seed split metric value n train_s_per_batch train_s_total "
        "encode_s infer_s_per_batch params_trainable peak_mb store_mb flops commit machine device threads "
        "torch started command train_encoder_s_per_batch infer_encoder_s_per_batch"
    )
    assert [field.name for field in fields(ResultsRow)] == design.split()


def test_append_then_read_gives_the_rows_back(tmp_path: Path) -> None:
    rows = [ROW, replace(ROW, seed=21, n=7, started="2026-01-01T00:00:00+00:00")]
    for row in rows:
        append_row(tmp_path / "deep" / "results.jsonl", row)
    assert read_rows(tmp_path / "deep" / "results.jsonl") == rows


def test_unknown_is_null_never_zero(tmp_path: Path) -> None:
    append_row(tmp_path / "r.jsonl", ROW)
    written = json.loads((tmp_path / "r.jsonl").read_text())
    assert written["peak_mb"] is None
    assert 0 not in [value for value in written.values() if not isinstance(value, str)]


def test_a_half_written_last_line_is_said_skipped_and_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "r.jsonl"
    append_row(path, ROW)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    with caplog.at_level(logging.WARNING, "encodeonce"):
        assert read_rows(path) == [ROW]
        append_row(path, replace(ROW, seed=21))
    assert "r.jsonl:2: skipped" in caplog.text
    assert read_rows(path) == [ROW, replace(ROW, seed=21)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"r\.jsonl:1: not a results row"),
        ('{"experiment": "e"}', r"r\.jsonl:1: not a results row.*missing"),
        (json.dumps({**ROW.to_json(), "acc": 1}), r"r\.jsonl:1: .*unknown fields \['acc'\]; a results row has"),
        (json.dumps({**ROW.to_json(), "value": "80"}), r"r\.jsonl:1: .*value is '80'; it must be float \| None"),
        (json.dumps({**ROW.to_json(), "seed": "13"}), r"r\.jsonl:1: .*seed is '13'; it must be int \| None"),
        (json.dumps({**ROW.to_json(), "task": None}), r"r\.jsonl:1: .*task is None; it must be str"),
        (json.dumps({**ROW.to_json(), "value": float("nan")}), r"r\.jsonl:1: .*value is nan"),
        ('["value", "task"]', r"r\.jsonl:1: .*a list, not an object"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "r.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=message):
        read_rows(tmp_path / "r.jsonl")


def test_infinite_values_are_refused() -> None:
    with pytest.raises(DataError, match="value is nan"):
        replace(ROW, value=float("nan"))


def test_latest_keeps_the_last_measurement_of_a_cell() -> None:
    assert latest([ROW, replace(ROW, seed=21), replace(ROW, value=2.0)]) == [
        replace(ROW, value=2.0),
        replace(ROW, seed=21),
    ]


def test_provenance_has_the_command_and_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script of a project by its place there, anything else is the command line; absolute paths by their end."""
    home = Path(__file__).parents[2]
    for script, name in (
        (home / "benchmarks/step.py", "python benchmarks/step.py"),
        (home / ".venv/lib/site-packages/pytest/__main__.py", "encodeonce"),
        ("/bin/encodeonce", "encodeonce"),
    ):
        monkeypatch.setattr("sys.argv", [str(script), "--n", "3", "/secret/place/a b.conllu", "folder=/secret/x"])
        found = provenance("2026-01-02T03:04:05+00:00")
        assert found["command"] == f"{name} --n 3 'a b.conllu' folder=x"
        assert found["started"] == "2026-01-02T03:04:05+00:00"
        assert found.keys() - {"started", "command"} == surroundings().keys()


def test_every_benchmark_says_how_it_was_made() -> None:
    scripts = [
        path for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py") if "__main__" in path.read_text()
    ]
    assert len(scripts) > 10
    assert [path.name for path in scripts if "provenance(started)" not in path.read_text()] == []


def test_surroundings_name_neither_host_nor_path() -> None:
    found = surroundings()
    assert set(found) == {"commit", "machine", "device", "threads", "torch"}
    assert found["threads"] == 1
    text = json.dumps(found)
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text
    assert "cores" in found["machine"]
    assert f"({torch.backends.cpu.get_cpu_capability()})" in found["machine"]  # one name may hide many processors


def test_how_rows_were_made_is_said_once_for_all_of_them() -> None:
    where = {"machine": "M, 2 cores", "threads": 1, "torch": "2.0", "commit": "abc", "command": "encodeonce compare"}
    rows = [replace(ROW, seed=seed, started=f"2026-01-0{day}", **where) for seed, day in ((21, 2), (13, 1))]
    assert made_by(rows) == (
        "Seeds 13, 21; M, 2 cores, 1 thread(s), torch 2.0; commit abc; 2026-01-01 to 2026-01-02.\n\n"
        "    encodeonce compare"
    )
    other = replace(rows[0], method="frozen", seed=42, commit="def", command=None)
    assert made_by([*rows, other]).startswith("Seeds 13, 21 (linear), 42 (frozen); M, 2 cores")
    fewer = replace(rows[0], task="another")
    assert made_by([*rows, fewer]).startswith(
        f"Seeds 13, 21 (linear on {rows[0].task}), {rows[0].seed} (linear on another);"
    )
    assert "commit abc, def;" in made_by([*rows, other])
    elsewhere = replace(other, machine="N, 4 cores")
    assert "; M, 2 cores, 1 thread(s), torch 2.0 (linear); N, 4 cores, 1" in made_by([*rows, elsewhere])
    assert made_by([replace(ROW, seed=None)]) == "unknown, None thread(s), torch None; commit unknown."
    assert made_by([]) == ""
