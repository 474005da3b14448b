"""`encodeonce fewshot` from files: a table of what was tried, the choice in a sentence, answers, a saved estimator."""

import json
from pathlib import Path

import numpy as np
import pytest

from encodeonce.corpus import read
from encodeonce.integrations.few_shot import FewShot

from .conftest import Run

KINDS = {"animals": ["cat", "dog", "bird"], "doings": ["sees", "likes", "finds"]}


def drawn(n: int, seed: int) -> list[tuple[str, str]]:
    generator = np.random.default_rng(seed)
    kinds = [list(KINDS)[i % 2] for i in range(n)]
    return [(" ".join(generator.choice(KINDS[kind], 6).tolist()), kind) for kind in kinds]


def table(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("text\tkind\n" + "".join(f"{text}\t{kind}\n" for text, kind in rows), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    plain = {name: tmp_path / f"{name}.txt" for name in ("unlabelled", "asked")}
    plain["unlabelled"].write_text("".join(f"{text}\n" for text, _ in drawn(80, 1)))
    plain["asked"].write_text("dog cat bird\nlikes finds\n")
    tables = {name: table(tmp_path / f"{name}.tsv", drawn(n, n)) for name, n in (("labelled", 16), ("test", 20))}
    return {**plain, **tables}


def test_a_table_of_what_was_tried_the_choice_in_a_sentence_and_answers(
    run: Run, tiny: Path, files: dict[str, Path]
) -> None:
    named = ("--label", "kind", "--encoder", tiny, "--folds", 2, "--methods", "probe,layers,late")
    result = run("fewshot", files["labelled"], "-u", files["unlabelled"], "--test", files["test"], *named)
    assert [line.split()[0] for line in result.stdout.splitlines()[1:6] if line.strip() and line[0].isalpha()] == [
        "probe",
        "layers",
        "late",
        "mixture",
    ]
    assert result.output.count("chosen: ") == result.stdout.count("chosen: ") == 1
    assert "test: accuracy 100.00" in result.stdout
    asked = ("--predict", files["asked"], "-o", "new/out.txt")
    result = run("fewshot", files["labelled"], *named[:4], "--methods", "layers", *asked)
    assert Path("new/out.txt").read_text() == "animals\tdog cat bird\ndoings\tlikes finds\n"
    assert "blank" not in result.stderr
    files["asked"].write_text("dog cat bird\n\n  \nlikes finds\n\n")
    result = run("fewshot", files["labelled"], *named[:4], "--methods", "layers", *asked)
    assert Path("new/out.txt").read_text() == "animals\tdog cat bird\ndoings\tlikes finds\n"
    assert "asked.txt: 2 blank lines get no answer" in result.stderr


def test_json_and_a_saved_estimator(run: Run, tiny: Path, files: dict[str, Path]) -> None:
    result = run(
        *("fewshot", files["labelled"], "--label", "kind", "--encoder", tiny, "--methods", "layers", "--json"),
        *("--predict", files["asked"], "--save", "kept", "--store", "vectors", "--folds", 2),
    )
    values = json.loads(result.stdout)
    assert values["answers"] == ["animals", "doings"]
    assert values["chosen"] == {"layers": 1.0}
    assert FewShot.load("kept").predict(["dog cat bird", "likes finds"]).tolist() == values["answers"]


def test_answers_come_out_as_predict_writes_them(run: Run, tiny: Path, files: dict[str, Path], tmp_path: Path) -> None:
    rows = [{"text": text, "label": 10 if kind == "animals" else 9} for text, kind in drawn(16, 16)]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "new.jsonl").write_text('{"n": 1, "text": "dog cat bird"}\n{"text": "likes finds", "n": 2}\n')
    settings = ("-e", tiny, "-m", "layers", "--folds", 2)
    asked = ("--predict", tmp_path / "new.jsonl", "-o", tmp_path / "answered.jsonl", "--save", tmp_path / "kept")
    run("fewshot", tmp_path / "labelled.jsonl", *settings, *asked)
    lines = (tmp_path / "answered.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"n": 1, "text": "dog cat bird", "label": 10},
        {"text": "likes finds", "n": 2, "label": 9},
    ]
    assert run("predict", tmp_path / "kept", tmp_path / "new.jsonl").stdout.splitlines() == lines
    (tmp_path / "new.csv").write_text("n,body\n1,dog cat bird\n2,likes finds\n")
    labelled = "".join(f"{row['text']},{row['label']}\n" for row in rows)
    (tmp_path / "labelled.csv").write_text("body,kind\n" + labelled)
    named = (*settings, "--columns", "text=body", "--predict", tmp_path / "new.csv")
    run("fewshot", tmp_path / "labelled.csv", "--label", "kind", *named, "-o", tmp_path / "answered.csv")
    assert (tmp_path / "answered.csv").read_text() == "n,body,kind\n1,dog cat bird,10\n2,likes finds,9\n"
    called = (*settings, "--columns", "text=body,label=kind", "--predict", tmp_path / "new.csv")
    run("fewshot", tmp_path / "labelled.csv", *called, "-o", tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "answered.csv").read_bytes()
    (tmp_path / "bare.csv").write_text(labelled)
    (tmp_path / "new_bare.csv").write_text("dog cat bird\nlikes finds\n")
    numbered = (*settings, "--columns", "text=0,label=1", "--predict", tmp_path / "new_bare.csv")
    run("fewshot", tmp_path / "bare.csv", *numbered, "-o", tmp_path / "answered_bare.csv")
    assert (tmp_path / "answered_bare.csv").read_text() == "dog cat bird,10\nlikes finds,9\n"
    ends = (*settings, "--columns", "text=0,label=-1", "--predict", tmp_path / "new_bare.csv")
    refused = run("fewshot", tmp_path / "bare.csv", *ends, "-o", tmp_path / "answered_bare.csv", code=1)
    assert "--columns label=-1 counts from the end" in refused.output
    refused = run("fewshot", tmp_path / "labelled.csv", "--label", "kind", *named, "-o", "answers.jsonl", code=1)
    assert ".jsonl is the ending of" in refused.output
    assert "csv" in refused.output
    assert "held out" not in refused.output


def test_a_saved_estimator_answers_in_json_with_the_numbers_that_its_file_had(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    rows = [{"text": text, "label": 10 if kind == "animals" else 9} for text, kind in drawn(16, 16)]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("fewshot", tmp_path / "labelled.jsonl", "-e", tiny, "-m", "layers", "--folds", 2, "--save", tmp_path / "kept")
    (tmp_path / "new.jsonl").write_text('{"text": "dog cat bird"}\n{"text": "likes finds"}\n')
    lines = run("predict", tmp_path / "kept", tmp_path / "new.jsonl").stdout.splitlines()
    assert [json.loads(line)["label"] for line in lines] == [10, 9]
    assert "accuracy" in run("evaluate", tmp_path / "kept", tmp_path / "labelled.jsonl").stdout


def test_fusion_by_name_shows_what_its_search_chose(run: Run, tiny: Path, files: dict[str, Path]) -> None:
    settings = ("--label", "kind", "-e", tiny, "-u", files["unlabelled"], "--folds", 2, "--steps", 2, "-m", "refusion")
    shown = run("fewshot", files["labelled"], *settings).stdout
    assert "refusion: what the search weighed and chose, per cent" in shown
    assert "| block | slot | identity | reranker | mask | chosen | ahead by |" in shown
    values = json.loads(run("fewshot", files["labelled"], *settings, "--json").stdout)
    for line, one in zip(shown[shown.index("| 0 |") :].splitlines(), values["architecture"]["refusion"], strict=False):
        assert line.split(" | ")[-2] == one["chosen"]
    ratios = [100 * one["ratio"] for one in values["ratios"]["refusion"]]
    adding = [one for one in values["architecture"]["refusion"] if one["chosen"] != "identity"]
    assert [(one["block"], one["slot"]) for one in values["ratios"]["refusion"]] == [
        (one["block"], one["slot"]) for one in adding
    ]
    if ratios:
        said = f"refusion: {len(ratios)} modules add {min(ratios):.2f} to {max(ratios):.2f} % of their slot's output"
        assert said in shown
    picture = Path("new") / "chosen.png"
    run("fewshot", files["labelled"], *settings, "--picture", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    problem = run("fewshot", files["labelled"], *settings, "--picture", "chosen.txt", code=1)
    assert "chosen.txt: a picture ends in one of" in problem.output
    assert "held-out" not in problem.output
    named = ("--label", "kind", "-e", tiny, "-u", files["unlabelled"], "--picture", picture)
    assert "--picture shows what a search chose" in run("fewshot", files["labelled"], *named, code=2).output


def test_a_missing_label_column_and_too_few_unlabelled_texts_are_named(
    run: Run, tiny: Path, files: dict[str, Path]
) -> None:
    problem = run("fewshot", files["labelled"], "--encoder", tiny, code=1)
    assert "'label'" in problem.output
    assert "kind" in problem.output
    problem = run(
        "fewshot", files["labelled"], "-u", files["asked"], "--label", "kind", "-e", tiny, "-m", "late", code=1
    )
    assert "method 'late': 64 neighbours asked for, but there are 2 unlabelled texts" in problem.output
    assert "--neighbours" in problem.output


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("cat", "a")] * 4, "a classifier needs two classes"),
        ([*[("cat", "a")] * 3, *[("dog", "b")] * 3], "class 'a' has one text, 3 times"),
        ([*[("cat", "a")] * 3, *[("cat", "b")] * 3], "class 'a' has one text, 3 times"),
        ([("cat", "a"), ("dog", "a"), ("tree", "b")], "class 'b' has one example"),
        ([("cat", "a"), ("", "b")], "labelled.tsv:3 (id labelled:2): task 'label': the text is empty"),
        ([("cat", "a"), ("dog", "")], "'kind' is empty"),
    ],
)
def test_what_cannot_be_learned_is_named(
    rows: list[tuple[str, str]], message: str, run: Run, tiny: Path, files: dict[str, Path]
) -> None:
    table(files["labelled"], rows)
    assert message in run("fewshot", files["labelled"], "--label", "kind", "-e", tiny, "-m", "layers", code=1).output


