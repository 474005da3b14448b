"""Neighbours of texts: held against a sort of all distances, without the examples themselves, computed once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.batching import Cut, Examples
from encodeonce.encoders.pooled import Pooled
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, CorruptStore, DataError, NotStored, SpecMismatch, TooFewVectors
from encodeonce.methods.refusion import Near, Retrieved, Retriever, instead
from encodeonce.store import Search, Store
from encodeonce.store.claim import Claim
from encodeonce.types import Document

WORDS = ("the", "cat", "sat", "on", "mat", "river", "banks", "running", "naive", "cafe", "rents", "co", "op")


def texts(n: int, seed: int = 0) -> list[Document]:
    draw = np.random.default_rng(seed)
    chosen = {" ".join(draw.choice(WORDS, int(draw.integers(3, 9)))) for _ in range(3 * n)}
    return [Document(f"t{i}", text=text, meta={"label": "x"}) for i, text in enumerate(sorted(chosen)[:n])]


class Counting(Pooled):
    """Says how many texts it encoded."""

    encoded = 0

    def encode(self, items: Any, layers: Any = "last") -> Any:
        self.encoded += len(items)
        return super().encode(items, layers)


@pytest.fixture(scope="module")
def encoder(checkpoint: Callable[..., Path]) -> Counting:
    return Counting(Pretrained(checkpoint("bert")), "text")


@pytest.fixture
def retriever(encoder: Counting, tmp_path: Path) -> Retriever:
    return Retriever.build(tmp_path / "corpus", texts(40), encoder)


def test_neighbours_equal_a_sort_of_all_distances_without_the_example_itself(retriever: Retriever) -> None:
    asked = [*texts(40)[:6], *texts(6, seed=9)]
    corpus = retriever.vectors(retriever.texts).astype(np.float64)
    near = retriever.near(asked, 5)
    assert near.ids.shape == (12, 1, 5)
    for n, document in enumerate(asked):
        query = retriever.vectors([document.text])[0].astype(np.float64)
        order = np.argsort(((corpus - query) ** 2).sum(1), kind="stable")
        expected = [i for i in order if retriever.texts[i] != document.text][:5]
        assert near.ids[n, 0].tolist() == expected
    with_own = retriever.near(asked[:6], 5, exclude_same=False)
    assert [retriever.texts[i] for i in with_own.ids[:, 0, 0]] == [document.text for document in asked[:6]]
    assert not with_own.scores[:, 0, 0].any()


def test_copies_up_to_case_and_spacing_are_no_neighbours(encoder: Counting, tmp_path: Path) -> None:
    corpus = [
        *texts(10),
        Document("c", text="The  Cat sat"),
        Document("d", text="the cat sat"),
        Document("e", text=" "),
    ]
    retriever = Retriever.build(tmp_path / "c", corpus, encoder)
    assert len(retriever) == 11
    assert retriever.texts[-1] == "The  Cat sat"
    near = retriever.near([Document("q", text="the cat SAT ")], 10)
    assert 10 not in near.ids


def test_words_and_both_texts_of_pairs_are_searched_and_averaged(retriever: Retriever) -> None:
    words = Document("w", words=("the", "cat", "on"))
    pair = Document("p", text="the cat on", pair="naive cafe by the river")
    near = retriever.near([pair, words], 4)
    first = retriever.near([words], 4)
    second = retriever.near([Document("s", text=pair.pair)], 4)
    assert near.ids[0].tolist() == [first.ids[0, 0].tolist(), second.ids[0, 0].tolist()]
    assert near.ids[1, 0].tolist() == near.ids[1, 1].tolist() == first.ids[0, 0].tolist()
    rows = near.vectors(np.array([0]))[0]
    every = np.concatenate([first.vectors(np.array([0]))[0], second.vectors(np.array([0]))[0]])
    np.testing.assert_allclose(rows[1], (every[1] + every[5]) / 2, atol=1e-6)


def test_I25_pair_averaging_keeps_the_plain_mean(retriever: Retriever) -> None:
    near = retriever.near([Document("p", text="the cat", pair="a mat")], 6)
    np.testing.assert_allclose(
        near.vectors(np.array([0]))[0].mean(0), retriever.search.vectors(near.ids[0]).mean((0, 1)), atol=1e-6
    )


def test_neighbours_are_computed_once_and_again_when_anything_changed(
    retriever: Retriever, encoder: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    asked = texts(4, seed=5)
    first = retriever.near(asked, 3)
    before = encoder.encoded
    again = Retriever.open(retriever.folder, encoder).near(asked, 3)
    np.testing.assert_array_equal(again.ids, first.ids)
    np.testing.assert_array_equal(again.scores, first.scores)
    assert again.mark == first.mark
    assert encoder.encoded == before
    (kept,) = (retriever.folder / "near").iterdir()
    kept.write_bytes(kept.read_bytes()[:20])
    np.testing.assert_array_equal(retriever.near(asked, 3).ids, first.ids)
    assert "cannot be read, so its neighbours are found anew" in caplog.text
    caplog.clear()
    np.testing.assert_array_equal(retriever.near(asked, 3).scores, first.scores)
    assert "found anew" not in caplog.text
    retriever.near(asked, 4)
    retriever.near(asked[:3], 3)
    retriever.near(asked, 3, exclude_same=False)
    assert len(list((retriever.folder / "near").iterdir())) == 4


def test_neighbours_of_a_pair_are_never_taken_for_those_of_its_texts_by_themselves(retriever: Retriever) -> None:
    first, second = texts(40)[:2]
    pair = retriever.near([Document("p", text=first.text, pair=second.text)], 5)
    alone = retriever.near([first, second], 5)
    assert (pair.ids.shape, alone.ids.shape) == ((1, 2, 5), (2, 1, 5))
    rows = [retriever.texts.index(document.text) for document in (first, second)]
    assert not np.isin(pair.ids, rows).any()
    corpus = retriever.vectors(retriever.texts).astype(np.float64)
    for ids, row in zip(alone.ids, rows, strict=True):
        order = np.argsort(((corpus - corpus[row]) ** 2).sum(1), kind="stable")
        assert ids[0].tolist() == [other for other in order if other != row][:5]
        assert retriever.near([Document("q", text=retriever.texts[row])], 5).ids.tolist() == [ids.tolist()]


def test_leakage_names_the_examples_that_stand_in_the_corpus(retriever: Retriever) -> None:
    asked = [
        Document("new", text="xyz"),
        Document("old", text=retriever.texts[7].upper()),
        Document("p", text="q", pair=retriever.texts[3]),
    ]
    found = retriever.leakage(asked)
    assert (found.found, found.clean, round(found.share, 3)) == ((1, 2), (0,), 0.667)


def test_a_corpus_smaller_than_k_is_refused_or_said(retriever: Retriever, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TooFewVectors, match=r"64 neighbours asked for, but there are 40 vectors"):
        retriever.near(texts(2, seed=3), 64)
    assert retriever.near(texts(2, seed=3), 64, allow_fewer=True).ids.shape == (2, 1, 40)
    assert "64 neighbours asked for, 40 found" in caplog.text


def test_another_encoder_is_refused_by_name(retriever: Retriever, checkpoint: Callable[..., Path]) -> None:
    other = Pooled(Pretrained(checkpoint("roberta")), "text")
    with pytest.raises(SpecMismatch, match="was made by something else"):
        Retriever.open(retriever.folder, other)
    with pytest.raises(SpecMismatch, match="pooling: 'cls' here, 'mean' there"):
        Retriever.open(retriever.folder, Pooled(Pretrained(checkpoint("bert")), "text", "cls"))
    with pytest.raises(SpecMismatch, match="gives a row a sentence; retrieval needs one a text"):
        Retriever.open(retriever.folder, Pooled(Pretrained(checkpoint("bert")), "sentence"))


def test_a_folder_holds_one_corpus(retriever: Retriever, encoder: Counting, tmp_path: Path) -> None:
    Retriever.build(retriever.folder, texts(40), encoder)
    with pytest.raises(ConfigError, match=r"holds another corpus .*texts: 39 asked for, 40 there"):
        Retriever.build(retriever.folder, texts(40)[1:], encoder)
    with pytest.raises(ConfigError, match=r"corpus\.json is missing. Build it first"):
        Retriever.open(tmp_path / "nothing", encoder)
    with pytest.raises(DataError, match="no text to retrieve among 1 documents"):
        Retriever.build(tmp_path / "empty", [Document("e", text=" ")], encoder)
    with pytest.raises(DataError, match=r"^e: a text is empty, so nothing is near it"):
        retriever.near([Document("e", words=(" ",))], 1)
    with pytest.raises(DataError, match=r"^asked.tsv:7: a text is empty"):
        retriever.near([Document("d", text="x"), Document("e", text="x", pair=" ", place="asked.tsv:7")], 1)
    with pytest.raises(DataError, match=r"^text 2 is empty"):
        retriever.vectors(["x", " "])
    manifest = retriever.folder / "corpus.json"
    whole = manifest.read_text("utf-8")
    for broken in (whole[:20], "[]", "{}"):
        manifest.write_text(broken)
        with pytest.raises(CorruptStore, match=r"corpus\.json was changed .* Build the corpus anew"):
            Retriever.open(retriever.folder, encoder)
    manifest.write_text(whole)
    path = retriever.folder / "texts.jsonl"
    path.write_text(path.read_text("utf-8").replace("cat", "cats", 1), encoding="utf-8")
    with pytest.raises(CorruptStore, match=r"texts\.jsonl was changed"):
        Retriever.open(retriever.folder, encoder)


def test_of_two_that_build_one_folder_at_once_the_first_corpus_stands(
    encoder: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process builds while this one encodes."""
    fill, others = Store.fill, [texts(12, seed=7)]

    def interrupted(store: Store, *given: Any, **options: Any) -> Any:
        if others:
            Retriever.build(tmp_path / "c", others.pop(), encoder)
        return fill(store, *given, **options)

    monkeypatch.setattr(Store, "fill", interrupted)
    with pytest.raises(ConfigError, match=r"c holds another corpus \(texts: 10 asked for, 12 there"):
        Retriever.build(tmp_path / "c", texts(10), encoder)
    assert Retriever.open(tmp_path / "c", encoder).texts == tuple(one.text for one in texts(12, seed=7))
    others.append(texts(12, seed=7))
    assert len(Retriever.build(tmp_path / "c", texts(12, seed=7), encoder, metric="ip")) == 12


