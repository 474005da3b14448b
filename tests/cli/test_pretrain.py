"""`pretrain`: from documents with a category column to an exported encoder, again and resumed; every rule."""

import csv
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from encodeonce.corpus import read
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.store import Store
from encodeonce.types import Document

from .conftest import LEXICON, Run


def articles(path: Path, n: int = 60) -> Path:
    """Documents of two topics in four paths, with brands, concepts and citations."""
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for i in range(n):
            topic = i % 2
            words = LEXICON["NOUN"][:2] if topic else LEXICON["NOUN"][3:]
            text = " ".join(f"The {rng.choice(words)} {rng.choice(LEXICON['VERB'])}." for _ in range(rng.randint(1, 4)))
            row = {
                "id": f"d{i}",
                "text": f"{text} Number {i}.",
                "category_path": ["animals" if topic else "things", f"kind {i % 4}"],
                "concepts": [f"c{i % 5}", f"t{topic}"],
                "cites": [f"d{(i + 2) % n}"],
                "brand": f"b{i % 3}",
            }
            file.write(json.dumps(row) + "\n")
        file.write(json.dumps({"id": "empty", "text": " ", "category_path": ["animals"]}) + "\n")
    return path


def config(folder: Path, encoder: Path, **changes: Any) -> Path:
    articles(folder / "articles.jsonl")
    (folder / "p.toml").write_text(
        f'encoder = "{encoder}"\nstore = "sentences"\ntoken_documents = 8\nwindow = 16\nwindows_per_batch = 4\n'
        '[data]\ntrain = "articles.jsonl"\nheld_out = 0.3\n[sample]\nn = 24\nn_held_out = 40\n'
        "[train]\nper_device_train_batch_size = 8\nlearning_rate = 0.002\nlogging_steps = 3\n",
        encoding="utf-8",
    )
    return folder / "p.toml"


def test_from_documents_to_an_encoder(run: Run, tiny: Path, tmp_path: Path) -> None:
    path = config(tmp_path, tiny)
    done = run("pretrain", path, "-o", "out", "--json")
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "out/report.json").read_text())
    assert report["counts"]["without_sentence"] == 1
    assert report["tuples"] == 48
    assert [level["classes"] for level in report["taxonomy"]] == [2, 4]
    assert set(report["costs"]["flops"]) == {"encode", "train", "total"}
    assert set(report["costs"]["seconds"]) == {"encode", "draw", "train", "total"}
    assert report["costs"]["visits"] == 48 * 3
    assert report["costs"]["masked_epoch_flops"] > report["costs"]["flops"]["train"]
    for name, over in report["costs"]["masked_epoch_over"].items():
        assert over["flops"] == report["costs"]["masked_epoch_flops"] / report["costs"]["flops"][name]
        assert over["seconds"] > 0
    held = report["held_out"]
    assert 0 <= held["plain mean of sentence vectors"] <= 100
    assert {"sentences", "pieces", "sentences_centred"} <= set(held["trained"]) == set(held["untouched"])
    assert "estimate: encode" in done.stderr
    base, new = load_file(tiny / "model.safetensors"), load_file(tmp_path / "out/encoder/model.safetensors")
    assert base.keys() == new.keys()
    assert torch.equal(base["embeddings.word_embeddings.weight"], new["embeddings.word_embeddings.weight"])
    Pretrained(tmp_path / "out/encoder").stack()
    again = run("pretrain", path, "-o", "out")
    assert "plain mean of sentence vectors" in again.stdout
    assert "classes    of each level, with the documents that reach it: 2 (45), 4 (45)" in again.stdout
    assert "times training alone, which is what the paper counts" in again.stdout
    second = load_file(tmp_path / "out/encoder/model.safetensors")
    assert all(torch.equal(new[name], second[name]) for name in new), "a finished run is not trained again"
    assert json.loads((tmp_path / "out/report.json").read_text()) == report, "and its report stays"
    other = run("pretrain", path, "-o", "out", "--set", "options={margin=0.5}", code=1)
    assert "options.margin: '(absent)' then, 0.5 now" in other.stderr