def test_every_file_is_read_before_anything_is_trained(run: Run, tiny: Path, files: dict[str, Path]) -> None:
    named = ("fewshot", files["labelled"], "--label", "kind", "-e", tiny, "-m", "layers,late")
    pairs = files["asked"].with_name("pairs.tsv")
    pairs.write_text("text\tpair\tkind\ncat\tdog\tanimals\n")
    files["asked"].with_name("latin.txt").write_bytes(b"caf\xe9\n")
    files["asked"].with_name("empty.tsv").write_text("text\tnumber\ncat\t1\n\t2\n")
    files["asked"].with_name("mixed.jsonl").write_text('{"text": "a", "pair": "b"}\n{"text": "c"}\n')
    for more, message in (
        (("--test", files["asked"]), "task 'label' reads 'kind', and there is no such value"),
        (("--test", pairs), "pairs.tsv:2 (id pairs:1): task 'label' was trained on single texts"),
        (("--predict", pairs), "pairs.tsv:2 (id pairs:1): task 'label' was trained on single texts"),
        (("--predict", "latin.txt"), "latin.txt:1:4: byte 0xe9 is not UTF-8"),
        (("--unlabelled", "empty.tsv"), "empty.tsv:3: the text is empty. Give it one, or leave the line out"),
        (("--unlabelled", "mixed.jsonl"), "mixed.jsonl:2: a single text, and the first line has a pair. Give all"),
        (("--unlabelled", pairs), "unlabelled text 1 is a pair of texts, and what is labelled are single texts"),
        (("--save", tiny), "is no few-shot estimator and holds config.json"),
    ):
        problem = run(*named, *more, code=1)
        assert message in problem.output
        assert "chosen" not in problem.output
    assert "--output is where answers go" in run(*named, "-o", "answers.txt", code=2).output
    for option, value in (("--seed", -1), ("--steps", 0), ("--folds", 1), ("--neighbours", 0)):
        assert f"{value} is not in the range" in run(*named, option, value, code=2).output


