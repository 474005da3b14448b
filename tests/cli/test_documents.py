"""Documents through the command line: train, evaluate and predict on csv, tsv and JSON lines."""

import csv
import io
import json
import os
import random
import re
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from encodeonce.cli.documents import refuse_labels
from encodeonce.cli.main import cli
from encodeonce.errors import ConfigError
from encodeonce.serve.bundle import load as load_run
from encodeonce.tasks import named

from .conftest import LEXICON, Run

TRAIN = "[train]\nnum_train_epochs = 25\nper_device_train_batch_size = 8\nlearning_rate = 0.05\n"


def rows(n: int, seed: int) -> list[dict[str, str]]:
    """Texts about cats or dogs; texts that hold "never" or not."""
    rng, made = random.Random(seed), []
    for i in range(n):
        animal, never = rng.choice(["cat", "dog"]), rng.random() < 0.5
        words = [
            rng.choice(LEXICON["DET"]),
            animal,
            rng.choice(LEXICON["VERB"]),
            animal,
            *(["never"] * 2 if never else []),
        ]
        tags = [animal, *(["never"] if never else [])]
        made.append(
            {
                "id": str(i),
                "body": " ".join(words),
                "reply": rng.choice(["a tree .", 'every "bird", often .']),
                "animal": animal,
                "tags": "|".join(tags),
                "score": "4.5" if animal == "cat" else "0.5",
            }
        )
    return made


def write_table(path: Path, found: Sequence[dict[str, str]], comma: str) -> None:
    with open(path, "w", encoding="utf-8", newline="") as stream:
        quoting = csv.QUOTE_MINIMAL if comma == "," else csv.QUOTE_NONE
        writer = csv.DictWriter(
            stream, list(found[0]), delimiter=comma, quoting=quoting, quotechar='"' if comma == "," else None
        )
        writer.writeheader()
        writer.writerows(found)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train and test as csv, tsv and jsonl."""
    folder = tmp_path_factory.mktemp("texts")
    for name, size, seed in (("train", 80, 1), ("test", 20, 2)):
        found = rows(size, seed)
        write_table(folder / f"{name}.csv", found, ",")
        write_table(folder / f"{name}.tsv", found, "\t")
        lines = [{**row, "score": float(row["score"]), "tags": row["tags"].split("|")} for row in found]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def train(folder: Path, tiny: Path, texts: Path, body: str, ending: str, columns: str) -> Path:
    (folder / "config.toml").write_text(
        f'encoder = "{tiny}"\nmethod = "linear"\n{body}\n[data]\ntrain = "{texts}/train.{ending}"\n'
        f'test = "{texts}/test.{ending}"\ndev_fraction = 0.2\ncolumns = {columns}\n{TRAIN}'
    )
    done = CliRunner().invoke(cli, ["train", str(folder / "config.toml"), "-o", str(folder / "run"), "--json"])
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    (folder / "train.json").write_text(done.stdout)
    return folder


@pytest.fixture(scope="module")
def trained(tiny: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one label a document, from a csv with the user's own column names."""
    body, columns = 'tasks = ["classification"]', '{ text = "body", label = "animal" }'
    return train(tmp_path_factory.mktemp("labels"), tiny, texts, body, "csv", columns)


