"""`encodeonce memory` and `ask`: built from files, asked, changed, planned for; an untrained reader of a tiny BERT."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from encodeonce.methods.lumen import Design, Lumen
from encodeonce.serve.reader_run import ReaderRun, load_reader, save_reader

from .conftest import Run


@pytest.fixture
def reader(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A saved reader, which answers wherever there is a passage, and a folder of two texts beside it."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
    design = Design(live=1, question_pieces=8)
    encoder = design.encoder(tiny)
    method = Lumen.build(design, encoder)
    torch.nn.init.constant_(method.reader.head.none.bias, -100)  # type: ignore[union-attr, arg-type]
    save_reader(ReaderRun(method, encoder, "fp16"), tmp_path / "run")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "cats.txt").write_text("the cat sees a tree and the dog likes every bird", encoding="utf-8")
    (tmp_path / "texts" / "house.txt").write_text("a dog paints the house", encoding="utf-8")
    return tmp_path / "run"


def test_build_ask_and_count(run: Run, reader: Path, tmp_path: Path) -> None:
    out = run("memory", "build", reader, tmp_path / "texts", "--words", 4).stdout
    assert "passages   5 new, 0 there already" in out
    assert "states     5 encoded, 0 stored before" in out
    assert "5 new" not in run("memory", "build", reader, tmp_path / "texts", "--words", 4).stdout
    found = json.loads(run("ask", reader, "who paints the house?", "-k", 2, "--json").stdout)
    assert found["read"][0]["passage"].startswith("house.txt")
    assert found["answer"]
    whole = (tmp_path / "texts" / found["source"]["text"]).read_text("utf-8")
    assert whole[found["source"]["start_in_text"] : found["source"]["end_in_text"]] == found["answer"]
    text = run("ask", reader, "who paints the house?", "-k", 2).stdout
    assert "read       2 passages" in text
    info = json.loads(run("memory", "info", reader / "memory", "--json").stdout)
    assert (info["passages"], info["sources"], info["asked"]) == (5, 2, 2)
    assert "asked      2 questions" in run("memory", "info", reader / "memory").stdout


def test_a_file_of_questions_is_answered_and_scored(run: Run, reader: Path, tmp_path: Path) -> None:
    run("memory", "build", reader, tmp_path / "texts", "--words", 6)
    rows = [
        {"id": "a", "question": "who paints?", "answers": ["a dog"]},
        {"id": "b", "question": "zzz", "answers": [""]},
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = run("ask", reader, "--file", tmp_path / "q.jsonl", "-o", tmp_path / "out.jsonl", "-k", 3)
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert [(one["id"], one["question"]) for one in answers] == [("a", "who paints?"), ("b", "zzz")]
    assert (answers[1]["answer"], answers[1]["read"]) == ("", [])
    scores = json.loads(done.stderr.strip().splitlines()[-1])
    assert "have no answer in any of their passages" not in done.stderr, "gold is for scores alone"
    assert (scores["n"], scores["answer_recall@3"], scores["unanswerable_exact_match"]) == (2.0, 100.0, 100.0)


def test_answers_that_fail_leave_those_that_were_written_before(run: Run, reader: Path, tmp_path: Path) -> None:
    run("memory", "build", reader, tmp_path / "texts")
    (tmp_path / "q.txt").write_text("who paints?\n", encoding="utf-8")
    asked = ["ask", reader, "--file", tmp_path / "q.txt", "-o", tmp_path / "new" / "out.jsonl"]
    run(*asked)
    before = (tmp_path / "new" / "out.jsonl").read_bytes()
    assert json.loads(before)["question"] == "who paints?"
    for shard in (reader / "memory" / "states").glob("[0-9a-f]*.*"):
        shard.unlink()
    assert "lacks the states" in run(*asked, code=1).stderr
    assert [(one.name, one.read_bytes()) for one in (tmp_path / "new").iterdir()] == [("out.jsonl", before)]


def test_questions_that_name_passages_by_id_are_asked_without_looking_these_up(
    run: Run, reader: Path, tmp_path: Path
) -> None:
    run("memory", "build", reader, tmp_path / "texts")
    own = {"id": "q", "question": "who paints?", "answers": ["a dog"], "answer_starts": [3], "passage_id": "p"}
    techqa = {
        "QUESTION_ID": "q", "QUESTION_TEXT": "who paints?", "DOC_IDS": ["n"], "ANSWERABLE": "Y", "DOCUMENT": "n",
        "ANSWER": "a dog", "START_OFFSET": 3, "END_OFFSET": 8,
    }  # fmt: skip
    for name, rows in (("own.jsonl", own), ("techqa.json", [techqa])):
        (tmp_path / name).write_text(json.dumps(rows), encoding="utf-8")
        done = run("ask", reader, "--file", tmp_path / name, "-k", 2)
        assert json.loads(done.stdout)["question"] == "who paints?"
        scores = json.loads(done.stderr.strip().splitlines()[-1])
        assert (scores["n"], scores["answer_recall@2"]) == (1.0, 100.0)
        run("memory", "plan", reader, tmp_path / "texts", "--questions", tmp_path / name, "--budget-seconds", 0.1)


def test_add_replace_remove_and_gc(run: Run, reader: Path, tmp_path: Path) -> None:
    run("memory", "build", reader, tmp_path / "texts", "--words", 4)
    memory = reader / "memory"
    (tmp_path / "more.tsv").write_text("id\ttext\ttitle\np1\ta bird\tB\n", encoding="utf-8")
    assert "1 new" in run("memory", "add", memory, tmp_path / "more.tsv").stdout
    (tmp_path / "texts" / "house.txt").write_text("every tree", encoding="utf-8")
    added = run("memory", "add", memory, tmp_path / "texts", "--words", 4)
    assert "1 new" in added.stdout  # the short text is a passage of its own; its old windows are still there
    done = json.loads(run("memory", "add", memory, tmp_path / "texts", "--words", 4, "--replace", "--json").stdout)
    assert (done["new"], done["same"], done["removed"]) == (0, 4, 2)
    assert run("memory", "remove", memory, "cats.txt").stdout == "3 passages removed, 2 are left\n"
    assert "has no passage 'cats.txt'" in run("memory", "remove", memory, "cats.txt", code=1).stderr
    planned = run("memory", "gc", memory, "--dry-run").stdout
    assert planned.startswith("5 items, ")
    assert "would be freed" in planned
    assert run("memory", "gc", memory).stdout.startswith("5 items, ")
    assert json.loads(run("memory", "info", memory, "--json").stdout)["unused_items"] == {"states": 0}
    assert json.loads(run("ask", reader, "bird", "--json").stdout)["read"][0]["passage"] == "p1"


def moved(folder: Path, place: Path) -> Path:
    return Path(shutil.copytree(folder, place))


def test_dense_retrieval_from_the_command_line(run: Run, reader: Path, tiny: Path, tmp_path: Path) -> None:
    run("memory", "build", reader, tmp_path / "texts", "--words", 4, "--vectors", "same", "-o", "both")
    found = json.loads(run("ask", reader, "a dog paints the", "-m", "both", "-k", 5, "--json").stdout)
    assert len(found["read"]) == 5
    run("memory", "build", reader, tmp_path / "texts")
    run("ask", reader, "a dog", "-m", "both", "-e", moved(tiny, tmp_path / "moved"))
    assert "has no vectors" in run("ask", reader, "x", "--retriever", "dense", code=1).stderr


def test_what_is_built_again_otherwise_is_refused_with_a_step_that_there_is(
    run: Run, reader: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "texts"
    run("memory", "build", reader, texts, "--words", 4, "--vectors", "same")
    said = run("memory", "build", reader, texts, "--words", 4, code=1).stderr
    assert (
        "has some vectors; asked for are 'plain' and no. Name what makes its vectors (memory build: --vectors" in said
    )
    run("memory", "build", reader, texts, "--words", 4, "-o", "m")
    (texts / "house.txt").write_text("the dog paints a house now", encoding="utf-8")
    said = run("memory", "build", reader, texts, "--words", 4, "-o", "m", code=1).stderr
    assert "Say that they replace them (`encodeonce memory add --replace`, in Python replacing=True)" in said
    said = run("memory", "build", reader, texts, "-o", "none", "--max-gb", 1e-6, code=1).stderr
    assert "over max_bytes=1,000 (--max-gb). Raise it, or store less: fewer items, " in said


def test_vectors_of_another_encoder_are_asked_with_that_encoder(
    run: Run, reader: Path, tiny: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    other = moved(tiny, tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    weights["embeddings.word_embeddings.weight"] += 1
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    options = ["--words", 4, "--vectors", other, "-o", "own"]
    run("memory", "build", reader, tmp_path / "texts", *options)
    assert len(json.loads(run("ask", reader, "a dog", "-m", "own", "--json").stdout)["read"]) == 5
    (tmp_path / "more.tsv").write_text("id\ttext\ttitle\np1\ta bird\tB\n", encoding="utf-8")
    other.rename(tmp_path / "gone")
    assert "no such folder" in run("ask", reader, "a dog", "-m", "own", code=1).stderr
    run("memory", "add", "own", tmp_path / "more.tsv", "--vectors", tmp_path / "gone")
    found = run("ask", reader, "a dog", "-m", "own", "--vectors", tmp_path / "gone", "--json").stdout
    assert len(json.loads(found)["read"]) == 6
    assert (
        "is not the encoder that own was made by"
        in run("memory", "add", "own", tmp_path / "more.tsv", "--vectors", tiny, code=1).stderr
    )


def test_an_answer_is_given_where_it_cannot_be_counted(run: Run, reader: Path, tmp_path: Path) -> None:
    from encodeonce.store.claim import Claim

    run("memory", "build", reader, tmp_path / "texts")
    with Claim.take(reader / "memory" / "writing.tmp") as claim:
        assert claim is not None
        done = run("ask", reader, "who paints the house?")
    assert "read       1 passages" in done.stdout
    assert "is not counted: " in done.stderr
    assert "is being changed by another process" in done.stderr
    assert json.loads(run("memory", "info", reader / "memory", "--json").stdout)["asked"] == 0


def test_plan_says_from_how_many_questions_on(run: Run, reader: Path, tmp_path: Path) -> None:
    files = [tmp_path / "texts", "--words", 4, "-k", 2, "--budget-seconds", 0.01]
    found = json.loads(run("memory", "plan", reader, *files, "--json").stdout)
    assert found["questions"] == pytest.approx(5 / 2)
    assert (found["passages"], found["stored"]) == (5, [1])
    assert found["whole"]["value"] == pytest.approx(5 * found["encode"]["value"])
    text = " ".join(run("memory", "plan", reader, *files).stdout.split())
    assert "against encoding on the fly, the same answers from 3 questions on" in text
    assert not (reader / "memory").exists()
    few = json.loads(run("memory", "plan", reader, *files[:3], "-k", 99, "--budget-seconds", 0.01, "--json").stdout)
    assert (few["k"], few["questions"]) == (5, pytest.approx(1))


def test_states_that_were_lost_are_named_and_come_back_by_building_again(
    run: Run, reader: Path, tmp_path: Path
) -> None:
    run("memory", "build", reader, tmp_path / "texts")
    asked = ["ask", reader, "who paints the house?", "-k", 1, "--json"]
    found = run(*asked).stdout
    for file in (reader / "memory" / "states").glob("[0-9a-f]*.*"):
        file.unlink()
    assert "lacks the states of 1 of 1 different passages, the first 'house.txt'" in run(*asked, code=1).stderr
    assert "states     2 encoded" in run("memory", "build", reader, tmp_path / "texts").stdout
    assert run(*asked).stdout == found


def test_a_store_that_was_lost_is_named_and_made_again_by_building(run: Run, reader: Path, tmp_path: Path) -> None:
    memory, texts = reader / "memory", tmp_path / "texts"
    built = ["memory", "build", reader, texts, "--vectors", "same"]
    run(*built)
    asked = ["ask", reader, "who paints the house?", "-k", 1, "--json"]
    found = run(*asked).stdout
    step = f"`encodeonce memory build RUN FILE... -o {memory} --vectors ENCODER`"
    for name in ("vectors", "states"):
        shutil.rmtree(memory / name)
        for command in (asked, ["memory", "add", memory, texts]):
            said = run(*command, code=1).stderr
            assert f"{memory / name} is lost" in said
            assert step in said
        assert f"lost; {step} makes" in run("memory", "info", memory).stdout
        assert json.loads(run("memory", "info", memory, "--json").stdout)["lost"] == [name]
        run(*asked, "--retriever", "bm25", code=int(name == "states"))
        run("memory", "gc", memory)
        said = run("memory", "build", reader, texts, code=1).stderr
        assert "has some vectors; asked for are 'plain' and no. Name what makes its vectors (memory build: " in said
        assert "memory add" not in said
        assert not (memory / name).exists(), "reading and refusing makes nothing"
        assert f"{name:<10} 2 encoded" in run(*built).stdout
        assert run(*asked).stdout == found


def test_shards_that_nothing_describes_are_named_by_building(run: Run, reader: Path, tmp_path: Path) -> None:
    states, built = reader / "memory" / "states", ["memory", "build", reader, tmp_path / "texts"]
    run(*built)
    (states / "store.json").unlink()
    assert f"{states} is lost" in run("ask", reader, "who?", code=1).stderr
    said = run(*built, code=1).stderr
    assert f"or remove {states}: `encodeonce memory build RUN FILE... -o {reader / 'memory'}` then encodes" in said
    shutil.rmtree(states)
    assert "states     2 encoded" in run(*built).stdout


def test_lost_vectors_are_named_and_come_back_by_building_or_adding_again(
    run: Run, reader: Path, tmp_path: Path
) -> None:
    file = tmp_path / "p.tsv"
    file.write_text("id\ttext\ttitle\na\tthe cat\tT\nb\ta dog\tT\nc\ta dog\tT\n", encoding="utf-8")
    built = ["build", reader, file, "--vectors", "same"]
    for again in (built, ["add", reader / "memory", file]):
        run("memory", *built)
        for shard in (reader / "memory" / "vectors").glob("[0-9a-f]*.*"):
            shard.unlink()
        said = run("ask", reader, "the cat", code=1).stderr
        assert "lacks the vectors of 2 of 2 different passages, the first 'a'. Give their files to" in said
        assert "vectors    2 encoded" in run("memory", *again).stdout
        run("ask", reader, "the cat")


def test_an_int8_memory_is_smaller_and_answers_alike(run: Run, reader: Path, tmp_path: Path) -> None:
    held = load_reader(reader)
    save_reader(ReaderRun(held.method, held.encoder, "int8"), tmp_path / "run8")
    answers, sizes = [], []
    for folder in (reader, tmp_path / "run8"):
        built = json.loads(run("memory", "build", folder, tmp_path / "texts", "--words", 4, "--json").stdout)
        sizes.append(built["states"]["bytes"])
        answers.append(
            [json.loads(run("ask", folder, asked, "--json").stdout) for asked in ("house?", "a dog", "tree")]
        )
    assert sizes[1] < sizes[0]
    for ours, expected in zip(answers[1], answers[0], strict=True):
        assert (ours["answer"], ours["source"], ours["read"]) == (
            expected["answer"],
            expected["source"],
            expected["read"],
        )
        assert ours["score"] == pytest.approx(expected["score"], rel=0.05)
    refused = run("ask", reader, "a dog", "-m", tmp_path / "run8" / "memory", code=1).stderr
    assert "dtype: 'fp16' here, 'int8' there" in refused


def test_errors_say_what_to_do(run: Run, reader: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "broken.jsonl").write_text('{"id": "a", \n', encoding="utf-8")
    assert "what the folder holds says no format" in run("memory", "build", reader, tmp_path / "none", code=1).stderr
    assert "broken.jsonl:1:1: bad JSON" in run("memory", "build", reader, tmp_path / "broken.jsonl", code=1).stderr
    assert not (reader / "memory").exists(), "what cannot be read leaves no memory behind"
    run("memory", "build", reader, tmp_path / "texts")
    assert "question 1: the question is empty" in run("ask", reader, " ", code=1).stderr
    assert len(json.loads(run("ask", reader, "dog", "-k", 99, "--json").stdout)["read"]) == 2
    run("memory", "remove", reader / "memory", "cats.txt", "house.txt")
    assert "holds no passage to answer from. Add some" in run("ask", reader, "x", code=1).stderr
    shutil.rmtree(reader / "memory")
    assert "Build one: encodeonce memory build" in run("ask", reader, "x", code=1).stderr
    assert "Give a question, or a file" in run("ask", reader, code=2).stderr
    assert "is no saved run" in run("memory", "build", tmp_path / "texts", tmp_path / "texts", code=1).stderr


def test_the_file_of_questions_is_not_written_over(run: Run, reader: Path, tmp_path: Path) -> None:
    run("memory", "build", reader, tmp_path / "texts")
    asked = tmp_path / "q.txt"
    asked.write_text("who paints the house?\n", encoding="utf-8")
    (tmp_path / "same.jsonl").symlink_to(asked)
    for name in ("q.txt", "same.jsonl"):
        said = run("ask", reader, "--file", asked, "-o", tmp_path / name, code=1).stderr
        assert f"{name} is the file of questions, which would be lost. Name another." in said
    assert asked.read_text("utf-8") == "who paints the house?\n"
    run("ask", reader, "--file", asked, "-o", tmp_path / "new" / "a.jsonl")
    assert json.loads((tmp_path / "new" / "a.jsonl").read_text("utf-8"))["question"] == "who paints the house?"
    assert "exact_match" not in run("ask", reader, "--file", asked).stderr, "there is no gold"


def test_a_reader_without_a_stored_memory_cannot_be_planned_for(run: Run, tiny: Path, tmp_path: Path) -> None:
    design = Design(live=1, memory="finetuned", question_pieces=8)
    encoder = design.encoder(tiny)
    save_reader(ReaderRun(Lumen.build(design, encoder), encoder), tmp_path / "run")
    (tmp_path / "p.tsv").write_text("a\tthe dog\n", encoding="utf-8")
    said = run("memory", "plan", tmp_path / "run", tmp_path / "p.tsv", code=1).stderr
    assert "this reader stores nothing (cut=1, memory='finetuned')" in said


def test_equal_passages_are_planned_for_once_as_they_are_stored(run: Run, reader: Path, tmp_path: Path) -> None:
    texts = ["the dog sees a cat"] * 6 + ["a tree"]
    rows = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(texts)]
    (tmp_path / "p.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    files = [tmp_path / "p.jsonl", "-k", 2, "--budget-seconds", 0.01]
    planned = json.loads(run("memory", "plan", reader, *files, "--json").stdout)
    assert "7 passages, 2 different ones, view 1" in run("memory", "plan", reader, *files).stdout
    built = json.loads(run("memory", "build", reader, tmp_path / "p.jsonl", "--json").stdout)["states"]
    assert (planned["passages"], planned["different"], planned["bytes"]) == (7, built["written"], built["bytes"])
    memory = reader / "memory"
    assert planned["text_bytes"] == (memory / "passages-000000.jsonl").stat().st_size
    named = sum((memory / name).stat().st_size for name in ("memory.json", "states/store.json"))
    info = json.loads(run("memory", "info", memory, "--json").stdout)
    assert info["bytes"] == planned["bytes"] + planned["text_bytes"] + named  # of a memory that was never asked
    assert planned["whole"]["value"] == pytest.approx(2 * planned["encode"]["value"])
    assert planned["questions"] == pytest.approx(2 / 2)


def test_a_text_that_became_short_is_removed_with_its_windows(run: Run, reader: Path, tmp_path: Path) -> None:
    run("memory", "build", reader, tmp_path / "texts", "--words", 4)
    (tmp_path / "texts" / "house.txt").write_text("every tree", encoding="utf-8")
    run("memory", "add", reader / "memory", tmp_path / "texts", "--words", 4)
    assert run("memory", "remove", reader / "memory", "house.txt").stdout == "3 passages removed, 3 are left\n"


def test_lost_states_are_counted(run: Run, reader: Path, tmp_path: Path) -> None:
    run("memory", "build", reader, tmp_path / "texts", "--words", 4)
    for file in (reader / "memory" / "states").glob("[0-9a-f]*.*"):
        file.unlink()
    text = run("memory", "info", reader / "memory").stdout
    assert "0 shards; 0 items unused" in text
    assert "5 are lost: `build` or `add` the same passages again" in text


def test_options_that_would_do_nothing_are_refused(run: Run, reader: Path, tiny: Path, tmp_path: Path) -> None:
    run("memory", "build", reader, tmp_path / "texts")
    said = run("memory", "add", reader / "memory", tmp_path / "texts", "--vectors", tiny, code=1).stderr
    assert "has no vectors, and adding gives it none" in said
    said = run("ask", reader, "dog", "--vectors", tiny, code=1).stderr
    assert "has none that an encoder could have made. Leave it out" in said
    for size in ("nan", "inf", "-1"):
        said = run("memory", "build", reader, tmp_path / "texts", "--max-gb", size, code=2).stderr
        assert f"{size} is no size: give a number of 10^9 bytes, 0 or more" in said


@pytest.mark.parametrize("design", [{"live": 2}, {"live": 1, "memory": "conditioned"}])
def test_a_passage_that_a_reader_without_states_cannot_read_whole_is_refused_at_once(
    run: Run, tiny: Path, reader: Path, tmp_path: Path, design: dict[str, Any]
) -> None:
    """The encoder has 32 positions, of which the question has 8."""
    wanted = Design(question_pieces=8, **design)
    encoder = wanted.encoder(tiny)
    save_reader(ReaderRun(Lumen.build(wanted, encoder), encoder), tmp_path / "fly")
    (tmp_path / "long.tsv").write_text(f"long\t{'the dog ' * 20}\n", encoding="utf-8")
    said = run("memory", "build", tmp_path / "fly", tmp_path / "long.tsv", code=1).stderr
    assert "long.tsv:1: " in said
    assert "must fit the encoder's window behind the question, 24. Cut it into shorter passages: less" in said
    assert not (tmp_path / "fly" / "memory").exists()
    run("memory", "build", tmp_path / "fly", tmp_path / "long.tsv", "--words", 10)
    (tmp_path / "more.tsv").write_text(f"more\t{'a cat ' * 20}\n", encoding="utf-8")
    said = run("memory", "add", tmp_path / "fly" / "memory", tmp_path / "more.tsv", code=1).stderr
    assert "more.tsv:1: " in said
    run("memory", "add", tmp_path / "fly" / "memory", tmp_path / "more.tsv", "--words", 10)
    assert json.loads(run("ask", tmp_path / "fly", "the cat", "--json").stdout)["read"]


def test_a_reader_that_stores_nothing_adds_no_states_of_its_encoder_to_another_memory(
    run: Run, reader: Path, tiny: Path, tmp_path: Path
) -> None:
    import transformers

    shutil.copytree(tiny, tmp_path / "other")
    torch.manual_seed(99)
    transformers.BertModel(transformers.BertConfig.from_pretrained(tiny)).save_pretrained(tmp_path / "other")
    design = Design(live=2, question_pieces=8)
    for name in ("other", "tiny"):
        encoder = design.encoder(tmp_path / "other" if name == "other" else tiny)
        save_reader(ReaderRun(Lumen.build(design, encoder), encoder), tmp_path / f"fid-{name}")
    run("memory", "build", reader, tmp_path / "texts", "-o", tmp_path / "m")
    (tmp_path / "new.tsv").write_text("n\tthe bird likes a tree\n", encoding="utf-8")
    asked = [tmp_path / "new.tsv", "-o", tmp_path / "m"]
    said = run("memory", "build", tmp_path / "fid-other", *asked, code=1).stderr
    assert "is not the encoder that" in said
    assert "weights: " in said
    assert json.loads(run("memory", "info", tmp_path / "m", "--json").stdout)["states"]["items"] == 2
    assert "states     1 encoded" in run("memory", "build", tmp_path / "fid-tiny", *asked).stdout
    run("memory", "build", tmp_path / "fid-tiny", tmp_path / "new.tsv", "-o", tmp_path / "bare")
    assert run("memory", "gc", tmp_path / "bare").stdout.startswith("this memory stores texts alone")
