"""The question sets of FastDoc in the forms of their publications, rebuilt from what the data folder has of them.

    python experiments/fastdoc/prepare.py FOLDER [--contracts TRAIN TEST]
    python experiments/fastdoc/prepare.py FOLDER --ranked PREDICTED      (after the sections were ranked)

squad/{train,test}.json     SQuAD 2's form, of SQuADShifts' Wikipedia part: a third of the questions, chosen by content,
                            is put to another paragraph of the same article, without the answer: unanswerable
techqa/{train,test}.json,   TechQA's own form, of the 160 dev questions that have an answer: technotes are joined from
techqa/technotes.json       their sentences, 10 candidates (its own, and what BM25 finds among the 160) take the place
                            of 50, and a third of the questions loses its own technote: unanswerable
cuad/{train,test}.json      CUAD's form, of contracts and clauses; a question is the category's name; at most so many
                            contracts of either part as `--contracts` says, chosen by content
s10/{train,dev,test}.jsonl, S10's form, of both manuals there are: a telephone's (50 questions) and a television's whose
s10/sections.jsonl          sections have titles only: a question's is the deepest heading of its path that is a title.
                            7:1:2 by question, each once, without those answered by yes or no
s10/answers-*.jsonl         the sentences of a question's own section, those marked that stand in the answer; of the
                            test, with `--ranked`, the sentences of the section that was ranked first

None of these is the published set; splits are by content, and the paper's numbers are of other questions.
"""

import argparse
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from encodeonce.corpus.questions import read_questions, write_questions
from encodeonce.corpus.questions.sections import path_id
from encodeonce.corpus.text import sentences
from encodeonce.retrieval.bm25 import within
from encodeonce.types import Answer, Passage, Question

DATA = Path(__file__).parents[3] / "shared" / "data"
CANDIDATES = 10
TV = "Smart TV"
WITHOUT = 1 / 3
"""Share of unanswerable questions, as in SQuAD 2 (its training part) and less than in TechQA (150 of 310)."""


def share(salt: str, key: str) -> float:
    """A number between 0 and 1 that depends on these two alone."""
    return int(hashlib.sha256(f"{salt}\t{key}".encode()).hexdigest()[:16], 16) / 16**16


