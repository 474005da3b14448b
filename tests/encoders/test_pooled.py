"""Pooled vectors against transformers and NumPy; keys, windows, the store."""

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from encodeonce.corpus.text import with_sentences
from encodeonce.encoders.pooled import Pooled
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, DataError, EncoderError, SpecMismatch
from encodeonce.store import Store, verify
from encodeonce.types import Document, Texts

Checkpoint = Callable[..., Path]

TEXTS = ("the cat sat . The dog sat on the mat !", "a cat . The mat is red . The cat sat .", "dogs run")


def documents() -> list[Document]:
    return with_sentences(Document(f"d{i}", text=text, place=f"f:{i}") for i, text in enumerate(TEXTS))


def by_transformers(folder: Path, texts: list[str], pooling: str, layer: int) -> np.ndarray:
    """Masked mean as sentence-transformers writes it; positions are given, as the tiny models' padding id is a word."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, rows = AutoModel.from_pretrained(folder).eval(), []
    for text in texts:
        lead = " " if "Ġ" in "".join(tokenizer.tokenize("a cat")) else ""  # every word is cut as in running text
        shown = tokenizer(lead + text, return_tensors="pt")
        first = getattr(model.embeddings, "padding_idx", -1) + 1
        shown["position_ids"] = torch.arange(shown["input_ids"].shape[1])[None] + first
        with torch.no_grad():
            states = model(**shown, output_hidden_states=True).hidden_states[layer]
        mask = shown["attention_mask"][..., None].float()
        pooled = states[:, 0] if pooling == "cls" else (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        rows.append(pooled[0].numpy())
    return np.stack(rows)


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_row_a_sentence_is_what_transformers_gives(checkpoint: Checkpoint, family: str, pooling: str) -> None:
    folder = checkpoint(family)
    source, items = Pooled(Pretrained(folder), "sentence", pooling), documents()
    views = dict(source.encode(source.cut(items), [0, 2]))
    for i, item in enumerate(items):
        assert views[i].shape == (2, len(item.sentences), 32)
        for place, layer in enumerate((0, 2)):
            due = by_transformers(folder, list(item.sentences), pooling, layer)
            np.testing.assert_allclose(views[i][place], due, atol=2e-5)


def test_a_row_a_text_of_words_texts_and_pairs_and_length_1(checkpoint: Checkpoint) -> None:
    model = Pretrained(checkpoint("bert"))
    items = [Document("w", ("the", "cat")), Document("t", text="the cat"), Document("p", text="the cat", pair="a dog")]
    plain = dict(model.encode(model.cut(items), "last"))
    source = Pooled(model, "text", normalize=True)
    for i, views in source.encode(source.cut(items), "last"):
        due = plain[i][0].astype(np.float64).mean(0)
        np.testing.assert_allclose(views[0, 0], due / np.sqrt((due**2).sum()), atol=1e-6)
        assert views.shape == (1, 1, 32)
    assert len({item.key_in("text") for item in items}) == 3


def test_a_long_sentence_is_windowed_never_cut(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Its vector is the mean over the pieces of all windows, and it is counted."""
    model = Pretrained(checkpoint("bert"), window=8, overlap=2)
    long = Document("d", sentences=("the cat " * 9 + "mat", "a dog"))
    source = Pooled(model)
    store = Store.open(tmp_path / "s", source.spec(dtype="fp32"))
    report = store.fill([long], source)
    assert (report.rows, report.windowed) == (2, 1)
    alone = Document("x", text=long.sentences[0])
    (_, views), *_ = model.encode(model.cut([alone]), "last")
    assert views.shape[1] == 21
    np.testing.assert_allclose(store.get(*store.keys([long])).states[0, 0], views[0].mean(0), atol=1e-6)


