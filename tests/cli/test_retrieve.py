"""`retrieve`: the three forms of questions, against scores and rankings computed one by one."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.cli.retrieving import KEPT
from encodeonce.corpus import read
from encodeonce.corpus.asked import read_ranking
from encodeonce.encoders.pooled import Pooled
from encodeonce.errors import DataError
from encodeonce.metrics.cuad import Clause, cuad
from encodeonce.metrics.techqa import overlap_f1

from .conftest import Run

SECTIONS = [
    ["a", "the cat sees a dog"],
    ["a > b", "every tree likes the bird"],
    ["c", "never a house"],
    ["d", "the dog finds the tree often"],
]


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def vectors(folder: Path, texts: list[str]) -> np.ndarray:
    """Mean over all pieces by transformers, one text at a time, length 1."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in texts]
    rows = torch.stack(found).numpy()
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def scores(run: Run, *given: object) -> dict[str, dict[str, float]]:
    return dict(json.loads(run("retrieve", *given, "--compute", "fp32", "--json").stdout)["scores"])


def test_sections(run: Run, tiny: Path, tmp_path: Path) -> None:
    """HITS@K over the questions whose section is there; the order is that of transformers' cosines."""
    documents = lines(tmp_path / "s.jsonl", [{"section_path": p.split(" > "), "text": t} for p, t in SECTIONS])
    asked = [("a dog sees", "a"), ("the bird", "a > b"), ("often a tree", "d"), ("a house", "c"), ("a cat", "missing")]
    questions = lines(tmp_path / "q.jsonl", [{"question": q, "section_path": p.split(" > ")} for q, p in asked])
    done = run("retrieve", questions, tiny, "-d", documents, "--compute", "fp32", "--json")
    assert "4 questions, 4 with an answer; 1 left out" in done.stderr
    found = json.loads(done.stdout)["scores"]
    cosines = vectors(tiny, [q for q, _ in asked[:4]]) @ vectors(tiny, [t for _, t in SECTIONS]).T
    places = [p for p, _ in SECTIONS]
    for k in (1, 3, 5):
        right = [
            gold in [places[i] for i in np.argsort(-row)[:k]] for row, (_, gold) in zip(cosines, asked, strict=False)
        ]
        assert found[tiny.name][f"hits@{k}"] == pytest.approx(100 * np.mean(right))
    assert found["BM25"]["hits@1"] == 100


def test_a_section_without_text_is_not_looked_for(run: Run, tiny: Path, tmp_path: Path) -> None:
    rows = [{"section_path": p.split(" > "), "text": t} for p, t in SECTIONS]
    documents = lines(tmp_path / "s.jsonl", [*rows, {"section_path": ["heading"], "text": ""}])
    asked = [("a dog sees", "a"), ("the bird", "heading")]
    questions = lines(tmp_path / "q.jsonl", [{"question": q, "section_path": [p]} for q, p in asked])
    done = run("retrieve", questions, tiny, "-d", documents, "--json")
    assert "1 questions, 1 with an answer; 1 left out" in done.stderr


def test_a_title_is_text_or_none(tmp_path: Path) -> None:
    """A null was the word None to everyone who searched."""
    titles: list[Any] = ["Cats", None, ["Dogs"]]
    rows = [{"section_path": [str(n)], "text": "see", "title": title} for n, title in enumerate(titles)]
    questions = lines(tmp_path / "q.jsonl", [{"question": "a", "section_path": ["1"]}])
    (own,) = read_ranking(questions, read(lines(tmp_path / "s.jsonl", rows))).questions
    assert [part.text for part in own.parts] == ["Cats\nsee", "see", "see"]


def test_blank_sentences_are_passed_over(tmp_path: Path) -> None:
    texts = ["a cat", " ", "a dog", "\n"]
    sentences = [{"text": t, "start": 9 * n, "end": 9 * n + 8, "answer": n > 1} for n, t in enumerate(texts)]
    (own,) = read_ranking(lines(tmp_path / "q.jsonl", [{"question": "a", "sentences": sentences}])).questions
    assert [(part.id, part.text) for part in own.parts] == [("0", "a cat"), ("2", "a dog")]
    assert own.gold == ("2",)


