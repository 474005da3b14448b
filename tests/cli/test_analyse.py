"""`analyse`: weights and vectors of an encoder beside those of its base."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from .conftest import Run
from .test_pretrain import articles


def doubled(base: Path, folder: Path) -> Path:
    """The encoder with its query weights twice as large."""
    shutil.copytree(base, folder)
    weights = load_file(base / "model.safetensors")
    grown = {name: 2 * w if name.endswith("query.weight") else w for name, w in weights.items()}
    save_file(grown, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_weights_and_vectors_beside_the_base(run: Run, tiny: Path, tmp_path: Path) -> None:
    articles(tmp_path / "articles.jsonl", 20)
    other = doubled(tiny, tmp_path / "run" / "encoder")
    given = ("-d", "articles.jsonl", "--sentence-encoder", tiny, "--limit", "12")
    found = json.loads(run("analyse", tiny, other, *given, "-o", "change.png", "--json").stdout)
    groups = found["change"]["run"]
    assert groups["query"] == [pytest.approx(1), pytest.approx(1)]
    assert groups["key"] == groups["dense"] == [0, 0]
    assert (tmp_path / "change.png").read_bytes().startswith(b"\x89PNG")
    assert list(found["agreement"]) == [
        "base: pieces, sentences",
        "run: pieces, base's pieces",
        "run: pieces, sentences",
    ]
    own = found["agreement"]["run: pieces, base's pieces"]
    assert own["documents"] == 12
    assert 0.5 < own["pearson"] < 1
    assert own["groups_of_first"] is not None
    text = run("analyse", tiny, other).stdout
    assert "1.00e+00" in text
    assert "agreement" not in text
    refused = run("analyse", tiny, other, "--sentence-encoder", tiny, code=1)
    assert "give --documents" in refused.stderr
