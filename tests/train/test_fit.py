"""The loop: what it learns, keeps, stops, resumes and refuses."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from encodeonce.batching import Encodings, Examples
from encodeonce.errors import ConfigError, DataError, RunError
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.tasks import Task, named
from encodeonce.train import checkpoint
from encodeonce.train.atomic import write_bytes
from encodeonce.train.evaluate import evaluate
from encodeonce.train.fit import Fit, fit
from encodeonce.train.log import RunLog
from encodeonce.train.settings import Settings
from encodeonce.types import Document

Corpus = Callable[..., tuple[list[Document], Encodings]]
QUICK = Settings(learning_rate=1e-2, num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1)


class Job:
    """Learned tasks, a fresh method and its examples."""

    def __init__(
        self,
        corpus: tuple[list[Document], Encodings],
        names: Sequence[str] = ("upos",),
        dropout: float = 0.0,
        **task: Any,
    ) -> None:
        self.documents, self.memory = corpus
        self.tasks: list[Task] = [named(name, **task).learn(self.documents) for name in names]
        self.scorers = {task.name: task for task in self.tasks}
        variant = Variant("adapted", key_width=4, n_heads=2, dropout=dropout)
        self.method = Aggregate.build(variant, self.memory.spec, self.tasks, seed=3)
        self.examples = self.method.read(self.memory, self.documents, self.tasks)

    def fit(self, settings: Settings, **more: Any) -> Fit:
        return fit(self.method, self.examples, self.scorers, settings, **more)

    def weights(self) -> dict[str, Tensor]:
        return {key: tensor.clone() for key, tensor in self.method.state_dict().items()}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_overfits_two_examples(make_corpus: Corpus) -> None:
    job = Job(make_corpus(2), names=("upos", "ner"))
    fitted = job.fit(replace(QUICK, num_train_epochs=30, learning_rate=0.1))
    assert fitted.epochs[-1]["loss"] < 0.05 * fitted.epochs[0]["loss"]
    scores = evaluate(job.method, job.examples, job.scorers).scores
    assert scores["upos"]["accuracy"] == 100.0


def test_same_seed_same_weights_other_seed_others(make_corpus: Corpus) -> None:
    runs = []
    for seed in (1, 1, 2):
        job = Job(make_corpus(12), dropout=0.1)
        job.fit(replace(QUICK, seed=seed))
        runs.append(job.weights())
    assert equal(runs[0], runs[1])
    assert not equal(runs[0], runs[2])


@pytest.mark.parametrize("norm", [0.0, 0.05])
def test_tasks_trained_together_end_where_they_end_alone(make_corpus: Corpus, norm: float) -> None:
    settings = replace(QUICK, num_train_epochs=6, max_grad_norm=norm, early_stopping_patience=2)
    together = Job(make_corpus(12), names=("upos", "deprel", "ner"))
    joint = together.fit(settings, dev=together.examples)
    for name in ("upos", "deprel", "ner"):
        alone = Job(make_corpus(12), names=(name,))
        single = alone.fit(settings, dev=alone.examples)
        assert single.best[name] == joint.best[name]
        assert equal(alone.method.part(name).state_dict(), together.method.part(name).state_dict())


@pytest.mark.parametrize(("batch", "steps"), [({"per_device_train_batch_size": 5}, 6), ({"pieces": 17}, 0)])
def test_every_batch_of_every_epoch_is_a_step(make_corpus: Corpus, batch: dict[str, int], steps: int) -> None:
    job = Job(make_corpus(11))
    if not steps:  # of pieces: the schedule's steps are those that are made, whatever the order
        batch = {"per_device_train_batch_pieces": batch["pieces"]}
        steps = 2 * -(-int(job.examples.lengths.sum()) // 17)
    assert job.fit(replace(QUICK, **batch)).steps == steps


def test_a_method_that_counts_no_pieces_refuses_them(make_corpus: Corpus) -> None:
    job = Job(make_corpus(3))

    class CountsExamples(nn.Module):
        modules_of, tasks_of = job.method.modules_of, job.method.tasks_of
        groups, losses, predict, batches = (getattr(job.method, n) for n in ("groups", "losses", "predict", "batches"))

    job.method = CountsExamples()  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="pieces=9: CountsExamples sizes its batches by examples only"):
        job.fit(replace(QUICK, per_device_train_batch_pieces=9))


class StoppedError(Exception):
    """The machine went away."""


def stop_after(method: Aggregate, steps: int) -> None:
    """Make the method fail when a step after these is asked for."""
    losses, done = method.losses, [0]

    def failing(batch: Any, names: Any) -> Any:
        if done[0] == steps:
            raise StoppedError
        done[0] += 1
        return losses(batch, names)

    method.losses = failing  # type: ignore[method-assign]


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("with_dev", [True, False])
@pytest.mark.parametrize("pieces", [0, 30])
def test_TRAIN2_a_resumed_run_is_the_uninterrupted_one(
    make_corpus: Corpus, tmp_path: Path, steps: int, with_dev: bool, pieces: int
) -> None:
    """12 examples in batches of 4 or of 30 pieces, 2 epochs, dropout: some of the steps are an epoch's last."""
    settings = replace(QUICK, save_steps=1, per_device_train_batch_pieces=pieces)

    def job() -> tuple[Job, dict[str, Any]]:
        made = Job(make_corpus(12), names=("upos", "ner"), dropout=0.1)
        return made, {"dev": made.examples} if with_dev else {}

    whole, more = job()
    expected = whole.fit(settings, folder=tmp_path / "whole", **more)
    broken, more = job()
    stop_after(broken.method, steps)
    with pytest.raises(StoppedError):
        broken.fit(settings, folder=tmp_path / "parts", **more)
    random.seed(99), np.random.seed(99), torch.manual_seed(99)  # whatever another program did meanwhile
    resumed, more = job()
    result = resumed.fit(settings, folder=tmp_path / "parts", **more)
    assert equal(whole.weights(), resumed.weights())
    assert result.epochs == expected.epochs
    assert result.best == expected.best
    assert logged(tmp_path / "parts") == logged(tmp_path / "whole")