def test_no_file_of_a_corpus_is_ever_seen_half_written(retriever: Retriever, encoder: Counting, tmp_path: Path) -> None:
    """Who opened a file before it is written again still reads the old one whole, and a temporary file that another
    process writes is not taken for one's own."""
    for name in ("texts.jsonl", "corpus.json"):
        (tmp_path / name).hardlink_to(retriever.folder / name)
        (retriever.folder / name).write_bytes((retriever.folder / name).read_bytes() + b"\n")
    before = {name: (tmp_path / name).read_bytes() for name in ("texts.jsonl", "corpus.json")}
    Retriever.build(retriever.folder, texts(40), encoder)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert (retriever.folder / "texts.jsonl").read_bytes() == before["texts.jsonl"][:-1]
    first = retriever.near(texts(4, seed=5), 3)
    (kept,) = (retriever.folder / "near").iterdir()
    for name in (kept.with_suffix(".tmp"), kept.with_name(f"{kept.name}.tmp")):
        claim = Claim.take(name)
        assert claim is not None
        with claim:
            claim.write(b"half", 0)
            kept.unlink()
            np.testing.assert_array_equal(retriever.near(texts(4, seed=5), 3).ids, first.ids)
            assert name.read_bytes() == b"half"


@pytest.mark.parametrize(("named", "message"), [({"metric": "cosin"}, "'cosine'"), ({"kind": "exat"}, "'exact'")])
def test_a_search_that_is_not_known_is_refused_before_anything_is_encoded(
    named: dict[str, str], message: str, encoder: Counting, tmp_path: Path
) -> None:
    before = encoder.encoded
    with pytest.raises(ConfigError, match=f"is none of .*Did you mean {message}"):
        Retriever.build(tmp_path / "new", texts(8), encoder, **named)
    assert encoder.encoded == before
    assert not (tmp_path / "new").exists()


