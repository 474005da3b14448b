"""Families beyond BERT from a saved folder to answers, by the commands (`experiments/families`), smaller still."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parents[2] / "experiments" / "families" / "families.py"


@pytest.fixture(scope="module")
def families() -> Any:
    pytest.importorskip("peft")
    found = importlib.util.spec_from_file_location("families", PATH)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("family", ["gpt2", "roberta", "modernbert", "t5", "deberta_v2"])
@pytest.mark.filterwarnings("ignore:.*token_id must be")
def test_a_family_goes_through_every_command(families: Any, family: str, tmp_path: Path) -> None:
    """Terms of rank 8 stand beside queries and values in all three blocks, wherever the family keeps these: 2 x 8 x (32
    + 32) x 3 numbers, or 8 x (32 + 96) x 3 where one product gives query, key and value; the rest is the head."""
    rows = {row["method"]: row for row in families.smoke(family, tmp_path, n=12, epochs=1)}
    assert set(rows) == set(families.METHODS)
    assert all(row["encoder"] == f"tiny-{family}" and row["n"] > 0 for row in rows.values())
    head = 32 * 32 + 32 + 4 * 32 + 4
    assert rows["lora"]["params_trainable"] == head + 3072
    assert min(rows[name]["params_trainable"] for name in ("live_mix", "finetune")) > 5 * head