@pytest.mark.parametrize(
    ("labels", "asked", "message"),
    [
        ("ab", "x.conll", "task 'label' has one answer a document, and this 'columns' file has a place for answers a"),
        ("ab", "x.conllu", "this 'conllu' file has a place for answers a word only"),
        (
            ("a\tb", "c"),
            "x.txt",
            "task 'label': the label 'a\\tb' holds '\\t', which divides what stands in this 'text'",
        ),
        (("a", "c\nd"), "x.txt", "the label 'c\\nd' holds '\\n', which divides what stands in this 'text' file"),
        (("a", "c\rd"), "x.tsv", "the label 'c\\rd' holds '\\r', which divides what stands in this 'tsv' file"),
        (("a\tb", "c\nd"), "x.csv", ""),
        (("a\tb", "c\nd"), "x.jsonl", ""),
    ],
)
def test_answers_that_their_file_cannot_hold_are_refused_before_training(
    run: Run, tiny: Path, tmp_path: Path, labels: tuple[str, str], asked: str, message: str
) -> None:
    """A label a word, one of three letters was three labels; a tab or a line end broke the lines of plain text."""
    rows = [{"text": text, "label": labels[kind == "doings"]} for text, kind in drawn(16, 16)]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written = {
        "x.conll": "dog X\ncat Y\n\n",
        "x.conllu": "1\tdog\t_\tX\t_\t_\t0\t_\t_\t_\n\n",
        "x.txt": "dog cat bird\n",
        "x.tsv": "text\ndog cat bird\n",
        "x.csv": "text\ndog cat bird\n",
        "x.jsonl": '{"text": "dog cat bird"}\n',
    }
    (tmp_path / asked).write_text(written[asked])
    named = ("fewshot", tmp_path / "labelled.jsonl", "-e", tiny, "-m", "layers", "--folds", 2, "-p", tmp_path / asked)
    done = run(*named, "-o", f"out{Path(asked).suffix}", code=1 if message else 0)
    if not message:
        assert [document.meta["label"] for document in read(tmp_path / f"out{Path(asked).suffix}")] == [labels[0]]
        return
    assert message in done.output
    assert "Give the documents as jsonl" in done.output
    assert "chosen" not in done.output
    assert not Path(f"out{Path(asked).suffix}").exists()


