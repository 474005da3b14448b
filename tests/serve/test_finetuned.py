"""Case TRAIN-1 for runs that trained blocks of the encoder: the head comes back, the blocks and terms are active."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from encodeonce.batching import Source
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import DataError, RunError
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.serve.bundle import Run, load, save
from encodeonce.serve.folder import encoder_of
from encodeonce.serve.predictor import Predictor
from encodeonce.store import Store
from encodeonce.tasks import named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

RUNS: dict[str, Tuning] = {
    "head": Tuning("finetune", live=0),
    "finetune": Tuning("finetune"),
    "live_mix": Tuning("live_mix"),
    "shared": Tuning("top1", shared=True),
    "lora": Tuning("lora"),
}
LINES = [
    "the cat sat",
    "river banks",
    "a naive cafe",
    "running",
    "x y z",
    "the mat and the river",
    "by the bank",
    "cat",
]
DOCUMENTS = [
    Document(
        f"s{i}",
        tuple(line.split()),
        columns={name: tuple("ab"[len(w) > k] for w in line.split()) for name, k in (("upos", 2), ("deprel", 3))},
    )
    for i, line in enumerate(LINES)
]
READER = """
import sys, json, numpy, torch
from pathlib import Path
from encodeonce.batching import Source
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.serve.bundle import load
from encodeonce.serve.predictor import Predictor
from encodeonce.types import Document
torch.manual_seed(99)
folder, runs, out = sys.argv[1:4]
documents = [Document(str(i), tuple(line.split())) for i, line in enumerate(json.loads(sys.argv[4]))]
encoder = Pretrained(folder)
found = {}
for name in sys.argv[5:]:
    run = load(Path(runs) / name, encoder)
    pieces, places = encoder.cut(documents), [[i] for i in range(len(documents))]
    ((source, _),) = Predictor(run, encoder=encoder)._encoded(pieces, places)
    batch = next(iter(run.method.batches(run.method.read(source, documents), size=8, order=None)))
    with torch.no_grad():
        for task, scores in run.method.scores(batch, run.method.names).items():
            found[f"{name}/{task}"] = scores.numpy()
