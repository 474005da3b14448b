"""Fusion inside the encoder as the estimator tries it: neighbours without the text itself, plain where it adds nothing,
one search and then all labels, base model and fusion apart on disk."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodeonce.batching import Source
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, DataError, RunError, TooFewVectors
from encodeonce.integrations._base import Schedule
from encodeonce.integrations._fused import FUSED, Inner, Neighbourhood, fused
from encodeonce.integrations._material import TextVectors, as_documents
from encodeonce.integrations._tuned import Whole, tuned
from encodeonce.integrations.few_shot import FewShot
from encodeonce.methods.refusion import FUSINGS, Fusing, Refusion
from encodeonce.serve.predictor import Predictor
from encodeonce.types import Document

Texts = tuple[list[str], list[str]]


@pytest.fixture
def encoder(checkpoint: Callable[..., Path]) -> Pretrained:
    return Pretrained(checkpoint("bert"))


def estimator(encoder: Pretrained, **settings: object) -> FewShot:
    return FewShot(encoder, **{"folds": 2, "steps": 4, "compute": "fp32", **settings})


def test_neighbours_equal_a_sort_of_all_distances_without_the_text_itself(encoder: Pretrained, others: Texts) -> None:
    corpus = [*others[0][:20], others[0][3].upper()]
    vectors = TextVectors(encoder)
    near = Neighbourhood.of(as_documents(corpus, "text"), vectors)
    assert len(near.search) == 20
    asked = as_documents([others[0][3], others[0][25]], "asked")
    found = near.near(asked, 5).ids
    rows, queries = (vectors.last(texts).astype(np.float64) for texts in (corpus[:20], [others[0][3], others[0][25]]))
    order = np.argsort(((queries[:, None] - rows) ** 2).sum(-1), axis=1, kind="stable")
    assert found[0, 0].tolist() == [i for i in order[0].tolist() if i != 3][:5]
    assert found[1, 0].tolist() == order[1].tolist()[:5]
    pair = near.near(as_documents([(others[0][3], others[0][25])], "pair"), 4).ids
    assert pair.shape == (1, 2, 4)
    assert 3 not in pair
    with pytest.raises(TooFewVectors, match="20 neighbours"):
        near.near(asked, 20)


def test_fusion_that_adds_nothing_is_fine_tuning_bit_for_bit(
    encoder: Pretrained, labelled: Texts, others: Texts
) -> None:
    documents, classes = as_documents(labelled[0], "text"), np.unique(labelled[1], return_inverse=True)[1]
    near = Neighbourhood.of(as_documents(others[0], "other"), TextVectors(encoder))
    base, schedule = Whole(encoder, "fp32"), Schedule(3, 2e-3, 1e-4, seed=1)
    plain = tuned(base, documents, classes, schedule)
    none = fused(base, documents, classes, Fusing(schemes=("identity",), k=8), near, schedule)
    added = fused(base, documents, classes, Fusing(schemes=("add",), k=8), near, schedule)
    asked = as_documents(others[0][:7], "asked")
    expected = plain.answers(asked, 2)
    np.testing.assert_array_equal(none.answers(asked, 2), expected)
    assert np.abs(added.answers(asked, 2) - expected).max() > 1e-6
    predictor = Predictor(plain.run, encoder=encoder)
    said = [one["label"][1] for one in predictor.predict(asked, probabilities=True)]
    np.testing.assert_array_equal(expected, [[one["0"], one["1"]] for one in said])
    assert none.decisions == ()


def test_a_search_by_name_is_shown_answers_and_reloads(
    encoder: Pretrained, labelled: Texts, others: Texts, tmp_path: Path
) -> None:
    model = estimator(encoder, methods=("refusion",)).fit(*labelled, unlabelled=others[0])
    assert [one.name for one in model.tried_] == ["refusion", "mixture"]
    decided = model.architecture_["refusion"]
    n_blocks = encoder.spec().n_blocks
    assert [(one.block, one.slot) for one in decided] == [(b, s) for b in range(n_blocks) for s in ("key", "value")]
    assert {len(one.shares) for one in decided} == {3}
    assert max(one.lead for one in decided) > 0.01
    trained = model._trained["refusion"]
    assert trained.method.choice() == tuple(one.chosen for one in decided)
    assert model.score(*others) > 0.9
    answers = model.predict_proba(others[0][:9])
    model.save(tmp_path / "kept")
    kept = {path.name for path in (tmp_path / "kept" / "refusion").iterdir()}
    assert {"model.safetensors", "fusion.safetensors", "fusion.json"} < kept
    again = FewShot.load(tmp_path / "kept", Pretrained(encoder.path))
    np.testing.assert_array_equal(again.predict_proba(others[0][:9]), answers)
    assert again.architecture_ == model.architecture_
    ratios = model.ratios_["refusion"]
    assert set(ratios) == {(one.block, one.slot) for one in decided if one.chosen != "identity"}
    assert all(ratio > 0 for ratio in ratios.values())
    assert again.ratios_ == model.ratios_
    shutil.copy(tmp_path / "kept" / "config.json", tmp_path / "kept" / "refusion" / "fusion.json")
    with pytest.raises(RunError, match=r"refusion does not hold the files"):
        FewShot.load(tmp_path / "kept", encoder)


def test_a_search_keeps_copies_in_one_half_and_needs_two_texts(
    encoder: Pretrained, labelled: Texts, others: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies that differ in case were learned from in one half and judged by in the other."""
    texts, labels = labelled[0][:4], labelled[1][:4]
    halves, read = [], Refusion.read

    def noted(method: Refusion, source: Source, documents: list[Document], *more: Any) -> Any:
        halves.append({document.text.lower() for document in documents})
        return read(method, source, documents, *more)

    monkeypatch.setattr(Refusion, "read", noted)
    near = Neighbourhood.of(as_documents(others[0], "other"), TextVectors(encoder))
    schedule = Schedule(2, 2e-3, 1e-4, seed=1)
    twice = as_documents([*texts, *(text.upper() for text in texts)], "text")
    classes = np.unique(labels * 2, return_inverse=True)[1]
    fused(Whole(encoder, "fp32"), twice, classes, FUSINGS["refusion"], near, schedule)
    assert halves[0].isdisjoint(halves[1])
    assert halves[0] | halves[1] == halves[2] == set(texts)
    with pytest.raises(DataError, match=r"all 2 to learn from here are one text. .* add, reranker, mask"):
        fused(Whole(encoder, "fp32"), twice[::4], np.array([0, 1]), FUSINGS["refusion"], near, schedule)


