"""`encode`: counts, dry run, second time all hits with no encoder loaded, parts, refusals."""

import json
from pathlib import Path

import click
import pytest

from encodeonce.cli.options import layers_of
from encodeonce.corpus import read
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.store import Store

from .conftest import Run


def encoded(run: Run, *args: object) -> dict[str, object]:
    found = json.loads(run("encode", *args, "--json").stdout)
    assert isinstance(found, dict)
    return found


def test_the_second_time_is_all_hits_and_no_encoder_is_loaded(run: Run, tiny: Path, corpus: Path) -> None:
    files = (corpus / "train.conllu", corpus / "dev.conllu")
    first = encoded(run, "-e", tiny, "-o", "s", *files)
    documents = [document for name in files for document in read(name)]
    distinct = {document.key for document in documents}
    assert (first["asked"], first["written"], first["hits"]) == (72, len(distinct), 0)
    assert first["duplicates"] == 72 - len(distinct)
    assert first["encoder_loaded"] is True
    assert first["rows"] == sum(len(p) for p in Pretrained(tiny).cut(list({d.key: d for d in documents}.values())))
    second = encoded(run, "-e", tiny, "-o", "s", *files)
    assert (second["hits"], second["written"], second["bytes"]) == (len(distinct), 0, 0)
    assert second["encoder_loaded"] is False
    assert second["rows_per_s"] is None
    text = run("encode", "-e", tiny, "-o", "s", *files).stdout
    assert "100.0 %" in text
    assert "encoder not loaded" in text


def test_dry_run_counts_exactly_and_writes_nothing(run: Run, tiny: Path, corpus: Path, tmp_path: Path) -> None:
    plan = encoded(run, "-e", tiny, "-o", "s", corpus / "train.conllu", "--dry-run")
    assert not (tmp_path / "s").exists()
    done = encoded(run, "-e", tiny, "-o", "s", corpus / "train.conllu")
    assert (plan["missing"], plan["rows"], plan["duplicates"]) == (done["written"], done["rows"], done["duplicates"])
    assert plan["bytes"] == pytest.approx(done["bytes"], rel=0.01)
    after = encoded(run, "-e", tiny, "-o", "s", corpus / "train.conllu", corpus / "dev.conllu", "--dry-run")
    assert after["hits"] == done["written"]
    assert "Nothing was written." in run("encode", "-e", tiny, "-o", "t", corpus / "dev.conllu", "--dry-run").stdout


def test_a_dry_run_looks_at_the_cap_too(run: Run, tiny: Path, corpus: Path, tmp_path: Path) -> None:
    asked = ("encode", "-e", tiny, "-o", "s", corpus / "train.conllu", "--max-gb", "0.00001")
    tried = run(*asked, "--dry-run", code=1)
    assert "Nothing was written." in tried.stdout
    assert tried.stderr.strip().endswith(
        "over max_bytes=10,000 (--max-gb). Raise it, or store less: fewer items, fewer layers, or dtype='int8'. "
        "Nothing was written."
    )
    assert not (tmp_path / "s").exists()
    assert run(*asked, code=1).stderr.split("need")[0] == tried.stderr.split("need")[0]
    assert not (tmp_path / "s").exists()
    done = run(*asked, "--layers", "last", "--dtype", "int8", "--max-gb", 0.1, "--json")
    assert json.loads(done.stdout)["written"] > 0
    assert Store.open(tmp_path / "s").spec.layers == (2,)


def test_a_config_names_files_store_and_encoder(run: Run, config: Path, tmp_path: Path) -> None:
    done = encoded(run, config, "--set", "layers=[1, 2]", "--dtype", "fp32")
    assert done["asked"] == 84
    spec = Store.open(tmp_path / "states").spec
    assert (spec.layers, spec.dtype) == ((1, 2), "fp32")


def test_jobs_fill_one_store_together(run: Run, tiny: Path, corpus: Path, tmp_path: Path) -> None:
    for index in (1, 0):
        encoded(run, "-e", tiny, "-o", "s", corpus / "train.conllu", "--num-shards", 2, "--shard-index", index)
    documents = read(corpus / "train.conllu")
    assert not Store.open(tmp_path / "s").missing([document.key for document in documents])