numpy.savez(out, **found)
"""


@pytest.fixture(scope="module")
def encoder(checkpoint: Callable[..., Path]) -> Pretrained:
    return Pretrained(checkpoint("bert"))


@pytest.fixture(scope="module")
def runs(encoder: Pretrained, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Run, Path]]:
    """Every run trained for two epochs on 8 sentences with 2 labels, and saved."""
    pytest.importorskip("peft")
    folder = tmp_path_factory.mktemp("runs")
    store = Store.open(folder / "states", encoder.spec(dtype="fp32"))
    store.fill(DOCUMENTS, encoder)
    tasks = tuple(named(name).learn(DOCUMENTS) for name in ("upos", "deprel"))
    settings = Settings(num_train_epochs=2, per_device_train_batch_size=4, learning_rate=1e-2)
    made = {}
    for name, tuning in RUNS.items():
        method = Finetune.build(tuning, encoder, store.spec, tasks)
        source = store if method.layers else source_of(Run(method, tasks, tuning, store.spec), encoder)
        fit(method, method.read(source, DOCUMENTS, tasks), {task.name: task for task in tasks}, settings)
        run = Run(method.eval(), tasks, tuning, store.spec, training={"settings": settings.to_json()})
        save(run, folder / name)
        made[name] = (run, folder / name)
    return made


def source_of(run: Run, encoder: Pretrained) -> Source:
    """What the run reads of all documents."""
    places = [[i] for i in range(len(DOCUMENTS))]
    ((source, _),) = Predictor(run, encoder=encoder)._encoded(encoder.cut(DOCUMENTS), places)
    return source


def logits(run: Run, encoder: Pretrained) -> dict[str, torch.Tensor]:
    source = source_of(run, encoder)
    batch = next(iter(run.method.batches(run.method.read(source, DOCUMENTS), size=8, order=None)))
    with torch.no_grad():
        scores: dict[str, torch.Tensor] = run.method.scores(batch, run.method.names)
    return scores


def test_TRAIN1_a_new_process_gives_the_same_logits(
    runs: dict[str, tuple[Run, Path]], encoder: Pretrained, tmp_path: Path
) -> None:
    folder = next(iter(runs.values()))[1].parent
    command = [sys.executable, "-c", READER, str(encoder.path), str(folder), str(tmp_path / "there.npz")]
    subprocess.run([*command, json.dumps(LINES), *runs], check=True)
    there = np.load(tmp_path / "there.npz")
    for name, (run, _) in runs.items():
        for task, scores in logits(run, encoder).items():
            np.testing.assert_allclose(there[f"{name}/{task}"], scores, atol=1e-6, rtol=0)


def test_TRAIN1_what_was_trained_is_active(runs: dict[str, tuple[Run, Path]], encoder: Pretrained) -> None:
    """A run whose blocks or terms were lost would answer as one of fresh blocks under the trained head."""
    for run, _ in runs.values():
        if not run.variant.plan(run.spec).blocks:  # type: ignore[union-attr]
            continue
        fresh: Any = Finetune.build(run.variant, encoder, run.spec, run.tasks)  # type: ignore[arg-type]
        for name in run.method.names:
            fresh.part(name).head.load_state_dict(run.method.part(name).head.state_dict())
        untrained = logits(Run(fresh.eval(), run.tasks, run.variant, run.spec), encoder)
        for name, scores in logits(run, encoder).items():
            assert (scores - untrained[name]).abs().max() > 1e-3


def test_TRAIN1_low_rank_terms_are_saved_without_the_weights_they_stand_beside(
    runs: dict[str, tuple[Run, Path]],
) -> None:
    run, folder = runs["lora"]
    saved = load_file(folder / "model.safetensors")
    assert {name.split("/")[1].split(".")[0] for name in saved} == {"adapter", "head"}
    assert all(".lora_" in name for name in saved if "/adapter." in name)
    assert sum(tensor.numel() for name, tensor in saved.items() if "/adapter." in name) == 2 * 3 * 2 * 2 * 8 * 32
    assert sum(p.numel() for p in run.method.parameters()) > 2 * sum(tensor.numel() for tensor in saved.values())


def test_TRAIN1_another_base_model_or_label_list_is_refused(
    runs: dict[str, tuple[Run, Path]], checkpoint: Callable[..., Path]
) -> None:
    other = Pretrained(checkpoint("bert", hidden_act="relu"))
    for _, folder in runs.values():
        with pytest.raises(RunError, match=r"does not make the states .*config: .* here, .* there"):
            load(folder, other)
        with pytest.raises(RunError, match=r"trained blocks of the encoder .* can only be loaded beside that encoder"):
            load(folder)


def test_TRAIN1_another_architecture_is_called_another_encoder_even_where_its_window_is_shorter(
    runs: dict[str, tuple[Run, Path]], checkpoint: Callable[..., Path]
) -> None:
    """RoBERTa's first positions are padding's, so a table of as many rows holds two pieces less."""
    for run, folder in runs.values():
        with pytest.raises(RunError, match=r"the encoder \(.*\) does not make the states .*window=40 must lie between"):
            encoder_of(folder, run.spec, str(checkpoint("roberta")))


def test_TRAIN1_a_changed_label_list_is_refused(
    runs: dict[str, tuple[Run, Path]], encoder: Pretrained, tmp_path: Path
) -> None:
    for name, (run, folder) in runs.items():
        copy = tmp_path / name
        copy.mkdir()
        for file in folder.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        config = json.loads((copy / "config.json").read_text())
        config["tasks"][0]["labels"] = ["a", "b", "c"]
        (copy / "config.json").write_text(json.dumps(config))
        assert run.tasks[0].labels == ("a", "b")
        with pytest.raises(RunError, match=r"upos\.labels: \['a', 'b'\] then, \['a', 'b', 'c'\] now"):
            load(copy, encoder)


def test_answers_from_the_store_and_from_the_encoder_agree(
    runs: dict[str, tuple[Run, Path]], encoder: Pretrained
) -> None:
    store = Store.open(next(iter(runs.values()))[1].parent / "states", encoder.spec(dtype="fp32"))
    for run, folder in runs.values():
        loaded = load(folder, encoder)
        from_store, live = Predictor(loaded, store, encoder), Predictor(loaded, encoder=encoder)
        answers = from_store.predict(DOCUMENTS)
        assert answers == live.predict(DOCUMENTS)
        assert from_store.hits == (len(DOCUMENTS) if run.method.layers else 0)
        assert live.misses == len(DOCUMENTS)


@pytest.mark.parametrize("name", ["finetune", "shared"])
def test_a_text_too_long_for_the_blocks_is_named_before_any_is_answered(
    name: str, runs: dict[str, tuple[Run, Path]], encoder: Pretrained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("encodeonce.serve.predictor.CHUNK", 4)
    predictor, answered = Predictor(runs[name][0], encoder=encoder), []
    answer = Predictor._answer
    monkeypatch.setattr(Predictor, "_answer", lambda *given: (answered.append(given), answer(*given)))
    with pytest.raises(DataError, match="long: 52 pieces, but the encoder's blocks can be given 40 at once"):
        predictor.predict([*DOCUMENTS, Document("long", ("cat",) * 50)])
    assert not answered
    assert len(predictor.predict(DOCUMENTS)) == len(DOCUMENTS)
    assert answered


@pytest.mark.parametrize("name", ["finetune", "live_mix"])
def test_a_text_is_cut_once_however_many_there_are(
    name: str, runs: dict[str, tuple[Run, Path]], encoder: Pretrained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("encodeonce.serve.predictor.CHUNK", 4)
    cut, shown = Pretrained.cut, list[Document]()
    monkeypatch.setattr(Pretrained, "cut", lambda model, some: (shown.extend(some), cut(model, some))[1])
    Predictor(runs[name][0], encoder=encoder).predict(DOCUMENTS)
    assert sorted(one.key for one in shown) == sorted({one.key for one in DOCUMENTS})


def test_a_card_says_what_was_trained(runs: dict[str, tuple[Run, Path]]) -> None:
    assert (
        "`live_mix`: blocks for each task, copied from the encoder" in (runs["live_mix"][1] / "README.md").read_text()
    )
    assert "`top1`: a trunk for all tasks" in (runs["shared"][1] / "README.md").read_text()
