"""Words and pieces: against the tokenizers' own alignment, and the field cases ZERO and ALIGN."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from encodeonce.encoders.pieces import Cutter, load_tokenizer
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import DataError, EncoderError
from encodeonce.types import Document, Pieces

VANISHING = (
    [chr(c) for c in (0x00, 0x09, 0x10, 0x85, 0xA0, 0xAD, 0x301, 0x200B, 0x200D, 0x200E, 0x2028, 0x2060, 0x3000)]
    + [chr(c) for c in (0xE000, 0xFE0F, 0xFEFF, 0xFFFD)]
    + ["", " "]
)
"""The 19 words of case ZERO-1 that BERT's normaliser swallows whole."""


def cutter(tokenizer: Any, window: int = 64, overlap: int = 8) -> Cutter:
    return Cutter(tokenizer, window, overlap)


def document(*words: str) -> Document:
    return Document("d", words, place="file:1")


def names(tokenizer: Any, cut: Pieces) -> list[str]:
    return tokenizer.convert_ids_to_tokens(cut.ids.tolist())


@pytest.mark.parametrize("kind", ["wordpiece", "byte_level", "bare", "unigram"])
def test_pieces_equal_those_of_the_whole_list_by_word_ids(kind: str, tiny: SimpleNamespace) -> None:
    tokenizer = tiny.byte_level(special=False) if kind == "bare" else getattr(tiny, kind)()
    words = ["the", "Cats", "sat", "on", "a", "naive", "river,", "by", "the", "bank", "running"]
    cut = cutter(tokenizer)([document(*words)])[0]
    spaced = [f" {word}" for word in words] if kind in ("byte_level", "bare") else words
    whole = tokenizer(spaced, is_split_into_words=True)
    assert cut.ids.tolist() == whole["input_ids"]
    assert [None if w < 0 else w for w in cut.word.tolist()] == whole.word_ids()
    assert cut.windows == ((len(cutter(tokenizer).before), len(cut) - len(cutter(tokenizer).after), 0, len(cut)),)
    assert (cut.n_words, cut.unknown_words, cut.key) == (11, (), document(*words).key)


def test_ZERO_1_words_without_pieces_keep_their_place(tiny: SimpleNamespace) -> None:
    tokenizer = tiny.wordpiece()
    for swallowed in VANISHING:
        cut = cutter(tokenizer)([document("the", swallowed, "cat", "running")])[0]
        assert names(tokenizer, cut) == ["[CLS]", "the", "[UNK]", "cat", "run", "##ning", "[SEP]"], ascii(swallowed)
        assert cut.word.tolist() == [-1, 0, 1, 2, 3, 3, -1]
        assert cut.unknown_words == (1,)
    control = cutter(tokenizer)([document("the", "\u02dc", "cat")])[0]
    assert names(tokenizer, control) == ["[CLS]", "the", "[UNK]", "cat", "[SEP]"]
    assert control.unknown_words == ()


def test_ZERO_1_and_2_as_filed(cases: Path, tiny: SimpleNamespace) -> None:
    expected = json.loads((cases / "ZERO-1.expected.json").read_text("utf-8"))
    vocabulary = (cases / "vocab-wordpiece.txt").read_text("utf-8").split("\n")
    tokenizer = tiny.wordpiece([piece for piece in vocabulary if piece])
    lines = [line for name in ("ZERO-1", "ZERO-2") for line in (cases / f"{name}.jsonl").read_text("utf-8").split("\n")]
    documents = [document(*json.loads(line)["words"]) for line in lines if line]
    first, *rest = cutter(tokenizer)(documents)
    assert list(first.unknown_words) == expected["words_without_subwords"]
    kept = first.ids[~np.isin(first.word, first.unknown_words)]
    assert tokenizer.convert_ids_to_tokens(kept.tolist()) == expected["tokens"]
    assert [cut.n_words for cut in rest] == [2, 2, 1]
    assert names(tokenizer, rest[1]) == ["[CLS]", "[UNK]", "[UNK]", "[SEP]"]
    assert rest[1].word.tolist() == [-1, 0, 1, -1]


def test_ZERO_words_are_counted_in_the_log(caplog: pytest.LogCaptureFixture, tiny: SimpleNamespace) -> None:
    with caplog.at_level("INFO", "encodeonce"):
        cutter(tiny.wordpiece())([document("the", "\u200b", ""), document("cat", "\ufe0f")])
    assert "3 words without a piece of their own" in caplog.text


