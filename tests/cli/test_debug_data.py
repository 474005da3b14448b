"""`debug-data`: splits by flag, by file and by config; the tokenizer's findings; JSON."""

import json
from pathlib import Path

from encodeonce.corpus import read

from .conftest import Run


def test_splits_and_overlap(run: Run, corpus: Path) -> None:
    args = [arg for split in ("train", "dev") for arg in (f"--{split}", corpus / f"{split}.conllu")]
    found = json.loads(run("debug-data", *args, "--json").stdout)
    assert {name: split["documents"] for name, split in found["splits"].items()} == {"train": 60, "dev": 12}
    keys = {document.key for document in read(corpus / "train.conllu")}
    shared = sum(document.key in keys for document in read(corpus / "dev.conllu"))
    assert found["overlap"] == {"train/dev": shared}
    assert set(found["splits"]["train"]["columns"]) == {"upos", "xpos", "deprel"}


def test_each_file_is_a_split_and_labels_unseen_in_train_are_named(run: Run, corpus: Path, tmp_path: Path) -> None:
    text = (corpus / "dev.conllu").read_text().replace("\tNOUN\t", "\tPROPN\t", 1)
    (tmp_path / "dev.conllu").write_text(text)
    page = run("debug-data", corpus / "train.conllu", "dev.conllu", "-c", "upos").stdout
    assert "train: 60 documents" in page
    assert "PROPN (1, dev.conllu:" in page


def test_files_of_one_name_are_splits_of_their_own(run: Run, corpus: Path, tmp_path: Path) -> None:
    for name, source in (("a", "train"), ("b", "dev"), ("c", "test")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.conllu").write_bytes((corpus / f"{source}.conllu").read_bytes())
    files = ("a/x.conllu", "b/x.conllu", "c/x.conllu")
    found = json.loads(run("debug-data", *files, "--json").stdout)["splits"]
    assert {name: split["documents"] for name, split in found.items()} == {"x": 60, files[1]: 12, files[2]: 12}


def test_a_config_brings_its_files_and_its_tokenizer(run: Run, config: Path) -> None:
    found = json.loads(run("debug-data", config, "--json").stdout)
    assert list(found["splits"]) == ["train", "dev", "test"]
    assert found["splits"]["train"]["pieces"] > 0
    assert found["splits"]["train"]["over_long"] == 0


def test_empty_texts_are_listed_and_the_window_is_the_configs(run: Run, tiny: Path, tmp_path: Path) -> None:
    lines = [{"text": text, "label": "x"} for text in ("the cat sees a dog", "", "a bird", "the tree", " ")]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = tmp_path / "c.toml"
    config.write_text(f'encoder = "{tiny}"\nwindow = 4\ntasks = ["classification"]\n[data]\ntrain = "d.jsonl"\n')
    train = json.loads(run("debug-data", config, "--json").stdout)["splits"]["train"]
    assert [place.rpartition(":")[2] for place in train["empty_places"]] == ["2", "5"]
    assert [place.rpartition(":")[2] for place in train["over_long_places"]] == ["1"]  # 5 + 2 pieces; the others 2 + 2
    assert train["pieces"] == 7 + 4 + 4


def test_a_config_of_questions_whose_passages_are_longer_than_the_window(run: Run, tiny: Path, tmp_path: Path) -> None:
    """They are read in windows, so the length of a pair is no problem; what they name by id is found."""
    notes = {"n1": {"title": "T", "text": "the cat sat on the mat " * 40}}
    (tmp_path / "notes.json").write_text(json.dumps(notes))
    asked = {
        "QUESTION_ID": "Q1", "QUESTION_TITLE": "Sitting", "QUESTION_TEXT": "who sat", "DOCUMENT": "n1",
        "START_OFFSET": 4, "END_OFFSET": 7, "ANSWERABLE": "Y", "DOC_IDS": ["n1"],
    }  # fmt: skip
    (tmp_path / "q.json").write_text(json.dumps([asked]))
    config = tmp_path / "c.toml"
    config.write_text(f'encoder = "{tiny}"\ntasks = ["techqa"]\n[data]\ntrain = "q.json"\npassages = "notes.json"\n')
    found = json.loads(run("debug-data", config, "--json").stdout)
    assert (found["splits"]["train"]["documents"], found["problems"]) == (1, ["train: one example"])


def test_labels_that_are_numbers_are_a_problem(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"words": ["the", "cat"], "ner_tags": [0, 3]}\n')
    page = run("debug-data", "x.jsonl").stdout
    assert "column 'ner_tags': 1 documents do not have one label a word (x.jsonl:1: word 1 has 0; labels" in page


def test_usage_and_failure(run: Run, corpus: Path) -> None:
    assert "Give a config" in run("debug-data", code=2).stderr
    assert "has a column or field 'upoz'" in run("debug-data", corpus / "dev.conllu", "-c", "upoz", code=1).stderr


def test_a_place_that_is_no_number_is_a_name(run: Run, corpus: Path) -> None:
    done = run("debug-data", corpus / "dev.conllu", "--columns", "tag=--3", code=1)
    assert "CoNLL-U has no column '--3'" in done.stderr
