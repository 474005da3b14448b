"""`analyse`: weights and vectors of an encoder beside those of its base; what its documents have in common."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from encodeonce.encoders.pooled import Pooled
from encodeonce.encoders.pretrained import Pretrained

from ..encoders.conftest import checkpoint
from .conftest import LEXICON, Run
from .test_pretrain import articles

__all__ = ["checkpoint"]

PNG = b"\x89PNG"


def doubled(base: Path, folder: Path) -> Path:
    """The encoder with its query weights twice as large."""
    shutil.copytree(base, folder)
    weights = load_file(base / "model.safetensors")
    grown = {name: 2 * w if name.endswith("query.weight") else w for name, w in weights.items()}
    save_file(grown, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_weights(run: Run, tiny: Path, tmp_path: Path) -> None:
    other = doubled(tiny, tmp_path / "run" / "encoder")
    found = json.loads(run("analyse", "weights", tiny, other, "-o", "change.png", "--json").stdout)["run"]
    assert found["query"] == [pytest.approx(1), pytest.approx(1)]
    assert found["key"] == found["dense"] == [0, 0]
    assert (tmp_path / "change.png").read_bytes().startswith(PNG)
    assert "1.00e+00" in run("analyse", "weights", tiny, other).stdout
    twice = run("analyse", "weights", tiny, other, other, code=1)
    assert f"{other} and {other} are both called 'run': give each once, or rename a folder." in twice.stderr
    named_so = doubled(tiny, tmp_path / "base")
    refused = run("analyse", "weights", tiny, named_so, code=1)
    assert f"{named_so} is called 'base', as what it is set beside: rename its folder." in refused.stderr


def test_agreement_of_documents_vectors(run: Run, tiny: Path, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    articles(tmp_path / "articles.jsonl", 20)
    other = doubled(tiny, tmp_path / "run" / "encoder")
    given = ("agreement", tiny, other, "-d", "articles.jsonl", "--sentence-encoder", tiny, "--limit", "12")
    found = json.loads(run("analyse", *given, "-o", "documents.png", "--json").stdout)
    assert (tmp_path / "documents.png").read_bytes().startswith(PNG)
    assert list(found) == ["base: pieces, sentences", "run: pieces, base's pieces", "run: pieces, sentences"]
    own = found["run: pieces, base's pieces"]
    assert own["documents"] == 12
    assert 0.5 < own["pearson"] < 1
    assert own["groups_of_first"] is not None
    done = run("analyse", "agreement", tiny, other, "-d", "articles.jsonl", "--path", "none")
    assert "run: pieces, base's pieces" in done.stdout
    assert "run: pieces, sentences" not in done.stdout
    assert "no scores of groups, which need a category of every document and two at least: 0 of 20 have none" in (
        done.stderr
    )
    assert "no scores of groups" not in run("analyse", *given).stderr
    wide = run("analyse", *given[:5], "--sentence-encoder", checkpoint("bert", hidden_size=32), code=1)
    assert "its vectors have width 32, the piece vectors of" in wide.stderr


def test_masking_is_the_correlation_of_what_transformers_says(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Two heads over one base: every sentence by transformers, Spearman by scipy."""
    from scipy.stats import spearmanr
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

    from encodeonce.methods.fastdoc.hiding import targets_of
    from encodeonce.methods.fastdoc.masking import Window

    tokenizer, models = AutoTokenizer.from_pretrained(tiny), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        shutil.copytree(tiny, tmp_path / f"m{seed}")
        models.append(BertForMaskedLM(BertConfig.from_pretrained(tiny)).eval())
        models[-1].save_pretrained(tmp_path / f"m{seed}")
        settings = json.loads((tiny / "tokenizer_config.json").read_text())
        (tmp_path / f"m{seed}" / "tokenizer_config.json").write_text(json.dumps({**settings, "mask_token": "[MASK]"}))
    nouns = LEXICON["NOUN"]
    sentences = [f"the {a} sees a {b} ." for a in nouns[:3] for b in nouns[2:]] + ["cat"]
    rows = [{"text": s.capitalize(), "id": str(i)} for i, s in enumerate([*sentences, "tree " * 40])]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("masking", "m1", "m2", "-d", "s.jsonl", "--seed", "5", "-o", "masking.png", "--json")
    done = run("analyse", *given)
    said = json.loads(done.stdout)
    assert said["longer_than_the_window"] == 1
    assert "1 of 11 drawn sentences are longer than 32 pieces and left out" in done.stderr
    (found,) = said["pairs"].values()
    assert list(said["pairs"]) == ["base, m2"]
    assert (found["sentences"], found["skipped"]) == (9, 1)
    assert (tmp_path / "masking.png").read_bytes().startswith(PNG)

    order = np.random.default_rng(5).permutation(len(rows))
    texts = [rows[i]["text"] for i in order if len(rows[i]["text"].split()) < 30]
    ids = [np.array(tokenizer(text)["input_ids"]) for text in texts]
    windows = [Window(one, np.array([-1, *range(len(one) - 2), -1]), "") for one in ids]
    both = []
    for model in models:
        own = []
        for one, target in zip(ids, targets_of(windows, 5), strict=True):

            def chance(
                *hidden: int, one: np.ndarray = one, target: int = target, model: torch.nn.Module = model
            ) -> float:
                shown = torch.from_numpy(one.copy())[None]
                shown[0, list(hidden)] = tokenizer.mask_token_id
                with torch.no_grad():
                    return float(model(shown).logits[0, target].softmax(0)[int(one[target])])

            alone = chance(target)
            own.append([chance(target, j) - alone for j in range(1, len(one) - 1) if j != target])
        both.append([deltas for deltas in own if deltas])
    due = [float(spearmanr(a, b).statistic) for a, b in zip(*both, strict=True)]
    assert found["by_sentence"] == pytest.approx(np.mean(due), abs=0.05)
    pooled = spearmanr([x for row in both[0] for x in row], [x for row in both[1] for x in row]).statistic
    assert found["pooled"] == pytest.approx(pooled, abs=0.02)
    same = json.loads(run("analyse", "masking", "m1", "m1", "-d", "s.jsonl", "--json").stdout)["pairs"]["base, m1"]
    assert (same["pooled"], same["by_sentence"]) == pytest.approx((1, 1))