@pytest.mark.parametrize("answer", ["false", "true", "", 2, [1]])
def test_a_mark_of_an_answer_is_true_or_false(tmp_path: Path, answer: object) -> None:
    """The word "false" was taken as true."""
    marks = [True, 1, False, 0, None]
    sentences = [{"text": "a", "start": n, "end": n + 1, "answer": mark} for n, mark in enumerate(marks)]
    sentences.append({"text": "b", "start": 9, "end": 10})
    (own,) = read_ranking(lines(tmp_path / "q.jsonl", [{"question": "a", "sentences": sentences}])).questions
    assert own.gold == ("0", "1")
    sentences[5]["answer"] = answer
    (tmp_path / "q.jsonl").write_text("\n" + json.dumps({"question": "a", "sentences": sentences}) + "\n")
    said = re.escape(f"q.jsonl:2: sentence 6: 'answer' is {answer!r}; it must be true or false, or 1 or 0.")
    with pytest.raises(DataError, match=said):
        read_ranking(tmp_path / "q.jsonl")


def test_exported_encoders_are_called_as_their_runs(run: Run, tiny: Path, tmp_path: Path) -> None:
    documents = lines(tmp_path / "s.jsonl", [{"section_path": p.split(" > "), "text": t} for p, t in SECTIONS])
    questions = lines(tmp_path / "q.jsonl", [{"question": "a dog", "section_path": ["a"]}])
    for name in ("one", "two", "BM25"):
        shutil.copytree(tiny, tmp_path / name / "encoder")
    assert list(scores(run, questions, "one/encoder", "two/encoder", "-d", documents)) == ["BM25", "one", "two"]
    refused = run("retrieve", questions, "BM25/encoder", "-d", documents, code=1)
    assert "BM25/encoder is called 'BM25', as what it is set beside: rename its folder." in refused.stderr