@pytest.fixture(scope="module")
def many(tiny: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of pairs with a set of labels and a number, from JSON lines."""
    body = 'tasks = ["tags", "score"]\n[task.tags]\nkind = "multilabel"\ncolumn = "tags"\n'
    body += '[task.score]\nkind = "regression"\ncolumn = "score"'
    columns = '{ text = "body", pair = "reply" }'
    return train(tmp_path_factory.mktemp("many"), tiny, texts, body, "jsonl", columns)


def test_two_texts_apart_from_file_to_file(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> None:
    body = 'tasks = ["score"]\n[task.score]\nkind = "regression"\ncolumn = "score"\npiece = "document-apart"'
    train(tmp_path, tiny, texts, body, "csv", '{ text = "body", pair = "reply" }')
    said = json.loads((tmp_path / "train.json").read_text())
    assert said["scores"]["test"]["score"]["pearson"] > 90
    named = ("--columns", "text=body,pair=reply")
    assert "0 encoded" in run("evaluate", tmp_path / "run", texts / "test.csv", *named).stderr
    swapped = ("--columns", "text=reply,pair=body")  # other items: nothing of them is stored
    assert "0 documents from the store" in run("evaluate", tmp_path / "run", texts / "test.csv", *swapped).stderr
    out = tmp_path / "out.csv"
    run("predict", tmp_path / "run", texts / "test.csv", *named, "-o", out)
    with open(out, encoding="utf-8", newline="") as stream:
        answers = [float(row["score"]) for row in csv.DictReader(stream)]
    gold = [float(row["score"]) for row in rows(20, 2)]
    assert sum(abs(a - b) < 1 for a, b in zip(answers, gold, strict=True)) > 15
    config = tmp_path / "config.toml"
    assert "20" in run("debug-data", config).stdout
    assert " 0 misses" in run("encode", config).stdout  # training, evaluation and encoding read the same items
    other = run("train", config, "-o", tmp_path / "other", "--set", "method=finetune", code=1)
    assert "reads the two texts of a pair apart" in other.stderr


def test_train_on_a_table_with_dev_held_out(trained: Path) -> None:
    said = json.loads((trained / "train.json").read_text())
    assert said["scores"]["test"]["classification"]["accuracy"] > 90
    run = load_run(trained / "run")
    assert run.training["examples"] == {"train": 63, "dev": 17, "test": 20}  # copies stay together
    assert run.data == {"train": "train.csv", "dev": "0.2 of train, held out", "test": "test.csv"}
    assert run.tasks[0].labels == ("cat", "dog")


def test_TRAIN2_a_run_does_not_go_on_with_another_label_counted(run: Run, trained: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(trained / "run", tmp_path / "run")
    command = ("train", trained / "config.toml", "-o", copied, "--set", "task.classification.positive=cat")
    other = run(*command, code=1).stderr
    assert "scorers.classification.positive: '' then, 'cat' now" in other


def test_evaluate_says_every_score_of_the_task(run: Run, trained: Path, texts: Path) -> None:
    said = run("evaluate", trained / "run", texts / "test.csv", "--columns", "text=body,label=animal", "--json").stdout
    found = {row["metric"]: row["value"] for row in json.loads(said)}
    assert set(found) == {"accuracy", "macro_f1", "matthews"}
    assert (
        found["accuracy"]
        == json.loads((trained / "train.json").read_text())["scores"]["test"]["classification"]["accuracy"]
    )


def test_predict_fills_the_users_column_of_a_csv_and_keeps_every_other_byte(
    run: Run, trained: Path, texts: Path, tmp_path: Path
) -> None:
    blank = [{**row, "animal": "?"} for row in rows(20, 2)]
    write_table(tmp_path / "blank.csv", blank, ",")
    run(
        "predict",
        trained / "run",
        tmp_path / "blank.csv",
        "--columns",
        "text=body,label=animal",
        "-o",
        tmp_path / "out.csv",
    )
    found = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text("utf-8"))))
    assert sum(a["animal"] == b["animal"] for a, b in zip(found, rows(20, 2), strict=True)) > 18
    assert [{**row, "animal": "?"} for row in found] == blank


def test_a_table_like_the_runs_own_needs_no_columns(run: Run, trained: Path, texts: Path, tmp_path: Path) -> None:
    """With the labels' column or without it; the answers get its name."""
    named = ("--columns", "text=body,label=animal")
    for command in ("evaluate", "predict", "inspect"):
        own = run(command, trained / "run", texts / "test.csv")
        assert own.stdout == run(command, trained / "run", texts / "test.csv", *named).stdout
        assert "test.csv is read as the run's own data were, with --columns text=body,label=animal" in own.stderr
    write_table(tmp_path / "bare.csv", [{"body": row["body"]} for row in rows(5, 2)], ",")
    bare = run("predict", trained / "run", "bare.csv")
    assert bare.stdout == run("predict", trained / "run", "bare.csv", "--columns", "text=body").stdout
    assert "no column 'animal' (label)" in bare.stderr


def test_a_folder_of_texts_is_answered_as_json_lines(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    held = {"a": "the cat sees cat", "b": " ", "deep/c": "a dog sees dog"}
    for name, text in held.items():
        (tmp_path / "texts" / f"{name}.txt").write_text(text)
    printed = run("predict", trained / "run", "texts").stdout
    found = {row["id"]: row for row in map(json.loads, printed.splitlines())}
    assert {name: row["label"] for name, row in found.items()} == {"a": "cat", "b": None, "deep/c": "dog"}
    assert {name: row["text"] for name, row in found.items()} == held
    assert found["deep/c"]["category_path"] == ["deep"]
    chances = json.loads(run("predict", trained / "run", "texts", "--probabilities").stdout.splitlines()[0])
    assert sum(chances["label_probabilities"].values()) == pytest.approx(1, abs=2e-6)
    run("predict", trained / "run", "texts", "-o", "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == printed
    refused = run("predict", trained / "run", "texts", "-o", "out.csv", code=1).stderr
    assert "what is written is of the format jsonl: a line a text of texts. Let it end in .jsonl" in refused


def test_predict_adds_a_column_and_probabilities(run: Run, trained: Path, texts: Path, tmp_path: Path) -> None:
    args = ("--columns", "text=body", "--probabilities")
    out = run("predict", trained / "run", texts / "test.csv", *args).stdout
    found = list(csv.DictReader(io.StringIO(out)))
    assert list(found[0])[-3:] == ["label", "label:cat", "label:dog"]
    for row in found:
        chances = {label: float(row[f"label:{label}"]) for label in ("cat", "dog")}
        assert sum(chances.values()) == pytest.approx(1, abs=2e-6)
        assert row["label"] == max(chances, key=chances.__getitem__)
    lines = run("predict", trained / "run", texts / "test.jsonl", *args).stdout
    for line, row in zip(map(json.loads, lines.splitlines()), found, strict=True):
        assert line["label"] == row["label"]
        assert line["label_probabilities"]["cat"] == pytest.approx(float(row["label:cat"]))
        assert line["tags"] == next(r for r in rows(20, 2) if r["id"] == line["id"])["tags"].split("|")


def test_predict_on_a_table_without_header_and_on_lines_of_text(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("1\tthe cat sees cat\n2\ta dog sees dog\n", encoding="utf-8")
    out = run("predict", trained / "run", tmp_path / "x.tsv", "--columns", "text=1").stdout
    assert out == "1\tthe cat sees cat\tcat\n2\ta dog sees dog\tdog\n"
    (tmp_path / "x.txt").write_text("the cat sees cat\na dog sees dog\n", encoding="utf-8")
    assert run("predict", trained / "run", tmp_path / "x.txt").stdout == "cat\tthe cat sees cat\ndog\ta dog sees dog\n"


def test_an_empty_cell_gets_no_label(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("text,label\nthe cat sees cat,?\n,?\n", encoding="utf-8")
    result = run("predict", trained / "run", tmp_path / "x.csv")
    assert result.stdout == "text,label\nthe cat sees cat,cat\n,\n"
    assert "1 texts are empty and get no answer" in result.stderr


def test_answers_are_not_written_over_the_text_that_they_are_of(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "named.csv").write_text("label,body\na cat,a dog\n")
    (tmp_path / "named.jsonl").write_text('{"label": "a cat", "body": "a dog"}\n')
    for file, names in (("csv", "text=label"), ("jsonl", "text=label"), ("jsonl", "text=body,label=body")):
        said = run("predict", trained / "run", tmp_path / f"named.{file}", "--columns", names, code=1).stderr
        assert "would take that text's place. Give the column another name in the file, and then --columns text" in said
    (tmp_path / "bare.csv").write_text("a cat\na dog\n")
    for file, names, at in (("named.csv", "text=body,label=body", "1 of 2"), ("bare.csv", "text=0,label=-1", "0 of 1")):
        said = run("predict", trained / "run", tmp_path / file, "--columns", names, code=1).stderr
        assert f"{file}:1: 'text' and 'label' are both column {at}" in said


def test_an_empty_cell_of_either_text_of_a_pair_gets_no_answer(run: Run, many: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("body,reply\na cat sees cat,a tree .\na cat,\n,a tree .\n")
    result = run("predict", many / "run", tmp_path / "x.csv", "--columns", "text=body,pair=reply")
    assert [bool(row["score"]) for row in csv.DictReader(io.StringIO(result.stdout))] == [True, False, False]
    assert "2 texts are empty and get no answer, the first:" in result.stderr
    assert f"{tmp_path / 'x.csv'}:3" in result.stderr


def test_what_can_be_read_only_once_is_refused_before_it_is_answered(run: Run, trained: Path, tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes, which this system has not")
    os.mkfifo(tmp_path / "pipe")

    def give() -> None:
        (tmp_path / "pipe").write_text('{"text": "a cat sees a cat"}\n', encoding="utf-8")

    writer = threading.Thread(target=give)
    writer.start()
    said = run("predict", trained / "run", tmp_path / "pipe", "--format", "jsonl", code=1).stderr
    writer.join()
    assert "pipe can be read only once, as a pipe is, and it is read again" in said
    assert "Save it to a file, and give that." in said


def test_pairs_sets_of_labels_and_numbers(run: Run, many: Path, texts: Path) -> None:
    scores = json.loads((many / "train.json").read_text())["scores"]["test"]
    assert scores["tags"]["micro_f1"] > 85
    assert scores["score"]["pearson_spearman"] > 80
    args = ("--columns", "text=body,pair=reply")
    lines = run("predict", many / "run", texts / "test.jsonl", *args).stdout
    answers = [json.loads(line) for line in lines.splitlines()]
    assert all(isinstance(line["tags"], list) and isinstance(line["score"], float) for line in answers)
    table = run("predict", many / "run", texts / "test.csv", *args).stdout
    for row, line in zip(csv.DictReader(io.StringIO(table)), answers, strict=True):
        assert row["tags"] == "|".join(line["tags"])
        assert float(row["score"]) == pytest.approx(line["score"], rel=1e-4)
    wrong = run("predict", many / "run", texts / "test.csv", "--columns", "text=body", code=1).stderr
    assert "was trained on pairs, and this item has no second text" in wrong
    chances = run("predict", many / "run", texts / "test.csv", *args, "--probabilities", code=1).stderr
    assert "the head 'regressor' gives no probabilities" in chances


def test_labels_of_json_are_numbers_and_truth_values_again_and_text_in_a_table(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    made = [
        {"body": row["body"], "kind": int(row["animal"] == "cat"), "never": "never" in row["tags"], "codes": [7]}
        for row in rows(12, 3)
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    body = 'tasks = ["kind", "never", "codes"]\n' + "".join(
        f'[task.{name}]\nkind = "{kind}"\ncolumn = "{name}"\n'
        for name, kind in (("kind", "classification"), ("never", "classification"), ("codes", "multilabel"))
    )
    (tmp_path / "config.toml").write_text(
        f'encoder = "{tiny}"\nmethod = "linear"\n{body}[data]\ntrain = "{tmp_path}/train.jsonl"\n'
        'dev_fraction = 0.25\ncolumns = { text = "body" }\n[train]\nnum_train_epochs = 1\n'
    )
    run("train", tmp_path / "config.toml", "-o", tmp_path / "run")
    (tmp_path / "new.jsonl").write_text(json.dumps({"body": "a cat sees"}) + "\n")
    args = ("--columns", "text=body")
    found = json.loads(run("predict", tmp_path / "run", tmp_path / "new.jsonl", *args).stdout)
    assert {name: type(found[name]) for name in ("kind", "never")} == {"kind": int, "never": bool}
    assert found["codes"] in ([], [7])
    (tmp_path / "new.csv").write_text("body\na cat sees\n")
    (row,) = csv.DictReader(io.StringIO(run("predict", tmp_path / "run", tmp_path / "new.csv", *args).stdout))
    assert (row["kind"], row["never"]) == (str(found["kind"]), str(found["never"]).lower())


def test_formats_of_words_have_no_place_for_a_documents_answer(run: Run, trained: Path, corpus: Path) -> None:
    wrong = run("predict", trained / "run", corpus / "test.conllu", code=1).stderr
    assert "task 'classification' has one answer a document, and this 'conllu' file" in wrong


def test_inspect_averages_layers_by_label_of_documents(run: Run, trained: Path, many: Path, texts: Path) -> None:
    said = run("inspect", trained / "run", texts / "test.csv", "--columns", "text=body,label=animal", "--json").stdout
    panel = json.loads(said)[0] if isinstance(json.loads(said), list) else json.loads(said)
    assert "cat" in json.dumps(panel)
    wrong = run("inspect", many / "run", texts / "test.jsonl", "--columns", "text=body,pair=reply", code=1).stderr
    assert "has not one label a row" in wrong
    (texts / "blank.csv").write_text('body,animal\n" ",cat\n')
    given = ("inspect", trained / "run", texts / "blank.csv", "--columns", "text=body,label=animal", "-o", "h.png")
    assert "none of 1 documents has a text" in run(*given, code=1).stderr


def test_debug_data_looks_at_the_label(run: Run, texts: Path) -> None:
    said = run("debug-data", texts / "train.csv", "--columns", "text=body,label=animal").stdout
    assert "label: " in said
    assert "80 documents" in said


def test_dev_is_held_out_or_given_but_not_both(run: Run, trained: Path, texts: Path) -> None:
    args = ("--set", f"data.dev={texts}/test.csv")
    wrong = run("train", trained / "config.toml", "-o", "other", *args, code=1).stderr
    assert "data.dev_fraction=0.2 takes dev out of train, and data.dev is set too" in wrong


def test_answers_are_found_in_passages_and_written_as_they_stand_there(run: Run, tiny: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    for name, n in (("train", 48), ("test", 12)):
        rows = []
        for _ in range(n):
            words = rng.choices(["cat", "dog", "bird", "tree"], k=5)
            words[rng.randrange(5)] = answer = rng.choice(["likes", "finds"])
            passage = " ".join(words)
            rows.append(
                {"text": "a house", "pair": passage, "answers": [answer], "answer_starts": [passage.index(answer)]}
            )
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "config.toml").write_text(
        f'encoder = "{tiny}"\nstore = "states"\ntasks = ["answer_spans"]\nmethod = "linear"\n[data]\n'
        'train = "train.jsonl"\ntest = "test.jsonl"\n[train]\nnum_train_epochs = 30\nlearning_rate = 0.02\n'
    )
    run("train", tmp_path / "config.toml", "-o", tmp_path / "run")
    scores = json.loads(run("evaluate", tmp_path / "run", tmp_path / "test.jsonl", "--json").stdout)
    assert {row["metric"]: row["value"] for row in scores}["exact_match"] >= 90
    bare = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    for row in bare:
        row["gold"] = row.pop("answers"), row.pop("answer_starts")
    (tmp_path / "bare.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bare))
    answers = [
        json.loads(line) for line in run("predict", tmp_path / "run", tmp_path / "bare.jsonl").stdout.splitlines()
    ]
    assert all(
        row["pair"][start:].startswith(answer)
        for row in answers
        for answer, start in zip(row["answers"], row["answer_starts"], strict=True)
    )
    assert sum([row["answers"], row["answer_starts"]] == row["gold"] for row in answers) >= 11


def test_a_number_in_a_table_is_the_number_in_json(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Also where training's numbers differ from the tenth digit on only."""
    rows = [{"text": text, "value": 1_700_000_000 + n} for n, text in enumerate(["the cat", "a dog", "the tree"] * 3)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "numbers.toml").write_text(
        f'encoder = "{tiny}"\ntasks = ["value"]\nmethod = "linear"\n[data]\ntrain = "train.jsonl"\n'
        '[task.value]\nkind = "regression"\ncolumn = "value"\n[train]\nnum_train_epochs = 1\n'
    )
    run("train", "numbers.toml", "-o", "run")
    (tmp_path / "new.csv").write_text("text,value\nthe dog,\na tree,\n")
    run("predict", "run", "new.csv", "-o", "out.csv")
    with (tmp_path / "out.csv").open() as file:
        found = [float(row["value"]) for row in csv.DictReader(file)]
    assert len(set(found)) == 2
    (tmp_path / "new.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("the dog", "a tree")))
    run("predict", "run", "new.jsonl", "-o", "new-out.jsonl")
    lines = (tmp_path / "new-out.jsonl").read_text().splitlines()
    assert found == [json.loads(line)["value"] for line in lines]


@pytest.mark.parametrize(
    ("label", "kind", "reading", "sign"),
    [
        ("a\tb", "text", {}, "\t"),
        ("a\tb", "tsv", {}, "\t"),
        ("a\tb", "tsv", {"quoting": True}, ""),
        ("a\tb", "tsv", {"separator": ";"}, ""),
        ("a;b", "tsv", {"separator": ";", "quoting": False}, ";"),
        ("a,b\n", "csv", {}, ""),
        ("a,b", "csv", {"quoting": False}, ","),
        ("a\rb", "csv", {"quoting": False}, "\r"),
        ("a\nb", "columns", {"separator": "blank"}, "\n"),
        ("a\tb", "conllu", {}, "\t"),
        ("a,b;c", "text", {}, ""),
        ("a\tb\n", "jsonl", {}, ""),
        ("a|b", "csv", {}, "|"),
        ("a|b", "jsonl", {}, ""),
    ],
)
def test_labels_that_a_file_cannot_hold_are_known_beforehand(
    label: str, kind: str, reading: dict[str, Any], sign: str
) -> None:
    made = replace(named("tags", kind="multilabel", column="tags"), labels=("a", label))
    if not sign:
        refuse_labels([made], kind, **reading)
        return
    with pytest.raises(ConfigError, match=re.escape(f"task 'tags': the label {label!r} holds {sign!r}, which divides")):
        refuse_labels([made], kind, **reading)
