"""Readers and rankers trained from the command line on files of SQuAD's, CUAD's, TechQA's and S10's forms."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run

FILLER = ["cat", "dog", "bird", "tree", "sees", "finds", "the"]
CONFIG = (
    'encoder = "{encoder}"\nstore = "states"\nwindow = 24\ntasks = ["{task}"]\nmethod = "finetune"\n{more}\n'
    "[data]\n{data}\n[task.{task}]\nstride = 8\n[train]\nlearning_rate = 0.01\nencoder_learning_rate = 0.003\n"
    "num_train_epochs = {epochs}\nper_device_train_batch_size = 16\n"
)


def passage(rng: random.Random, n: int, answer: str) -> tuple[str, int]:
    """n words with the answer among them ("" : without one), and the character it begins at."""
    words = rng.choices(FILLER, k=n)
    if answer:
        words[rng.randrange(n)] = answer
    text = " ".join(words)
    return text, text.find(answer) if answer else -1


def squad(path: Path, rng: random.Random, n: int, words: int, name: str = "a house") -> Path:
    """Questions, a third without an answer, each with a passage of so many words."""
    paragraphs = []
    for number in range(n):
        answer = "" if number % 3 == 0 else rng.choice(["paints", "likes"])
        text, start = passage(rng, words, answer)
        answers = [{"text": answer, "answer_start": start}] if answer else []
        qas = [{"id": f"q{number}", "question": name, "answers": answers, "is_impossible": not answer}]
        paragraphs.append({"context": text, "qas": qas})
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def config(folder: Path, encoder: Path, task: str, data: str, epochs: int = 8, more: str = "") -> Path:
    path = folder / f"{task}.toml"
    path.write_text(CONFIG.format(encoder=encoder, task=task, data=data, epochs=epochs, more=more))
    return path


def scores(run: Run, *args: Any) -> dict[str, float]:
    return {row["metric"]: row["value"] for row in json.loads(run("evaluate", *args, "--json").stdout)}


def test_squad_2_with_passages_longer_than_the_window(run: Run, tiny: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    squad(tmp_path / "train.json", rng, 90, 40)
    test = squad(tmp_path / "test.json", rng, 24, 60)
    path = config(tmp_path, tiny, "squad", 'train = "train.json"\ntest = "test.json"')
    dry = json.loads(run("train", path, "--dry-run", "--json").stdout)
    assert dry["examples"]["train"] > 90, "windows are counted"
    run("train", path, "-o", tmp_path / "run")
    found = scores(run, tmp_path / "run", test)
    assert found["exact_match"] > 80
    assert found["answered_exact_match"] > 70
    assert found["unanswerable_exact_match"] > 70
    run("predict", tmp_path / "run", test, "-o", tmp_path / "said.json")
    said, gold = (json.loads(p.read_text())["data"][0]["paragraphs"] for p in (tmp_path / "said.json", test))
    same = 0
    for own, due in zip(said, gold, strict=True):
        (qa,), (right,) = own["qas"], due["qas"]
        assert all(own["context"][a["answer_start"] :].startswith(a["text"]) for a in qa["answers"])
        same += qa["answers"] == right["answers"]
    assert same == round(found["exact_match"] * 24 / 100)

    begun = config(tmp_path, tiny, "squad", 'train = "train.json"\ntrain_examples = 3', epochs=1, more='start = "run"')
    run("train", begun, "-o", tmp_path / "more", "--set", "train.learning_rate=1e-7")
    after = scores(run, tmp_path / "more", test)
    assert after["exact_match"] == pytest.approx(found["exact_match"], abs=10), "it begins where the other ended"
    linear = run("train", begun, "-o", tmp_path / "other", "--set", "method=linear", code=1).stderr
    assert "cannot be begun from" in linear


def test_cuads_form_and_scores(run: Run, tiny: Path, tmp_path: Path) -> None:
    rng = random.Random(1)
    squad(tmp_path / "train.json", rng, 60, 40, "Parties")
    test = squad(tmp_path / "test.json", rng, 18, 50, "Parties")
    path = config(tmp_path, tiny, "cuad", 'train = "train.json"')
    run("train", path, "-o", tmp_path / "run")
    found = scores(run, tmp_path / "run", test)
    assert set(found) == {"aupr", "precision@80"}
    assert found["aupr"] > 70


def techqa(folder: Path, rng: random.Random) -> Path:
    """Questions of three candidates; those without an answer have three without one."""
    notes: dict[str, Any] = {}
    for split, n in (("train", 40), ("test", 15)):
        rows = []
        for number in range(n):
            answer, names = "" if number % 3 == 0 else "paints", [f"{split}{number}{c}" for c in "abc"]
            texts = [passage(rng, 30, answer if c == "b" else "") for c in "abc"]
            notes |= {name: {"title": "", "text": text} for name, (text, _) in zip(names, texts, strict=True)}
            start = texts[1][1] if answer else "-"
            rows.append(
                {
                    "QUESTION_ID": f"{split}{number}", "QUESTION_TITLE": "a", "QUESTION_TEXT": "house",
                    "DOC_IDS": names, "ANSWERABLE": "Y" if answer else "N", "DOCUMENT": names[1] if answer else "-",
                    "START_OFFSET": start, "END_OFFSET": start + len(answer) if answer else "-",
                }
            )  # fmt: skip
        (folder / f"{split}.json").write_text(json.dumps(rows))
    notes_file = folder / "notes.json"
    notes_file.write_text(json.dumps(notes))
    return notes_file


def test_techqas_form_and_scores(run: Run, tiny: Path, tmp_path: Path) -> None:
    notes = techqa(tmp_path, random.Random(2))
    path = config(tmp_path, tiny, "techqa", 'train = "train.json"\npassages = "notes.json"')
    run("train", path, "-o", tmp_path / "run", "--set", "task.techqa.negatives=3.0")
    found = scores(run, tmp_path / "run", tmp_path / "test.json", "--passages", notes)
    assert set(found) == {"ha_f1@1", "ha_f1@5", "f1", "f1_at_null", "best_f1"}
    assert found["ha_f1@5"] >= found["ha_f1@1"] > 80
    assert found["f1"] == pytest.approx(found["ha_f1@1"] * 10 / 15), "nothing withheld: the paper's F1"
    assert found["best_f1"] >= found["f1_at_null"]
    assert found["best_f1"] > 80
    run("predict", tmp_path / "run", tmp_path / "test.json", "--passages", notes, "-o", tmp_path / "said.json")
    held = json.loads(notes.read_text())
    for row in json.loads((tmp_path / "said.json").read_text()):
        if row["ANSWERABLE"] == "Y":
            assert held[row["DOCUMENT"]]["text"][row["START_OFFSET"] : row["END_OFFSET"]] == row["ANSWER"]
    assert "Give their file as passages" in run("evaluate", tmp_path / "run", tmp_path / "test.json", code=1).stderr


def test_s10s_sections_and_sentences(run: Run, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    rng = random.Random(3)
    kinds = ["paints", "likes", "house", "often"]
    sections = [{"section_path": [f"s{n}"], "text": passage(rng, 8, kind)[0]} for n, kind in enumerate(kinds)]
    texts = [
        {"section_path": [name], "text": f"every {kind} tree {kind}"} for name, kind in zip("abcd", kinds, strict=True)
    ]
    put(tmp_path / "sections.jsonl", texts + sections)
    for split, n in (("train", 40), ("test", 12)):
        asked = [
            (rng.choice(FILLER), name, kind) for name, kind in rng.choices(list(zip("abcd", kinds, strict=True)), k=n)
        ]
        rows = [{"question": f"{w} {kind}", "section_path": [name], "answer": kind} for w, name, kind in asked]
        put(tmp_path / f"{split}.jsonl", rows)
    data = 'train = "train.jsonl"\nformat = "sections"\npassages = "sections.jsonl"'
    path = tmp_path / "s10.toml"
    path.write_text(
        CONFIG.format(encoder=tiny, task="s10_sections", data=data, epochs=15, more="").replace(
            "stride = 8", "candidates = 3"
        )
    )
    run("train", path, "-o", tmp_path / "run")
    test = (tmp_path / "test.jsonl", "--format", "sections", "--passages", tmp_path / "sections.jsonl")
    found = scores(run, tmp_path / "run", *test)
    assert found["hits@5"] == found["hits@3"] >= found["hits@1"] > 60
    run("predict", tmp_path / "run", *test, "-o", tmp_path / "said.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    right = sum(row["ranked"][0] == row["section_path"][0] for row in rows)
    assert found["hits@1"] == pytest.approx(100 * right / 12)
    assert all(row["logits"] == sorted(row["logits"], reverse=True) for row in rows)


def put(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
