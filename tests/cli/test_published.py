"""A paper's values from a file, and what is no such file."""

from pathlib import Path

import pytest

from encodeonce.cli.published import published, strangers
from encodeonce.errors import ConfigError, DataError

PAPER = Path(__file__).parents[2] / "experiments" / "layer_adapters" / "paper.yaml"


def test_the_papers_tables_are_read_by_name() -> None:
    bert = published(PAPER, "ud-bert-large-cased")
    assert bert["deprel"]["adapted"] == [91.7, 0.05]
    assert set(bert) == {"upos", "xpos", "deprel", "parsing"}
    assert published(PAPER, "ablation-bert-large-cased")["ner"] == {"agg": 87.4, "agg_tailor": 87.4, "adapted": 89.0}


def test_a_table_must_be_one_of_the_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--paper-table conll-bert-large-cased\|.*Did you mean 'ud-gpt2-small'"):
        published(PAPER, "ud-gpt2-smal")
    (tmp_path / "p.json").write_text('{"upos": {"linear": 97.5, "agg": null}}')
    assert published(tmp_path / "p.json") == {"upos": {"linear": 97.5}}
    with pytest.raises(ConfigError, match="leave --paper-table out"):
        published(tmp_path / "p.json", "a")


@pytest.mark.parametrize("text", ["[1]", "{a: 1}", "{a: {b: [1, 2, 3]}}", "{a: {b: x}}"])
def test_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(ConfigError, match="must map each task"):
        published(tmp_path / "p.yaml")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    for name in ("p.yaml", "p.json"):
        (tmp_path / name).write_text("{")
        with pytest.raises(DataError, match=f"{name} is not"):
            published(tmp_path / name)


def test_a_folder_is_no_file_of_values(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        published(tmp_path)


def test_what_stands_beside_nothing_of_ours_is_named() -> None:
    paper = {"upos": {"linear": 1.0, "lora": 2.0}, "xpos": {"linear": 3.0}}
    assert strangers(paper, {"upos": {"linear (train=0.5)": 0, "agg": 0}}) == ["upos lora", "xpos"]