def test_a_saved_run_whose_labels_have_no_place_in_a_file_answers_nothing(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"text": text, "label": f"{kind}\n"} for text, kind in drawn(16, 16)]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("fewshot", tmp_path / "labelled.jsonl", "-e", tiny, "-m", "layers", "--folds", 2, "-s", "kept")
    (tmp_path / "x.txt").write_text("dog cat bird\n")
    (tmp_path / "x.tsv").write_text("text\ndog cat bird\n")
    quoted = run("predict", "kept", "x.tsv", "--read", "quoting=true")
    assert quoted.stdout == 'text\tlabel\ndog cat bird\t"animals\n"\n'
    monkeypatch.setattr(FewShot, "predict_proba", None)
    for name, kind in (("x.txt", "text"), ("x.tsv", "tsv")):
        refused = run("predict", "kept", name, "-o", f"out-{name}", code=1)
        assert f"'animals\\n' holds '\\n', which divides what stands in this '{kind}' file" in refused.stderr


def test_columns_are_those_of_tables_and_fewer_neighbours_can_be_asked_for(
    run: Run, tiny: Path, files: dict[str, Path]
) -> None:
    """An unlabelled table lacks the label's column, and plain text has none."""
    body = files["asked"].with_name("body.tsv")
    body.write_text("body\n" + "".join(f"{text}\n" for text, _ in drawn(9, 3)))
    files["labelled"].write_text(files["labelled"].read_text().replace("text\tkind", "body\tkind"))
    columns = ("--columns", "text=body,label=kind", "-e", tiny, "--folds", 2, "-m", "late")
    result = run(
        *("fewshot", files["labelled"], *columns, "-u", body, "-p", files["asked"], "--neighbours", 3, "--json"),
    )
    assert json.loads(result.stdout)["answers"] == ["animals", "doings"]
    problem = run("fewshot", files["labelled"], *columns, "-u", body, "--neighbours", 10, code=1)
    assert "there are 9 unlabelled texts" in problem.output


