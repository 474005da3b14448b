"""A small world for the example of docs/memory.md: a manual of 80 machines, and questions on them.

    python recipes/workshop.py FOLDER

Writes FOLDER/manual/*.txt (a text a machine), FOLDER/train.jsonl and FOLDER/dev.jsonl (questions on 60 machines and on
10 more, with the places of their answers), FOLDER/passages.jsonl (the texts that these name), FOLDER/new.jsonl
(questions on the last ten, answers only). Only the standard library is needed.
"""

import json
import random
import sys
from pathlib import Path

SYLLABLES = ["ba", "del", "for", "gi", "ka", "lun", "mo", "nar", "pe", "ri", "sol", "tu", "vek", "zo"]
ROOMS = ["the cellar", "the north hall", "room 12", "the old stable", "the yard", "room 7", "the tower", "the shed"]
BUILDERS = ["Ada Brook", "two brothers from Lyon", "the Miller works", "Ines Roth", "a clockmaker", "the railway"]
INTERVALS = ["every month", "every ten days", "in May", "twice a year", "after every shift", "each Friday"]
CLEANERS = ["warm water", "a dry brush", "white spirit", "soft soap", "steam", "linen rags", "vinegar", "sawdust"]
FACTS = [
    ("stands in {0}", "Where does {0} stand?", ROOMS),
    ("was built by {0}", "Who built {0}?", BUILDERS),
    ("came in {0}", "When did {0} come?", [str(year) for year in range(1951, 2020, 3)]),
    ("gets a new filter {0}", "How often is the filter of {0} changed?", INTERVALS),
    ("is cleaned with {0}", "What is {0} cleaned with?", CLEANERS),
    ("weighs {0}", "How heavy is {0}?", [f"{weight} kilograms" for weight in range(40, 900, 45)]),
]


def machine(order: random.Random, name: str) -> tuple[str, list[tuple[str, str]]]:
    """Its text, and questions with their answers."""
    facts = [(said.format(chosen := order.choice(values)), asked.format(name), chosen) for said, asked, values in FACTS]
    order.shuffle(facts)
    sentences = [f"{name} {said}." for said, _, _ in facts]
    return " ".join(sentences), [(asked, chosen) for _, asked, chosen in facts]


def main(folder: Path) -> None:
    order = random.Random(0)
    names = sorted({"".join(order.sample(SYLLABLES, 2)).capitalize() for _ in range(200)})
    order.shuffle(names)
    passages, questions = [], {"train": [], "dev": [], "new": []}
    (folder / "manual").mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names[:80]):
        text, asked = machine(order, name)
        (folder / "manual" / f"{name.lower()}.txt").write_text(text, encoding="utf-8")
        passages.append({"passage_id": name, "title": name.lower(), "text": text})
        split = "train" if number < 60 else "dev" if number < 70 else "new"
        for question, answer in asked:
            place = {"passage_id": name, "answer_starts": [text.index(answer)]} if split != "new" else {}
            questions[split].append({"question": question, "answers": [answer], **place})
    for name, rows in {**questions, "passages": passages}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
