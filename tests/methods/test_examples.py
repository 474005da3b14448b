"""What is kept of a split, against loops over items and words."""

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encodeonce.batching import Encodings, Examples, LaidOut
from encodeonce.batching.examples import Source, WordTable
from encodeonce.errors import ConfigError, DataError, NotStored, StoreError
from encodeonce.heads import IGNORE
from encodeonce.tasks import named
from encodeonce.types import Document, Encoding, Pieces

Corpus = Callable[..., tuple[list[Document], Encodings]]


@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 4), max_size=5), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6
    )
)
@settings(max_examples=60, deadline=None)
def test_word_table_equals_a_loop(items: list[tuple[list[int], int, int]]) -> None:
    words = [
        np.array([-1] * before + [w for w, n in enumerate(pieces) for _ in range(n)] + [-1] * after, dtype=np.int32)
        for pieces, before, after in items
    ]
    table = WordTable.of(words)
    first, last, all_rows, counts = [], [], [], []
    for word in words:
        for w in range(word.max(initial=-1) + 1):
            rows = np.flatnonzero(word == w)
            first.append(rows[0])
            last.append(rows[-1])
            all_rows += rows.tolist()
            counts.append(len(rows))
    assert table.first.tolist() == first
    assert table.last.tolist() == last
    assert table.pieces.tolist() == all_rows
    assert table.pieces_of_word.tolist() == counts
    assert table.words_of_item.tolist() == [len(pieces) for pieces, _, _ in items]
    assert table.pieces_of_item.tolist() == [sum(pieces) for pieces, _, _ in items]
    assert table.word.tolist() == [w for word in words for w in word.tolist()]
    roots = [next((i for i, w in enumerate(word) if w < 0), 0) for word in words]
    assert table.root.tolist() == roots


def test_a_memory_is_a_source_and_gives_what_it_was_given(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(4)
    assert isinstance(memory, Source)
    index = memory.index([documents[2].key, documents[0].key])
    packed = memory.batch(index, [0, 2])
    assert packed.lengths == tuple(memory.rows(index).tolist())
    whole = memory.batch(index)
    np.testing.assert_array_equal(packed.views, whole.views[[0, 2]])
    with pytest.raises(NotStored, match="no encoding of the item with key abc"):
        memory.index(["abc"])


def test_gold_is_kept_as_strings_and_as_ids(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(5)
    task = named("upos").learn(documents)
    examples = Examples.read(memory, documents, [task])
    assert examples.gold["upos"] == tuple(document.columns["upos"] for document in documents)
    flat = [task.labels.index(label) for document in documents for label in document.columns["upos"]]
    assert examples.units["upos"].values.tolist() == flat
    assert examples.units["upos"].scored == pytest.approx(np.mean([len(document.words) for document in documents]))


def test_LABELS1_unseen_labels_are_listed_once_and_count_as_misses(
    make_corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    documents, memory = make_corpus(6)
    task = named("upos").learn(documents)
    words = len(documents[0].words)
    changed = [replace(documents[0], columns={"upos": ("NEW",) * words}), documents[1]]
    with caplog.at_level(logging.WARNING, "encodeonce"):
        examples = Examples.read(memory, changed, [task], split="dev")
    assert caplog.messages == [f"task upos: labels of dev that training never saw, so never predicted: 'NEW' ({words})"]
    caplog.clear()
    Examples.read(memory, changed, [task])
    assert caplog.messages[0].startswith("task upos: labels of these documents that training never saw")
    assert examples.units["upos"].values[:words].tolist() == [IGNORE] * words
    assert examples.gold["upos"][0] == ("NEW",) * words
    scores = task.score(examples.gold["upos"], [("NOUN",) * words, examples.gold["upos"][1]])
    total = words + len(documents[1].words)
    assert scores["accuracy"] == pytest.approx(100 * len(documents[1].words) / total)


def test_what_cannot_be_read_is_refused_by_place(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(3)
    with pytest.raises(DataError, match="corpus:9: the document has no words"):
        Examples.read(memory, [Document("empty", place="corpus:9")])
    with pytest.raises(NotStored):
        Examples.read(memory, [Document("other", ("never", "encoded"))])
    short = Encodings(memory.spec, [Encoding(documents[0].key, np.zeros((3, 3, 8), np.float32), np.array([-1, 0, -1]))])
    longer = next(document for document in documents if len(document.words) > 1)
    short = Encodings(memory.spec, [Encoding(longer.key, np.zeros((3, 3, 8), np.float32), np.array([-1, 0, -1]))])
    with pytest.raises(StoreError, match=rf"{len(longer.words)} words, but the store has pieces for 1 of them"):
        Examples.read(short, [longer])


def test_items_that_lie_end_to_end_are_read_like_any_other_and_all_of_them_without_a_copy(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(5)
    whole = memory.batch(np.arange(5))
    words = [memory.word(i) for i in range(5)]
    pieces = [
        Pieces(document.key, np.zeros(len(word), np.int32), word, len(document.words), ((0, len(word), 0, len(word)),))
        for document, word in zip(documents, words, strict=True)
    ]
    laid = LaidOut(memory.spec, pieces, whole.views)
    assert isinstance(laid, Source)
    assert laid.batch(np.arange(5)).views.data_ptr() == whole.views.data_ptr()
    for index in ([0, 1, 2, 3, 4], [3, 1], [2, 2, 0], [4]):
        found, expected = laid.batch(np.array(index)), memory.batch(np.array(index))
        assert found.lengths == expected.lengths
        assert torch.equal(found.views, expected.views)
    assert [laid.word(int(i)).tolist() for i in laid.index([d.key for d in documents])] == [w.tolist() for w in words]
    with pytest.raises(ConfigError, match=r"views \[1\] asked for"):
        laid.batch(np.arange(5), [1])


def test_a_fingerprint_names_what_changed(make_corpus: Corpus) -> None:
    documents, memory = make_corpus(4)
    task = named("upos").learn(documents)
    whole = Examples.read(memory, documents, [task]).fingerprint()
    relabelled = [replace(documents[0], columns={"upos": ("VERB",) * len(documents[0].words)}), *documents[1:]]
    assert [k for k in whole if whole[k] != Examples.read(memory, relabelled, [task]).fingerprint()[k]] == ["gold upos"]
    fewer = Examples.read(memory, documents[:3], [task]).fingerprint()
    assert [k for k in whole if whole[k] != fewer[k]] == ["items", "texts", "gold upos"]