@pytest.mark.parametrize(("dtype", "within"), [("fp32", 1e-6), ("fp16", 2e-3), ("bf16", 2e-2), ("int8", 5e-2)])
def test_stored_found_again_and_never_mixed(checkpoint: Checkpoint, tmp_path: Path, dtype: str, within: float) -> None:
    items, source = documents(), Pooled(Pretrained(checkpoint("bert")))
    store = Store.open(tmp_path / "s", source.spec(dtype=dtype))
    report = store.fill([*items, replace(items[0], id="again")], source)
    assert (report.written, report.rows, report.duplicates) == (3, 6, 1)
    batch = store.batch(store.index(store.keys(items)))
    assert batch.lengths == (2, 3, 1)
    due = np.concatenate([views[0] for _, views in source.encode(source.cut(items))])
    np.testing.assert_allclose(batch.views[0], due, atol=within)
    verify(tmp_path / "s")
    again = Pooled(Pretrained(checkpoint("bert")))
    assert Store.open(tmp_path / "s", again.spec(dtype=dtype)).fill(items, again).hits == 3
    assert not again.loaded
    for other in (again.model.spec("last", dtype), Pooled(again.model, "text").spec(dtype=dtype)):
        with pytest.raises(SpecMismatch, match="unit"):
            Store.open(tmp_path / "s", other)
    with pytest.raises(SpecMismatch, match=r"pooling: 'mean' .*'mean\+l2'|'mean\+l2' .*'mean'"):
        Store.open(tmp_path / "s", Pooled(again.model, normalize=True).spec(dtype=dtype))
    with pytest.raises(SpecMismatch, match="unit: 'piece' here, 'sentence' there"):
        store.fill([Document("n", text="new", sentences=("new",))], again.model)


def test_keys_of_the_three_units_differ_and_depend_on_the_sentences_alone() -> None:
    document = Document("d", text="a b. C d.", sentences=("a b.", "C d."))
    assert len({document.key_in(unit) for unit in ("piece", "sentence", "text")}) == 3
    assert document.key_in("piece") == document.key
    assert Document("e", sentences=("a b.", "C d.")).key_in("sentence") == document.key_in("sentence")
    assert Document("e", sentences=("a b. C d.",)).key_in("sentence") != document.key_in("sentence")


def test_equal_sentences_are_encoded_once(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []
    encode = Pretrained.encode
    monkeypatch.setattr(Pretrained, "encode", lambda self, p, layers: shown.append(len(p)) or encode(self, p, layers))
    source = Pooled(Pretrained(checkpoint("bert")))
    items = [Document("a", sentences=("the cat", "a dog", "the cat")), Document("b", sentences=("a dog",))]
    views = dict(source.encode(source.cut(items)))
    assert shown == [2]
    np.testing.assert_array_equal(views[0][0][0], views[0][0][2])
    np.testing.assert_array_equal(views[0][0][1], views[1][0][0])


def test_what_cannot_be_pooled_is_refused(checkpoint: Checkpoint) -> None:
    model = Pretrained(checkpoint("bert"))
    with pytest.raises(ConfigError, match="unit='page' must be one of sentence, text"):
        Pooled(model, "page")
    with pytest.raises(ConfigError, match="pooling='max' must be one of mean, cls"):
        Pooled(model, pooling="max")
    with pytest.raises(DataError, match="f:3: no sentences"):
        Pooled(model).cut([Document("d", text="a cat", place="f:3")])
    with pytest.raises(DataError, match="f:3, sentence 2: nothing to encode"):
        Pooled(model).cut([Document("d", sentences=("a cat", " "), place="f:3")])
    with pytest.raises(EncoderError, match="this tokenizer puts none there"):
        Pooled(Pretrained(checkpoint("t5")), "text", "cls").cut([Document("d", text="a cat")])
    with pytest.raises(DataError, match="a pair of texts is not cut"):
        with_sentences([Document("d", text="a", pair="b")])


def test_killed_after_each_item_it_ends_in_the_same_bytes(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """kill -9 in the middle of a shard; whoever goes on writes what an undisturbed run writes."""
    items, source = documents(), Pooled(Pretrained(checkpoint("bert")))
    cut = source.cut(items)
    views = dict(source.encode(cut, "last"))

    class Known:
        """The same vectors without torch, which a forked child must not use."""

        def cut(self, documents: list[Document]) -> list[Texts]:
            known = {item.key: item for item in cut}
            return [known[document.key_in("sentence")] for document in documents]

        def encode(self, pieces: list[Texts], layers: list[int]) -> Iterator[tuple[int, np.ndarray]]:
            by_key = {item.key: views[i] for i, item in enumerate(cut)}
            return ((i, by_key[item.key]) for i, item in enumerate(pieces))

    def fill(folder: Path, stop: int = 99) -> None:
        rows: list[int] = []
        Store.open(folder, source.spec()).fill(
            items,
            Known(),
            shard_bytes=1,
            progress=lambda done, total: (
                rows.append(done) or (os.kill(os.getpid(), signal.SIGKILL) if len(rows) == stop else None)
            ),
        )

    fill(tmp_path / "whole")
    due = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert len(due) == 7
    for stop in (1, 2, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            fill(tmp_path / str(stop), stop)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        fill(tmp_path / str(stop))
        assert {path.name: path.read_bytes() for path in (tmp_path / str(stop)).iterdir()} == due
