"""Dense retrieval: the field cases over plain arrays, and a store of pooled vectors end to end."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodeonce.errors import ConfigError, SpecMismatch
from encodeonce.retrieval import Retriever
from encodeonce.retrieval.dense import Dense
from encodeonce.types import Document, Spec


class Numbers:
    """Encodes "1 0" as the vector (1, 0)."""

    def __init__(self) -> None:
        self.encoded = 0

    def spec(self, layers: Any = "last", dtype: str = "fp16") -> Spec:
        return Spec("e", "w", "c", "t", 1, 2, (1,), 8, 2, unit="text", pooling="mean", dtype=dtype)

    def cut(self, documents: Sequence[Document]) -> Sequence[Any]:
        return [[float(part) for part in document.text.split()] for document in documents]

    def encode(self, items: Sequence[Any], layers: Any = "last") -> Iterator[tuple[int, np.ndarray]]:
        for i in reversed(range(len(items))):
            self.encoded += 1
            yield i, np.array(items[i], np.float32)[None, None]


def test_RETR_1_fewer_vectors_than_k(cases: Path) -> None:
    case = json.loads((cases / "RETR-1.json").read_text("utf-8"))
    rows = np.array(case["vectors"], np.float32)
    query = " ".join(map(str, case["query"]))
    for kind in ("exact", "flat", "hnsw"):
        dense = Dense(rows, case["ids"], Numbers(), metric="ip", kind=kind)
        assert isinstance(dense, Retriever)
        assert [[hit.passage, hit.score] for hit in dense.find([query], case["k"])[0]] == case["expected"], kind
    with pytest.raises(ConfigError, match="0 vectors for 0 passages; there must be one each, and at least one"):
        Dense(rows[:0], [], Numbers())


def test_RETR_2_cosine_is_an_angle(cases: Path) -> None:
    case = json.loads((cases / "RETR-2.json").read_text("utf-8"))
    rows = np.array(case["vectors"], np.float32)
    before = rows.copy()
    hits = Dense(rows, case["ids"], Numbers()).find([" ".join(map(str, case["query"]))], 3)[0]
    assert [(hit.passage, pytest.approx(hit.score, abs=1e-4)) for hit in hits[:2]] == [
        tuple(e) for e in case["expected"]
    ]
    assert (hits[2].passage, hits[2].score) == ("Z", 0.0)
    assert all(hit.score <= 1 for hit in hits)
    assert np.array_equal(rows, before)


def test_a_question_asked_twice_is_encoded_once() -> None:
    encoder = Numbers()
    dense = Dense(np.eye(2, dtype=np.float32), ["a", "b"], encoder)
    hits = dense.find(["1 0", "0 1", "1 0"], 1)
    assert [found[0].passage for found in hits] == ["a", "b", "a"]
    assert encoder.encoded == 2
    assert dense.find([], 1) == []


def test_scores_of_another_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="metric='l2'"):
        Dense(np.eye(2, dtype=np.float32), ["a", "b"], Numbers(), metric="l2")
    with pytest.raises(ConfigError, match="2 passages have 1 ids, 'a' several times"):
        Dense(np.eye(2, dtype=np.float32), ["a", "a"], Numbers())


def test_over_a_store_of_another_model(tmp_path: Path) -> None:
    from dataclasses import replace

    from encodeonce.store import Store

    documents = [Document("a", text="1 0"), Document("b", text="0 2")]
    store = Store.open(tmp_path / "s", replace(Numbers().spec(), weights="other"))
    with pytest.raises(SpecMismatch, match="weights: 'other' here, 'w' there"):
        Dense.over(store, documents, Numbers())


def test_over_a_store_of_pooled_vectors(minilm: Path, tmp_path: Path) -> None:
    """The question itself is the nearest text, with cosine 1, for a real encoder."""
    from encodeonce.encoders.pooled import Pooled
    from encodeonce.encoders.pretrained import Pretrained
    from encodeonce.store import Store

    encoder = Pooled(Pretrained(minilm), unit="text")
    documents = [Document(f"d{i}", text=text) for i, text in enumerate(["a boat at sea", "the capital city", "bread"])]
    store = Store.open(tmp_path / "s", encoder.spec(dtype="fp32"))
    store.fill(documents, encoder)
    hits = Dense.over(store, documents, encoder).find(["bread", "a ship on the water"], 2)
    assert (hits[0][0].passage, hits[0][0].score) == ("d2", pytest.approx(1, abs=1e-5))
    assert hits[1][0].passage == "d0"