def test_masking_needs_one_tokenizer(run: Run, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    articles(tmp_path / "articles.jsonl", 6)
    two = [checkpoint(family, masked=True) for family in ("bert", "roberta")]
    refused = run("analyse", "masking", *two, "-d", "articles.jsonl", code=1)
    assert "has another tokenizer or window than the base" in refused.stderr
    without = run("analyse", "masking", checkpoint("bert"), checkpoint("bert"), "-d", "articles.jsonl", code=1)
    assert "the files hold no masked-language-model head" in without.stderr


def test_paragraphs_of_similar_documents(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Against cosines of transformers' means, one pair at a time."""
    articles(tmp_path / "articles.jsonl", 24)
    given = ("paragraphs", tiny, "-d", "articles.jsonl", "--pairs", "15", "--levels", "1", "--unit", "sentence")
    done = run("analyse", *given, "-o", "paragraphs.png", "--json")
    assert "15 pairs of either kind" in done.stderr
    assert (tmp_path / "paragraphs.png").read_bytes().startswith(PNG)
    found = json.loads(done.stdout)[tiny.name]

    from encodeonce.cli.analysing_pairs import paired
    from encodeonce.corpus import read

    from .test_retrieve import vectors

    pairs = paired(read(tmp_path / "articles.jsonl"), "category_path", 1, 15, 0)
    rows = [vectors(tiny, list(document.sentences)) for document in pairs.documents]
    topics = [document.meta["category_path"][0] for document in pairs.documents]
    scores: dict[str, list[float]] = {"similar": [], "dissimilar": []}
    for anchor, positive, negative in pairs.drawn:
        assert topics[anchor] == topics[positive] != topics[negative]
        for name, other in (("similar", positive), ("dissimilar", negative)):
            cosines = rows[anchor] @ rows[other].T
            scores[name] += [*cosines.max(1), *cosines.max(0)]
    for name, values in scores.items():
        assert found[name]["n"] == len(values)
        assert found[name]["mean"] == pytest.approx(np.mean(values), abs=1e-5)
        assert found[name]["median"] == pytest.approx(np.median(values), abs=1e-5)
    pairwise = [round(float(a - b), 5) for a in scores["similar"] for b in scores["dissimilar"]]
    higher = np.mean([1.0 if d > 0 else 0.5 * (d == 0) for d in pairwise])
    assert found["similar_higher"] == pytest.approx(higher, abs=0.01)
    assert "higher than dissimilar" in run("analyse", *given).stdout
    refused = run("analyse", "paragraphs", tiny, "-d", "articles.jsonl", "--path", "topic", code=1)
    assert "--path topic: none of 24 documents has this field. There is: brand, category_path" in refused.stderr
    rows = [json.loads(line) for line in (tmp_path / "articles.jsonl").read_text().splitlines()]
    (tmp_path / "none.jsonl").write_text("\n".join(json.dumps({**row, "category_path": []}) for row in rows))
    refused = run("analyse", "paragraphs", tiny, "-d", "none.jsonl", code=1)
    assert "--path category_path: it is empty in all 24 documents" in refused.stderr


def test_documents_without_a_text_are_not_said_to_lack_a_field(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "blank.jsonl").write_text('{"text": " ", "category_path": ["a"]}\n' * 3)
    for command in ("paragraphs", "windows"):
        said = run("analyse", command, tiny, "-d", "blank.jsonl", code=1).stderr
        assert "none of 3 documents has a sentence" in said


def test_documents_of_one_title_are_told_apart_by_their_own_sentences() -> None:
    from encodeonce.cli.analysing_pairs import paired
    from encodeonce.types import Document

    found = paired(
        [Document(str(n), text="Manual", sentences=(f"{n}.",), meta={"path": "ab"[n % 2]}) for n in range(6)],
        "path",
        0,
        4,
        0,
    )
    assert len(found) == 4
    for one, alike, other in found.drawn:
        paths = [found.documents[i].meta["path"] for i in (one, alike, other)]
        assert one != alike
        assert paths[0] == paths[1] != paths[2]


def test_windows_between_equal_inputs(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Pieces by their table, sentences by transformers' means, the nearest of equal ones; chance by its formula."""
    articles(tmp_path / "articles.jsonl", 24)
    given = ("windows", tiny, "-d", "articles.jsonl", "--pairs", "15", "--levels", "1")
    done = run("analyse", *given, "-o", "windows.png", "--json")
    assert (tmp_path / "windows.png").read_bytes().startswith(PNG)
    found = json.loads(done.stdout)
    assert list(found) == ["pieces", "sentences"]
    assert list(found["pieces"]) == [
        "similar", "dissimilar", "chance, similar", "chance, dissimilar", "similar_lower",
    ]  # fmt: skip

    from transformers import AutoModel, AutoTokenizer

    from encodeonce.cli.analysing_pairs import window_lengths
    from encodeonce.corpus import read

    _, pairs = window_lengths(str(tiny), None, read(tmp_path / "articles.jsonl"), "category_path", 1, 15, None, 0)
    tokenizer, table = AutoTokenizer.from_pretrained(tiny), AutoModel.from_pretrained(tiny).embeddings.word_embeddings
    texts = [" ".join(document.sentences) for document in pairs.documents]
    pieces = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert all(len(one) + 2 <= 32 for one in pieces), "beyond the window"
    for k, name in ((1, "similar"), (2, "dissimilar")):
        due, chance = [], []
        for row in pairs.drawn:
            one, two = pieces[row[0]], pieces[row[k]]
            a, b = (torch.nn.functional.normalize(table.weight.detach()[ids]) for ids in (one, two))
            cosines = (a @ b.T).numpy()
            places = [np.flatnonzero(line > line.max() - 1e-6) for line in cosines]
            due.append(np.mean([1 + np.abs(i - js).min() for i, js in enumerate(places)]))
            chance.append(np.mean([1 + abs(i - j) for i in range(len(one)) for j in range(len(two))]))
        assert found["pieces"][name]["n"] == 15
        assert found["pieces"][name]["mean"] == pytest.approx(np.mean(due), abs=1e-5)
        assert found["pieces"][f"chance, {name}"]["mean"] == pytest.approx(np.mean(chance), abs=1e-5)
        assert 1 <= found["sentences"][name]["mean"] <= found["sentences"][name]["sd"] + 4
    fit = sum(len(tokenizer(d.text)["input_ids"]) <= 14 for d in read(tmp_path / "articles.jsonl") if d.text.strip())
    some = run("analyse", *given, "--pieces", "1", "14")
    assert 3 < fit < 24
    assert f"{fit} of 24 documents have 1 to 14 pieces; the others are left out" in some.stderr
    refused = run("analyse", *given, "--pieces", "400", "512", code=1)
    assert "0 of 24 documents have 400 to 512 pieces; three are needed" in refused.stderr
    refused = run("analyse", *given, "--pieces", "9", "2", code=1)
    assert "--pieces 9 2: the least comes first; write --pieces 2 9." in refused.stderr


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_work(run: Run, tiny: Path, tmp_path: Path) -> None:
    refused = run("analyse", "weights", tiny, tiny, "-o", "change.jpig", code=1)
    assert "change.jpig: a picture ends in one of" in refused.stderr
    assert "Figure 2" in run("analyse", "weights", "--help").stdout


@pytest.mark.parametrize("command", ["masking", "paragraphs", "windows"])
def test_a_seed_below_zero_is_refused_as_an_option(run: Run, tiny: Path, tmp_path: Path, command: str) -> None:
    articles(tmp_path / "articles.jsonl", 6)
    encoders = (tiny, tiny) if command == "masking" else (tiny,)
    refused = run("analyse", command, *encoders, "-d", "articles.jsonl", "--seed", "-1", code=2)
    assert "-1 is not in the range x>=0" in refused.stderr


@pytest.mark.parametrize(
    "given",
    [
        ("paragraphs", "TINY", "nowhere"),
        ("agreement", "TINY", "nowhere", "--sentence-encoder", "TINY"),
        ("windows", "TINY", "--sentence-encoder", "nowhere"),
    ],
)
def test_an_encoder_that_is_not_there_is_said_before_any_encodes(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    done: list[str] = []
    monkeypatch.setattr(Pooled, "encode", lambda self, items: done.append("encoded"))
    monkeypatch.setattr(Pretrained, "cut", lambda self, documents: done.append("cut"))
    articles(tmp_path / "articles.jsonl", 12)
    named = [tiny if part == "TINY" else part for part in given]
    refused = run("analyse", *named, "-d", "articles.jsonl", code=1)
    assert "nowhere" in refused.stderr
    assert not done


def test_paragraphs_of_documents_that_bring_sentences_are_these(run: Run, tiny: Path, tmp_path: Path) -> None:
    """Joined with blanks they were one paragraph, as a title beside them was."""
    rows = [
        {"text": " ".join(own), "sentences": own, "category_path": ["ab"[n % 2]]}
        for n, own in enumerate([f"The cat sees {n}.", "A dog.", f"Every {n} bird."] for n in range(8))
    ]
    found = []
    for change in ({}, {"text": None}, {"text": "Manual"}):
        kept = [{key: value for key, value in {**row, **change}.items() if value is not None} for row in rows]
        (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
        for unit in ("paragraph", "sentence"):
            given = ("-d", "own.jsonl", "--pairs", "6", "--unit", unit, "--json")
            found.append(json.loads(run("analyse", "paragraphs", tiny, *given).stdout)[tiny.name])
    assert found[0]["similar"]["n"] == 6 * (3 + 3)
    assert all(one == found[0] for one in found)
