"""`train`, and what a run answers: `evaluate`, `predict`, `inspect`."""

import json
import logging
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from seqeval.metrics import f1_score as seqeval_f1

from encodeonce.cli.config import load
from encodeonce.cli.learning import fraction
from encodeonce.cli.main import cli
from encodeonce.cli.predict import _with_feature
from encodeonce.corpus import read
from encodeonce.serve.bundle import load as load_run
from encodeonce.store.claim import Claim
from encodeonce.train.checkpoint import Checkpoint
from encodeonce.types import Document

from .conftest import Run


@pytest.fixture(scope="module")
def trained(tiny: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with config.toml, states/ and run/ (upos and deprel, linear)."""
    folder = tmp_path_factory.mktemp("trained")
    files = "".join(f'{split} = "{corpus / split}.conllu"\n' for split in ("train", "dev", "test"))
    (folder / "config.toml").write_text(
        f'encoder = "{tiny}"\ntasks = ["upos", "deprel"]\nmethod = "linear"\n[data]\n{files}'
        "[train]\nnum_train_epochs = 6\nper_device_train_batch_size = 8\nlearning_rate = 0.05\n"
    )
    done = CliRunner().invoke(cli, ["train", str(folder / "config.toml"), "-o", str(folder / "run"), "--json"])
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    (folder / "train.json").write_text(done.stdout)
    return folder


def test_train_saves_a_run_and_says_what_it_did(trained: Path, tiny: Path) -> None:
    said = json.loads((trained / "train.json").read_text())
    assert said["scores"]["test"]["upos"]["accuracy"] > 80
    assert said["encode"]["written"] > 0
    run = load_run(trained / "run")
    assert [task.name for task in run.tasks] == ["upos", "deprel"]
    assert run.training["best"] == said["best"]
    assert run.data == {"train": "train.conllu", "dev": "dev.conllu", "test": "test.conllu"}
    assert run.command.startswith("encodeonce")
    resolved = load(trained / "run" / "config.toml")
    assert (Path(resolved.store).resolve(), resolved.train.num_train_epochs) == ((trained / "states").resolve(), 6)
    assert Path(resolved.encoder).resolve() == tiny.resolve()


def test_training_again_hits_everything_and_keeps_the_scores(run: Run, trained: Path) -> None:
    again = json.loads(run("train", trained / "config.toml", "-o", trained / "run", "--json").stdout)
    before = json.loads((trained / "train.json").read_text())
    assert again["scores"] == before["scores"]
    assert again["encode"]["written"] == 0
    assert again["encode"]["encoder_loaded"] is False


def test_train_prints_a_table_and_the_hits(run: Run, config: Path, tmp_path: Path) -> None:
    text = run(
        "train", config, "-o", tmp_path / "run", "--set", "train.num_train_epochs=1", "--set", "method=frozen"
    ).stdout
    assert "upos" in text
    assert "accuracy" in text
    assert "0 of" in text
    assert f"saved: {tmp_path / 'run'}" in text


def test_a_run_of_other_settings_is_not_continued(run: Run, trained: Path) -> None:
    wrong = run("train", trained / "config.toml", "-o", trained / "run", "--set", "train.seed=7", code=1)
    assert "started differently" in wrong.stderr


def test_a_run_is_not_continued_with_its_tasks_in_another_order(
    run: Run, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the optimiser keeps of a parameter is known by its number: another task's would be taken for it."""
    real = Checkpoint.save

    def stopped(checkpoint: Checkpoint, folder: Path) -> None:
        real(checkpoint, folder)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", stopped)
        run("train", config, "-o", "run", "--set", 'tasks=["upos", "xpos"]', code=1)
    refused = run("train", config, "-o", "run", "--set", 'tasks=["xpos", "upos"]', code=1).stderr
    assert "order: ['upos', 'xpos'] then, ['xpos', 'upos'] now" in refused
    run("train", config, "-o", "run", "--set", 'tasks=["upos", "xpos"]')


@pytest.mark.parametrize("shared", ["true", "false"])
def test_a_task_may_have_any_name(run: Run, tiny: Path, tmp_path: Path, shared: str) -> None:
    """Names that a module's parts cannot have, and one that begins another."""
    names = ("type", "a.b", "a", "a/b")
    rows = [{"text": text, **dict.fromkeys(names, text[:3])} for text in ("the cat", "a dog", "the tree", "a bird")]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tables = "".join(f'[task."{name}"]\nkind = "classification"\ncolumn = "{name}"\n' for name in names)
    (tmp_path / "names.toml").write_text(
        f'encoder = "{tiny}"\ntasks = {json.dumps(names)}\nmethod = "live_mix"\n[data]\ntrain = "train.jsonl"\n'
        f"{tables}[finetune]\nshared = {shared}\nlive = 1\n[train]\nnum_train_epochs = 1\n"
    )
    run("train", "names.toml", "-o", "run")
    rows = json.loads(run("evaluate", "run", "train.jsonl", "--json").stdout)
    assert {row["task"] for row in rows} == set(names)


def test_a_run_whose_training_has_not_ended_says_so(run: Run, trained: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(trained / "run", tmp_path / "run")
    (copied / "config.json").unlink()
    said = run("evaluate", copied, trained / "config.toml", code=1).stderr
    assert f"config.json is missing: the training in {copied} has not ended. Give its command again" in said


def test_a_moved_encoder_goes_on_and_another_is_named(run: Run, trained: Path, tiny: Path, tmp_path: Path) -> None:
    copied, own = shutil.copytree(trained / "run", tmp_path / "run"), shutil.copytree(tiny, tmp_path / "encoder")
    command = ("train", trained / "config.toml", "-o", copied, "--set", f"encoder={own}", "--json")
    again = json.loads(run(*command).stdout)
    assert again["scores"] == json.loads((trained / "train.json").read_text())["scores"]
    weights = load_file(own / "model.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: weights[name] + 1}, own / "model.safetensors", {"format": "pt"})
    other = run(*command, "--set", f"store={tmp_path / 'states'}", code=1).stderr
    assert "differently, so going on would mix two runs: train.store.weights: '" in other
    assert "train.store.tokenizer" not in other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("method=lineer", "Did you mean 'linear'?"),
        ("tasks=[]", "tasks is not set"),
        ("tasks=upoz", "Did you mean 'upos'?"),
        ("task.ner.piece=last", "'ner' is not one of tasks"),
        ("train.learning_rate=-1", "greater than 0"),
        ("task.upos.name=x", "task 'upos' has no setting 'name'"),
    ],
)
def test_wrong_settings_are_refused(run: Run, config: Path, tmp_path: Path, change: str, message: str) -> None:
    assert message in run("train", config, "-o", tmp_path / "run", "--set", change, code=1).stderr


def test_a_run_never_overwrites_an_encoder_or_a_config(run: Run, config: Path, tiny: Path, tmp_path: Path) -> None:
    encoder = shutil.copytree(tiny, tmp_path / "encoder")
    before = {path: path.read_bytes() for path in [config, *encoder.iterdir()]}
    refused = run("train", config, "-o", encoder, "--set", f'encoder="{encoder}"', code=1)
    assert "config.json is not the config of a saved run" in refused.stderr
    assert "Choose another folder" in refused.stderr
    refused = run("train", config, "-o", tmp_path, code=1)
    assert "is no saved run and holds config.toml, which would be overwritten" in refused.stderr
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "states").exists()