def logged(folder: Path) -> list[dict[str, Any]]:
    """The log without its times."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_resuming_restores_all_three_generators(make_corpus: Corpus, tmp_path: Path) -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    settings = replace(QUICK, save_steps=1)
    job = Job(make_corpus(12), dropout=0.1)
    job.fit(settings, folder=tmp_path)
    expected = drawn()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    Job(make_corpus(12), dropout=0.1).fit(settings, folder=tmp_path)
    assert drawn() == expected


def test_a_finished_run_is_not_run_again(make_corpus: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(make_corpus(12))
    first = job.fit(QUICK, folder=tmp_path, dev=job.examples)
    again = Job(make_corpus(12))
    stop_after(again.method, 0)
    caplog.clear()
    with caplog.at_level("INFO", "encodeonce"):
        second = again.fit(QUICK, folder=tmp_path, dev=again.examples)
    assert second == first
    assert caplog.messages == ["trained already: step 6 of 6"]
    assert equal(job.weights(), again.weights())


def test_TRAIN2_a_changed_setting_or_data_is_refused_by_name(make_corpus: Corpus, tmp_path: Path) -> None:
    job = Job(make_corpus(12))
    job.fit(QUICK, folder=tmp_path)
    with pytest.raises(RunError, match=r"settings.learning_rate: 0.01 then, 0.02 now; settings.seed: 42 then, 7 now"):
        Job(make_corpus(12)).fit(replace(QUICK, learning_rate=0.02, seed=7), folder=tmp_path)
    with pytest.raises(RunError, match=r"train.items: '12' then, '11' now; train.texts: "):
        Job(make_corpus(11)).fit(QUICK, folder=tmp_path)
    with pytest.raises(RunError, match=r"dev: None then"):
        Job(make_corpus(12)).fit(QUICK, folder=tmp_path, dev=job.examples)
    with pytest.raises(RunError, match=r"parameters.deprel: '\(absent\)' then"):
        Job(make_corpus(12), names=("upos", "deprel")).fit(QUICK, folder=tmp_path)
    Job(make_corpus(12)).fit(replace(QUICK, logging_steps=9, save_steps=5), folder=tmp_path)


def test_a_run_does_not_go_on_as_another_method_with_weights_of_the_same_shapes(
    make_corpus: Corpus, tmp_path: Path
) -> None:
    Job(make_corpus(12)).fit(QUICK, folder=tmp_path)
    Job(make_corpus(12)).fit(QUICK, folder=tmp_path)
    with pytest.raises(RunError, match=r"differently, so .*: method.dropout: 0.0 then, 0.1 now\. Put it"):
        Job(make_corpus(12), dropout=0.1).fit(QUICK, folder=tmp_path)
    with pytest.raises(RunError, match=r"method.tasks.upos.piece: 'last' then, 'first' now"):
        Job(make_corpus(12), piece="first").fit(QUICK, folder=tmp_path)


def test_TRAIN2_epochs_are_not_chosen_by_one_score_and_then_by_another(make_corpus: Corpus, tmp_path: Path) -> None:
    """A finished run would else keep the best epoch of the old score under the new one's name."""
    job = Job(make_corpus(12), names=("ner",))
    job.fit(QUICK, folder=tmp_path, dev=job.examples)
    again = Job(make_corpus(12), names=("ner",))
    other = scripted(again.method, {"ner": [1.0, 2.0]})
    with pytest.raises(RunError, match=r"metrics\.ner: 'f1_lenient' then, 'value' now"):
        fit(again.method, again.examples, other, QUICK, dev=again.examples, folder=tmp_path)
    state = json.loads((tmp_path / "checkpoint" / "state.json").read_text())
    del state["origin"]["metrics"], state["origin"]["scorers"]  # a checkpoint of before goes on
    (tmp_path / "checkpoint" / "state.json").write_text(json.dumps(state))
    again.fit(QUICK, folder=tmp_path, dev=again.examples)