def test_another_metric_searches_the_same_vectors_and_has_neighbours_of_its_own(
    retriever: Retriever, encoder: Counting
) -> None:
    """Two metrics over one folder: nothing is encoded again, and neither takes what was kept for the other."""
    asked = texts(12, seed=5)
    retriever.vectors([document.text for document in asked])
    before = encoder.encoded
    other = Retriever.build(retriever.folder, texts(40), encoder, metric="ip")
    first, second = retriever.near(asked, 5), other.near(asked, 5)
    assert encoder.encoded == before
    corpus, queries = (retriever.vectors(own).astype(np.float64) for own in (retriever.texts, [d.text for d in asked]))
    for found, scores in (
        (first, -((queries[:, None] - corpus) ** 2).sum(-1)),
        (second, queries @ corpus.T),
    ):
        for n, document in enumerate(asked):
            order = [i for i in np.argsort(-scores[n], kind="stable") if retriever.texts[i] != document.text]
            assert found.ids[n, 0].tolist() == order[:5]
    assert not np.array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(Retriever.open(retriever.folder, encoder).near(asked, 5).ids, second.ids)
    again = Retriever.open(retriever.folder, encoder, metric="l2", kind="exact")
    np.testing.assert_array_equal(again.near(asked, 5).ids, first.ids)


