"""Batches: every item once, whatever the order; nothing overwritten while somebody holds it; no thread left behind."""

import gc
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from encodeonce.batching import Batch, Encodings, Examples
from encodeonce.batching.ahead import ahead
from encodeonce.batching.batch import collated
from encodeonce.batching.plan import count_by_pieces, planned, planned_by_pieces
from encodeonce.errors import ConfigError
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.tasks import named
from encodeonce.types import Document

Corpus = Callable[..., tuple[list[Document], Encodings]]


def made(make_corpus: Corpus, n: int = 11, piece: str = "last", read_ahead: int = 1) -> tuple[Aggregate, Examples]:
    documents, memory = make_corpus(n)
    tasks = [named(name, piece=piece).learn(documents) for name in ("upos", "ner")]
    method = Aggregate.build(Variant("linear"), memory.spec, tasks, read_ahead=read_ahead)
    return method, method.read(memory, documents, tasks)


@pytest.mark.parametrize(("n", "size"), [(1, 4), (7, 3), (64, 8), (1000, 32)])
def test_a_plan_holds_every_item_once_in_ceil_n_over_size_batches(n: int, size: int) -> None:
    plan = planned(n, size, np.random.default_rng(2))
    assert sorted(np.concatenate(plan).tolist()) == list(range(n))
    assert len(plan) == -(-n // size)
    assert [len(batch) for batch in plan[:-1]] == [size] * (len(plan) - 1)
    again = planned(n, size, np.random.default_rng(2))
    assert all(np.array_equal(a, b) for a, b in zip(plan, again, strict=True))
    assert [i for batch in planned(n, size, None) for i in batch] == list(range(n))


def test_batches_are_plain_draws_whatever_the_lengths() -> None:
    """Every pair of items is as likely to meet as any other: 2,000 plans of 6 items in pairs, each pair 1 time in 5."""
    order, met = np.random.default_rng(3), np.zeros((6, 6))
    for _ in range(2000):
        for one, other in planned(6, 2, order):
            met[one, other] += 1
    assert np.allclose((met + met.T)[~np.eye(6, dtype=bool)] / 2000, 1 / 5, atol=0.04)


@pytest.mark.parametrize(("n", "pieces"), [(1, 4), (7, 3), (64, 100), (1000, 500), (1000, 1), (50, 10**6)])
@pytest.mark.parametrize("longest", [2, 60, 700])
def test_a_plan_by_pieces_holds_every_item_once_in_batches_of_about_so_many(n: int, pieces: int, longest: int) -> None:
    lengths = np.random.default_rng(n).integers(1, longest, n)
    order = np.random.default_rng(2)
    plans = [planned_by_pieces(lengths, pieces, order) for _ in range(3)]
    assert [tuple(plans[0][0]) == tuple(plan[0]) for plan in plans[1:]] != [True, True] or n * pieces < 30 or n < 64
    for plan in plans:
        assert sorted(np.concatenate(plan).tolist()) == list(range(n))
        assert len(plan) == count_by_pieces(lengths, pieces) == min(n, -(-lengths.sum() // pieces))
        held = [lengths[batch].sum() for batch in plan]
        assert min(map(len, plan)) > 0
        assert max(held) <= max(pieces, lengths.max()) + lengths.max()
        if lengths.sum() > 4 * pieces > 40 * lengths.max():
            assert min(held) > 0.6 * pieces


def test_a_batch_of_no_pieces_is_refused() -> None:
    with pytest.raises(ConfigError, match="a batch of 0 pieces must have at least 1"):
        planned_by_pieces(np.array([3]), 0, np.random.default_rng(0))


def test_losses_of_batches_by_pieces_are_means_over_the_epochs_units(make_corpus: Corpus) -> None:
    """The batches' losses add up to the same whichever way they are sized, times the number of batches."""
    method, examples = made(make_corpus)
    method.eval()
    order = np.random.default_rng(0)
    by_items = list(method.batches(examples, size=11, order=order))
    by_pieces = list(method.batches_of_pieces(examples, pieces=20, order=order))
    assert len(by_items) == 1
    assert len(by_pieces) == method.count_of_pieces(examples, 20) > 2
    with torch.no_grad():
        whole = method.losses(by_items[0], ["upos"])["upos"]
        parts = torch.stack([method.losses(batch, ["upos"])["upos"] for batch in by_pieces])
    torch.testing.assert_close(parts.mean(), whole)


def test_two_epochs_of_one_generator_differ(make_corpus: Corpus) -> None:
    method, examples = made(make_corpus)
    order = np.random.default_rng(0)
    epochs = [[tuple(b.items) for b in method.batches(examples, size=4, order=order)] for _ in range(2)]
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("piece", ["first", "last", "mean"])
def test_rows_and_gold_equal_a_loop(make_corpus: Corpus, piece: str) -> None:
    method, examples = made(make_corpus, piece=piece)
    source = examples.source
    for batch in method.batches(examples, size=4, order=np.random.default_rng(3)):
        views, rows, gold, counts, start = [], [], [], [], 0
        for item in batch.items:
            at = int(examples.index[item])
            views.append(source.batch(np.array([at])).views)
            word = source.word(at)
            for w in range(word.max() + 1):
                of_word = (np.flatnonzero(word == w) + start).tolist()
                rows += of_word if piece == "mean" else [of_word[0 if piece == "first" else -1]]
                counts.append(len(of_word))
            gold += list(examples.gold["upos"][item])
            start += len(word)
        assert torch.equal(batch.packed.views, torch.cat(views, 1))
        choice = batch.choices[piece]
        assert choice.packed.tolist() == rows
        assert choice.sizes is None if piece != "mean" else choice.sizes.tolist() == counts
        labels = sorted({label for item in examples.gold["upos"] for label in item})
        assert [labels[i] for i in batch.gold["upos"]] == gold
        words = tuple(len(examples.gold["upos"][i]) for i in batch.items)
        assert batch.counts["upos"] == choice.rows.lengths == words
        assert choice.rows.word.tolist() == [w for n in words for w in range(n)]


def test_mean_piece_is_the_mean_of_a_words_rows(make_corpus: Corpus) -> None:
    method, examples = made(make_corpus, piece="mean")
    batch = next(iter(method.batches(examples, size=4, order=None)))
    choice = batch.choices["mean"]
    vectors = torch.randn(len(choice.packed), 3)
    means, at = [], 0
    assert choice.sizes is not None
    for count in choice.sizes.tolist():
        means.append(vectors[at : at + count].mean(0))
        at += count
    torch.testing.assert_close(choice.pooled(vectors), torch.stack(means))


@pytest.mark.parametrize("piece", ["root+mean", "pieces", "document", "document-words"])
def test_other_rows_equal_a_loop(make_corpus: Corpus, piece: str) -> None:
    documents, memory = make_corpus(11)
    examples = Examples.read(memory, documents)
    for items in (np.array([3, 0, 10]), np.array([5])):
        packed = memory.batch(examples.index[items])
        choice = collated(examples, items, packed, frozenset([piece]), {}).choices[piece]
        vectors, rows, lengths, words, start = packed.views[0], [], [], [], 0
        for item in items:
            word = memory.word(int(examples.index[item]))
            own = vectors[start : start + len(word)]
            means = [own[np.flatnonzero(word == w)].mean(0) for w in range(word.max() + 1)]
            one = {
                "root+mean": ([own[0], *means], [-1, *range(len(means))]),
                "pieces": (list(own), word.tolist()),
                "document": ([own.mean(0)], [-1]),
                "document-words": ([own[word >= 0].mean(0)], [-1]),
            }[piece]
            rows += one[0]
            words += one[1]
            lengths.append(len(one[0]))
            start += len(word)
        torch.testing.assert_close(choice.pooled(vectors[choice.packed]), torch.stack(rows))
        assert choice.rows.lengths == tuple(lengths)
        assert choice.rows.word.tolist() == words


@pytest.mark.parametrize("read_ahead", [0, 1, 3])
def test_a_batch_that_is_held_is_not_overwritten(make_corpus: Corpus, read_ahead: int) -> None:
    method, examples = made(make_corpus, n=30, read_ahead=read_ahead)
    held: list[tuple[Batch, torch.Tensor]] = []
    for batch in method.batches(examples, size=3, order=None):
        if len(batch.items) and batch.items[0] % 2:
            held.append((batch, batch.packed.views.clone()))
    assert len(held) > 2
    for batch, copy in held:
        assert torch.equal(batch.packed.views, copy)


def test_memory_of_a_dropped_batch_is_used_again(make_corpus: Corpus) -> None:
    method, examples = made(make_corpus, n=40, read_ahead=0)
    places = set()
    for batch in method.batches(examples, size=2, order=None):
        places.add(batch.packed.views.untyped_storage().data_ptr())
    assert len(places) < 5  # 20 batches, some longer than all before


def test_frozen_reads_the_last_view_only(make_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    documents, memory = make_corpus(5)
    task = named("upos").learn(documents)
    method = Aggregate.build(Variant("frozen"), memory.spec, [task])
    asked: list[tuple[str, tuple[int, ...]]] = []
    batch, prefetch = Encodings.batch, Encodings.prefetch
    monkeypatch.setattr(
        Encodings,
        "batch",
        lambda self, i, layers=None, **k: asked.append(("read", layers)) or batch(self, i, layers, **k),
    )
    monkeypatch.setattr(
        Encodings, "prefetch", lambda self, i, layers=None: asked.append(("hint", layers)) or prefetch(self, i, layers)
    )
    seen = [b.packed.views.shape[0] for b in method.batches(method.read(memory, documents), size=2, order=None)]
    assert seen == [1, 1, 1]
    assert sorted(asked) == [("hint", (2,))] * 2 + [("read", (2,))] * 3


def test_batch_size_zero_is_refused(make_corpus: Corpus) -> None:
    method, examples = made(make_corpus)
    with pytest.raises(ConfigError, match="batch size 0 must be at least 1"):
        method.batches(examples, size=0, order=None)


class TestAhead:
    """The background thread, alone."""

    @pytest.mark.parametrize("depth", [0, 1, 4])
    def test_gives_the_same_values(self, depth: int) -> None:
        assert list(ahead(iter(range(20)), depth)) == list(range(20))

    @pytest.mark.parametrize("depth", [0, 1])
    def test_an_exception_comes_where_its_value_would_have(self, depth: int) -> None:
        def broken() -> Iterator[int]:
            yield 1
            yield 2
            raise ValueError("third")

        values = ahead(broken(), depth)
        assert [next(values), next(values)] == [1, 2]
        with pytest.raises(ValueError, match="third"):
            next(values)

    def test_reads_at_most_depth_values_ahead(self) -> None:
        read: list[int] = []

        def counted() -> Iterator[int]:
            for i in range(100):
                read.append(i)
                yield i

        values = ahead(counted(), 2)
        assert next(values) == 0
        deadline = threading.Event()
        deadline.wait(0.2)
        assert len(read) <= 1 + 2
        values.close()  # type: ignore[attr-defined]

    def test_leaves_no_thread_when_dropped_half_way(self) -> None:
        before = threading.active_count()
        values = ahead(iter(range(1000)), 1)
        next(values)
        assert threading.active_count() == before + 1
        del values
        gc.collect()
        assert threading.active_count() == before
