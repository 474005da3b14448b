"""Relative change, window length, perturbation (identities 17 to 19); what is measured of documents."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import DataError
from encodeonce.methods.fastdoc.analysis import change, paragraph_similarity, perturbation, window_length
from encodeonce.methods.fastdoc.fastdoc import FastDoc
from encodeonce.methods.fastdoc.measure import by_sentences, by_vectors, centred_share, triplet_accuracy
from encodeonce.methods.fastdoc.objective import Objective

from .test_fastdoc import documents, sentence_store


def test_fd17_relative_change(checkpoint: Callable[..., Path]) -> None:
    before, after = (Pretrained(checkpoint("bert")).stack() for _ in range(2))
    old = {name: w.clone() for name, w in before.model.state_dict().items()}
    for factor, due in ((1.0, (0, 0)), (2.0, (1, 1)), (-1.0, (2, 0))):
        after.model.load_state_dict({name: factor * w for name, w in old.items()})
        found = change(before, after)
        assert list(found) == ["query", "key", "value", "dense", "all"]
        for value in found.values():
            assert value == pytest.approx(due)
    name = "encoder.layer.1.attention.self.query.weight"
    after.model.load_state_dict(old | {name: 3 * old[name]})
    found = change(before, after)
    inside = {n: float(w.abs().sum()) for n, w in old.items() if n.startswith("encoder") and w.ndim == 2}
    assert found["all"][0] == pytest.approx(2 * inside[name] / sum(inside.values()))
    assert found["query"][0] == pytest.approx(2 * inside[name] / sum(s for n, s in inside.items() if "query" in n))
    assert found["key"] == found["value"] == found["dense"] == (0, 0)
    with pytest.raises(DataError, match=r"4 blocks of width 32 \(ModernBert\) beside 3 blocks of width 32 \(Bert\)"):
        change(before, Pretrained(checkpoint("modernbert")).stack())


def test_a_pooler_that_the_files_lack_is_no_change(checkpoint: Callable[..., Path]) -> None:
    """A masked language model's files have none: it is drawn anew by whoever loads them."""
    one, two = (Pretrained(checkpoint("bert", masked=True)).stack() for _ in range(2))
    assert not torch.equal(one.model.pooler.dense.weight, two.model.pooler.dense.weight)
    assert set(change(one, two).values()) == {(0, 0)}


@pytest.mark.parametrize(
    ("family", "name", "group"),
    [
        ("modernbert", "layers.0.attn.Wqkv.weight", "key"),
        ("gpt2", "h.0.attn.c_attn.weight", "key"),
        ("t5", "encoder.block.0.layer.1.DenseReluDense.wi_1.weight", "dense"),
        ("albert", "encoder.albert_layer_groups.0.albert_layers.0.ffn_output.weight", "dense"),
    ],
)
def test_every_matrix_of_the_blocks_is_in_its_group(
    checkpoint: Callable[..., Path], family: str, name: str, group: str
) -> None:
    """The second third of a fused matrix, along its outputs, is the keys'; a block that runs twice counts once."""
    before, after = (Pretrained(checkpoint(family)).stack() for _ in range(2))
    weights = after.model.state_dict()
    inside = [w for n, w in weights.items() if re.search(r"\.\d\.", n) and "bias" not in n and w.ndim == 2]
    whole = sum(float(w.abs().sum()) for w in inside)
    part = weights[name]
    part = {"modernbert": part[32:64], "gpt2": part[:, 32:64]}.get(family, part)
    due = float(part.abs().sum()) / whole
    part *= 2
    found = change(before, after)
    assert {key for key, (r1, _) in found.items() if r1} == {group, "all"}
    assert found["all"][0] == pytest.approx(due)


def test_fd18_window_length() -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 12))
    assert window_length(vectors, vectors) == 1
    due = np.mean([1 + abs(2 * i - 7 - 1) for i in range(1, 8)])
    assert window_length(vectors, vectors[::-1]) == pytest.approx(due)
    with pytest.raises(DataError, match="both need one"):
        window_length(vectors, vectors[:0])
    repeated = vectors[[0, 1, 2, 0, 1, 0, 3]]
    assert window_length(repeated, repeated) == 1, "a piece that stands three times is nearest to itself"
    assert window_length(vectors[:3], vectors[[5, 1, 1, 0, 2]]) == pytest.approx(1 + (3 + 0 + 2) / 3)


def test_every_paragraph_of_both_documents_has_its_nearest() -> None:
    one, two = np.random.default_rng(1).normal(size=(3, 6)), np.random.default_rng(2).normal(size=(5, 6))

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.sqrt((a @ a) * (b @ b)))

    due = [max(cosine(a, b) for b in two) for a in one] + [max(cosine(a, b) for a in one) for b in two]
    np.testing.assert_allclose(paragraph_similarity(one, two), due, atol=1e-12)


def test_fd19_a_model_agrees_with_itself_and_single_pieces_are_skipped() -> None:
    generator = np.random.default_rng(0)
    rows = [generator.normal(size=n).tolist() for n in (5, 8, 1, 0, 4)]
    same = perturbation(rows, rows)
    assert (same.pooled, same.by_sentence) == pytest.approx((1, 1))
    assert (len(same.of_sentences), same.skipped) == (3, 2)
    other = perturbation(rows, [[-x for x in row] for row in rows])
    assert other.by_sentence == pytest.approx(-1)
    with pytest.raises(DataError, match="none of 1 sentences"):
        perturbation([[1.0]], [[2.0]])


@pytest.mark.parametrize("changes", [{"scale": "token"}, {"projection": "linear"}, {}])
def test_documents_are_measured_from_sentences_as_they_are_trained_on(
    checkpoint: Callable[..., Path], changes: dict[str, Any]
) -> None:
    """By transformers, from sentence vectors times the scale, or through the projection, a document a pass."""
    objective = Objective.named("triplet", **changes)
    method = FastDoc(Pretrained(checkpoint("bert")).stack(), objective, token_scale=3.0)
    if method.projection is not None:
        torch.nn.init.normal_(method.projection.weight)
    items = documents(7)
    store = sentence_store(items)
    index = store.index([item.key_in("sentence") for item in items])
    found = by_sentences(method, store, index, size=3)
    model = Pretrained(checkpoint("bert")).stack().model
    for n in range(len(items)):
        vectors = store.batch(index[[n]]).views[-1]
        vectors = 3 * vectors if "scale" in changes else vectors
        if method.projection is not None:
            vectors = vectors @ method.projection.weight.detach().T
        with torch.no_grad():
            due = model(inputs_embeds=vectors[None]).last_hidden_state.mean(1)[0]
        np.testing.assert_allclose(found[n], due.numpy(), atol=2e-5)
    if not changes:
        given = [store.batch(index[[n]]).views[-1].numpy() for n in range(len(items))]
        np.testing.assert_allclose(by_vectors(method.blocks, given, size=2), found, atol=2e-5)


def test_accuracy_and_centred_share_of_documents() -> None:
    vectors = np.array([[0.0, 0], [1, 0], [5, 0], [0, 2]])
    assert triplet_accuracy(vectors, np.array([[0, 1, 2], [0, 2, 1], [0, 1, 3]])) == pytest.approx(200 / 3)
    assert triplet_accuracy(vectors, np.array([[0, 1, 3, 2]])) == 100, "a quadruplet's negative is the last"
    assert centred_share(np.ones((5, 3))) == 0
    spread = np.random.default_rng(0).normal(size=(4000, 8))
    assert centred_share(spread) == pytest.approx(1, abs=0.01)
    assert centred_share(spread + 10) < 0.2
