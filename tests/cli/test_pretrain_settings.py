"""Settings of `pretrain` that show in what is trained on, from the command line or a planned run."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from encodeonce.cli.config import load
from encodeonce.cli.pretrain_config import PretrainConfig
from encodeonce.cli.pretrain_material import paths_of, prepare
from encodeonce.cli.pretraining import Job

from .conftest import Run
from .test_pretrain import config


def sets(*changes: str) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


@pytest.mark.parametrize(("keep", "due"), [("head", "012"), ("middle", "234"), ("tail", "456")])
def test_which_sentences_of_a_long_document_are_kept(tiny: Path, tmp_path: Path, keep: str, due: str) -> None:
    path = config(tmp_path, tiny)
    rows = [{"text": " ".join(f"Cat {n} of {d}." for n in range(7))} for d in range(9)] + [{"text": "The cat."}]
    (tmp_path / "articles.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    changes = ("data.max_sentences=3", f"data.keep={keep}", "data.held_out=0")
    found = prepare(load(path, changes, model=PretrainConfig), {})
    for d, document in enumerate(found.train[:9]):
        assert document.sentences == tuple(f"Cat {n} of {d}." for n in due)
    assert found.train[9].sentences == ("The cat.",)
    assert found.counts["shortened"] == 9


def test_the_shuffled_control_is_trained_on_metadata_of_others(tiny: Path, tmp_path: Path) -> None:
    """Tuples and classes agree with each other, and with the documents' own paths as chance would have it; what is
    scored is true."""
    path = config(tmp_path, tiny)
    changes = ("sample.shuffled=true", "sample.n=400", "sample.doubled=false")
    chosen = load(path, changes, model=PretrainConfig)
    plan = Job(chosen, tmp_path / "out").planned()
    own, given = paths_of(plan.material.train, chosen), plan.paths
    assert sorted(own) == sorted(given)
    tuples = plan.sample.tuples
    assert all(given[a] == given[p] != given[n] for a, p, n in tuples.tolist())
    same = float(np.mean([own[a] == own[p] for a, p, _ in tuples.tolist()]))
    assert same < 0.5, "a quarter, as there are four paths"
    assert plan.held is not None
    apart = paths_of(plan.material.held_out, chosen)
    assert all(apart[a] == apart[p] != apart[n] for a, p, n in plan.held.tuples.tolist())


def sentence_vectors(folder: Path, sentences: list[str]) -> np.ndarray:
    """By transformers: the mean over all pieces."""
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        ids = [tokenizer(sentence, return_tensors="pt")["input_ids"] for sentence in sentences]
        return np.stack([model(one).last_hidden_state[0].mean(0).numpy() for one in ids])


def test_sentence_vectors_scaled_to_pieces(run: Run, tiny: Path, tmp_path: Path) -> None:
    """The report's lengths are those of what the run read; with the scale another encoder comes out."""
    path = config(tmp_path, tiny)
    given = sets("objective=triplet", "dtype=fp32", "token_documents=0")
    reports = {
        scale: json.loads(
            run("pretrain", path, "-o", f"s{scale}", *given, *sets(f"options.scale='{scale}'"), "--json").stdout
        )
        for scale in ("", "token")
    }
    job = Job(load(path, ("objective=triplet", "dtype=fp32"), model=PretrainConfig), tmp_path / "again")
    plan = job.planned()
    documents = [plan.material.train[i] for i in sorted(set(plan.sample.tuples.ravel().tolist()))]
    vectors = sentence_vectors(tiny, [sentence for document in documents for sentence in document.sentences])
    tables = load_file(tiny / "model.safetensors")
    due = {
        "piece": tables["embeddings.word_embeddings.weight"].norm(dim=1).mean().item(),
        "position": tables["embeddings.position_embeddings.weight"].norm(dim=1).mean().item(),
        "sentence": float(np.linalg.norm(vectors, axis=1).mean()),
    }
    assert due["sentence"] > 10 * due["piece"]
    assert reports["token"]["norms"] == reports[""]["norms"] == pytest.approx(due, rel=1e-4)
    plain, scaled = (report["held_out"]["untouched"]["sentences_centred"] for report in reports.values())
    assert plain != pytest.approx(scaled, rel=1e-3)
    assert reports["token"]["objective"]["scale"] == "token"


