"""`encodeonce fewshot` from files: a table of what was tried, the choice in a sentence, answers, a saved estimator."""

import json
from pathlib import Path

import numpy as np
import pytest

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
    assert "chosen: " in result.stdout
    assert "test: accuracy 100.00" in result.stdout
    run("fewshot", files["labelled"], *named[:4], "--methods", "layers", "--predict", files["asked"], "-o", "out.txt")
    assert Path("out.txt").read_text() == "animals\ndoings\n"


def test_json_and_a_saved_estimator(run: Run, tiny: Path, files: dict[str, Path]) -> None:
    result = run(
        *("fewshot", files["labelled"], "--label", "kind", "--encoder", tiny, "--methods", "layers", "--json"),
        *("--predict", files["asked"], "--save", "kept", "--store", "vectors", "--folds", 2),
    )
    values = json.loads(result.stdout)
    assert values["answers"] == ["animals", "doings"]
    assert values["chosen"] == {"layers": 1.0}
    assert FewShot.load("kept").predict(["dog cat bird", "likes finds"]).tolist() == values["answers"]


def test_fusion_by_name_shows_what_its_search_chose(run: Run, tiny: Path, files: dict[str, Path]) -> None:
    settings = ("--label", "kind", "-e", tiny, "-u", files["unlabelled"], "--folds", 2, "--steps", 2, "-m", "refusion")
    shown = run("fewshot", files["labelled"], *settings).stdout
    assert "refusion: what the search weighed and chose, per cent" in shown
    assert "| block | slot | identity | reranker | mask | chosen | ahead by |" in shown
    values = json.loads(run("fewshot", files["labelled"], *settings, "--json").stdout)
    for line, one in zip(shown[shown.index("| 0 |") :].splitlines(), values["architecture"]["refusion"], strict=False):
        assert line.split(" | ")[-2] == one["chosen"]


def test_a_missing_label_column_and_too_few_unlabelled_texts_are_named(
    run: Run, tiny: Path, files: dict[str, Path]
) -> None:
    problem = run("fewshot", files["labelled"], "--encoder", tiny, code=1)
    assert "'label'" in problem.output
    assert "kind" in problem.output
    problem = run(
        "fewshot", files["labelled"], "-u", files["asked"], "--label", "kind", "-e", tiny, "-m", "late", code=1
    )
    assert "64 neighbours asked for, but there are 2 vectors" in problem.output
