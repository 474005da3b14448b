"""Which run a folder of `pretrain` holds: another is refused, whole or begun, and so is a second process."""

import json
import shutil
from pathlib import Path

import pytest

from encodeonce.cli.pretraining import Job
from encodeonce.store.claim import Claim

from .conftest import Run
from .test_pretrain import config


def test_a_whole_run_without_its_checkpoint_is_the_run_it_was(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Whoever cleared FOLDER/train had the encoder overwritten by a run of other settings, and the heads beside it."""
    path, other = config(tmp_path, tiny), ("--set", "objective=triplet", "--set", "train.learning_rate=0.001")
    run("pretrain", path, "-o", "out")
    shutil.rmtree(tmp_path / "out/train")
    there = {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()}
    refused = run("pretrain", path, "-o", "out", *other, code=1)
    assert "objective: 'both' then, 'triplet' now; train.learning_rate: 0.002 then, 0.001 now" in refused.stderr
    assert "out holds this run, finished" in run("pretrain", path, "-o", "out").stderr
    assert {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()} == there
    (tmp_path / "out/report.json").unlink()
    (tmp_path / "out/sentence-encoder").mkdir()
    run("pretrain", path, "-o", "out", *other)
    left = {file.name for file in (tmp_path / "out").iterdir()}
    assert not left & {"classes.json", "heads.safetensors", "sentence-encoder"}, "parts of the run before"


def test_a_report_without_its_encoder_is_no_part_of_the_next_run(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = config(tmp_path, tiny), ("--set", "train.learning_rate=0.001")
    run("pretrain", path, "-o", "out")
    for part in ("train", "encoder"):
        shutil.rmtree(tmp_path / "out" / part)
    with monkeypatch.context() as patch:
        patch.setattr(Job, "side", lambda *given: 1 / 0)
        run("pretrain", path, "-o", "out", *other, code=1)
    assert (tmp_path / "out/encoder/model.safetensors").is_file()
    assert not (tmp_path / "out/report.json").exists()


@pytest.mark.parametrize("probe", [False, True])
def test_two_do_not_fill_one_folder(run: Run, tiny: Path, tmp_path: Path, probe: bool) -> None:
    """Each wrote over the other's checkpoints, and the report of one stood beside the settings of the other."""
    path = config(tmp_path, tiny)
    (tmp_path / "task.toml").write_text(
        f'encoder = "{tiny}"\ntasks = ["brand"]\nmethod = "linear"\n[task.brand]\nkind = "classification"\n'
        'column = "brand"\n[data]\ntrain = "brands.jsonl"\ndev_fraction = 0.3\n'
    )
    rows = [line for line in (tmp_path / "articles.jsonl").read_text().splitlines() if '"brand"' in line]
    (tmp_path / "brands.jsonl").write_text("\n".join(rows))
    sets = ("objective=probe", "probe.config=task.toml", "budget=9s") if probe else ()
    (tmp_path / "out").mkdir()
    claim = Claim.take(tmp_path / "out/pretrain.tmp")
    assert claim is not None
    with claim:
        given = (part for one in sets for part in ("--set", one))
        refused = run("pretrain", path, "-o", "out", *given, code=1).stderr
        assert "out is being filled by another `pretrain`, and two would overwrite each other's checkpoints" in refused
        assert [file.name for file in (tmp_path / "out").iterdir()] == ["pretrain.tmp"]
    assert not (tmp_path / "sentences").exists()


def test_a_finished_run_whose_report_lacks_what_came_later_is_shown(run: Run, tiny: Path, tmp_path: Path) -> None:
    path = config(tmp_path, tiny)
    shown = run("pretrain", path, "-o", "out").stdout
    report = json.loads((tmp_path / "out/report.json").read_text())
    del report["costs"]["positions"]["windows"]
    (tmp_path / "out/report.json").write_text(json.dumps(report))
    assert run("pretrain", path, "-o", "out").stdout == shown
    assert "% of the positions of documents" in shown
