"""`compare`: nothing that was measured of one thing stands for another, and no line that was asked for is lost.

Axes: none
"""

import gzip
import json
from pathlib import Path

import pytest

from encodeonce.cli.published import published
from encodeonce.cli.report_files import _sha256
from encodeonce.errors import ConfigError, DataError
from encodeonce.report.results import ResultsRow, read_rows

from .conftest import Run

SHORT = ("--seeds", "1", "--no-plot", "--set", "train.num_train_epochs=1")


def results(folder: Path, metric: str = "accuracy") -> list[ResultsRow]:
    """The rows of test of one score."""
    return [row for row in read_rows(folder / "results.jsonl") if (row.split, row.metric) == ("test", metric)]


def added(config: Path, text: str) -> Path:
    """The config with further tables."""
    config.write_text(config.read_text(encoding="utf-8") + text, encoding="utf-8")
    return config


@pytest.mark.parametrize("order", ["fixed,tuned", "tuned,fixed"])
def test_a_grid_takes_away_no_line_that_was_asked_for(run: Run, config: Path, tmp_path: Path, order: str) -> None:
    """Whichever comes first, and where the grid tries the other's value too."""
    added(
        config,
        '[methods.fixed]\nmethod = "linear"\nlearning_rate = 0.05\n[methods.tuned]\nmethod = "linear"\n'
        "grid = { learning_rate = [1e-5, 2e-2, 5e-2] }\n",
    )
    some = (config, "-o", "rep", "-m", order, *SHORT, "--set", "tasks=['upos']")
    for _ in range(2):
        run("compare", *some)
        lines = {row.variant for row in results(tmp_path / "rep")}
        assert "lr=0.05" in lines
        assert len(lines) <= 2
    run("compare", config, "-o", "rep", "-m", "tuned", *SHORT, "--set", "tasks=['upos']")
    assert len(results(tmp_path / "rep")) == 1  # its choice alone
    run("compare", *some)
    assert "lr=0.05" in {row.variant for row in results(tmp_path / "rep")}


def two_columns(path: Path, n: int) -> None:
    """Words with two columns of entities, of which the first says of every word what the second does not."""
    words = ("cat", "B-X", "O"), ("dog", "O", "B-Y"), ("tree", "O", "B-Y")
    lines = ["\n".join("\t".join(words[(i + j) % 3]) for j in range(4)) for i in range(n)]
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def test_tasks_of_one_kind_have_names_of_their_own(run: Run, tiny: Path, tmp_path: Path) -> None:
    for split, n in (("train", 24), ("test", 8)):
        two_columns(tmp_path / f"{split}.conll", n)
    tables = {
        "outer": 'kind = "ner"\ncolumn = "o"',
        "inner": 'kind = "ner"\ncolumn = "i"',
        "first": 'kind = "tagging"\ncolumn = "o"\npiece = "first"',
        "mean": 'kind = "tagging"\ncolumn = "o"\npiece = "mean"',
    }

    def compared(folder: str, *tasks: str, more: tuple[str, ...] = ()) -> None:
        path = tmp_path / "config.toml"
        path.write_text(
            f'encoder = "{tiny}"\ntasks = {json.dumps(tasks)}\nmethod = "linear"\n[data]\ntrain = "train.conll"\n'
            'test = "test.conll"\nformat = "columns"\ncolumns = { form = 0, o = 1, i = 2 }\n'
            "[train]\nlearning_rate = 0.02\nnum_train_epochs = 3\nper_device_train_batch_size = 8\n"
            + "".join(f"[task.{name}]\n{tables[name]}\n" for name in tasks)
        )
        run("compare", path, "-o", folder, "-m", "linear", "--seeds", "1", "--no-plot", "--apart", *more)

    compared("rep", "outer")
    compared("rep", "inner")
    compared("both", "outer", "inner", more=("--metric", "outer=f1_strict"))
    by = {name: {r.task: (r.value, r.n) for r in results(tmp_path / name, "f1_strict")} for name in ("rep", "both")}
    assert set(by["rep"]) == {"outer", "inner"}
    assert by["rep"] == by["both"]
    assert by["rep"]["outer"][1] != by["rep"]["inner"][1]
    compared("words", "first", "mean")
    assert {row.task for row in results(tmp_path / "words")} == {"first", "mean"}


def test_passages_that_are_looked_up_are_held_to_their_contents(run: Run, tiny: Path, tmp_path: Path) -> None:
    passages = {f"p{i}": f"the cat sees dog {'often ' * i}." for i in range(4)}

    def laid(more: str = "") -> None:
        lines = [json.dumps({"passage_id": name, "text": text + more}) for name, text in passages.items()]
        (tmp_path / "passages.jsonl").write_text("\n".join(lines) + "\n")

    laid()
    for split in ("train", "test"):
        asked = {"question": "cat", "answers": ["dog"], "answer_starts": [passages["p0"].index("dog")]}
        lines = [json.dumps({"id": f"{split}{name}", "passage_id": name, **asked}) for name in passages]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    path = tmp_path / "config.toml"
    path.write_text(
        f'encoder = "{tiny}"\ntasks = ["answer_spans"]\nmethod = "linear"\n'
        '[data]\ntrain = "train.jsonl"\ntest = "test.jsonl"\nformat = "questions"\n'
    )
    some = ("compare", path, "-o", "rep", "-m", "linear", *SHORT)
    run(*some)
    laid(" tree")
    assert "data.passages ../passages.jsonl was changed" in run(*some, code=1).stderr
    laid()
    run(*some)