def test_evaluate_gives_what_training_measured(run: Run, trained: Path, corpus: Path) -> None:
    rows = json.loads(run("evaluate", trained / "run", corpus / "test.conllu", "--json").stdout)
    measured = json.loads((trained / "train.json").read_text())["scores"]["test"]
    assert {row["task"]: row["value"] for row in rows if row["metric"] == "accuracy"} == {
        name: scores["accuracy"] for name, scores in measured.items()
    }
    assert {row["encoder"] for row in rows} == {load_run(trained / "run").spec.encoder.rpartition("/")[2]}
    assert all(row["n"] == measured[row["task"]]["n"] for row in rows)
    assert "from the store" in run("evaluate", trained / "run", corpus / "test.conllu").stderr


def test_evaluate_lists_labels_that_training_never_saw(run: Run, trained: Path, corpus: Path, tmp_path: Path) -> None:
    text = (corpus / "test.conllu").read_text()
    (tmp_path / "other.conllu").write_text(text.replace("\tADV\t", "\tPART\t"))
    said = run("evaluate", trained / "run", "other.conllu").stderr
    assert said.count("never saw") == 1
    unseen = f"labels of test that training never saw, so never predicted: 'PART' ({text.count('ADV')})"
    assert f"task upos: {unseen}" in said


