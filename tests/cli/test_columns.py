"""The page's example of columns, as it stands there: debug-data, train and predict on a file of its form."""

import json
import re
from pathlib import Path

from encodeonce.corpus import read

from .conftest import LEXICON, Run

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
CHUNKS = {"DET": "B-NP", "NOUN": "I-NP", "VERB": "B-VP", "ADV": "I-VP", "PUNCT": "O"}


def as_chunks(source: Path, target: Path) -> None:
    """A treebank's sentences as word, part of speech and chunk."""
    tag_of = {word: tag for tag, words in LEXICON.items() for word in words}
    sentences = []
    for document in read(source):
        tags = [tag_of[word] for word in document.words]
        chunks = [CHUNKS[tag] for tag in tags]
        before = ["", *chunks]
        for i, chunk in enumerate(chunks):  # a chunk begins with B
            if chunk[:1] == "I" and before[i][2:] != chunk[2:]:
                chunks[i] = before[i + 1] = f"B-{chunk[2:]}"
        rows = zip(document.words, tags, chunks, strict=True)
        sentences.append("".join(f"{word} {tag} {chunk}\n" for word, tag, chunk in rows))
    target.write_text("\n".join(sentences), encoding="utf-8")


def test_the_example_of_the_page_runs(run: Run, tiny: Path, corpus: Path, tmp_path: Path) -> None:
    section = PAGE.read_text("utf-8").split("### Chunks from columns")[1].split("\n##")[0]
    shown, config, command = re.findall(r"```(?:toml|sh)?\n(.*?)```", section, flags=re.DOTALL)
    (tmp_path / "page.conll").write_text(shown)
    (page,) = read("page.conll", columns={"form": 0, "pos": 1, "chunk": 2})
    assert page.columns["chunk"] == ("B-NP", "B-VP", "B-NP", "I-NP", "I-NP", "I-NP", "O")
    as_chunks(corpus / "train.conllu", tmp_path / "train.txt")
    as_chunks(corpus / "dev.conllu", tmp_path / "test.txt")
    quick = "[train]\nnum_train_epochs = 8\nper_device_train_batch_size = 8\nlearning_rate = 0.02\n"
    (tmp_path / "config.toml").write_text(config.replace("quickstart", str(tiny)) + quick)
    found = json.loads(run("debug-data", "config.toml", "--json").stdout)["splits"]["train"]["columns"]
    assert (list(found), found["chunk"]["scheme"]) == (["chunk", "pos"], "IOB2")
    run("train", "config.toml", "-o", "run")
    assert command.startswith("encodeonce predict run ")
    run(*command.split()[1:])
    gold, predicted = (
        [d.columns for d in read(file, format="columns", columns={"form": 0, "pos": 1, "chunk": 2})]
        for file in ("test.txt", "out.txt")
    )
    right = [
        a == b
        for one, other in zip(gold, predicted, strict=True)
        for a, b in zip(one["pos"], other["pos"], strict=True)
    ]
    assert sum(right) > 0.9 * len(right)
    assert {tag for columns in predicted for tag in columns["chunk"]} >= {"B-NP", "B-VP"}