def test_a_tokenizer_without_an_unknown_piece_uses_its_end_or_refuses() -> None:
    from transformers import PreTrainedTokenizerFast

    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "</s>": 2}, []))  # drops what it cannot spell
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    dropped = document("a", "\u200b", "b")
    ended = cutter(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>"))([dropped])[0]
    assert (ended.ids.tolist(), ended.word.tolist()) == ([0, 2, 1], [0, 1, 2])
    none = cutter(PreTrainedTokenizerFast(tokenizer_object=backend))
    assert none([document("a", "b")])[0].ids.tolist() == [0, 1]
    with pytest.raises(
        EncoderError, match=r"file:1: words \(1,\) yield no piece, and tokenizer has no unknown, end or"
    ):
        none([dropped])


def test_ALIGN_1_byte_level_pieces_carry_the_word_start_space(tiny: SimpleNamespace) -> None:
    from transformers import PreTrainedTokenizerFast

    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.train_from_iterator(["the cat sat on the mat"] * 20, trainers.BpeTrainer(show_progress=False))
    for attribute in (None, True):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
        if attribute:
            tokenizer.add_prefix_space = True  # tells nothing, see the case
        cut = cutter(tokenizer)([document("the", "cat")])[0]
        assert names(tokenizer, cut) == ["Ġthe", "Ġcat"]
    bare = tiny.byte_level()
    built = tokenizers.Tokenizer.from_str(bare.backend_tokenizer.to_str())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    same = bare, PreTrainedTokenizerFast(tokenizer_object=built)
    first, second = (cutter(t)([document("running", "the", "cat", "x!")])[0] for t in same)
    assert first.ids.tolist() == second.ids.tolist()


def test_ALIGN_1_a_tokenizer_that_glues_words_is_refused() -> None:
    from transformers import PreTrainedTokenizerFast

    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = tokenizers.normalizers.Strip()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.train_from_iterator(["the cat sat on the mat"] * 20, trainers.BpeTrainer(show_progress=False))
    with pytest.raises(EncoderError, match=r"must be built with the word-start space.*setting the attribute"):
        cutter(PreTrainedTokenizerFast(tokenizer_object=backend))


def test_ALIGN_1_a_vocabulary_that_knows_no_word_stops_the_run(tiny: SimpleNamespace) -> None:
    empty = cutter(tiny.wordpiece(tiny.words[:5]))
    with pytest.raises(EncoderError, match=r"2 of 2 different words came out as the unknown piece.*'cat', 'the'"):
        empty([document("the", "cat")])
    known = cutter(tiny.wordpiece())
    assert known([document("\U0001fae0", "\U0001fae1")])[0].word.tolist() == [
        -1,
        0,
        1,
        -1,
    ]  # no letters: may be unknown
    assert known([document("zebra")])[0].word.tolist() == [-1, 0, -1]


def test_a_text_in_another_script_does_not_depend_on_its_company(
    tiny: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """A vocabulary that knows other words fits; one that knows none of many words does not."""
    foreign, many = document("ሰላም", "ለዓለም"), document(*(f"{a}{b}" for a in "ሀለሐመሠረ" for b in "ሀለሐመሠረ"))
    cut = cutter(tiny.wordpiece())
    (alone,) = cut([foreign])
    assert "2 of 2 different words came out as the unknown piece" in caplog.text
    assert alone.ids.tolist() == cut([foreign, document("the", "cat", "sat")])[0].ids.tolist() == [2, 1, 1, 3]
    with pytest.raises(EncoderError, match="36 of 36 different words came out as the unknown piece"):
        cutter(tiny.wordpiece())([many])
    mixed = cutter(tiny.wordpiece())
    mixed([document("the", "cat", "sat", "on", "mat")])
    assert len(mixed([many])[0]) == 38  # the 257th text of a file, say, after 256 in a script that is known


def test_ALIGN_2_slow_tokenizers_give_the_same_pieces(tiny: SimpleNamespace) -> None:
    tokenizer = tiny.slow()
    assert not tokenizer.is_fast
    words = ("the", "cats", "\u200b", "sat", "running", "", "naive", "café", ",")
    by_word, fast = (
        cutter(tokenizer, 8, 2)([document(*words)])[0],
        cutter(tiny.wordpiece(), 8, 2)([document(*words)])[0],
    )
    assert by_word.ids.tolist() == fast.ids.tolist()
    assert by_word.word.tolist() == fast.word.tolist()
    assert (by_word.windows, by_word.unknown_words) == (fast.windows, (2, 5))


def test_a_running_text_is_cut_as_its_words_at_white_space(tiny: SimpleNamespace) -> None:
    shown = cutter(tiny.wordpiece())
    text, words = Document("t", text=" the cat\n sat ,\tx "), document("the", "cat", "sat", ",", "x")
    first, second = shown([text, words])
    assert first.ids.tolist() == second.ids.tolist()
    assert first.n_words == 5
    assert first.key != second.key


def test_a_document_without_words_is_refused_by_place(tiny: SimpleNamespace) -> None:
    with pytest.raises(DataError, match=r"x\.txt:7: nothing to encode: the document has no words"):
        cutter(tiny.wordpiece())([Document("d", text=" \n", place="x.txt:7")])


@pytest.mark.parametrize(
    "document",
    [
        Document("d", text="the \ud800 cat", place="f:2"),
        Document("d", text="the", pair="cat\udfff", place="f:2"),
        Document("d", words=("the", "\ud83d", "\ude00"), place="f:2"),
    ],
)
def test_half_a_character_is_refused_by_place(tiny: SimpleNamespace, document: Document) -> None:
    """Two halves side by side are no character either; a tokenizer would end in an error of its own."""
    with pytest.raises(DataError, match=r"f:2: '\\ud[8df][03f][0df]' is half a surrogate pair, not a character"):
        cutter(tiny.wordpiece())([document])


def test_a_saved_padding_or_truncation_cuts_nothing(tmp_path: Path, tiny: SimpleNamespace) -> None:
    tokenizer = tiny.wordpiece()
    tokenizer(["the cat"], padding="max_length", truncation=True, max_length=4)
    tokenizer.save_pretrained(tmp_path)
    assert '"max_length": 4' in (tmp_path / "tokenizer.json").read_text("utf-8")
    cut = cutter(load_tokenizer(tmp_path))([document("the", "cat", "sat", "on", "the", "mat")])[0]
    assert len(cut) == 8


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(EncoderError, match=r"no vocabulary.*tokenizer.json"):
        load_tokenizer(tmp_path)


def test_a_treebank_is_cut_as_the_tokenizer_cuts_each_list(shared: Path, minilm: Path) -> None:
    tokenizer, items, words = load_tokenizer(minilm), [], []
    with gzip.open(next((shared / "data/ud/en_ewt").glob("*dev.conllu.gz")), "rt", encoding="utf-8") as lines:
        for line in lines:
            if not line.strip():
                items.append(tuple(words))
                words = []
            elif line.split("\t")[0].isdigit():
                words.append(line.split("\t")[1])
    for words, cut in zip(items, cutter(tokenizer, 512, 128)([document(*w) for w in items]), strict=True):
        whole = tokenizer(list(words), is_split_into_words=True)
        assert cut.ids.tolist() == whole["input_ids"]
        assert [None if w < 0 else w for w in cut.word.tolist()] == whole.word_ids()


@pytest.mark.parametrize("family", ["bert", "modernbert", "gpt2", "xlm_roberta", "t5"])
def test_characters_of_pieces_are_those_that_they_stand_for(family: str, checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint(family))
    text = "  The running\tcat ,\n naive cafes\u200b \u0301 rents"
    (places,) = model.spans([text])
    (cut,) = model.cut([Document("d", text=text)])
    assert len(places) == len(cut)
    words = list(re.finditer(r"\S+", text))
    for row, (start, stop) in enumerate(places.tolist()):
        word = int(cut.word[row])
        if word < 0:
            assert (start, stop) == (-1, -1)
            continue
        assert words[word].start() <= start < stop <= words[word].end()
    for number, match in enumerate(words):
        own = places[cut.word == number]
        assert (own[0, 0], own[-1, 1]) == match.span() or match.group() in ("cafes\u200b", "\u0301")


def test_a_slow_tokenizer_gives_the_whole_word_for_each_piece() -> None:
    class Slow:
        is_fast, unk_token_id = False, 0

        def build_inputs_with_special_tokens(self, ids: list[int]) -> list[int]:
            return [1, *ids, 2]

        def tokenize(self, text: str) -> list[str]:
            return list(text.strip())

        def convert_tokens_to_ids(self, pieces: list[str]) -> list[int]:
            return [3 + ord(piece) for piece in pieces]

    cutter = Cutter(Slow(), 20, 5)
    assert cutter.spans(["ab c"])[0].tolist() == [[-1, -1], [0, 2], [0, 2], [3, 4], [-1, -1]]


def test_marks_that_a_tokenizer_leaves_out_belong_to_their_letter(minilm: Path) -> None:
    """An uncased tokenizer takes accents and vowel signs away; an answer would end inside a character."""
    model = Pretrained(minilm)
    for text, word in (
        ("The cafe\u0301 closed.", "cafe\u0301"),
        ("\u0935\u0939 \u092e\u0947\u0902 \u0939\u0948", "\u092e\u0947\u0902"),
    ):
        start = text.index(word)
        (places,) = model.spans([text])
        inside = [(a, b) for a, b in places.tolist() if start <= a < start + len(word)]
        assert (inside[0][0], inside[-1][1]) == (start, start + len(word)), text