def test_a_dry_run_counts_the_jobs_own_part(
    run: Run, tiny: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Item for item what the job then writes, with some stored before; parts and what they leave make the whole."""
    monkeypatch.setattr("encodeonce.store.format.SHARD_BYTES", 6000)
    asked = ("-e", tiny, "-o", "s", corpus / "train.conllu", "--num-shards", 3)
    encoded(run, "-e", tiny, "-o", "s", corpus / "dev.conllu")
    whole = encoded(run, *asked[:-2], "--dry-run")
    for index in range(3):
        plan = encoded(run, *asked, "--shard-index", index, "--dry-run")
        before = encoded(run, *asked[:-2], "--dry-run")
        done = encoded(run, *asked, "--shard-index", index)
        for counted in ("asked", "hits", "duplicates", "elsewhere", "rows"):
            assert plan[counted] == done[counted], counted
        assert plan["missing"] == done["written"]
        assert plan["bytes"] == pytest.approx(done["bytes"], rel=0.05)
        assert 0 < done["written"] < whole["missing"]
        assert done["written"] + done["elsewhere"] == before["missing"]
    said = run("encode", *asked, "--shard-index", 1, "--dry-run").stdout
    assert "0 missing\nto write   0 rows" in said
    said = run("encode", "-e", tiny, "-o", "t", *asked[4:], "--shard-index", 1, "--dry-run").stdout
    assert f"{whole['missing']:,} missing" not in said
    assert "left to other jobs" in said


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["-o", "s", "{train}"], 2, "--encoder is needed"),
        (["-e", "{tiny}", "{train}"], 2, "-o is needed"),
        (["-e", "{tiny}", "-o", "s", "none.conllu"], 1, "There is no file none.conllu"),
        (["-e", "{tiny}", "-o", "s", "{train}", "--layers", "7"], 1, "last 1 to 3"),
        (["-e", "{tiny}", "-o", "s", "{train}", "--layers", "0,x"], 2, "layers are numbers"),
        (["-e", "{tiny}", "-o", "s", "{train}", "--layers", "²"], 2, "write all, last, a number or a list"),
        (["-e", "{tiny}", "-o", "s", "{train}", "--num-shards", "2", "--shard-index", "2"], 2, "must be less than"),
        (["-e", "{tiny}", "-o", "s", "{train}", "--num-shards", "2"], 2, "needs --shard-index, from 0 to 1"),
        (["-e", "{tiny}", "-o", "s", "{train}", "--columns", "form"], 2, "write it as form=0,tag=3"),
        (["-e", "{tiny}", "-o", "s", "{train}", "--max-gb", "0.000001"], 1, "Nothing was written"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, tiny: Path, corpus: Path, args: list[str], code: int, message: str
) -> None:
    filled = [arg.format(tiny=tiny, train=corpus / "train.conllu") for arg in args]
    assert message in run("encode", *filled, code=code).stderr


def test_layers_of() -> None:
    assert [layers_of(text) for text in ("all", "last", "2", "0,3,6")] == ["all", "last", 2, [0, 3, 6]]
    with pytest.raises(click.BadParameter, match="'lats': write all, last, a number or a list such as 0,3,6"):
        layers_of("lats")


def test_rows_of_sentences_and_of_texts(run: Run, tiny: Path, tmp_path: Path) -> None:
    """The last layer alone, a row a sentence; documents without a sentence are counted, found again by content."""
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("The cat sat. A dog ran.", "Birds.", " ")))
    done = encoded(run, "-e", tiny, "-o", "s", texts, "--unit", "sentence")
    assert (done["asked"], done["written"], done["rows"]) == (2, 2, 3)
    spec = Store.open(tmp_path / "s").spec
    assert (spec.unit, spec.pooling, spec.layers) == ("sentence", "mean", (spec.n_blocks,))
    plan = encoded(run, "-e", tiny, "-o", "s", texts, "--unit", "sentence", "--dry-run")
    assert (plan["hits"], plan["rows"]) == (2, 0)
    both = run("encode", "-e", tiny, "-o", "t", texts, "--unit", "text", "--pooling", "cls", "--normalize")
    assert "a row a text (cls+l2)" in both.stdout
    assert "2 texts" in both.stdout
    assert "1 of 3 documents have no text and are left out" in both.stderr
    assert Store.open(tmp_path / "t").spec.pooling == "cls+l2"
    assert "need --unit" in run("encode", "-e", tiny, "-o", "u", texts, "--pooling", "mean", code=2).stderr