def wider(tiny: Path, folder: Path) -> Path:
    """A sentence encoder of width 24, with the same tokenizer."""
    import transformers

    known = transformers.AutoConfig.from_pretrained(tiny).to_dict()
    torch.manual_seed(3)
    transformers.BertModel(transformers.BertConfig(**{**known, "hidden_size": 24})).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tiny / name, folder / name)
    return folder


@pytest.mark.parametrize("kind", ["linear", "frozen", ""])
def test_a_sentence_encoder_of_another_width_is_projected(run: Run, tiny: Path, tmp_path: Path, kind: str) -> None:
    """An identity, cut, that is trained or not, and kept beside the encoder, with the path of each class."""
    path = config(tmp_path, tiny)
    given: list[Any] = sets(f"sentence_encoder={wider(tiny, tmp_path / 'wide')}", f"options.projection='{kind}'")
    done = run("pretrain", path, "-o", "out", *given, "--json", code=0 if kind else 1)
    if not kind:
        assert "sentence vectors have width 24, the encoder's piece vectors 16" in done.stderr
        assert not list((tmp_path / "sentences").glob("*.safetensors"))
        return
    heads = load_file(tmp_path / "out/heads.safetensors")
    assert torch.equal(heads["projection.weight"], torch.eye(16, 24)) is (kind == "frozen")
    classes = json.loads((tmp_path / "out/classes.json").read_text())
    assert [tuple(heads[f"hierarchy.heads.{h}.weight"].shape) for h in (0, 1)] == [(len(one), 16) for one in classes]
    assert classes[0] == [[], ["animals"], ["things"]]
    chosen = load(path, (), model=PretrainConfig)
    paths = paths_of(prepare(chosen, {}).train, chosen)
    assert sorted(classes[1]) == sorted([[], *map(list, set(paths))])


def test_an_encoder_between_start_and_end_is_scored_as_it_is_exported(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Half-way: the mean of the start's weights and those of the same run without; its held-out scores are those of the
    export, read from the folder; classification heads are the trained ones; another share is another run."""
    path = config(tmp_path, tiny)
    for share in ("1", "0.5"):
        run("pretrain", path, "-o", f"s{share}", *sets("dtype=fp32", f"interpolate={share}"))
    start, end, half = (load_file(tmp_path / f / "model.safetensors") for f in (tiny, "s1/encoder", "s0.5/encoder"))
    for name, tensor in half.items():
        torch.testing.assert_close(tensor, (start[name] + end[name]) / 2, atol=1e-7, rtol=1e-6)
    assert any(not torch.equal(tensor, start[name]) for name, tensor in half.items())
    heads = [load_file(tmp_path / folder / "heads.safetensors") for folder in ("s1", "s0.5")]
    assert all(torch.equal(tensor, heads[1][name]) for name, tensor in heads[0].items())
    report = json.loads((tmp_path / "s0.5/report.json").read_text())
    given = sets("dtype=fp32", f"encoder={tmp_path / 's0.5/encoder'}", f"sentence_encoder={tiny}")
    again = json.loads(run("pretrain", path, "-o", "again", *given, "--json").stdout)
    assert report["interpolate"] == 0.5
    assert report["held_out"]["trained"] == pytest.approx(again["held_out"]["untouched"], abs=1e-4)
    assert report["held_out"]["trained"] != report["held_out"]["untouched"]
    refused = run("pretrain", path, "-o", "s0.5", *sets("dtype=fp32", "interpolate=0.4"), code=1)
    assert "interpolate: 0.5 then, 0.4 now" in refused.stderr