def test_a_mark_is_of_the_vectors_too(retriever: Retriever) -> None:
    near = retriever.near(texts(3, seed=4), 3)
    rows = near.search.vectors(np.arange(len(near.search)))
    assert replace(near, search=Search(rows)).mark == near.mark
    assert replace(near, search=Search(rows + 1)).mark != near.mark


def test_labels_are_stored_nowhere(encoder: Counting, tmp_path: Path) -> None:
    labelled = [replace(document, meta={"label": "zyxwv"}) for document in texts(40)]
    Retriever.build(tmp_path / "corpus", labelled, encoder)
    files = [path for path in (tmp_path / "corpus").rglob("*") if path.is_file()]
    assert any(path.parent.name == "states" for path in files)
    assert not [path for path in files if b"zyxwv" in path.read_bytes() or b"label" in path.read_bytes()]


def test_a_source_brings_each_item_its_own_neighbours(retriever: Retriever, encoder: Counting) -> None:
    documents = texts(5, seed=4)
    cut = Cut(encoder.model.spec(), encoder.model.cut(documents))
    near = retriever.near(documents[::-1], 3)
    source = Retrieved(cut, near)
    packed = source.batch(source.index([documents[3].key, documents[0].key]))
    expected = near.vectors(np.array([1, 4]))
    assert packed.near is not None
    assert torch.equal(packed.near, torch.from_numpy(expected))
    assert packed.ids is not None
    with pytest.raises(NotStored, match="no neighbours of the item"):
        Retrieved(cut, Near(near.keys[:3], near.ids[:3], near.scores[:3], near.search)).index([documents[0].key])
    plain, fused = Examples.read(cut, documents).fingerprint(), Examples.read(source, documents).fingerprint()
    assert set(fused) - set(plain) == {"neighbours"}
    other = Retrieved(cut, retriever.near(documents[::-1], 2))
    assert Examples.read(other, documents).fingerprint()["neighbours"] != fused["neighbours"]


def test_controls_have_the_form_of_neighbours_and_nothing_of_their_content(retriever: Retriever) -> None:
    near = retriever.near(texts(5, seed=4), 3)
    every = np.arange(5)
    shuffled = instead("shuffled", near)
    assert sorted(map(tuple, shuffled.ids[:, 0].tolist())) == sorted(map(tuple, near.ids[:, 0].tolist()))
    assert all(shuffled.ids[i].tolist() != near.ids[i].tolist() for i in every)
    constant = instead("constant", near).vectors(every)
    mean = retriever.vectors(retriever.texts).mean(0)
    np.testing.assert_allclose(constant, np.broadcast_to(mean, constant.shape), atol=1e-5)
    drawn, again, other = instead("random", near), instead("random", near), instead("random", near, seed=1)
    np.testing.assert_array_equal(drawn.ids, again.ids)
    assert not np.array_equal(drawn.ids, other.ids)
    assert all(len(set(row.ravel().tolist())) == 3 for row in drawn.ids)
    alone = instead("random", Near(near.keys[2:3], near.ids[2:3], near.scores[2:3], near.search))
    np.testing.assert_array_equal(alone.ids[0], drawn.ids[2])
    pairs = retriever.near([Document("p", text="the cat", pair="a mat")], 25)
    assert all(len(set(row.tolist())) == 25 for row in instead("random", pairs).ids[0])
    with pytest.raises(ConfigError, match=r"control 'mean' is not known"):
        instead("mean", near)
    with pytest.raises(ConfigError, match="1 different example cannot be given another's neighbours"):
        instead("shuffled", retriever.near(texts(1), 3))


def test_no_control_gives_an_example_its_own_text_or_a_copys_neighbours(retriever: Retriever) -> None:
    inside = [*texts(40)[:12], Document("again", text=texts(40)[0].text)]
    for _ in range(2):  # found, then read from the folder
        near = retriever.near(inside, 6)
        own = [retriever.texts.index(document.text) for document in inside]
        shuffled = instead("shuffled", near, seed=3)
        theirs = {tuple(ids.ravel().tolist()): key for ids, key in zip(near.ids, near.keys, strict=True)}
        for n, row in enumerate(own):
            assert row not in shuffled.ids[n]
            assert theirs[tuple(shuffled.ids[n].ravel().tolist())] != near.keys[n]
    every = retriever.near(inside, 39)
    for ids, row in zip(instead("random", every).ids, own, strict=True):
        assert sorted(ids.ravel().tolist()) == [n for n in range(40) if n != row]
    with pytest.raises(ConfigError, match=r"example 0 is among the neighbours of all others.*retrieve fewer than 39"):
        instead("shuffled", every)
    anything = instead("random", retriever.near(inside, 40, exclude_same=False))
    assert all(len(set(ids.ravel().tolist())) == 40 for ids in anything.ids)