def test_texts_of_the_test_that_were_seen_are_counted_and_left_out(
    run: Run, tiny: Path, files: dict[str, Path]
) -> None:
    seen, found = drawn(16, 16)[:3], [(text.upper(), kind) for text, kind in drawn(80, 1)[:2]]
    apart = [("cat cat bird dog bird cat dog", "animals"), ("sees finds sees", "animals"), ("likes", "other")]
    table(files["test"], [*seen, *found, *apart])
    settings = ("--label", "kind", "-e", tiny, "--folds", 2, "-m", "layers", "--test", files["test"])
    result = run("fewshot", files["labelled"], "-u", files["unlabelled"], *settings, "--json")
    values = json.loads(result.stdout)
    assert values["test"]["n"] == 8
    assert values["test"]["accuracy"] == pytest.approx(100 * 6 / 8)
    assert values["leakage"]["labelled"] == 3
    assert values["leakage"]["unlabelled"] == 2
    assert values["leakage"]["without"]["n"] == 3
    assert values["leakage"]["without"]["accuracy"] == pytest.approx(100 / 3)
    assert "labels of the test that training did not have, so all wrong: other" in result.stderr
    shown = run("fewshot", files["labelled"], "-u", files["unlabelled"], *settings).stdout
    assert "of these texts 3 are among the labelled ones and 2 among the unlabelled ones; without them: acc" in shown


def test_a_saved_estimator_predicts_and_is_evaluated_like_any_run(run: Run, tiny: Path, files: dict[str, Path]) -> None:
    settings = ("--label", "kind", "-e", tiny, "--folds", 2, "-m", "layers,late,finetune", "--steps", 2)
    result = run(
        *("fewshot", files["labelled"], "-u", files["unlabelled"], *settings, "--test", files["test"], "--json"),
        *("--predict", files["asked"], "--save", "kept"),
    )
    values = json.loads(result.stdout)
    assert run("predict", "kept", files["asked"]).stdout == "animals\tdog cat bird\ndoings\tlikes finds\n"
    model = FewShot.load("kept")
    texts = [text for text, _ in drawn(20, 20)]
    run("predict", "kept", files["test"], "-o", "answered.tsv", "--probabilities")
    lines = [line.split("\t") for line in Path("answered.tsv").read_text().splitlines()]
    assert lines[0] == ["text", "kind", "kind:animals", "kind:doings"]
    assert [line[1] for line in lines[1:]] == model.predict(texts).tolist()
    np.testing.assert_allclose(np.array([line[2:] for line in lines[1:]], float), model.predict_proba(texts), atol=1e-6)
    rows = json.loads(run("evaluate", "kept", files["test"], "--json").stdout)
    found = {row["metric"]: row["value"] for row in rows}
    assert found == {name: value for name, value in values["test"].items() if name != "n"}
    assert {row["method"] for row in rows} == {"fewshot"}
    assert {(row["seed"], row["train_s_total"], row["n"]) for row in rows} == {(42, None, 20)}
    stored = run("predict", "kept", files["asked"], "--store", "vectors").stderr
    assert "0 documents from the store, 2 encoded" in stored
    stored = run("predict", "kept", files["asked"], "--store", "vectors").stderr
    assert "2 documents from the store, 0 encoded" in stored


