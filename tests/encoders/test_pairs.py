"""Pairs of texts: against the tokenizers' and models' own treatment of them, family by family."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.batching.cut import Cut
from encodeonce.batching.examples import WordTable
from encodeonce.encoders import checkpoint as files
from encodeonce.encoders.live import LiveBlocks
from encodeonce.encoders.pieces import Cutter, load_tokenizer
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import DataError, EncoderError
from encodeonce.types import Document, item_key

from .conftest import close

PAIRS = [("the cat sat", "on a mat"), ("x", "the river bank"), ("running", "a"), ("by the bank ,", "rents x y z")]
SINGLE = "the cat sat on the mat"


def documents() -> list[Document]:
    pairs = [Document(str(i), text=first, pair=second) for i, (first, second) in enumerate(PAIRS)]
    return [*pairs, Document("single", text=SINGLE)]


def own(tokenizer: Any, *texts: str) -> Any:
    """The tokenizer's own encoding of texts whose words stand as in a running text."""
    lead = Cutter(tokenizer, 40, 8).lead
    words = [[lead * " " + word for word in text.split()] for text in texts]
    return tokenizer(*words, is_split_into_words=True, return_tensors="pt")


@pytest.fixture(scope="module", params=files.families())
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def test_pieces_and_every_view_equal_transformers(family: str, checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint(family), batch_pieces=60)
    tokenizer, stack = load_tokenizer(checkpoint(family)), model.stack()
    pieces = model.cut(documents())
    views = dict(model.encode(pieces))
    for cut, texts, states in zip(pieces, [*PAIRS, (SINGLE,)], (views[i] for i in range(5)), strict=True):
        encoding = own(tokenizer, *texts)
        assert cut.ids.tolist() == encoding["input_ids"][0].tolist()
        assert (cut.segments is not None) == (len(texts) == 2 and "token_type_ids" in encoding)
        if cut.segments is not None:
            assert cut.segments.tolist() == encoding["token_type_ids"][0].tolist()
        expected = torch.stack(stack.model(**encoding, output_hidden_states=True).hidden_states)[:, 0].detach()
        close(states, expected)
        segments = None if cut.segments is None else torch.from_numpy(cut.segments).long()[None]
        first = stack.place(stack.lookup(encoding["input_ids"]), segments=segments)
        assert torch.equal(torch.stack([first, *stack.run(first, None)])[:, 0], expected)


def test_texts_shown_apart_are_two_single_texts_end_to_end(family: str, checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint(family), batch_pieces=60)
    whole = " ".join(["the cat sat on the mat by the river bank"] * 9)  # longer than the window
    pairs = [*PAIRS, (whole, "a mat"), ("a mat", whole)]
    apart = model.cut([Document(str(i), text=a, pair=b, apart=True) for i, (a, b) in enumerate(pairs)])
    alone = model.cut([Document(f"{i}{t}", text=text) for i, pair in enumerate(pairs) for t, text in enumerate(pair)])
    views, single = dict(model.encode(apart)), dict(model.encode(alone))
    for i, cut in enumerate(apart):
        first, second = alone[2 * i : 2 * i + 2]
        assert cut.ids.tolist() == [*first.ids.tolist(), *second.ids.tolist()]
        numbered = np.where(second.word < 0, -1, second.word + first.n_words)
        assert cut.word.tolist() == [*first.word.tolist(), *numbered.tolist()]
        assert (cut.texts, cut.segments, cut.n_words) == (2, None, first.n_words + second.n_words)
        assert cut.n_windowed == int(first.n_windowed or second.n_windowed)
        assert cut.n_windowed == int(whole in pairs[i]) or family == "t5"  # it has no limit of its own
        close(views[i], np.concatenate([single[2 * i], single[2 * i + 1]], 1))
        table = WordTable.of([cut.word, first.word])
        assert table.second_texts([first.n_words, 0]).tolist() == [len(first), 0]


def test_a_pair_enters_trained_embeddings_with_its_segments(family: str, checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint(family))
    pieces = model.cut(documents())
    packed = Cut(model.spec(), pieces).batch(np.array([4, 1, 0]))
    entered = LiveBlocks(model.stack(), [0], embeddings=True).eval().enter(packed.ids, packed.lengths, packed.segments)
    views = dict(model.encode(pieces))
    close(entered, np.concatenate([views[i][0] for i in (4, 1, 0)]))
    assert (packed.segments is None) == all(cut.segments is None for cut in pieces)


def test_the_words_of_the_second_text_are_numbered_on(family: str, checkpoint: Callable[..., Path]) -> None:
    tokenizer = load_tokenizer(checkpoint(family))
    for cut, texts in zip(Pretrained(checkpoint(family)).cut(documents()), PAIRS, strict=False):
        encoding = own(tokenizer, *texts)
        shift = (0, len(texts[0].split()))
        by_hand = [
            -1 if word is None else word + shift[text]
            for word, text in zip(encoding.word_ids(), encoding.sequence_ids(), strict=True)
        ]
        assert cut.word.tolist() == by_hand
        assert cut.n_words == sum(len(text.split()) for text in texts)
        assert len(cut.windows) == 1