def test_what_encoding_took_is_of_the_views_that_were_encoded(run: Run, config: Path, tmp_path: Path) -> None:
    """All views were stored before, which took nobody knows how long: another choice's pass does not stand for it."""
    run("encode", config)
    some = ("compare", config, "-o", "rep", *SHORT, "--set", "tasks=['upos']")
    run(*some, "-m", "linear")
    run(*some, "-m", "linear", "--set", "layers=[0, 1]", "--set", "store=other")
    run(*some, "-m", "agg")
    told = {(row.method, row.variant.partition(" ")[2]): row.encode_s for row in results(tmp_path / "rep")}
    assert told["linear", ""] is told["agg", ""] is None
    assert next(seconds for (_, line), seconds in told.items() if "layers" in line)


def test_options_that_a_method_has_no_use_for_make_no_other_cell(run: Run, config: Path, tmp_path: Path) -> None:
    some = ("compare", config, "-o", "rep", *SHORT, "-m", "frozen,linear,agg", "--set", "tasks=['upos']")
    run(*some)
    before = results(tmp_path / "rep")
    run(*some, "--set", "adapter.key_width=8")
    after = results(tmp_path / "rep")
    assert after[: len(before)] == before
    assert [(row.method, "key_width=8" in row.variant) for row in after[len(before) :]] == [("agg", True)]


def test_an_item_over_the_window_is_refused_before_anything_is_encoded(run: Run, config: Path, tmp_path: Path) -> None:
    words = "".join(
        f"{n}\tthe\tthe\tDET\tDT\t_\t{0 if n == 1 else 1}\t{'root' if n == 1 else 'dep'}\t_\t_\n" for n in range(1, 61)
    )
    (tmp_path / "long.conllu").write_text(words + "\n")
    for more in ((), ("--dry-run",)):
        some = ("compare", config, "-o", "rep", "-m", "linear,finetune", *SHORT, *more)
        said = run(*some, "--set", f"data.test={tmp_path / 'long.conllu'}", code=1).stderr
        assert "62 pieces, but the encoder's blocks can be given 32 at once" in said
        assert not list((tmp_path / "states").glob("*.safetensors"))
        assert not (tmp_path / "rep" / "results.jsonl").exists()


def test_a_dry_run_is_json_where_asked(run: Run, config: Path) -> None:
    some = ("compare", config, "-o", "rep", "-m", "linear,agg", "--seeds", "2", "--dry-run")
    found = json.loads(run(*some, "--json").stdout)
    assert [(line["method"], line["to_train"], line["done"]) for line in found["lines"]] == [
        ("linear", 2, 0),
        ("agg", 2, 0),
    ]
    assert found["said"][0] == "train: 60 documents"
    assert found["said"][0] in run(*some).stdout


def test_a_picture_of_costs_is_of_this_calls_rows(run: Run, config: Path, tmp_path: Path) -> None:
    some = ("compare", config, "-o", "rep", *SHORT[:2], *SHORT[3:], "--set", "tasks=['upos']")
    run(*some, "-m", "linear,agg")
    assert (tmp_path / "rep" / "cost.png").exists()
    run(*some, "-m", "linear")
    assert not (tmp_path / "rep" / "cost.png").exists()


def test_training_on_a_file_twice_is_not_training_on_it_once(run: Run, config: Path, corpus: Path) -> None:
    some = ("compare", config, "-o", "rep", "-m", "linear", *SHORT)
    run(*some)
    twice = run(*some, "--set", f"data.train=['{corpus / 'train.conllu'}', '{corpus / 'train.conllu'}']", code=1).stderr
    assert "data.train" in twice
    assert "which holds something else" in twice


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.conllu.gz"
    path.write_bytes(gzip.compress(b"1\tthe\n" * 999)[:-20])
    with pytest.raises(DataError, match=r"train.conllu.gz is a damaged gzip file"):
        _sha256(path)


def test_tables_of_a_paper_may_be_numbered(tmp_path: Path) -> None:
    path = tmp_path / "paper.yaml"
    path.write_text("tables:\n  1:\n    upos: {frozen: 90.1}\n  2:\n    upos: {frozen: 80.1}\n")
    assert published(path, "2") == {"upos": {"frozen": 80.1}}
    with pytest.raises(ConfigError, match=r"choose one with --paper-table 1\|2"):
        published(path, "3")