def test_of_many_differences_the_first_are_named(make_corpus: Corpus, tmp_path: Path) -> None:
    Job(make_corpus(12)).fit(QUICK, folder=tmp_path)
    other = Job(make_corpus(12))
    other.method = Aggregate.build(Variant("linear"), other.memory.spec, other.tasks)
    with pytest.raises(RunError, match=r"method\.name: 'adapted' then, 'linear' now; .*; and \d+ more\. Put") as found:
        other.fit(QUICK, folder=tmp_path)
    assert len(str(found.value)) < 1200


def test_a_damaged_checkpoint_is_refused_by_file(make_corpus: Corpus, tmp_path: Path) -> None:
    Job(make_corpus(12)).fit(QUICK, folder=tmp_path)
    (file,) = (tmp_path / "checkpoint").glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"step-00000006.safetensors was cut or changed: its SHA-256"):
        Job(make_corpus(12)).fit(QUICK, folder=tmp_path)
    file.unlink()
    with pytest.raises(RunError, match=r"the checkpoint .*state.json cannot be read: FileNotFoundError"):
        Job(make_corpus(12)).fit(QUICK, folder=tmp_path)


def test_a_checkpoint_is_safetensors_and_json_and_old_ones_go(make_corpus: Corpus, tmp_path: Path) -> None:
    Job(make_corpus(12)).fit(replace(QUICK, save_steps=4), folder=tmp_path)
    assert sorted(p.name for p in (tmp_path / "checkpoint").iterdir()) == ["state.json", "step-00000006.safetensors"]