@pytest.mark.parametrize("name", ["bert", "electra", "albert", "deberta_v2"])
def test_segments_matter_where_the_model_has_a_table_of_them(name: str, checkpoint: Callable[..., Path]) -> None:
    settings = {"type_vocab_size": 2} if name == "deberta_v2" else {}
    model = Pretrained(checkpoint(name, **settings))
    stack, tokenizer = model.stack(), load_tokenizer(checkpoint(name, **settings))
    assert stack.segmented
    (cut,) = model.cut(documents()[:1])
    (states,) = (views for _, views in model.encode([cut]))
    (without,) = (views for _, views in model.encode([replace(cut, segments=None)]))
    encoding = own(tokenizer, *PAIRS[0])
    expected = stack.model(**encoding, output_hidden_states=True).hidden_states[-1][0].detach()
    close(states[-1], expected)
    assert np.abs(states[-1] - without[-1]).max() > 1e-2


@pytest.mark.parametrize("name", ["roberta", "gpt2", "t5", "distilbert"])
def test_a_model_without_segments_takes_no_notice_of_them(name: str, checkpoint: Callable[..., Path]) -> None:
    settings = {"type_vocab_size": 1} if name == "roberta" else {}
    stack, ids = Pretrained(checkpoint(name, **settings)).stack(), torch.randint(5, 30, (2, 7))
    assert not stack.segmented
    segments = torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    assert torch.equal(stack.place(stack.lookup(ids), segments=segments), stack.place(stack.lookup(ids)))


def test_a_pair_has_a_key_of_its_own_and_a_single_text_keeps_its_old_one() -> None:
    keys = {
        item_key((), "a b"),
        item_key(("a", "b")),
        item_key((), "a", "b"),
        item_key(("a",), "", "b"),
        item_key((), "b", "a"),
        item_key(("pair", "a"), "b"),
        item_key((), "a", "b", apart=True),
    }
    assert len(keys) == 7
    assert item_key((), "a", apart=True) == item_key((), "a")  # there is nothing to be apart
    assert Document("d", text="a b").key == "ca8469d69847135d15b81229c6fa4ad71fa797df8775a54a8b9c970f456a365e"
    assert Document("d", text="a", pair="b").key == item_key((), "a", "b") == Document("e", (), "a", pair="b").key


def test_a_pair_of_words_and_a_text(tiny: SimpleNamespace) -> None:
    tokenizer = tiny.wordpiece()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    cutter = Cutter(tokenizer, 40, 8)
    words, text = cutter([Document("w", ("the", "cat"), pair="sat on"), Document("t", text="the cat", pair="sat on")])
    assert words.ids.tolist() == text.ids.tolist()
    assert words.word.tolist() == [-1, 0, 1, -1, 2, 3, -1]
    assert text.segments is not None
    assert text.segments.tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_ZERO_words_without_pieces_keep_their_place_in_either_text(tiny: SimpleNamespace) -> None:
    (cut,) = Cutter(tiny.wordpiece(), 40, 8)([Document("z", text="\u200b the", pair="cat \ufe0f")])
    assert cut.ids.tolist() == [2, 1, 5, 3, 6, 1, 3]
    assert cut.word.tolist() == [-1, 0, 1, -1, 2, 3, -1]
    assert cut.unknown_words == (0, 3)


def test_LONG_a_pair_over_the_window_is_named_and_never_cut(tiny: SimpleNamespace) -> None:
    cutter = Cutter(tiny.wordpiece(), 12, 4)
    fits = Document("1", text="the cat sat on", pair="a b c x y", place="f.jsonl:1")
    long = Document("2", text="the cat sat on", pair="a b c x y z", place="f.jsonl:2")
    assert len(cutter([fits])[0]) == 12
    with pytest.raises(DataError, match=r"over the window of 12 pieces: 1 of 2 items, pairs, f.jsonl:2 \(13 pieces\)"):
        cutter([fits, long])
    assert len(cutter([Document("3", text="the cat sat on the mat " * 4)])[0].windows) > 1  # a single text is windowed


@pytest.mark.parametrize(("text", "pair", "which"), [("", "the cat", "first text"), ("the cat", " ", "second text")])
def test_an_empty_text_of_a_pair_is_refused(text: str, pair: str, which: str, tiny: SimpleNamespace) -> None:
    with pytest.raises(DataError, match=rf"f:3: nothing to encode: the {which}"):
        Cutter(tiny.wordpiece(), 40, 8)([Document("1", text=text, pair=pair, place="f:3")])


def test_ALIGN_2_a_slow_tokenizer_with_a_pair_template(tiny: SimpleNamespace) -> None:
    pair = Document("1", text="the cat sat", pair="on the mat")
    slow, quick = (Cutter(tokenizer, 40, 8)([pair])[0] for tokenizer in (tiny.slow(pairs=True), tiny.wordpiece()))
    assert slow.ids.tolist() == quick.ids.tolist()
    assert slow.word.tolist() == quick.word.tolist()
    with pytest.raises(EncoderError, match="no form for a pair of texts; given 'the' twice"):
        Cutter(tiny.slow(), 40, 8)([pair])