def test_predictions_fill_the_columns_and_nothing_else(run: Run, trained: Path, corpus: Path, tmp_path: Path) -> None:
    run("predict", trained / "run", corpus / "test.conllu", "-o", "out.conllu")
    before = [line.split("\t") for line in (corpus / "test.conllu").read_text().splitlines()]
    after = [line.split("\t") for line in (tmp_path / "out.conllu").read_text().splitlines()]
    untouched = [0, 1, 2, 4, 5, 6, 8, 9]
    for old, new in zip(before, after, strict=True):
        assert len(old) == len(new)
        if len(old) == 10:
            assert [old[i] for i in untouched] == [new[i] for i in untouched]
    documents = read(tmp_path / "out.conllu")
    gold = read(corpus / "test.conllu")
    words = [
        (g, p)
        for a, b in zip(gold, documents, strict=True)
        for g, p in zip(a.columns["upos"], b.columns["upos"], strict=True)
    ]
    rows = json.loads(run("evaluate", trained / "run", corpus / "test.conllu", "--json").stdout)
    assert 100 * sum(g == p for g, p in words) / len(words) == pytest.approx(rows[0]["value"])
    assert run("predict", trained / "run", corpus / "test.conllu").stdout == (tmp_path / "out.conllu").read_text()


def test_columns_and_new_text_are_encoded_live(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.conll").write_text("x every\nx bird\nx paints\nx a\nx house\nx .\n\n")
    done = run("predict", trained / "run", "new.conll", "--columns", "form=1", "-o", "out.conll")
    assert "1 encoded" in done.stderr
    lines = (tmp_path / "out.conll").read_text().splitlines()
    assert [line.split()[:2] for line in lines[:6]] == [
        ["x", w] for w in ("every", "bird", "paints", "a", "house", ".")
    ]
    assert all(len(line.split()) == 4 for line in lines[:6])


def test_a_wrong_encoder_is_refused(run: Run, trained: Path, corpus: Path, minilm: Path) -> None:
    wrong = run("evaluate", trained / "run", corpus / "test.conllu", "--encoder", minilm, code=1)
    assert "weights" in wrong.stderr


def test_inspect_is_the_mean_of_each_labels_words(run: Run, trained: Path, corpus: Path) -> None:
    panels = json.loads(run("inspect", trained / "run", corpus / "test.conllu", "--json").stdout)
    assert [panel["task"] for panel in panels] == ["upos", "deprel"]
    gold = [tag for document in read(corpus / "test.conllu") for tag in document.columns["upos"]]
    alpha = load_run(trained / "run").method.part("upos").adapter.state_dict()["alpha"].double().softmax(0).numpy()
    for label in panels[0]["labels"]:
        assert label["words"] == gold.count(label["label"])
        np.testing.assert_allclose(label["weights"], alpha, atol=1e-5)  # linear reads every word alike


def test_inspect_draws_and_encodes_new_text_for_the_moment(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.conllu").write_text(
        "1\tevery\t_\tDET\t_\t_\t0\tdet\t_\t_\n2\ttree\t_\tNOUN\t_\t_\t0\tobj\t_\t_\n\n"
    )
    before = sorted(file.name for file in (trained / "states").iterdir())
    done = run("inspect", trained / "run", "new.conllu", "-o", "heat.png", "--by", "predicted", "--task", "upos")
    assert "upos" in done.stdout
    assert "deprel" not in done.stdout
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in (trained / "states").iterdir()) == before
    refused = run("inspect", trained / "run", "new.conllu", "-o", "heat.doc", code=1)
    assert "heat.doc: a picture ends in one of" in refused.stderr
    assert not refused.stdout  # before the work, not after it


def test_a_fraction_is_exact_nested_and_made_by_content() -> None:
    documents = [Document(id=str(i), words=(f"w{i}",)) for i in range(50)]
    small, large = fraction(documents, 0.1), fraction(documents, 0.5)
    assert (len(small), len(large), len(fraction(documents, 0.001))) == (5, 25, 1)
    assert {d.id for d in small} <= {d.id for d in large}
    assert [d.id for d in large] == sorted((d.id for d in large), key=int)
    assert {d.id for d in fraction(documents[::-1], 0.1)} == {d.id for d in small}
    assert fraction(documents, 1.0) == documents