def rows(name: str) -> Iterator[dict[str, Any]]:
    """The objects of a file of the data folder."""
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def put(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    """An object a line."""
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8")


def squad(folder: Path) -> None:
    articles: dict[str, dict[str, Passage]] = {}
    questions = read_questions(DATA / "qa/squadshifts_new_wiki/questions.jsonl.gz", format="questions")
    for one in questions:
        articles.setdefault(one.passages[0].title, {})[one.passages[0].id] = one.passages[0]
    found: dict[str, list[Question]] = {"train": [], "dev": [], "test": []}
    for one in questions:
        passages, answers = one.passages, one.answers
        if share("squad", one.id) < WITHOUT:
            own = articles[passages[0].title].values()
            others = [p for p in own if not any(answer.text in p.text for answer in answers)]
            if not others:
                continue
            passages, answers = (min(others, key=lambda p: share(one.id, p.id)),), (Answer(""),)
        found[one.meta["split"]].append(Question(one.id, one.text, answers, passages))
    for split in ("train", "test"):
        write_questions(folder / f"{split}.json", found[split], format="squad")


def techqa(folder: Path) -> None:
    asked = list(rows("qa/techqa_dev_sentences/dev.jsonl.gz"))
    notes = [Passage(str(n), text="\n".join(s["text"] for s in one["sentences"])) for n, one in enumerate(asked)]
    near = within([(one["question"], notes) for one in asked], CANDIDATES)
    values: dict[str, list[dict[str, Any]]] = {"train": [], "test": []}
    for n, (one, found) in enumerate(zip(asked, near, strict=True)):
        own, others = notes[n].id, [notes[at].id for at in found if at != n][: CANDIDATES - 1]
        answerable = share("techqa", one["id"]) >= WITHOUT
        start, stop = _marked(one["sentences"])
        value = {"QUESTION_ID": one["id"], "QUESTION_TITLE": "", "QUESTION_TEXT": one["question"]}
        if answerable:
            value |= {"DOCUMENT": own, "ANSWER": notes[n].text[start:stop], "START_OFFSET": start, "END_OFFSET": stop}
        else:
            value |= {"DOCUMENT": "-", "ANSWER": "-", "START_OFFSET": "-", "END_OFFSET": "-"}
        ids = sorted([*([own] if answerable else []), *others], key=lambda name: share(one["id"], name))
        value |= {"ANSWERABLE": "Y" if answerable else "N", "DOC_IDS": ids}
        values["train" if share("techqa/split", one["id"]) < 0.6 else "test"].append(value)
    for split, own in values.items():
        (folder / f"{split}.json").write_text(json.dumps(own, ensure_ascii=False, indent=1), encoding="utf-8")
    technotes = {note.id: {"title": "", "text": note.text} for note in notes}
    (folder / "technotes.json").write_text(json.dumps(technotes, ensure_ascii=False), encoding="utf-8")


def _marked(marked: list[dict[str, Any]]) -> tuple[int, int]:
    """From the first marked sentence to the last, in characters of all, joined by line ends."""
    at, starts, stops = 0, [], []
    for one in marked:
        if one["answer"]:
            starts.append(at)
            stops.append(at + len(one["text"]))
        at += len(one["text"]) + 1
    return min(starts), max(stops)


def cuad(folder: Path, most: Mapping[str, int]) -> None:
    clauses: dict[tuple[str, str], list[Answer]] = {}
    for row in rows("docs/cuad/clauses.jsonl.gz"):
        own = [Answer(s["text"], row["contract"], s["start"], s["end"]) for s in row["spans"]]
        clauses.setdefault((row["contract"], row["category"]), []).extend(own)
    categories = list(dict.fromkeys(category for _, category in clauses))
    contracts = sorted(rows("docs/cuad/contracts.jsonl.gz"), key=lambda row: share("cuad", row["id"]))
    for split, n in most.items():
        found = []
        for row in [row for row in contracts if row["split"] == split][:n]:
            passage = Passage(row["id"], row["title"], row["text"])
            for category in categories:
                answers = tuple(clauses.get((row["id"], category), ())) or (Answer(""),)
                found.append(Question(f"{row['id']}__{category}", category, answers, (passage,)))
        write_questions(folder / f"{split}.json", found, format="squad")


def s10(folder: Path) -> None:
    sections = list(rows("docs/emanual/sections.jsonl.gz"))
    for row in sections:
        row["section_path"] = row["section_path"] or [TV, row["title"]]
    known = {path_id(row["section_path"]) for row in sections}
    put(folder / "sections.jsonl", sections)
    values: dict[str, dict[str, dict[str, Any]]] = {"train": {}, "dev": {}, "test": {}}
    for row in rows("docs/emanual/qa.jsonl.gz"):
        path = row["section_path"]
        if row["manual"] != "s10":
            held = [title for title in path if path_id([TV, title]) in known]
            path = [TV, held[-1]] if held else []
        if path_id(path) in known and row["kind"] != "yes_no":
            at = share("s10", row["question"].lower())
            split = "train" if at < 0.7 else "dev" if at < 0.8 else "test"
            values[split].setdefault(row["question"].lower(), {**row, "section_path": path})
    for split, own in values.items():
        put(folder / f"{split}.jsonl", own.values())
        asked = read_questions(folder / f"{split}.jsonl", format="sections", passages=folder / "sections.jsonl")
        if split != "test":
            put(folder / f"answers-{split}.jsonl", (_parts(one, one.relevant[0]) for one in asked))


def ranked(folder: Path, predicted: Path) -> None:
    asked = read_questions(predicted, format="sections", passages=folder / "sections.jsonl")
    put(folder / "answers-test.jsonl", (_parts(one, one.meta["ranked"][0]) for one in asked))


def _parts(one: Question, section: str) -> dict[str, Any]:
    """The sentences of a section, marked where the section is the right one and they stand in the answer."""
    text = next(passage.text for passage in one.passages if passage.id == section)
    said = _plain(str(one.meta["answer"]))
    parts = [text[start:stop] for start, stop in sentences(text)]
    marks = [section in one.relevant and bool(_plain(part)) and _plain(part) in said for part in parts]
    return {
        "question": one.text,
        "reference": one.meta["answer"],
        "sentences": [{"text": part, "answer": int(mark)} for part, mark in zip(parts, marks, strict=True)],
    }


def _plain(text: str) -> str:
    """Lower-cased words alone, blanks around each."""
    return " ".join(["", *re.findall(r"[^\W_]+", text.lower()), ""])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--contracts", type=int, nargs=2, default=(413, 97))
    parser.add_argument("--ranked", type=Path)
    given = parser.parse_args()
    if given.ranked is not None:
        ranked(given.folder / "s10", given.ranked)
        return
    for name in ("squad", "techqa", "cuad", "s10"):
        (given.folder / name).mkdir(parents=True, exist_ok=True)
    squad(given.folder / "squad")
    techqa(given.folder / "techqa")
    cuad(given.folder / "cuad", dict(zip(("train", "test"), given.contracts, strict=True)))
    s10(given.folder / "s10")


if __name__ == "__main__":
    main()