def test_killed_between_the_two_files_of_a_second_checkpoint_of_one_step(
    make_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch's last step is saved by `save_steps`, and again with the best weights once dev is scored."""
    settings, job = replace(QUICK, save_steps=3), Job(make_corpus(12))
    written: list[str] = []

    def killed(path: Path, content: bytes) -> None:
        written.append(path.name)
        if len(written) == 4:
            raise KeyboardInterrupt
        write_bytes(path, content)

    monkeypatch.setattr(checkpoint, "write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        job.fit(settings, folder=tmp_path, dev=job.examples)
    assert written[1::2] == ["state.json", "state.json"]
    assert all(name.startswith("step-00000003") for name in written[::2])
    monkeypatch.undo()
    again, whole = Job(make_corpus(12)), Job(make_corpus(12))
    again.fit(settings, folder=tmp_path, dev=again.examples)
    whole.fit(settings, dev=whole.examples)
    assert equal(again.weights(), whole.weights())
    assert len(list((tmp_path / "checkpoint").iterdir())) == 2


def test_killed_between_the_line_of_an_epoch_and_its_checkpoint(
    make_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With save_steps=1 there is a checkpoint of the same step, from before the epoch was scored."""
    settings = replace(QUICK, save_steps=1)
    whole, broken = Job(make_corpus(12), dropout=0.1), Job(make_corpus(12), dropout=0.1)
    whole.fit(settings, folder=tmp_path / "whole", dev=whole.examples)
    with monkeypatch.context() as patch:
        save = checkpoint.Checkpoint.save

        def failing(self: checkpoint.Checkpoint, folder: Path) -> None:
            if self.values["progress"]["epoch"]:
                raise StoppedError
            save(self, folder)

        patch.setattr(checkpoint.Checkpoint, "save", failing)
        with pytest.raises(StoppedError):
            broken.fit(settings, folder=tmp_path / "parts", dev=broken.examples)
    resumed = Job(make_corpus(12), dropout=0.1)
    resumed.fit(settings, folder=tmp_path / "parts", dev=resumed.examples)
    assert logged(tmp_path / "parts") == logged(tmp_path / "whole")


@pytest.mark.parametrize("killed", [True, False])
def test_seconds_are_those_of_the_whole_run(
    make_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """A clock that a batch moves by 1 and scoring dev by 100: 2 epochs of 3 batches take 206 of them."""
    clock = [0.0]
    monkeypatch.setattr("encodeonce.train.fit.time.perf_counter", lambda: clock[0])

    def slow() -> Job:
        job = Job(make_corpus(12))

        def counted(what: Any, seconds: float) -> Any:
            def call(*given: Any) -> Any:
                clock[0] += seconds
                return what(*given)

            return call

        monkeypatch.setattr(job.method, "losses", counted(job.method.losses, 1))
        monkeypatch.setattr(job.method, "predict", counted(job.method.predict, 100))
        return job

    settings = replace(QUICK, save_steps=1, per_device_eval_batch_size=12)
    if killed:
        broken = slow()
        stop_after(broken.method, 2)
        with pytest.raises(StoppedError):
            broken.fit(settings, folder=tmp_path, dev=broken.examples)
        clock[0] += 1000
    job = slow()
    assert job.fit(settings, folder=tmp_path, dev=job.examples).seconds == 206


def test_a_resumed_log_keeps_lines_whatever_stands_in_them(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for step in (1, 2, 3):
        log.write(step=step, losses={"one\u2028task": 0.5})
    whole = (tmp_path / "log.jsonl").read_text(encoding="utf-8").split("\n")
    with (tmp_path / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 2')
    log.back_to(2)
    assert (tmp_path / "log.jsonl").read_text(encoding="utf-8").split("\n") == [*whole[:2], ""]


def scripted(method: Aggregate, values: dict[str, list[float | None]]) -> dict[str, Any]:
    """Scorers that give these values epoch by epoch."""

    class Scripted:
        metric = "value"

        def __init__(self, name: str) -> None:
            self.left = iter(values[name])

        def score(self, gold: Any, predicted: Any) -> dict[str, float | None]:
            return {"value": next(self.left)}

    return {name: Scripted(name) for name in values}


def test_each_task_keeps_its_own_best_epoch(make_corpus: Corpus) -> None:
    settings = replace(QUICK, num_train_epochs=4)
    job = Job(make_corpus(8), names=("upos", "ner"))
    scorers = scripted(job.method, {"upos": [1.0, 3.0, 2.0, 3.0], "ner": [None, 1.0, 2.0, 5.0]})
    fitted = fit(job.method, job.examples, scorers, settings, dev=job.examples)
    assert fitted.best == {"upos": {"epoch": 2, "value": 3.0}, "ner": {"epoch": 4, "value": 5.0}}
    last = Job(make_corpus(8), names=("upos", "ner"))
    last.fit(settings)
    assert equal(job.method.part("ner").state_dict(), last.method.part("ner").state_dict())
    assert not equal(job.method.part("upos").state_dict(), last.method.part("upos").state_dict())


def test_early_stopping_ends_a_task_and_then_the_run(make_corpus: Corpus) -> None:
    settings = replace(QUICK, num_train_epochs=9, early_stopping_patience=2)
    job = Job(make_corpus(8), names=("upos", "ner"))
    scorers = scripted(job.method, {"upos": [3.0, 2.0, 1.0, 9.0, 9.0], "ner": [1.0, 2.0, 3.0, 3.0, 3.0]})
    fitted = fit(job.method, job.examples, scorers, settings, dev=job.examples)
    assert fitted.best == {"upos": {"epoch": 1, "value": 3.0}, "ner": {"epoch": 3, "value": 3.0}}
    assert len(fitted.epochs) == 5
    with pytest.raises(ConfigError, match=r"early_stopping_patience=2 counts epochs .* there is no dev split"):
        job.fit(settings)


def test_an_undefined_score_is_said_and_the_last_epoch_kept(
    make_corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    job, alone = Job(make_corpus(4)), Job(make_corpus(4))
    scorers = scripted(job.method, {"upos": [None] * QUICK.num_train_epochs})
    fitted = fit(job.method, job.examples, scorers, QUICK, dev=job.examples)
    assert fitted.best["upos"] == {"epoch": QUICK.num_train_epochs, "value": None}
    assert f"its score on dev was never defined; the last epoch, {QUICK.num_train_epochs}, is kept" in caplog.text
    alone.fit(QUICK)
    assert equal(job.weights(), alone.weights())


def test_a_defined_score_is_better_than_none(make_corpus: Corpus) -> None:
    job = Job(make_corpus(4))
    scorers = scripted(job.method, {"upos": [None, 1.0, None, 0.5]})
    fitted = fit(job.method, job.examples, scorers, replace(QUICK, num_train_epochs=4), dev=job.examples)
    assert fitted.best["upos"] == {"epoch": 2, "value": 1.0}


def test_the_log_holds_every_step_and_epoch(make_corpus: Corpus, tmp_path: Path) -> None:
    job = Job(make_corpus(12), names=("upos", "ner"))
    fitted = job.fit(replace(QUICK, logging_steps=2), folder=tmp_path, dev=job.examples)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "lr" in line]
    assert [line["step"] for line in steps] == [2, 4, 6]
    assert {"step", "epoch", "loss", "losses", "lr", "seconds"} == set(steps[0])
    assert steps[0]["loss"] == pytest.approx(sum(steps[0]["losses"].values()))
    assert [line["dev"] for line in lines if "dev" in line] == [epoch["dev"] for epoch in fitted.epochs]
    assert fitted.steps == 6
    assert fitted.parameters["total"] == sum(p.numel() for p in job.method.parameters())
    assert 0 < fitted.seconds_per_batch <= fitted.seconds


def test_a_loss_that_is_not_finite_names_step_and_items(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(6)
    memory._states[0][...] = float("inf")
    job = Job((documents, memory))
    with pytest.raises(RunError, match=r"step \d: the loss of task 'upos' is nan. The batch held \[.*corpus:1 \(s0\)"):
        job.fit(QUICK)


def test_LABELS2_one_example_trains_with_a_warning(make_corpus: Corpus, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(make_corpus(1), names=("upos", "ner"))
    job.fit(QUICK, dev=job.examples)
    assert "training on a single example" in caplog.text


def test_LABELS2_one_class_trains_with_a_warning_and_has_honest_scores(
    make_corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    documents, memory = make_corpus(4)
    plain = [replace(d, columns={"tag": ("O",) * len(d.words)}) for d in documents]
    job = Job((plain, memory), names=("ner",))
    fitted = job.fit(QUICK, dev=job.examples)
    assert "task ner: a single label, 'O'" in caplog.text
    assert fitted.epochs[-1]["dev"]["ner"]["f1_lenient"] is None
    assert fitted.epochs[-1]["loss"] == 0


def test_nothing_to_train_or_score_is_refused(make_corpus: Corpus) -> None:
    job = Job(make_corpus(2))
    none = job.method.read(job.memory, [], job.tasks)
    with pytest.raises(DataError, match="no examples to train on"):
        fit(job.method, none, job.scorers)
    with pytest.raises(DataError, match="no examples to evaluate"):
        evaluate(job.method, none, job.scorers)
    with pytest.raises(ConfigError, match=r"tasks \['upos'\] need a scorer each; there is \[\]"):
        fit(job.method, job.examples, {}, dev=job.examples)
    with pytest.raises(DataError, match=r"no gold was read for \['upos'\]"):
        evaluate(job.method, Examples.read(job.memory, job.documents), job.scorers)


def test_clipping_bounds_each_tasks_gradient(make_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(make_corpus(8), names=("upos", "ner"))
    norms: list[float] = []
    step = torch.optim.Adam.step

    def watched(self: torch.optim.Adam, *args: Any) -> Any:
        for group in self.param_groups:
            squares = [p.grad.square().sum() for p in group["params"] if p.grad is not None]
            norms.append(float(torch.stack(squares).sum().sqrt()))
        return step(self, *args)

    monkeypatch.setattr(torch.optim.Adam, "step", watched)
    job.fit(replace(QUICK, max_grad_norm=0.01))
    assert max(norms) <= 0.01 + 1e-6
    assert len(norms) == 2 * 4


def test_every_epoch_is_told_with_its_loss_and_its_scores(
    make_corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(make_corpus(6))
    with caplog.at_level("INFO", logger="encodeonce"):
        fitted = job.fit(QUICK, dev=job.examples)
    lines = [record.getMessage() for record in caplog.records if record.name == "encodeonce.epochs"]
    assert len(lines) == 2
    for number, (line, epoch) in enumerate(zip(lines, fitted.epochs, strict=True), start=1):
        assert line.startswith(f"epoch {number} of 2: loss {epoch['loss']:.4f}, ")
        assert line.endswith(f", dev upos {epoch['dev']['upos']['accuracy']:.2f}")


@pytest.mark.parametrize("optim", ["adam", "adamw", "adafactor"])
def test_accumulated_batches_are_steps_of_their_mean_loss(make_corpus: Corpus, optim: str) -> None:
    """10 examples in batches of 2, two to a step: three an epoch, the third of one batch. Against a plain loop."""
    settings = replace(
        QUICK, optim=optim, per_device_train_batch_size=2, gradient_accumulation_steps=2, lr_scheduler_type="constant"
    )
    job, other = Job(make_corpus(10)), Job(make_corpus(10))
    fitted = job.fit(settings)
    assert fitted.steps == fitted.epochs[-1]["step"] == 6
    weights = list(other.method.parameters())
    kind: Any = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adafactor": torch.optim.Adafactor}[optim]
    optimiser = kind(weights, lr=1e-2, **({} if optim == "adafactor" else {"weight_decay": 0.0, "betas": (0.9, 0.999)}))
    order = np.random.default_rng(settings.seed)
    other.method.train()
    for _ in range(2):
        batches = other.method.batches(other.examples, size=2, order=order)
        for group in ([0, 1], [2, 3], [4]):
            gradients = []
            for _ in group:
                found = torch.autograd.grad(other.method.loss(next(batches)), weights)
                gradients.append(found)
            for weight, parts in zip(weights, zip(*gradients, strict=True), strict=True):
                weight.grad = torch.stack(parts).mean(0)
            optimiser.step()
    for key, tensor in other.weights().items():
        if (
            ".key." not in key or "bias" not in key
        ):  # softmax does not see it: its gradient is rounding, which Adam blows up
            assert torch.allclose(tensor, job.weights()[key], atol=1e-5), key


@pytest.mark.parametrize("optim", ["adamw", "adafactor"])
@pytest.mark.parametrize("schedule", ["one_cycle", "linear"])
def test_TRAIN2_resuming_holds_for_every_optimiser_and_between_accumulated_batches(
    make_corpus: Corpus, tmp_path: Path, optim: str, schedule: str
) -> None:
    settings = replace(
        QUICK,
        optim=optim,
        lr_scheduler_type=schedule,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=3,
        save_steps=1,
    )
    whole, broken, resumed = (Job(make_corpus(10), dropout=0.1) for _ in range(3))
    expected = whole.fit(settings, folder=tmp_path / "whole")
    stop_after(broken.method, 7)  # in the second epoch, between two batches of a step
    with pytest.raises(StoppedError):
        broken.fit(settings, folder=tmp_path / "parts")
    result = resumed.fit(settings, folder=tmp_path / "parts")
    assert equal(whole.weights(), resumed.weights())
    assert result.epochs == expected.epochs
    assert (result.steps, result.batches) == (expected.steps, expected.batches) == (2 * 2, 2 * 5)