def test_held_out_texts_that_are_trained_on_are_counted(
    tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A field that says which side a document is on may put one text on both; by content it cannot happen."""
    from encodeonce.cli.config import load
    from encodeonce.cli.pretrain_config import PretrainConfig
    from encodeonce.cli.pretrain_material import prepare

    path = config(tmp_path, tiny)
    rows = [{"id": str(n), "text": f"The cat sees {n // 2}.", "side": "ab"[n % 3 == 0]} for n in range(12)]
    (tmp_path / "articles.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    due = sum(any(r["side"] == "a" and r["text"] == row["text"] for r in rows) for row in rows if row["side"] == "b")
    split = ("data.split=side", "data.held_out_name=b")
    assert prepare(load(path, split, model=PretrainConfig), {}).counts["held_out_copies"] == due > 0
    assert f"{due} held-out documents have a text that is trained on, too" in caplog.text
    assert prepare(load(path, (), model=PretrainConfig), {}).counts["held_out_copies"] == 0
    assert not prepare(load(path, ("data.held_out=0.000001",), model=PretrainConfig), {}).held_out
    assert "data.held_out = 1e-06 holds none of 12 documents out" in caplog.text


def test_documents_with_sentences_of_their_own_are_known_by_these(tiny: Path, tmp_path: Path) -> None:
    """Their text may be a title that many have: all were copies of one document, and on one side."""
    from encodeonce.cli.config import load
    from encodeonce.cli.pretrain_config import PretrainConfig
    from encodeonce.cli.pretrain_material import prepare, sampled

    path = config(tmp_path, tiny)
    rows = [
        {
            "id": str(n),
            "text": "Manual",
            "sentences": [f"The cat sees {n // 2}.", "It sat."],
            "category_path": "ab"[n % 3 > 0],
        }
        for n in range(40)
    ]
    (tmp_path / "articles.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    chosen = load(path, (), model=PretrainConfig)
    apart = prepare(chosen, {})
    joined = [Document("", text=" ".join(row["sentences"])) for row in rows]
    assert [int(d.id) for d in apart.held_out] == [n for n, d in enumerate(joined) if held(d)]
    assert apart.train
    assert apart.held_out
    drawn = sampled(apart.train, chosen, 20, 0, False).tuples
    assert all(len({apart.train[i].sentences for i in row}) == 3 for row in drawn)
    assert len({apart.train[i].sentences for row in drawn for i in row}) > 3


def test_what_a_split_trains_on_is_said(tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from encodeonce.cli.config import load
    from encodeonce.cli.pretrain_config import PretrainConfig
    from encodeonce.cli.pretrain_material import prepare

    path = config(tmp_path, tiny)
    sides = ["train"] * 5 + ["test"] * 3 + ["dev"] * 2 + [None]
    rows = [{"text": f"The cat sees {n}.", **({"side": side} if side else {})} for n, side in enumerate(sides)]
    (tmp_path / "articles.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    split = ("data.split=side", "data.held_out_name=dev")
    assert prepare(load(path, split, model=PretrainConfig), {}).counts["trained_on"] == {
        "train": 5,
        "test": 3,
        "none": 1,
    }
    said = "trained on is all that is not held out: 5 with side = train, 3 with side = test, 1 with side = none. Leave"
    assert said in caplog.text
    caplog.clear()
    (tmp_path / "articles.jsonl").write_text(
        "\n".join(json.dumps(r) for r in rows if r.get("side") in ("train", "dev"))
    )
    assert prepare(load(path, split, model=PretrainConfig), {}).counts["trained_on"] == {"train": 5}
    assert not caplog.text


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ({}, {}),
        ({"options": {"far": 0.5, "margin": 2.0}}, {"options.far": 0.5}),
        ({"options": {"far": 0.5}, "sample": {"rule": "brand", "brand": "maker"}}, {}),
        ({"objective": "hier", "options": {"far": 0.5}, "sample": {"rule": "brand"}}, {"options.far": 0.5}),
        ({"windows_of": "tuples"}, {"windows_of": "tuples"}),
        ({"windows_of": "tuples", "objective": "combined"}, {}),
        ({"train": {"inside_learning_rate": 0.1}}, {"train.inside_learning_rate": 0.1}),
        ({"train": {"per_device_eval_batch_size": 7}}, {"train.per_device_eval_batch_size": 7}),
        ({"sample": {"rule": "rouge", "field": "topic"}}, {"sample.field": "topic"}),
        ({"sample": {"rule": "concepts", "field": "topic", "brand": "b"}}, {"sample.brand": "b"}),
        ({"data": {"held_out_name": "dev"}}, {"data.held_out_name": "dev"}),
        ({"data": {"held_out_name": "dev", "split": "side", "held_out": 0.2}}, {"data.held_out": 0.2}),
        ({"windows_per_batch": 4}, {"windows_per_batch": 4}),
        ({"windows_per_batch": 4, "objective": "masked"}, {"windows_per_batch": 4}),
        ({"windows_per_batch": 4, "objective": "combined"}, {}),
        ({"objective": "masked", "sample": {"n": 9, "doubled": False}}, {"sample.n": 9, "sample.doubled": False}),
        ({"objective": "masked", "sample": {"shuffled": True}}, {"sample.shuffled": True}),
        (
            {"objective": "masked", "windows_of": "tuples", "sample": {"n": 9, "doubled": False, "shuffled": True}},
            {"sample.doubled": False},
        ),
        ({"sample": {"n": 9, "doubled": False, "shuffled": True}}, {}),
        ({"sample": {"rule": "brand", "doubled": False}}, {"sample.doubled": False}),
        (
            {"sample": {"rule": "citations", "field": "cites", "hard_ratio": 0.5, "doubled": False}},
            {"sample.doubled": False},
        ),
        ({"sample": {"rule": "citations", "field": "cites", "doubled": False}}, {}),
        ({"objective": "masked", "sample": {"rule": "concepts", "field": "topic", "n_held_out": 7}}, {}),
        (
            {
                "objective": "masked",
                "token_documents": 5,
                "data": {"held_out": 0},
                "sample": {"rule": "concepts", "field": "topic", "n_held_out": 7},
            },
            {"token_documents": 5, "sample.rule": "concepts", "sample.field": "topic", "sample.n_held_out": 7},
        ),
        ({"token_documents": 5, "data": {"split": "side"}, "sample": {"n_held_out": 7}}, {}),
        ({"data": {"path": "kind", "levels": 1}}, {}),
        ({"data": {"path": "kind", "levels": 1}, "sample": {"rule": "concepts", "field": "topic"}}, {}),
        (
            {
                "objective": "triplet",
                "data": {"path": "kind", "levels": 1},
                "sample": {"rule": "concepts", "field": "topic"},
            },
            {"data.path": "kind", "data.levels": 1},
        ),
        (
            {"data": {"path": "kind", "levels": 1}, "sample": {"rule": "rouge", "topic_levels": 2}},
            {"data.path": "kind", "data.levels": 1},
        ),
        ({"data": {"keep": "tail"}}, {}),
        ({"data": {"keep": "tail", "max_sentences": 0}}, {"data.keep": "tail"}),
        ({"probe": {"config": "task.toml", "seeds": 5}}, {"probe.config": "task.toml", "probe.seeds": 5}),
    ],
)
def test_settings_that_a_run_does_not_read_are_known(changes: dict[str, Any], due: dict[str, Any]) -> None:
    from encodeonce.cli.pretrain_config import PretrainConfig
    from encodeonce.cli.pretrain_material import unread
    from encodeonce.methods.fastdoc.objective import Objective

    chosen = PretrainConfig(encoder="tiny", **changes)
    assert unread(chosen, Objective.named(chosen.objective, **chosen.options)) == due


def test_a_run_stopped_before_its_report_counts_all_its_batches(run: Run, tiny: Path, tmp_path: Path) -> None:
    path = config(tmp_path, tiny)
    first = json.loads(run("pretrain", path, "-o", "out", "--json").stdout)
    (tmp_path / "out/report.json").unlink()
    again = json.loads(run("pretrain", path, "-o", "out", "--json").stdout)
    assert again["costs"]["positions"] == first["costs"]["positions"]
    assert first["costs"]["positions"]["run"] > first["costs"]["positions"]["real"]
    assert first["costs"]["positions"]["windows"]["run"] == 0
    assert again["held_out"] == first["held_out"]


@pytest.mark.parametrize(
    ("changes", "tuples", "message"),
    [
        (["sample.rule=concepts", "sample.field=concepts", "objective=triplet"], 48, ""),
        (["sample.rule=citations", "sample.field=cites", "objective=triplet", "sample.hard_ratio=0.5"], 24, ""),
        (["sample.rule=brand", "options={far=0.5}"], 24, ""),
        (["sample.rule=rouge", "sample.topic_levels=2", "sample.n_topics=3", "sample.min_documents=2"], 48, ""),
        (["sample.n_topics=3"], 0, "are of topics that are clusters; set sample.topic_levels"),
        (["sample.topics=brand"], 0, "sample.topics = 'brand': set sample.topic_levels, too"),
        (["sample.topics=brand", "sample.topic_levels=2", "sample.n_topics=3"], 0, "without sample.topics"),
        (["sample.topics=brand", "sample.topic_levels=2"], 0, "'brand' is 'b"),
        (["sample.topics=topic", "sample.topic_levels=2"], 0, "sample.topics = 'topic': none of 61 documents"),
        (["sample.topic_levels=2", "sample.min_documents=30"], 0, "too few for two topics of min_documents=30"),
        (["sample.min_children=3"], 0, "sample.min_children = 3 is of topics: set sample.topic_levels, too"),
        (["sample.shuffled=true", "objective=release"], 48, ""),
        (["sample.field=concepts"], 0, "use rule='concepts'"),
        (["sample.field=concept"], 0, "none of 61 documents has this field. Did you mean 'concepts'? There is: brand"),
        (["data.path=category"], 0, "data.path = 'category': none of 61 documents has this field"),
        (["sample.rule=citations"], 0, "needs sample.field"),
        (["sample.hard_ratio=0.5"], 0, "is of rule = 'citations'; this is 'category'"),
        (["sample.topic_levels=2", "objective=triplet"], 0, "reads no classes"),
        (["sample.rule=rouge", "sample.shuffled=true"], 0, "would be no control"),
        (["full=true", "objective=masked"], 0, "reads no sentences"),
        (["options.margin='1'"], 0, "margin='1' must be a number"),
        (["train.early_stopping_patience=2"], 0, "needs a dev part"),
        (["data.held_out=0.999999"], 0, "holds all 60 documents out"),
        (["full=true", "pooling=cls"], 0, "trains on means of pieces; pooling = 'cls'"),
        (["full=true", "objective=probe", "budget=9s"], 0, "name the objective"),
        (["objective=maskt"], 0, "Did you mean 'masked'"),
        (["objective=prob"], 0, "release, and in `pretrain` probe, which tries several. Did you mean 'probe'"),
        (["train.lr_scheduler_type=one_cycle"], 0, "with lr_scheduler_type='one_cycle': set it, too"),
        (["objective=masked"], 0, "hold no masked-language-model head"),
        (["data.split=brand", "data.held_out_name=none"], 0, "There is: 'b0', 'b1', 'b2'."),
        (["data.min_cosine=0.5"], 0, "set data.taxonomy, too"),
        (["data.path=brand", "data.levels=1"], 48, ""),
    ],
)
def test_every_rule_and_what_is_refused(
    run: Run, tiny: Path, tmp_path: Path, changes: list[str], tuples: int, message: str
) -> None:
    sets = [part for change in [*changes, "sample.n_held_out=10"] for part in ("--set", change)]
    done = run("pretrain", config(tmp_path, tiny), "-o", "out", *sets, "--json", code=1 if message else 0)
    if message:
        assert message in done.stderr
        assert not (tmp_path / "sentences").exists() or not list((tmp_path / "sentences").glob("*.safetensors"))
        return
    report = json.loads(done.stdout)
    assert report["tuples"] == tuples
    if "sample.n_topics=3" in changes:
        assert sum(one["documents"] for one in report["topics"]) == 45, "all that are trained on"
        named = [one for one in report["topics"] if one["path"]]
        assert [one["classes"] for one in report["taxonomy"]] == [2, 2][: len(named) - 1]


def test_topics_of_a_bertopic_export_are_the_classes(run: Run, tiny: Path, tmp_path: Path) -> None:
    """As `get_document_info` writes them, -1 for outliers; nested, and only documents of tuples are encoded."""
    path = config(tmp_path, tiny)
    rows = [json.loads(line) for line in (tmp_path / "articles.jsonl").read_text().splitlines()]
    with (tmp_path / "topics.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["Document", "Topic", "Name", "Representative_document"])
        table.writerows([r["text"], i % 5 - 1, f"{i % 5 - 1}_cat_dog", False] for i, r in enumerate(rows[:60]))
    sets = ("data.train=topics.csv", 'data.columns={text="Document",topic="Topic"}', "sample.rule=rouge", "sample.n=3")
    sets = (*sets, "sample.topics=topic", "sample.topic_levels=2", "sample.n_held_out=10")
    done = run("pretrain", path, "-o", "out", *(part for one in sets for part in ("--set", one)), "--json")
    report, store = json.loads(done.stdout), Store.open(tmp_path / "sentences")
    train = [d for d in read(tmp_path / "topics.csv", columns={"text": "Document", "topic": "Topic"}) if not held(d)]
    due = Counter(d.meta["topic"] for d in train)
    assert sorted(one["documents"] for one in report["topics"] if one["path"]) == sorted(due[t] for t in "0123")
    assert sum(one["documents"] for one in report["topics"] if not one["path"]) == due["-1"] > 0
    leaves = [one for one in report["topics"] if one["path"]]
    below = [one for one in leaves if len(one["path"]) == 2]
    assert len(below) in (3, 4), "one of the two above may be a topic by itself"
    assert [(one["classes"], one["documents"]) for one in report["taxonomy"]] == [
        (2, len(train) - due["-1"]),
        (len(below), sum(one["documents"] for one in below)),
    ]
    assert all(len(one["above"]) == len(one["path"]) - 1 for one in leaves)
    assert len(store) < len(rows), "no clusters are made, so documents of no tuple are not encoded"
    for lines, message in (("a,0", "1 topics in"), ("a,x", "'topic' is 'x'; a topic is a whole number")):
        (tmp_path / "topics.csv").write_text("Document,Topic\n" + "".join(f"{n} {lines}\n" for n in range(60)))
        wrong = run("pretrain", path, "-o", "new", *(part for one in sets for part in ("--set", one)), code=1)
        assert message in wrong.stderr


def held(document: Document) -> bool:
    """Whether a part of 0.3 holds it out."""
    return int(document.key[:8], 16) < 0.3 * 16**8


def test_what_cannot_be_trained_is_refused_before_anything_is_encoded(
    run: Run, tiny: Path, tiny_masked: Path, tmp_path: Path
) -> None:
    """And the folder is free for the corrected config."""
    path = config(tmp_path, tiny)
    done = run("pretrain", path, "-o", "out", "--set", "objective=combined", code=1)
    assert "hold no masked-language-model head" in done.stderr
    done = run("pretrain", path, "-o", "out", "--set", "sentence_encoder=quickstart", code=1)
    assert "sentence vectors have width 384, the encoder's piece vectors 16" in done.stderr
    masked = (f"encoder={tiny_masked}", "sentence_encoder=quickstart", "objective=masked")
    done = run("pretrain", path, "-o", "out", *(part for one in masked for part in ("--set", one)), code=1)
    assert "sentence vectors have width 384, the encoder's piece vectors 16" in done.stderr
    twice = ("--set", "train.num_train_epochs=2")
    for budget, changes, message in (("5min", (), "write it as 90s"), ("5m", twice, "num_train_epochs=2 does too")):
        done = run("pretrain", path, "-o", "out", "--budget", budget, *changes, code=1)
        assert message in done.stderr
        assert "tuples:" not in done.stderr, "before the documents are read"
    text = (tmp_path / "articles.jsonl").read_text()
    rows = [{**json.loads(line), "category_path": []} for line in text.splitlines()]
    (tmp_path / "articles.jsonl").write_text("\n".join(map(json.dumps, rows)))
    concepts = ("--set", "sample.rule=concepts", "--set", "sample.field=concepts")
    done = run("pretrain", path, "-o", "out", *concepts, code=1)
    assert "all of 45 documents have an empty category path, so there is nothing to classify" in done.stderr
    assert not (tmp_path / "sentences").exists()
    (tmp_path / "articles.jsonl").write_text(text)
    run("pretrain", path, "-o", "out")


@pytest.mark.parametrize("there", ["encoder/model.safetensors", "report.json", "heads.safetensors", "train/data.jsonl"])
def test_a_folder_of_something_else_stays_as_it_is(run: Run, tiny: Path, tmp_path: Path, there: str) -> None:
    """A reader has its encoder in FOLDER/encoder, a folder of work its own data in FOLDER/train."""
    path = config(tmp_path, tiny)
    own = tmp_path / "out" / there
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_bytes(b"mine")
    done = run("pretrain", path, "-o", "out", code=1)
    assert f"out is no folder of `pretrain` and holds {there.split('/')[0]}, which would be overwritten" in done.stderr
    assert [file for file in (tmp_path / "out").rglob("*") if file.is_file()] == [own]
    assert own.read_bytes() == b"mine"


def test_a_run_killed_between_checkpoints_ends_as_one_that_was_not(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from encodeonce.methods.fastdoc.fastdoc import FastDoc

    path, few = config(tmp_path, tiny), ("--set", "train.save_steps=2", "--json")
    whole = json.loads(run("pretrain", path, "-o", "whole", *few).stdout)
    losses, calls = FastDoc.losses, []

    def stopping(self: FastDoc, *given: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("stopped")
        return losses(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(FastDoc, "losses", stopping)
        run("pretrain", path, "-o", "half", *few, code=1)
    again = json.loads(run("pretrain", path, "-o", "half", *few).stdout)
    assert again["losses"] == whole["losses"]
    assert again["held_out"] == whole["held_out"]
    assert again["costs"]["positions"] == whole["costs"]["positions"]
    assert again["trace"] == whole["trace"], "of before the interruption, too"
    one, two = (load_file(tmp_path / name / "encoder/model.safetensors") for name in ("whole", "half"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_an_encoding_pass_that_was_killed_goes_on_and_its_seconds_count(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of sentences are small: what the first run stored is not encoded again."""
    from encodeonce.cli import steps
    from encodeonce.encoders.pooled import Pooled
    from encodeonce.store import format

    path, encode, done = config(tmp_path, tiny), Pooled.encode, 0

    def stopping(self: Pooled, items: Any, layers: Any = "last") -> Any:
        nonlocal done
        for i, views in encode(self, items, layers):
            if len(items[i]) and items[i].key in asked and done >= 20:
                raise RuntimeError("stopped")
            done += items[i].key in asked
            yield i, views

    monkeypatch.setattr(format, "SHARD_BYTES", 128 * 600)
    monkeypatch.setattr(steps, "NOTED", 0.0)
    from encodeonce.cli.config import load
    from encodeonce.cli.pretrain_config import PretrainConfig
    from encodeonce.cli.pretraining import Job

    material = Job(load(path, (), model=PretrainConfig), tmp_path / "plan").read[0]
    asked = {document.key_in("sentence") for document in (*material.train, *material.held_out)}
    with monkeypatch.context() as patch:
        patch.setattr(Pooled, "encode", stopping)
        run("pretrain", path, "-o", "out", code=1)
    noted = json.loads((tmp_path / "out/encode.json").read_text())["seconds"]
    stored = len(list((tmp_path / "sentences").glob("*.safetensors")))
    assert noted > 0
    assert stored > 2
    report = json.loads(run("pretrain", path, "-o", "out", "--json").stdout)
    assert report["costs"]["seconds"]["encode"] >= round(noted, 2)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    whole = json.loads(run("pretrain", path, "-o", "whole", "--set", "store=other", "--json").stdout)
    assert whole["held_out"] == report["held_out"]
    assert len(list((tmp_path / "other").glob("*.safetensors"))) == 2, "what is trained on, and what is scored"


def test_masked_and_combined_with_a_checkpoint_that_has_its_head(run: Run, tiny: Path, tmp_path: Path) -> None:
    from transformers import AutoConfig, BertForMaskedLM

    base = tmp_path / "with-head"
    BertForMaskedLM(AutoConfig.from_pretrained(tiny)).save_pretrained(base)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (base / name).write_bytes((tiny / name).read_bytes())
    path = config(tmp_path, base)
    for objective in ("masked", "combined"):
        done = run("pretrain", path, "-o", objective, "--set", f"objective={objective}", "--json")
        report = json.loads(done.stdout)
        assert report["export"]["piece_vectors_equal"] is False
        assert report["export"]["head"] is True
        assert report["tuples"] == (48 if objective == "combined" else 0)
        assert "masked" in report["trace"][0]
        assert report["costs"]["flops"]["train"] > 0
        more = ("train.num_train_epochs=2", "train.gradient_accumulation_steps=3", "token_documents=0")
        sets = [part for one in more for part in ("--set", one)]
        twice = json.loads(run("pretrain", path, "-o", "2", "--set", f"objective={objective}", *sets, "--json").stdout)
        shutil.rmtree(tmp_path / "2")
        once, both = (one["costs"]["flops"]["train"] for one in (report, twice))
        padded = [1 - one["costs"]["positions"]["padded_share"] for one in (report, twice)]
        assert both * padded[1] == pytest.approx(2 * once * padded[0], rel=0.02), "what is read twice costs twice"
    budget = f"{report['costs']['masked_epoch_flops'] / 2e12:.9f}TFLOP"
    half = json.loads(
        run("pretrain", path, "-o", "half", "--set", "objective=masked", "--budget", budget, "--json").stdout
    )
    assert 0.4 < half["costs"]["flops"]["total"] / report["costs"]["masked_epoch_flops"] <= 0.51


def test_an_epoch_of_masked_language_is_over_the_documents_that_windows_are_of(
    run: Run, tiny_masked: Path, tmp_path: Path
) -> None:
    """Those of four tuples, which `combined` encodes; one window each, so an epoch costs what the run did."""
    path, few = config(tmp_path, tiny_masked), ("windows_of=tuples", "window=32", "sample.n=4", "data.held_out=0")
    given = (*(part for one in few for part in ("--set", one)), "--json")
    documents = {}
    for objective in ("masked", "combined"):
        done = run("pretrain", path, "-o", objective, "--set", f"objective={objective}", *given)
        costs = json.loads(done.stdout)["costs"]
        documents[objective] = costs["documents"]
        if objective == "masked":
            assert costs["masked_epoch_flops"] == costs["flops"]["train"]
    assert documents["masked"] == documents["combined"] <= 12


def test_what_an_earlier_run_had_stored_is_said(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Four tuples are the first of twenty-four: their documents and those held out are there."""
    path = config(tmp_path, tiny)
    run("pretrain", path, "-o", "few", "--set", "sample.n=4")
    before = json.loads((tmp_path / "few/report.json").read_text())["costs"]["documents"]
    done = run("pretrain", path, "-o", "more")
    whole = json.loads((tmp_path / "more/report.json").read_text())["costs"]["documents"]
    assert 0 < before < whole
    assert f"({before} of {whole} documents were stored before: no time was spent on these)" in done.stdout
    report = json.loads((tmp_path / "more/report.json").read_text())
    assert report["costs"]["stored"] == {"before": before, "of": whole}
    (tmp_path / "more/report.json").unlink()
    again = json.loads(run("pretrain", path, "-o", "more", "--json").stdout)
    assert again["costs"]["stored"] == report["costs"]["stored"], "what this run stored itself is not taken off"
    pieces = report["held_out"]["untouched"]
    assert f"from pieces over {pieces['pieces_tuples']} tuples of 8 documents" in done.stdout
    assert pieces["pieces_tuples"] < report["held_out"]["tuples"]


def test_a_budget_of_flops_is_spent_on_passes_over_the_tuples(run: Run, tiny: Path, tmp_path: Path) -> None:
    """All tuples once, then half as much training again; a run that was killed goes on with what was bought."""
    path = config(tmp_path, tiny)
    once = json.loads(run("pretrain", path, "-o", "once", "--json").stdout)
    real = 1 - once["costs"]["positions"]["padded_share"]  # fp32 pads, and a budget cannot know how much
    budget = once["costs"]["flops"]["encode"] + 1.5 * once["costs"]["flops"]["train"] * real
    given = ("--budget", f"{budget / 1e12:.9f}TFLOP", "--json")
    done = run("pretrain", path, "-o", "more", *given)
    more = json.loads(done.stdout)
    assert once["costs"]["flops"]["encode"] == more["costs"]["flops"]["encode"]
    assert 66 <= more["tuples"] <= 74
    unpadded = more["costs"]["flops"]["encode"] + real * more["costs"]["flops"]["train"]
    assert 0.93 * budget < unpadded < 1.05 * budget
    assert f"budget {budget / 1e12:.3g} TFLOP: {more['tuples'] // 2} tuples, of 24 different ones" in done.stderr
    (tmp_path / "more/report.json").unlink()
    again = json.loads(run("pretrain", path, "-o", "more", *given).stdout)
    assert again["losses"] == more["losses"]
    less = json.loads(
        run("pretrain", path, "-o", "less", "--budget", f"{0.6 * budget / 1e12:.9f}TFLOP", "--json").stdout
    )
    assert less["costs"]["documents"] < once["costs"]["documents"]
    for changes, message in ((("--set", "train.num_train_epochs=2"), "says how much is read"), ((), "")):
        refused = run("pretrain", path, "-o", "no", "--budget", "0.000001s" if not message else "1h", *changes, code=1)
        assert (message or "does not pay for one batch") in refused.stderr


def test_a_budget_of_time_is_what_the_probe_says(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from encodeonce.cli.pretrain_pace import Pace

    def probe(self: Pace, *given: Any) -> None:
        self.sentence, self.batch = 0.0, 4.0

    monkeypatch.setattr(Pace, "probe", probe)
    path = config(tmp_path, tiny)
    report = json.loads(run("pretrain", path, "-o", "out", "--budget", "10s", "--json").stdout)
    assert report["tuples"] == 20, "half a second a tuple of a batch of 8, each twice: ten, doubled"
    assert report["budget"] == "10s"


def test_categories_are_put_into_a_taxonomy(run: Run, tiny: Path, tmp_path: Path) -> None:
    """By name, else by the nearest leaf; what is less similar than asked for has no path."""
    path = config(tmp_path, tiny)
    names = {"animals": "DOG", "things": "HOUSE"}
    rows = [json.loads(line) for line in (tmp_path / "articles.jsonl").read_text().splitlines()]
    text = "\n".join(json.dumps({**row, "category_path": names[row["category_path"][0]]}) for row in rows)
    (tmp_path / "articles.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "t.txt").write_text("Cat > Bird > Dog\nThe > Tree\n", encoding="utf-8")
    sets = ("data.taxonomy=t.txt", "sample.rule=concepts", "sample.field=concepts", "sample.n_held_out=10")
    given = [part for one in sets for part in ("--set", one)]
    report = json.loads(run("pretrain", path, "-o", "out", *given, "--json").stdout)
    exact, near = sorted(report["mapped"], key=lambda one: one["category"])
    assert exact == {"category": "DOG", "leaf": ["Cat", "Bird", "Dog"], "cosine": 1.0, "exact": True}
    assert not near["exact"]
    assert near["leaf"] in (["Cat", "Bird", "Dog"], ["The", "Tree"])
    assert report["taxonomy"][2]["documents"] > 0
    given += ["--set", "data.min_cosine=1.5"]
    done = run("pretrain", path, "-o", "far", *given, "--json")
    far = json.loads(done.stdout)
    assert "2 categories, 1 of them a leaf's path, code or name, 1 nowhere: HOUSE" in done.stderr
    assert far["taxonomy"][0]["classes"] == 1
    (tmp_path / "t.txt").write_text("7 - Cat > Bird > Dog\n9 - The > House\n", encoding="utf-8")
    own = ("sample.rule=category", "sample.field=")
    sets = [part for one in own for part in ("--set", one)]
    done = run("pretrain", path, "-o", "known", *given[:2], *sets, "--json")
    assert "2 categories, 2 of them" in done.stderr
    assert {tuple(one["leaf"]) for one in json.loads(done.stdout)["mapped"]} == {
        ("Cat", "Bird", "Dog"),
        ("The", "House"),
    }


def test_whole_documents_beyond_the_positions(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Tiny holds 32 positions: 40 sentences are trained on and scored, or the first five where the config says so."""
    path = config(tmp_path, tiny)
    rows = [json.loads(line) for line in (tmp_path / "articles.jsonl").read_text().splitlines()][:-1]
    rng = random.Random(1)
    for row in rows:
        words = LEXICON["NOUN"][:2] if row["category_path"][0] == "animals" else LEXICON["NOUN"][3:]
        row["text"] = " ".join(f"The {rng.choice(words)} {rng.choice(LEXICON['VERB'])} {n}." for n in range(40))
    (tmp_path / "articles.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    few = ("--set", "sample.n=8", "--set", "token_documents=0", "--json")
    whole = json.loads(run("pretrain", path, "-o", "whole", "--set", "data.max_sentences=0", *few).stdout)
    assert whole["counts"]["shortened"] == 0
    assert whole["costs"]["positions"]["real"] == whole["costs"]["visits"] * 40
    cut = json.loads(run("pretrain", path, "-o", "cut", "--set", "data.max_sentences=5", *few).stdout)
    assert cut["counts"]["shortened"] == 60
    assert cut["costs"]["positions"]["real"] == cut["costs"]["visits"] * 5


def test_full_variant_trains_the_sentence_encoder_too(run: Run, tiny: Path, tmp_path: Path) -> None:
    """At first it is what stored vectors give; trained, both exports by transformers give the report's share."""
    from transformers import AutoModel, AutoTokenizer

    from encodeonce.cli.config import load
    from encodeonce.cli.pretrain_config import PretrainConfig
    from encodeonce.cli.pretraining import Job
    from encodeonce.methods.fastdoc.measure import centred_share

    path = config(tmp_path, tiny)
    stored, full = (
        json.loads(run("pretrain", path, "-o", name, "--set", f"full={name}", "--json").stdout)
        for name in ("false", "true")
    )
    for key in ("sentences_centred", "pieces_centred"):
        assert full["held_out"]["untouched"][key] == pytest.approx(stored["held_out"]["untouched"][key], abs=1e-3)
    assert full["held_out"]["trained"] != stored["held_out"]["trained"]
    assert full["costs"]["flops"]["encode"] == 0
    assert full["costs"]["flops"]["train"] > 2 * stored["costs"]["flops"]["train"]
    base = load_file(tiny / "model.safetensors")
    both = [load_file(tmp_path / "true" / name / "model.safetensors") for name in ("encoder", "sentence-encoder")]
    table = "embeddings.word_embeddings.weight"
    assert torch.equal(both[0][table], base[table])
    assert not torch.equal(both[1][table], base[table])
    assert full["sentence_encoder"]["changed"] > 0

    plan = Job(load(path, ("full=true",), model=PretrainConfig), tmp_path / "again").planned()
    assert plan.held is not None
    upper, lower = (AutoModel.from_pretrained(tmp_path / "true" / n).eval() for n in ("encoder", "sentence-encoder"))
    tokenizer, vectors = AutoTokenizer.from_pretrained(tiny), []
    with torch.no_grad():
        for n in sorted(set(plan.held.tuples.ravel().tolist())):
            ids = [tokenizer(s, return_tensors="pt")["input_ids"] for s in plan.material.held_out[n].sentences]
            rows = torch.stack([lower(one).last_hidden_state[0].mean(0) for one in ids])
            vectors.append(upper(inputs_embeds=rows[None]).last_hidden_state[0].mean(0).numpy())
    due = centred_share(np.stack(vectors))
    assert full["held_out"]["trained"]["sentences_centred"] == pytest.approx(due, abs=1e-4)


def test_full_variant_pays_for_training_alone_and_leaves_long_sentences_out(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    path = config(tmp_path, tiny)
    with (tmp_path / "articles.jsonl").open("a") as file:
        row = {"id": "long", "text": "cat " * 40, "category_path": ["animals", "kind 1"], "brand": "b0"}
        file.write(json.dumps(row) + "\n")
    given = ("--set", "full=true", "--json")
    whole = json.loads(run("pretrain", path, "-o", "whole", *given).stdout)
    assert whole["counts"]["over_the_window"] == 1
    budget = 0.5 * whole["costs"]["flops"]["train"]
    half = json.loads(run("pretrain", path, "-o", "half", "--budget", f"{budget / 1e12:.9f}TFLOP", *given).stdout)
    assert 20 <= half["tuples"] <= 30
    assert 0.8 * budget < half["costs"]["flops"]["train"] < 1.15 * budget
    timed = json.loads(run("pretrain", path, "-o", "timed", "--budget", "10s", *given).stdout)
    assert timed["tuples"] >= 8


def test_lora_changes_queries_and_values_alone(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Merged into the exported weights; everything else is the base's, bit for bit."""
    run("pretrain", config(tmp_path, tiny), "-o", "out", "--set", "options.lora=2")
    base, new = load_file(tiny / "model.safetensors"), load_file(tmp_path / "out/encoder/model.safetensors")
    changed = {name.split("attention.self.")[-1] for name in base if not torch.equal(base[name], new[name])}
    assert changed == {"query.weight", "value.weight"}