def test_a_metric_of_ones_own_is_kept(encoder: Pretrained, labelled: Texts, others: Texts, tmp_path: Path) -> None:
    documents, classes = as_documents(labelled[0], "text"), np.unique(labelled[1], return_inverse=True)[1]
    vectors = TextVectors(encoder)
    near = Neighbourhood.of(as_documents(others[0], "other"), vectors, "ip")
    own = fused(Whole(encoder, "fp32"), documents, classes, FUSINGS["add"], near, Schedule(2, 2e-3, 1e-4, seed=1))
    own.save(tmp_path / "add")
    again = Inner.load(tmp_path / "add", encoder, vectors)
    assert again.neighbourhood.search.metric == "ip"
    asked = as_documents(others[0][:7], "asked")
    np.testing.assert_array_equal(again.answers(asked, 2), own.answers(asked, 2))


def test_fusion_without_unlabelled_texts_and_the_released_one_are_refused(encoder: Pretrained, labelled: Texts) -> None:
    with pytest.raises(ConfigError, match=r"method 'convex' needs unlabelled texts"):
        estimator(encoder, methods=("probe", "convex")).fit(*labelled)
    with pytest.raises(ConfigError, match=r"method 'release' is the released code's arithmetic.* Take 'refusion'"):
        estimator(encoder, methods=("release",)).fit(*labelled)
    assert set(FUSINGS) - set(FUSED) == {"release"}


def test_an_estimator_saved_over_another_leaves_nothing_of_it(
    encoder: Pretrained, labelled: Texts, others: Texts, tmp_path: Path
) -> None:
    """The corpus of the one that was there before stayed in its folder, in plain words."""
    kept = tmp_path / "kept"
    estimator(encoder, methods=("add",), neighbours=8).fit(*labelled, unlabelled=others[0]).save(kept)
    assert (kept / "add" / "inner.json").is_file()
    (kept / "notes").mkdir()
    model = estimator(encoder, methods=("probe",)).fit(*labelled)
    model.save(kept)
    assert sorted(path.name for path in kept.iterdir()) == ["config.json", "model.safetensors", "notes"]
    np.testing.assert_array_equal(FewShot.load(kept, encoder).predict(others[0][:9]), model.predict(others[0][:9]))