def test_an_encoder_that_is_not_there_is_said_before_any_encodes(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(Pooled, "encode", lambda self, items: done.append("encoded"))
    documents = lines(tmp_path / "s.jsonl", [{"section_path": p.split(" > "), "text": t} for p, t in SECTIONS])
    questions = lines(tmp_path / "q.jsonl", [{"question": "a dog", "section_path": ["a"]}])
    refused = run("retrieve", questions, tiny, "nowhere", "-d", documents, code=1)
    assert "nowhere" in refused.stderr
    assert not done


def test_sentences(run: Run, tiny: Path, tmp_path: Path) -> None:
    """TechQA's overlap in characters of the first, and of the best of five, with the whole answer."""
    texts = ["the cat sees a dog", "a house", "every bird likes the tree", "never", "the dog finds a cat", "a tree"]
    rows = []
    for n, (question, answer) in enumerate([("a dog", (0, 1)), ("the tree", (2,)), ("a cat likes", (4, 5)), ("x", ())]):
        starts = np.cumsum([0, *(len(text) + 2 for text in texts)])
        sentences = [
            {"text": text, "start": int(at), "end": int(at) + len(text), "answer": int(i in answer)}
            for i, (text, at) in enumerate(zip(texts, starts, strict=False))
        ]
        rows.append({"id": f"q{n}", "question": question, "sentences": sentences})
    found = scores(run, lines(tmp_path / "q.jsonl", rows), tiny)[tiny.name]
    best: dict[int, list[float]] = {1: [], 5: []}
    firsts = []
    for row in rows:
        (asked, *own) = vectors(tiny, [row["question"], *texts])
        cosines = np.stack(own) @ asked
        order = np.argsort(-cosines, kind="stable")
        gold = [s for s in row["sentences"] if s["answer"]]
        if not gold:
            firsts.append((cosines.max(), 0.0, 1.0))
            continue
        whole = ("d", gold[0]["start"], gold[-1]["end"])
        f1 = [overlap_f1(("d", row["sentences"][i]["start"], row["sentences"][i]["end"]), whole) for i in order]
        for k, values in best.items():
            values.append(max(f1[:k]))
        firsts.append((cosines.max(), f1[0], 0.0))
    assert found["ha_f1@1"] == pytest.approx(100 * np.mean(best[1]))
    assert found["ha_f1@5"] == pytest.approx(100 * np.mean(best[5]))
    assert found["f1"] == pytest.approx(found["ha_f1@1"] * 3 / 4), "nothing is withheld"
    thresholds = [-1.0, *(score + 1e-6 for score, _, _ in firsts)]
    withheld = [np.mean([said if score >= t else held for score, said, held in firsts]) for t in thresholds]
    assert found["best_f1"] == pytest.approx(100 * max(withheld))


def test_the_answer_is_the_best_sentence_of_the_section_that_was_found(run: Run, tiny: Path, tmp_path: Path) -> None:
    """ROUGE-L by hand: the section of the first cosine, its sentence of the highest cosine, longest common words."""
    texts = ["The cat sees a dog. The dog likes every house.", "A tree. The bird finds the tree often."]
    documents = lines(tmp_path / "s.jsonl", [{"section_path": [str(n)], "text": t} for n, t in enumerate(texts)])
    asked = [("a dog sees", "0", "The cat sees it."), ("the bird", "1", "the bird finds trees"), ("a tree", "1", "")]
    rows = [{"question": q, "section_path": [p], "answer": a} for q, p, a in asked]
    found = scores(run, lines(tmp_path / "q.jsonl", rows), tiny, "-d", documents)
    cosines = vectors(tiny, [q for q, _, _ in asked]) @ vectors(tiny, texts).T
    due = []
    for row, (question, _, answer) in zip(cosines[:2], asked, strict=False):
        parts = texts[int(row.argmax())].replace(". ", ".|").split("|")
        near = vectors(tiny, parts) @ vectors(tiny, [question])[0]
        said, gold = parts[int(near.argmax())].lower().split(), answer.lower().split()
        common = max(
            len(own)
            for n in range(2 ** len(said))
            if is_within(own := [w for i, w in enumerate(said) if n >> i & 1], gold)
        )
        due.append(2 * common / (len(said) + len(gold)))
    assert found[tiny.name]["rouge_l"] == pytest.approx(100 * np.mean(due))
    assert found["BM25"]["rouge_l"] > 0
    unasked = lines(tmp_path / "n.jsonl", [{"question": "never", "section_path": ["0"], "answer": "never"}])
    assert scores(run, unasked, tiny, "-d", documents)["BM25"]["rouge_l"] == 0, "no common word, so no section"


def is_within(words: list[str], others: list[str]) -> bool:
    """Whether words stand in this order among the others."""
    rest = iter(others)
    return all(word in rest for word in words)


GONE = {"contract": "no such contract", "spans": [{"text": "a dog"}]}


def contracts(tmp_path: Path) -> tuple[Path, Path]:
    texts = {
        "one": "The cat sees a dog. A house likes the tree. Never a bird.",
        "two": "Every bird finds a cat. The dog paints a house.",
        "three": "The tree.",
    }
    documents = lines(tmp_path / "c.jsonl", [{"id": k, "text": t, "split": k} for k, t in texts.items()])
    clauses = [("one", "Parties", ["dog"]), ("one", "a tree", ["A house likes the tree."]), ("two", "a tree", [])]
    rows = [{"contract": c, "category": k, "spans": [{"text": t} for t in spans]} for c, k, spans in clauses]
    return lines(tmp_path / "q.jsonl", rows), documents


def test_clauses(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Every category of every contract, all predictions pooled, a threshold under each score."""
    questions, documents = contracts(tmp_path)
    ranking = read_ranking(questions, read(documents))
    assert {(one.document, one.query, one.gold) for one in ranking.questions} == {
        ("one", "Parties", ("dog",)),
        ("one", "a tree", ("A house likes the tree.",)),
        *((c, q, ()) for c in ("two", "three") for q in ("Parties", "a tree")),
    }
    found = scores(run, questions, tiny, "-d", documents)[tiny.name]
    clauses, every = [], []
    for one in ranking.questions:
        (asked, *own) = vectors(tiny, [one.query, *(part.text for part in one.parts)])
        values = (np.stack(own) @ asked).astype(float).tolist()
        every += values
        clauses.append(
            Clause(one.gold, tuple(zip([p.text for p in one.parts], values, strict=True)), one.query == "Parties")
        )
    expected = cuad(clauses, [value - 1e-7 for value in sorted(every, reverse=True)])
    assert len(every) < KEPT
    assert found["aupr"] == pytest.approx(expected.aupr, abs=1e-6)
    assert found["precision@80"] == pytest.approx(expected.precision_at_80, abs=1e-6)
    few = run("retrieve", questions, tiny, "-d", documents, "--split", "one", "--limit", 1)
    assert "2 questions, 2 with an answer; 0 left out" in few.stderr
    questions.write_text(questions.read_text() + json.dumps({**GONE, "category": "a tree"}) + "\n")
    assert read_ranking(questions, read(documents), split="one").left_out == 1, "the second contract has no clause"


def test_no_part_with_a_word_of_the_question(run: Run, tiny: Path, tmp_path: Path) -> None:
    """BM25 finds nothing at all: its area is 0."""
    questions, documents = contracts(tmp_path)
    questions.write_text(json.dumps({"contract": "one", "category": "zzz", "spans": [{"text": "dog"}]}) + "\n")
    found = scores(run, questions, tiny, "-d", documents)["BM25"]
    assert (found["aupr"], found["precision@80"]) == (0, 0)


def test_what_is_refused(tmp_path: Path) -> None:
    questions, documents = contracts(tmp_path)
    with pytest.raises(DataError, match=r"clauses are looked for in documents \(--documents\), and none are given"):
        read_ranking(questions)
    with pytest.raises(DataError, match=r"and none of 3 has split = 'test'\. There is: one, three, two\."):
        read_ranking(questions, read(documents), split="test")
    plain = lines(tmp_path / "plain.jsonl", [{"text": "a"}])
    sections = lines(tmp_path / "f.jsonl", [{"question": "a", "section_path": ["b"]}])
    with pytest.raises(DataError, match=r"f.jsonl: none of 1 documents has a section_path and a text"):
        read_ranking(sections, read(plain))
    numbered = lines(tmp_path / "n.jsonl", [{"section_path": 3, "text": "a"}])
    with pytest.raises(DataError, match=r"n.jsonl:1: 'section_path' is 3; it must be a list of headings"):
        read_ranking(sections, read(numbered))
    with pytest.raises(DataError, match=r"n.jsonl:1: 'section_path' is 3"):
        read(sections, format="sections", passages=numbered)
    with pytest.raises(DataError, match=r"g.jsonl:1: the question is empty"):
        read_ranking(lines(tmp_path / "g.jsonl", [{"question": " ", "section_path": ["b"]}]), read(plain))
    with pytest.raises(DataError, match=r"A row has text; it should have question, section_path \(sections\); or"):
        read_ranking(lines(tmp_path / "a.jsonl", [{"text": "x"}]))
    own = lines(tmp_path / "h.jsonl", [{"question": "a", "sentences": []}])
    with pytest.raises(DataError, match=r"h.jsonl: sentences stand in this very file; --documents and --split"):
        read_ranking(own, split="test")
    rows = [{"question": "a", "sentences": [{"text": "b", "start": 4, "end": 4}]}]
    with pytest.raises(DataError, match=r"b.jsonl:1: sentence 1 needs text, start and a later end"):
        read_ranking(lines(tmp_path / "b.jsonl", rows))
    with pytest.raises(DataError, match="none of 1 questions has an answer"):
        read_ranking(lines(tmp_path / "d.jsonl", [{"question": "a", "sentences": []}]))
    mixed = [{"question": "a", "sentences": []}, {"question": "a"}]
    with pytest.raises(
        DataError, match=r"e.jsonl:2: a row of sentences has question, sentences; this one has question"
    ):
        read_ranking(lines(tmp_path / "e.jsonl", mixed))


def test_a_question_whose_id_is_empty_is_answered_all_the_same(run: Run, tiny: Path, tmp_path: Path) -> None:
    """An empty name was read as no document, so the answer counted as none."""
    sentences = [{"text": t, "start": 9 * n, "end": 9 * n + 8, "answer": n == 1} for n, t in enumerate(["cat", "dog"])]
    rows = [{"id": name, "question": "a dog", "sentences": sentences} for name in ("q0", "")]
    named = scores(run, lines(tmp_path / "a.jsonl", [{**row, "id": f"q{n}"} for n, row in enumerate(rows)]), tiny)
    found = scores(run, lines(tmp_path / "b.jsonl", rows), tiny)
    for method, own in named.items():
        assert own["f1"] == 100
        assert {**own, "seconds": 0} == {**found[method], "seconds": 0}