def test_running_text_comes_out_as_columns(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("Every bird paints a house. A cat sees the tree.\n")
    lines = run("predict", trained / "run", "new.txt").stdout.splitlines()
    rows = [line.split("\t") for line in lines if line]
    assert " ".join(row[0] for row in rows) == "Every bird paints a house . A cat sees the tree ."
    assert all(len(row) == 3 and all(row) for row in rows)
    assert lines[6] == ""


def test_running_text_comes_out_as_conllu_or_json_lines_where_asked(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("Every bird paints a house. A cat sees the tree.\n")
    plain = [line.split("\t") for line in run("predict", trained / "run", "new.txt").stdout.splitlines() if line]
    run("predict", trained / "run", "new.txt", "-o", "new.conllu")
    run("predict", trained / "run", "new.txt", "-o", "new.jsonl.gz")
    for name in ("new.conllu", "new.jsonl.gz"):
        found = read(tmp_path / name)
        told = zip(*([cell for d in found for cell in d.columns[c]] for c in ("upos", "deprel")), strict=True)
        words = [word for document in found for word in document.words]
        assert [[word, *labels] for word, labels in zip(words, told, strict=True)] == plain
    lines = (tmp_path / "new.conllu").read_text().splitlines()
    assert lines[1] == "# text = Every bird paints a house."
    assert [line.split("\t")[9] for line in lines[2:8]] == ["_", "_", "_", "_", "SpaceAfter=No", "_"]


@pytest.mark.parametrize("ending", [".jsonl", ".tsv", ".csv.gz", ".txt"])
def test_predictions_are_not_written_under_the_ending_of_another_format(
    run: Run, trained: Path, corpus: Path, tmp_path: Path, ending: str
) -> None:
    refused = run("predict", trained / "run", corpus / "test.conllu", "-o", f"out{ending}", code=1)
    assert f"{ending.removesuffix('.gz')} is the ending of" in refused.stderr
    assert "format, conllu. Let it end in .conllu." in refused.stderr
    assert not (tmp_path / f"out{ending}").exists()


def test_words_cut_out_of_a_text_never_take_its_place(run: Run, trained: Path, tmp_path: Path) -> None:
    files = {
        "new.txt": "Every bird paints a house.\n",
        "new.jsonl": '{"text": "A cat sees the tree.", "more": 1}\n',
        "new.csv": "text,more\nA cat sees the tree.,1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        refused = run("predict", trained / "run", name, "-o", name, code=1).stderr
        assert (
            "is the ending of csv" if name == "new.csv" else "is the text that is read, which would be lost"
        ) in refused
        assert (tmp_path / name).read_text() == text
    other = run("predict", trained / "run", "new.csv", "-o", "out.csv", code=1).stderr
    assert "columns: words, cut out of new.csv. Let it end in .conll" in other


def test_a_store_that_is_not_there_is_named_and_not_made(run: Run, trained: Path, corpus: Path, tmp_path: Path) -> None:
    for command in ("evaluate", "predict", "inspect"):
        said = run(command, trained / "run", corpus / "test.conllu", "--store", "sates", code=1).stderr
        assert "There is no store at sates." in said
    assert not (tmp_path / "sates").exists()


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_read(
    run: Run, trained: Path, corpus: Path
) -> None:
    refused = run("inspect", trained / "run", corpus / "test.conllu", "-o", "heat.xyz", code=1)
    assert "heat.xyz: a picture ends in one of" in refused.stderr
    assert refused.stdout == ""


def test_a_saved_data_set_comes_out_as_a_folder_that_is_named(run: Run, trained: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"words": [["the", "cat"], ["a", "."]], "odd": [{"a": 1}, None]}).save_to_disk("given")
    refused = run("predict", trained / "run", "given", code=1)
    assert "name a folder with --output" in refused.stderr
    refused = run("predict", trained / "run", "given", "-o", "out.jsonl", code=1)
    assert "Let it end in nothing: it is a folder." in refused.stderr
    run("predict", trained / "run", "given", "-o", "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given", "out"]
    found = datasets.load_from_disk("out")
    assert found["odd"] == [{"a": 1}, None]
    assert [len(labels) for labels in found["upos"]] == [2, 2]


def test_options_of_a_reader_are_given_to_every_command(run: Run, trained: Path, tiny: Path, tmp_path: Path) -> None:
    text = "# sent 1\nthe DET\ncat NOUN\n\n# sent 2\na DET\nbird NOUN\n"
    (tmp_path / "c.conll").write_text(text)
    named = ("c.conll", "--columns", "form=0,upos=1")
    for command in (
        ("predict", trained / "run", *named),
        ("debug-data", *named),
        ("encode", *named, "-e", tiny, "-o", "s"),
    ):
        assert "(--read comments=true)" in run(*command, code=1).stderr
    read_ = ("--read", "comments=true")
    out = run("predict", trained / "run", *named, *read_).stdout.splitlines()
    assert [line.split()[0] for line in out if line] == ["#", "the", "cat", "#", "a", "bird"]
    assert (out[0], out[4]) == ("# sent 1", "# sent 2")
    assert "c: 2 documents, 4 words" in run("debug-data", *named, *read_).stdout
    rows = json.loads(run("inspect", trained / "run", *named, "--task", "upos", *read_, "--json").stdout)
    assert {label["label"]: label["words"] for label in rows[0]["labels"]} == {"DET": 2, "NOUN": 2}
    (tmp_path / "c.toml").write_text(
        f'encoder = "{tiny}"\nstore = "s"\n[data]\ntrain = "c.conll"\noptions = {{ comments = true }}\n'
    )
    assert json.loads(run("encode", "c.toml", "--json").stdout)["written"] == 2
    wrong = run("debug-data", *named, "--read", "coments=true", code=1).stderr
    assert "format 'columns' has no such option. It has: separator, comments. Did you mean 'comments'?" in wrong
    assert "takes a bool there" in run("debug-data", *named, "--read", "comments=yes", code=1).stderr
    assert "write it as comments=true" in run("debug-data", *named, "--read", "comments", code=2).stderr


def test_a_file_like_the_runs_own_is_read_as_that_was(run: Run, tiny: Path, corpus: Path, tmp_path: Path) -> None:
    """Three cells a row, the word in the second: taken as it comes, the first would be the word."""

    def table(name: str, comment: str, *cells: str) -> str:
        split = read(corpus / f"{name}.conllu")
        rows = ["\n".join("\t".join(r) for r in zip(*(d.columns[c] for c in cells), strict=True)) for d in split]
        return "\n\n".join(f"{comment}{block}" for block in rows) + "\n"

    for name in ("train", "test"):
        (tmp_path / f"{name}.cols").write_text(table(name, "# a sentence\n", "xpos", "form", "upos"))
    (tmp_path / "config.toml").write_text(
        f'encoder = "{tiny}"\ntasks = ["tag"]\nmethod = "linear"\n[data]\ntrain = "train.cols"\ntest = "test.cols"\n'
        'format = "columns"\ncolumns = { form = 1, tag = 2 }\noptions = { comments = true }\n'
        "[train]\nnum_train_epochs = 3\nper_device_train_batch_size = 8\nlearning_rate = 0.05\n"
    )
    trained = json.loads(run("train", "config.toml", "-o", "run", "--json").stdout)["scores"]["test"]["tag"]
    said = run("evaluate", "run", "test.cols", "--json")
    assert {row["metric"]: row["value"] for row in json.loads(said.stdout)}["accuracy"] == trained["accuracy"]
    how = "--format columns --columns form=1,tag=2 --read comments=true"
    assert f"test.cols is read as the run's own data were, with {how}" in said.stderr
    given = ("-f", "columns", "--columns", "form=1,tag=2", "--read", "comments=true")
    for command in ("predict", "inspect"):
        assert run(command, "run", "test.cols").stdout == run(command, "run", "test.cols", *given).stdout
    (tmp_path / "bare.cols").write_text(table("test", "", "xpos", "form"))
    bare = run("predict", "run", "bare.cols")
    assert bare.stdout == run("predict", "run", "bare.cols", *given[:2], "--columns", "form=1").stdout
    assert "has not all columns of the run's own data, and is read with --format columns --columns form" in bare.stderr
    (tmp_path / "new.txt").write_text("the cat sees a dog .\n")
    assert [line.split("\t")[0] for line in run("predict", "run", "new.txt").stdout.split("\n")[:3]] == [
        "the",
        "cat",
        "sees",
    ]
    (tmp_path / "run" / "config.toml").unlink()  # a run that Python saved has none
    assert "says no format" in run("evaluate", "run", "test.cols", code=1).stderr


def test_two_do_not_train_one_run(run: Run, config: Path, tmp_path: Path) -> None:
    """Each would delete the other's checkpoints, and the log would have the lines of both."""
    (tmp_path / "run").mkdir()
    claim = Claim.take(tmp_path / "run" / "train.tmp")
    assert claim is not None
    with claim:
        refused = run("train", config, "-o", "run", code=1).stderr
    assert "run is being filled by another `train`, and two would overwrite each other's checkpoints" in refused
    assert not list((tmp_path / "run").iterdir())
    run("train", config, "-o", "run", "--set", "train.num_train_epochs=1")
    assert "train.tmp" not in {path.name for path in (tmp_path / "run").iterdir()}


def test_an_attribute_is_put_into_feats() -> None:
    assert _with_feature("Case=Nom", "Number", "Sing") == "Case=Nom|Number=Sing"
    assert _with_feature("Case=Nom|Number=Plur", "Number", "Sing") == "Case=Nom|Number=Sing"
    assert _with_feature("Number=Plur", "Number", "_") == "_"


def test_the_log_is_quiet_on_request(run: Run, trained: Path, corpus: Path) -> None:
    done = run("--quiet", "train", trained / "config.toml", "-o", trained / "run")
    assert "going on" not in done.stderr
    assert logging.getLogger("encodeonce").handlers == []


def test_settings_that_no_method_can_have_are_refused_before_anything_is_encoded(
    run: Run, config: Path, tmp_path: Path
) -> None:
    """What only an adapter knows to be wrong: of a run, and of every point of a comparison's grid."""
    train = ("train", config, "-o", "new", "--set")
    for key, method in (("adapter.n_heads=3", "adapted"), ("finetune.n_heads=3", "live_mix")):
        wrong = run(*train, key, "--set", f"method={method}", code=1).stderr
        assert "cannot be cut into n_heads=3 equal heads" in wrong
    grid = ("--set", "methods.agg.grid={ n_heads = [2, 5] }")
    wrong = run("compare", config, "-o", "rep", "-m", "linear,agg", *grid, code=1).stderr
    assert "key_width=16 cannot be cut into n_heads=5" in wrong
    assert not (tmp_path / "states").exists()


def test_entities_are_scored_on_every_piece_where_it_is_asked_for(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Held against seqeval over words repeated by hand; "dog." is two pieces, and a B- word of two is two entities."""
    rng = random.Random(3)
    lines = []
    for number in range(60):
        words = [rng.choice(["the", "dog.", "cat.", "sees", "bird"]) for _ in range(rng.randint(3, 6))]
        tags = ["B-A" if word.endswith(".") or rng.random() < 0.2 else "O" for word in words]
        lines.append(json.dumps({"id": str(number), "words": words, "ner": tags}))
    for name, part in (("train", lines[:40]), ("test", lines[40:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(part) + "\n")
    encoder = shutil.copytree(tiny, tmp_path / "encoder")
    (tmp_path / "config.toml").write_text(
        f'encoder = "{encoder}"\ntasks = ["ner"]\nmethod = "frozen"\n[data]\ntrain = "train.jsonl"\n'
        'columns = { words = "words", tag = "ner" }\n[train]\nnum_train_epochs = 2\nlearning_rate = 0.05\n'
    )
    run("train", "config.toml", "-o", "run")
    rows = json.loads(run("evaluate", "run", "test.jsonl", "--all-pieces", "--json").stdout)
    scores = {row["metric"]: row["value"] for row in rows}
    answers = [json.loads(line) for line in run("predict", "run", "test.jsonl").stdout.splitlines()]
    gold = [json.loads(line) for line in lines[40:]]

    def by_piece(items: list[dict[str, list[str]]], column: str) -> list[list[str]]:
        return [[t for w, t in zip(i["words"], i[column], strict=True) for _ in range(1 + ("." in w))] for i in items]

    own = seqeval_f1(by_piece(gold, "ner"), by_piece(answers, "tag"))
    assert scores["f1_all_pieces"] == pytest.approx(100 * own)
    assert scores["f1_all_pieces"] != scores["f1_lenient"]
    assert "f1_all_pieces" not in run("evaluate", "run", "test.jsonl").stdout
    (tmp_path / "test.jsonl").write_text("\n".join([*lines[40:], '{"id": "none", "words": [], "ner": []}']) + "\n")
    again = json.loads(run("evaluate", "run", "test.jsonl", "--all-pieces", "--json").stdout)
    assert {row["metric"]: row["value"] for row in again} == scores, "a document without words changes nothing"
    shutil.rmtree(encoder)
    said = run("evaluate", "run", "test.jsonl", "--all-pieces", code=1).stderr
    assert "needs the run's encoder, which is not here" in said


def test_pieces_are_scored_for_spans_alone(run: Run, trained: Path, corpus: Path) -> None:
    said = run("evaluate", trained / "run", corpus / "test.conllu", "--all-pieces", code=1).stderr
    assert "--all-pieces is for entities and chunks" in said
