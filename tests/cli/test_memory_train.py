"""`encodeonce memory train`: questions and passages to a saved reader, which a new process asks; a tiny BERT."""

import importlib.util
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from encodeonce.cli.config import load
from encodeonce.cli.memory_planning import _fusion
from encodeonce.cli.reader_config import DesignSection, ReaderConfig
from encodeonce.corpus.passages import read_passages
from encodeonce.corpus.questions import read_questions
from encodeonce.errors import RunError
from encodeonce.methods.lumen import Design, Lumen, nearby_cuts
from encodeonce.metrics.answers import AnswerScorer
from encodeonce.serve.reader_run import load_reader
from encodeonce.store import Store
from encodeonce.train.evaluate import evaluate

from .conftest import Run

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "lumen"
NOUNS = ["cat", "dog", "tree", "house", "bird"]


@pytest.fixture
def reader_config(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """40 questions "who VERBs the NOUN" whose answer is the passage's first noun; a config for them."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
    rng = random.Random(0)
    passages, questions = [], []
    for number in range(40):
        first, second = rng.sample(NOUNS, 2)
        text = f"often the {first} paints a {second} ."
        passages.append({"passage_id": f"p{number}", "title": "", "text": text})
        place = {"passage_id": f"p{number}", "answer_starts": [text.index(first)]}
        questions.append({"question": f"a {second} sees {number % 7}", "answers": [first], **place})
    for name, rows in (("passages", passages), ("train", questions[:32]), ("dev", questions[32:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    path = tmp_path / "reader.toml"
    path.write_text(
        f'encoder = "{tiny}"\nstore = "states"\n[data]\ntrain = "train.jsonl"\ndev = "dev.jsonl"\nk = 2\n'
        "[design]\nlive = 1\nquestion_pieces = 8\n"
        "[train]\nnum_train_epochs = 2\nper_device_train_batch_size = 8\nlearning_rate = 0.02\n",
        encoding="utf-8",
    )
    return path


def test_a_reader_is_trained_saved_and_answers_the_same_in_a_new_process(
    run: Run, reader_config: Path, tmp_path: Path
) -> None:
    done = json.loads(run("memory", "train", reader_config, "-o", "run", "--json").stdout)
    assert set(done["scores"]) == {"dev"}
    assert done["encode"]["written"] > 0
    run("memory", "build", "run", tmp_path / "passages.jsonl")
    asked = ["a cat sees", "a tree sees", "a bird sees", "a house sees"]
    (tmp_path / "q.txt").write_text("\n".join(asked) + "\n", encoding="utf-8")
    options = ["ask", "run", "--file", "q.txt", "-k", "3"]
    here = run(*options).stdout
    assert any(json.loads(line)["answer"] for line in here.splitlines()), "an answer is found somewhere"
    there = subprocess.run(
        [sys.executable, "-m", "encodeonce", *options], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert there == here


def test_the_same_command_goes_on_and_encodes_nothing_again(run: Run, reader_config: Path, tmp_path: Path) -> None:
    first = json.loads(run("memory", "train", reader_config, "-o", "run", "--json").stdout)
    (tmp_path / "run" / "config.json").unlink()  # as if it had been stopped before it was saved
    again = json.loads(run("memory", "train", reader_config, "-o", "run", "--json").stdout)
    assert again["encode"]["written"] == 0
    assert not again["encode"]["encoder_loaded"] or again["encode"]["hits"] > 0
    assert (again["scores"], again["best"], again["seconds"]) == (first["scores"], first["best"], first["seconds"])
    held = load_reader(tmp_path / "run")
    assert held.training["examples"] == {"train": 32, "dev": 8}
    assert held.data == {"train": "train.jsonl", "dev": "dev.jsonl"}
    assert load(tmp_path / "run" / "config.toml", model=ReaderConfig).design.live == 1
    text = run("memory", "train", reader_config, "-o", "run").stdout
    assert "dev        exact_match" in text
    assert "saved      run; next: encodeonce memory build run FILES..." in text
    other = run("memory", "train", reader_config, "-o", "run", "--set", "train.seed=1", code=1)
    assert "was started differently" in other.stderr


def test_a_search_tries_designs_on_dev_and_trains_the_best(run: Run, reader_config: Path, tmp_path: Path) -> None:
    asked = ["--set", "search.questions=16"]
    few = ["--set", "search.designs=[{live=1},{live=0}]"]
    text = run("memory", "train", reader_config, "--dry-run", *asked, *few).stdout
    assert "search     2 designs, of which this is the first" in text
    tried = ["--set", "search.designs=[{cut=1,blocks=[0]},{live=2},{cut=1,blocks=[1],attention='no_mem2q'}]"]
    done = json.loads(run("memory", "train", reader_config, "-o", "run", *asked, *tried, "--json").stdout)
    trials = done["search"]
    assert [one["design"].get("attention") for one in trials] == [None, None, "no_mem2q"]
    assert (trials[0]["design"]["blocks"], trials[1]["design"]["live"]) == ([0], 2)
    best = max(range(3), key=lambda i: (trials[i]["scores"]["exact_match"], trials[i]["scores"]["f1"], -i))
    assert done["design"] == trials[best]["design"]
    assert done["encode"]["written"] > 0
    held = load_reader(tmp_path / "run")
    assert held.method.design.chosen() == Design(**trials[best]["design"]).chosen()
    assert held.training["search"] == trials
    assert not (tmp_path / "run" / "search").exists(), "checkpoints of trials go"
    few = [*asked, "--set", "search.designs=[{cut=1,blocks=[0]}]"]
    alone = json.loads(run("memory", "train", reader_config, "-o", "alone", *few, "--json").stdout)
    assert alone["search"] == trials[:1], "a trial does not depend on those before it"


def test_a_search_goes_on_where_it_was_stopped(
    run: Run, reader_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["--set", "search.questions=8", "--set", "search.designs=[{cut=1,blocks=[0]},{cut=1,blocks=[1]}]"]
    whole = json.loads(run("memory", "train", reader_config, "-o", "whole", *asked, "--json").stdout)
    done: list[Design] = []

    def once(design: Design, encoder: Any, **options: Any) -> Lumen:
        done.append(design)
        if len(done) == 4:  # both are made before anything is encoded, then each for its trial
            raise RunError("stopped")
        return build(design, encoder, **options)

    build = Lumen.build
    with monkeypatch.context() as patched:
        patched.setattr("encodeonce.cli.reader_training.Lumen.build", once)
        assert "stopped" in run("memory", "train", reader_config, "-o", "run", *asked, code=1).stderr
    assert len(json.loads((tmp_path / "run" / "search.json").read_text("utf-8"))["trials"]) == 1
    again = json.loads(run("memory", "train", reader_config, "-o", "run", *asked, "--json").stdout)
    assert (again["search"], again["scores"]) == (whole["search"], whole["scores"])
    harmless = ["--set", "train.per_device_eval_batch_size=3", "--set", "train.save_steps=7", "--json"]
    assert json.loads(run("memory", "train", reader_config, "-o", "run", *asked, *harmless).stdout)["search"]
    other = run("memory", "train", reader_config, "-o", "run", *asked, "--set", "train.seed=1", code=1)
    assert "search.json is a search with other settings." in other.stderr
    for change, said in (("dtype=fp32", "dtype"), ("compute=bf16", "compute")):
        moved = ["--set", change, "--set", f"store={said}"]
        other = run("memory", "train", reader_config, "-o", "run", *asked, *moved, code=1)
        assert f"search.json is a search with other {said}. Train into another folder" in other.stderr


@pytest.mark.parametrize("content", ['{"designs": [', "{}", "[]", '{"trials": [{"design": {}}]}', '{"trials": [1]}'])
def test_a_damaged_search_is_named(run: Run, reader_config: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "search.json").write_text(content, encoding="utf-8")
    asked = ["--set", "search.questions=8", "--set", "search.designs=[{live=1}]"]
    said = run("memory", "train", reader_config, "-o", "run", *asked, code=1).stderr
    assert "search.json was cut or changed: " in said
    assert "Remove it: the search then begins anew." in said


def writing_once(folder: Path, encoder: Path) -> list[str]:
    """Settings of a reader that writes, trained for an epoch; its decoder may be `folder`'s."""
    shutil.copytree(encoder, folder / "decoder")
    writes = ["reader=generate", "decoder_blocks=1", "longest_answer=4"]
    return ["--set", "train.num_train_epochs=1", *(part for key in writes for part in ("--set", f"design.{key}"))]


def change(decoder: Path) -> None:
    """Other weights under the same names."""
    path = decoder / "model.safetensors"
    save_file({key: one + 1 for key, one in load_file(path).items()}, path)


def test_a_search_is_not_taken_up_with_another_start_or_decoder(
    run: Run, reader_config: Path, tiny: Path, tmp_path: Path
) -> None:
    """Under the same names: what is compared is their weights."""
    once = writing_once(tmp_path, tiny)
    asked = [*once, "--set", "search.questions=4", "--set", "search.designs=[{live=1}]", "--set", "decoder=decoder"]
    run("memory", "train", reader_config, "-o", "source", *once)
    run("memory", "train", reader_config, "-o", "run", *asked, "--set", "start=source")
    run("memory", "train", reader_config, "-o", "other", *once, "--set", "train.seed=1")
    shutil.rmtree(tmp_path / "source")
    (tmp_path / "other").rename(tmp_path / "source")
    said = run("memory", "train", reader_config, "-o", "run", *asked, "--set", "start=source", code=1).stderr
    assert "search.json is a search with other start." in said
    change(tmp_path / "decoder")
    said = run("memory", "train", reader_config, "-o", "run", *asked, "--set", "start=source", code=1).stderr
    assert "search.json is a search with other start, decoder." in said


def test_a_reader_does_not_go_on_with_another_decoder(
    run: Run, reader_config: Path, tiny: Path, tmp_path: Path
) -> None:
    asked = [*writing_once(tmp_path, tiny), "--set", "decoder=decoder"]
    run("memory", "train", reader_config, "-o", "run", *asked)
    run("memory", "train", reader_config, "-o", "run", *asked)
    change(tmp_path / "decoder")
    assert "decoder" in run("memory", "train", reader_config, "-o", "run", *asked, code=1).stderr


def test_a_search_that_cannot_be_says_why(run: Run, reader_config: Path) -> None:
    asked = ["memory", "train", reader_config, "--dry-run", "--set", "search.questions=8"]
    assert "data.dev is not set" in run(*asked, "--set", "data.dev=[]", code=1).stderr
    assert "there is no cut to search for" in run(*asked, "--set", "design.live=2", code=1).stderr
    wrong = run(*asked, "--set", "search.designs=[{blcoks=[1]}]", code=1).stderr
    assert "unknown key 'search.designs.0.blcoks'" in wrong
    assert "blocks" in wrong
    pieces = run(*asked, "--set", "search.designs=[{live=1},{live=1,question_pieces=9}]", code=1).stderr
    assert "need one question_pieces" in pieces


def test_training_starts_from_another_reader(run: Run, reader_config: Path, tmp_path: Path) -> None:
    """With rates too small to move a weight, a started reader stays what its start was; an unstarted one is not it."""
    still = ["--set", "train.learning_rate=1e-12", "--set", "train.encoder_learning_rate=1e-12"]
    run("memory", "train", reader_config, "-o", "source")
    source = load_reader(tmp_path / "source").method.state_dict()
    started = ["memory", "train", reader_config, "-o", "started", *still, "--set", f"start={tmp_path}/source"]
    run(*started)
    run("memory", "train", reader_config, "-o", "afresh", *still)
    found = {name: load_reader(tmp_path / name) for name in ("started", "afresh")}
    far = {
        name: max(float((own - source[key]).abs().max()) for key, own in held.method.state_dict().items())
        for name, held in found.items()
    }
    assert far["started"] < 1e-6
    assert far["afresh"] > 1e-2
    assert (found["started"].training["start"], found["afresh"].training["start"]) == ("source", None)
    (tmp_path / "started" / "config.json").unlink()
    other = run(*started[:-2], code=1).stderr
    assert "was started differently" in other
    unlike = run(*started, "--set", "design.live=2", code=1).stderr
    assert "cut: 1 there, 0 here; blocks: [1] there, [0, 1] here" in unlike
    assert "is no saved run" in run(*started[:-1], f"start={tmp_path}", "--dry-run", code=1).stderr
    assert "this memory was not trained" in run("memory", "export", "source", "-o", "no", code=1).stderr


def test_a_start_that_does_not_fit_is_refused_before_anything_is_loaded(
    run: Run, reader_config: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Width, tokenizer, form and parts, by config.json alone; other weights are fine."""
    import transformers

    run("memory", "train", reader_config, "-o", "source", "--set", "train.num_train_epochs=1")
    sizes = transformers.BertConfig.from_pretrained(tiny)
    for name, changes in (("wide", {"hidden_size": 2 * sizes.hidden_size}), ("alike", {}), ("words", {})):
        shutil.copytree(tiny, tmp_path / name)
        changed = transformers.BertConfig.from_pretrained(tiny, **changes)
        transformers.BertModel(changed).save_pretrained(tmp_path / name)
    table = tmp_path / "words" / "tokenizer.json"
    table.write_text(table.read_text("utf-8").replace('"cat"', '"tac"'), encoding="utf-8")
    dry = ["memory", "train", reader_config, "--dry-run", "--set", "start=source", "--set", "store=none"]
    loaded: list[object] = []
    monkeypatch.setattr("encodeonce.cli.reader_training.load_reader", loaded.append)
    run(*dry, "--set", f"encoder={tmp_path}/alike")
    for change, said in (
        (
            f"encoder={tmp_path}/wide",
            f"width: {sizes.hidden_size} there, {2 * sizes.hidden_size} here. Only its weights",
        ),
        (f"encoder={tmp_path}/words", "source is of an encoder of another kind: tokenizer: "),
        ("form=fid", "of other parts: form: 'plain' there, 'fid' here. Make them alike"),
        ("design.reader=generate", "reader: 'span' there, 'generate' here"),
        ("design.live=2", "cut: 1 there, 0 here"),
    ):
        assert said in run(*dry, "--set", change, code=1).stderr
    assert not loaded


def test_a_trained_memory_encodes_the_passages_of_another_reader(run: Run, reader_config: Path, tmp_path: Path) -> None:
    run("memory", "train", reader_config, "-o", "source", "--set", "design.memory=finetuned")
    said = run("memory", "export", "source", "-o", "trained").stdout
    assert 'encoder = "trained" and start = "source"' in said
    assert "is not empty" in run("memory", "export", "source", "-o", "trained", code=1).stderr
    changes = ["--set", f"encoder={tmp_path}/trained", "--set", f"start={tmp_path}/source", "--set", "store=again"]
    done = json.loads(run("memory", "train", reader_config, "-o", "run", *changes, "--json").stdout)
    assert done["encode"]["written"] > 0, "by the trained encoder, which no store knows"
    name = "encoder.layer.0.output.dense.weight"
    trained = load_reader(tmp_path / "source").method.parts["memory"].named_weights()[name]
    own = load_reader(tmp_path / "run").encoder.stack().model.state_dict()[name]
    assert torch.equal(own, trained)


def test_cuts_near_the_papers() -> None:
    """With six blocks of which two are live: the paper's cut is first, and those of the first trials are among them."""
    found = nearby_cuts(6, 2)
    assert found[0] == (4, (4, 5))
    assert {(4, (2, 3)), (4, (3, 4)), (3, (3, 4))} <= set(found)
    assert nearby_cuts(2, 1) == [(1, (1,)), (1, (0,))]
    assert all(0 <= min(blocks) <= max(blocks) < 12 for _, blocks in nearby_cuts(12, 11))


def test_passages_that_questions_name_by_id_may_stand_in_those_of_the_config(
    run: Run, reader_config: Path, tmp_path: Path
) -> None:
    (tmp_path / "passages.jsonl").rename(tmp_path / "others.jsonl")
    asked = ["memory", "train", reader_config, "--dry-run", "--json"]
    assert "names passages by id, and there is neither" in run(*asked, code=1).stderr
    planned = json.loads(run(*asked, "--set", "data.passages=others.jsonl", "--set", "data.k=0").stdout)
    assert (planned["questions"], planned["passages"], planned["per_question"]) == ({"train": 32, "dev": 8}, 14, 1)
    (tmp_path / "notes.json").write_text(
        json.dumps({"n1": {"title": "T", "text": "the cat sees"}, "n2": {"text": "a dog"}, "n3": {"text": " "}}),
        "utf-8",
    )
    one = {
        "QUESTION_ID": "q", "QUESTION_TEXT": "who sees?", "DOC_IDS": ["n2", "n1", "n3"], "ANSWERABLE": "Y",
        "DOCUMENT": "n1", "START_OFFSET": 4, "END_OFFSET": 7,
    }  # fmt: skip
    (tmp_path / "techqa.json").write_text(json.dumps([one]), "utf-8")
    asked += ["--set", "data.train=techqa.json", "--set", "data.dev=[]", "--set", "data.k=0"]
    planned = json.loads(run(*asked, "--set", "data.passages=notes.json").stdout)
    assert (planned["questions"], planned["passages"]) == ({"train": 1}, 2)
    said = run(*asked, "--set", "data.passages=['notes.json','others.jsonl']", code=1).stderr
    assert "techqa.json is of the form 'techqa', whose passages are one file, and data.passages names 2" in said
    assert "Give their file as passages" in run(*asked, code=1).stderr


def test_a_dry_run_says_what_would_be_done(run: Run, reader_config: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    found = json.loads(run("memory", "train", reader_config, "--dry-run", "--json").stdout)
    assert (found["cut"], found["live"], found["steps"]) == (1, [1], 8)
    assert found["questions"] == {"train": 32, "dev": 8}
    assert found["per_question"] == 2
    assert found["store"]["rows"] == found["store"]["missing"] * 9, "seven words and two special pieces each"
    text = run("memory", "train", reader_config, "--dry-run", "--set", "design.live=2").stdout
    assert "cut after 0, 2 live, copies of 0, 1" in text
    assert "to store   0 rows of 0 passages" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_whole_run_answers_where_its_encoder_was_never_installed(
    run: Run, reader_config: Path, tiny: Path, tmp_path: Path
) -> None:
    here = Path(shutil.copytree(tiny, tmp_path / "models" / "mine"))
    named = ["--set", f'encoder="{here}"']
    run("memory", "train", reader_config, "-o", "whole", *named, "--whole")
    run("memory", "train", reader_config, "-o", "bare", *named)
    asked = ["a cat sees", "-k", "3", "--json"]
    found = {}
    for name in ("whole", "bare"):
        run("memory", "build", name, tmp_path / "passages.jsonl")
        found[name] = json.loads(run("ask", name, *asked).stdout)
        assert "over mine" in (tmp_path / name / "README.md").read_text("utf-8")
        assert str(tmp_path) not in (tmp_path / name / "README.md").read_text("utf-8")
    assert found["whole"] == found["bare"]
    there = tmp_path / "elsewhere"
    there.mkdir()
    for name in found:
        (tmp_path / name).rename(there / name)
    here.rename(tmp_path / "gone")
    assert json.loads(run("ask", there / "whole", *asked).stdout) == found["whole"]
    (tmp_path / "more.tsv").write_text("id\ttext\ttitle\nx\ta bird\tB\n", encoding="utf-8")
    assert "1 new" in run("memory", "add", there / "whole" / "memory", tmp_path / "more.tsv").stdout
    missing = run("ask", there / "bare", *asked, code=1).stderr
    assert "bare needs mine, weights " in missing
    assert f"or copy it to {there / 'bare' / 'encoder'}" in missing
    assert json.loads(run("ask", there / "bare", *asked, "--encoder", tmp_path / "gone").stdout) == found["bare"]
    shutil.copytree(tmp_path / "gone", there / "bare" / "encoder")
    assert json.loads(run("ask", there / "bare", *asked).stdout) == found["bare"]


@pytest.fixture(scope="module")
def paper() -> Any:
    found = importlib.util.spec_from_file_location("paper", EXPERIMENT / "paper.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("size", ["base", "large", "xl", "xxl", "base 24-12"])
def test_the_papers_sizes_are_planned_without_weights(paper: Any, size: str, tmp_path: Path) -> None:
    sizes = paper.SIZES[size]
    for live in paper.SHARES[sizes["num_layers"]]:
        plan = paper.checked(sizes, live, tmp_path)
        assert (plan.cut, len(plan.live), plan.reader) == (sizes["num_layers"] - live, live, "generate")
        assert (plan.per_question, plan.passages, plan.steps) == (20, 40, 12)
        assert plan.store.lacks == ("weights", "vocabulary")
        assert plan.store.missing == (40 if plan.cut else 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["questions.json", "t5"]


def test_the_papers_config_is_read_by_the_command(run: Run, paper: Any, tmp_path: Path) -> None:
    paper.checked(paper.SIZES["base"], 4, tmp_path)
    changes = [f"encoder={tmp_path / 't5'}", *(f"data.{one}={tmp_path}/questions.json" for one in ("train", "dev"))]
    assert paper.parameters(paper.SIZES["base"]) == 247_577_856, "of the public checkpoint"
    settings = [part for change in [*changes, "data.test=[]"] for part in ("--set", change)]
    text = run("memory", "train", EXPERIMENT / "t5.toml", "--dry-run", *settings).stdout
    assert "12 blocks, cut after 8, 4 live, copies of 8, 9, 10, 11; generate reader" in text
    assert "lacking    the encoder has no weights and no vocabulary" in text


def test_errors_say_what_to_do(run: Run, reader_config: Path) -> None:
    assert "Missing option '--output'" in run("memory", "train", reader_config, code=2).stderr
    assert (
        "data.train is not set"
        in run("memory", "train", reader_config, "--dry-run", "--set", "data.train=[]", code=1).stderr
    )
    unknown = run("memory", "train", reader_config, "--dry-run", "--set", "design.blcoks=[1]", code=1).stderr
    assert "blocks" in unknown


def answered(path: Path, *answers: str | None) -> list[str]:
    """The questions of `path` with these answers in turn (None: without any, "": nothing is the answer), as --set."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for number, row in enumerate(rows):
        del row["answers"], row["answer_starts"]
        if (answer := answers[number % len(answers)]) is not None:
            row["answers"] = [answer]
    changed = path.with_name(f"bare-{path.name}")
    changed.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return ["--set", f"data.{path.stem}={changed.name}"]


def test_questions_without_answers_are_never_passed_over_silently(run: Run, reader_config: Path) -> None:
    folder = reader_config.parent
    for split in ("train", "dev"):
        bare = answered(folder / f"{split}.jsonl", None)
        for how in (["-o", "run"], ["--dry-run"]):
            said = run("memory", "train", reader_config, *how, *bare, code=1).stderr
            assert f"bare-{split}.jsonl: none of the" in said
            assert f"questions of data.{split} has an answer" in said
    assert not (folder / "states").exists(), "before anything is encoded"
    nothing = answered(folder / "train.jsonl", None, "", "cat")
    said = run("memory", "train", reader_config, "--dry-run", *nothing).stderr
    assert "11 of 32 questions of data.train have no answer and are not learned from, the first " in said
    assert "bare-train.jsonl:1" in said


def test_what_cannot_be_built_is_said_before_anything_is_encoded(run: Run, reader_config: Path) -> None:
    run("memory", "train", reader_config, "-o", "run", "--set", "train.num_train_epochs=1", "--set", "store=other")
    writes = ["--set", "design.reader=generate"]
    for settings, said in (
        ([*writes, "--set", "design.longest_answer=500"], "longest_answer=500 are more pieces than the decoder"),
        ([*writes, "--set", "decoder=/nope"], "/nope: no such folder"),
        ([*writes, "--set", "start=run"], "reader: 'span' there, 'generate' here"),
        (["--set", "data.passages=[]", "--set", "data.k=0", "--set", "data.train=bare.jsonl"], "no question has a"),
        (["--set", "data.train=bare.jsonl", "--set", "data.dev=[]"], "bare.jsonl:1: neither the questions bring"),
    ):
        bare = reader_config.with_name("bare.jsonl")
        bare.write_text('{"question": "who?", "answers": ["cat"]}\n', encoding="utf-8")
        assert said in run("memory", "train", reader_config, "-o", "new", *settings, code=1).stderr
        assert not reader_config.with_name("states").exists()


def test_settings_that_would_do_nothing_or_fail_late_are_refused_by_a_dry_run(
    run: Run, reader_config: Path, tiny: Path
) -> None:
    for settings, said in (
        ([f"decoder={tiny}"], "a reader that points at spans has none. Set design.reader = generate"),
        (["design.n_beams=2"], "n_beams are of a reader that writes"),
        (["train.per_device_train_batch_pieces=100"], "unknown key 'train.per_device_train_batch_pieces'"),
        (["train.inside_learning_rate=1e-3"], "unknown key 'train.inside_learning_rate'"),
        (["train.early_stopping_patience=2", "data.dev=[]"], "train.early_stopping_patience = 2 counts epochs"),
        (["search.designs=[{live=1},{live=0}]"], "search.designs names 2 designs, and search.questions = 0 tries none"),
    ):
        changes = [part for change in settings for part in ("--set", change)]
        assert said in run("memory", "train", reader_config, "--dry-run", *changes, code=1).stderr


def test_a_dry_run_of_a_reader_that_stores_nothing_asks_no_store(run: Run, reader_config: Path) -> None:
    settings = ["--set", "train.num_train_epochs=1"]
    run("memory", "train", reader_config, "-o", "run", *settings)
    text = run("memory", "train", reader_config, "--dry-run", *settings, "--set", "design.live=2").stdout
    assert "to store   0 rows of 0 passages, 0 bytes" in text


def test_the_table_of_the_design_has_every_setting_of_the_design() -> None:
    assert set(DesignSection.model_fields) == set(Design().to_json())


def test_fusion_in_decoder_is_planned_for_with_the_reader_s_window(
    run: Run, reader_config: Path, tmp_path: Path
) -> None:
    run("memory", "train", reader_config, "-o", "run")
    held = load_reader(tmp_path / "run")
    held.encoder.window, held.encoder.overlap = 12, 3
    fid = _fusion(held)
    assert (fid.encoder.window, fid.encoder.overlap) == (12, 3)
    assert fid.method.plan.blocks == (0, 1)


def test_the_example_of_the_documentation(run: Run, minilm: Path, tmp_path: Path) -> None:
    recipes = Path(__file__).parents[2] / "recipes"
    subprocess.run([sys.executable, recipes / "workshop.py", tmp_path / "workshop"], check=True)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "reader.toml").write_bytes((recipes / "reader.toml").read_bytes())
    found = json.loads(run("memory", "train", "recipes/reader.toml", "--dry-run", "--json").stdout)
    assert found["questions"] == {"train": 360, "dev": 60}
    assert 1.4 < found["per_question"] <= 2, "its own, and another where one shares a word with the question"
    assert (found["cut"], found["live"], found["store"]["missing"]) == (4, [2, 3], 70)
    manual = {passage.text for passage in read_passages(tmp_path / "workshop" / "manual")}
    assert manual == {passage.text for passage in read_passages(tmp_path / "workshop" / "passages.jsonl")}
    answered = read_questions(tmp_path / "workshop" / "new.jsonl")
    assert all(any(answer.text in text for text in manual) for one in answered for answer in one.answers)


def test_a_reader_that_writes_is_trained_resumed_and_loaded(run: Run, reader_config: Path, tmp_path: Path) -> None:
    design = ("reader=generate", "decoder_blocks=1", "longest_answer=4")
    options = [part for key in design for part in ("--set", f"design.{key}")]
    options += ["--set", "data.k=0"]  # dev as its file has it
    first = json.loads(run("memory", "train", reader_config, "-o", "run", "--json", *options).stdout)
    (tmp_path / "run" / "config.json").unlink()
    again = json.loads(run("memory", "train", reader_config, "-o", "run", "--json", *options).stdout)
    assert (again["scores"], again["seconds"]) == (first["scores"], first["seconds"])
    held = load_reader(tmp_path / "run")
    assert held.method.design.reader == "generate"
    asked = held.method.read(read_questions(tmp_path / "dev.jsonl"), held.encoder, Store.open("states", held.spec))
    scores = evaluate(held.method, asked, {"answer": AnswerScorer()}).scores["answer"]
    assert scores["f1"] == first["scores"]["dev"]["f1"]