def test_what_a_saved_estimator_cannot_do_is_named(run: Run, tiny: Path, files: dict[str, Path]) -> None:
    run("fewshot", files["labelled"], "--label", "kind", "-e", tiny, "-m", "layers", "--save", "kept", "--folds", 2)
    assert "no weights" in run("inspect", "kept", files["test"], code=1).output
    pairs = files["asked"].with_name("pairs.tsv")
    pairs.write_text("text\tpair\ncat\tdog\n")
    assert "was trained on single texts" in run("predict", "kept", pairs, code=1).output
    pairs.write_text("text\tnumber\ncat\t1\n\t2\n")
    empty = run("predict", "kept", pairs)
    assert empty.stdout == "text\tnumber\tkind\ncat\t1\tanimals\n\t2\t\n"
    assert "1 texts are empty and get no answer" in empty.stderr
    config = json.loads(Path("kept/config.json").read_text())
    config["spec"]["encoder"] = "elsewhere/gone"
    Path("kept/config.json").write_text(json.dumps(config))
    assert "name its place (--encoder where a command has it" in run("predict", "kept", files["asked"], code=1).output
    assert run("predict", "kept", files["asked"], "-e", tiny).stdout.startswith("animals\tdog cat bird")
    Path("kept/encoder").symlink_to(tiny)
    assert run("predict", "kept", files["asked"]).stdout.startswith("animals\tdog cat bird")


def test_with_a_prompt_fusion_goes_inside_the_model_that_is_asked(
    run: Run, tiny_masked: Path, files: dict[str, Path]
) -> None:
    Path("kinds.toml").write_text('template = "{text} {mask} ."\n[words]\nanimals = "cat"\ndoings = "finds"\n')
    settings = ("--label", "kind", "-e", tiny_masked, "-u", files["unlabelled"], "--folds", 2, "--steps", 2)
    result = run(
        *("fewshot", files["labelled"], *settings, "--prompt", "kinds.toml", "-m", "add", "--neighbours", 4, "--json"),
        *("--predict", files["asked"], "--save", "kept"),
    )
    assert json.loads(result.stdout)["chosen"] == {"add": 1.0}
    saved = json.loads(Path("kept/add/inner.json").read_text())
    assert saved["prompt"]["template"] == "{text} {mask} ."
    said = run("predict", "kept", files["asked"]).stdout
    assert [line.split("\t")[0] for line in said.splitlines()] == json.loads(result.stdout)["answers"]


def test_what_is_learned_from_is_not_written_over(run: Run, tiny: Path, files: dict[str, Path]) -> None:
    named = ("--label", "kind", "--encoder", tiny, "--methods", "probe", "--predict", files["asked"])
    before = {path: path.read_bytes() for path in files.values()}
    for lost, option in (
        ("labelled", ()),
        ("unlabelled", ("-u", files["unlabelled"])),
        ("test", ("--test", files["test"])),
    ):
        refused = run("fewshot", files["labelled"], *named, *option, "-o", files[lost], code=1)
        assert f"--output {files[lost]} is {files[lost]}, which is learned from and would be lost" in refused.stderr
    assert {path: path.read_bytes() for path in files.values()} == before


def test_an_option_of_the_reader_is_for_all_files_of_that_kind(run: Run, tiny: Path, tmp_path: Path) -> None:
    """The error for a divided line named an option that the command did not have."""
    rows = [f"{text};{kind}\n" for text, kind in drawn(16, 16)]
    (tmp_path / "semi.csv").write_text("text;kind\n" + "".join(rows))
    (tmp_path / "new.csv").write_text("text;kind\ndog cat bird;\nlikes finds;\n")
    named = ("--label", "kind", "--encoder", tiny, "--methods", "layers", "--folds", 2)
    refused = run("fewshot", "semi.csv", *named, code=1)
    assert "--read 'separator=;'" in refused.stderr
    run("fewshot", "semi.csv", *named, "--read", "separator=;", "-p", "new.csv", "-o", "out.csv")
    assert (tmp_path / "out.csv").read_text() == "text;kind\ndog cat bird;animals\nlikes finds;doings\n"
