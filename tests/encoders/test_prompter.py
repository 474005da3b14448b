"""Prompted inputs on real tokenizers: the gap survives, label words are single pieces (cases PROMPT-1 and PROMPT-2)."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from encodeonce.encoders.pieces import Cutter
from encodeonce.encoders.prompter import Prompter
from encodeonce.errors import ConfigError, DataError, EncoderError
from encodeonce.prompts import Prompt, known
from encodeonce.types import Document

WORDS = {"neg": "mat", "pos": "river"}


def masked(tokenizer: Any, mask: str) -> Any:
    tokenizer.add_special_tokens({"mask_token": mask})
    return tokenizer


def prompter(
    tiny: SimpleNamespace, template: str, words: dict[str, str] = WORDS, window: int = 40, **settings: Any
) -> Prompter:
    cutter = Cutter(masked(tiny.wordpiece(), "[MASK]"), window, 0)
    return Prompter(cutter, Prompt("mine", template, words, **settings), window)


def names(own: Prompter, ids: np.ndarray) -> list[str]:
    return list(own.cutter.tokenizer.convert_ids_to_tokens(ids.tolist()))


def test_PROMPT_1_a_long_text_never_pushes_the_gap_out(
    cases: Path, tiny: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    expected = json.loads((cases / "PROMPT-1.expected.json").read_text())
    rows = [json.loads(line) for line in (cases / "PROMPT-1.jsonl").read_text().splitlines()]
    window = expected["max_length"]
    vocabulary = [word for word in (cases / "vocab-wordpiece.txt").read_text().split("\n") if word]
    cutter = Cutter(masked(tiny.wordpiece(vocabulary), "[MASK]"), window, 0)
    own = Prompter(cutter, Prompt("mine", expected["template"], {"neg": "run", "pos": "cafe"}), window)
    with caplog.at_level("INFO", logger="encodeonce"):
        found = own([Document(str(i), text=row["text"]) for i, row in enumerate(rows)])
    for pieces in found.pieces:
        shown = names(own, pieces.ids)
        assert shown.count("[MASK]") == expected["masks_per_input"]
        assert shown.index("[MASK]") - len(shown) == expected["mask_index_from_the_end"]
        assert shown[-4:-1] == expected["template_tokens_kept"]
        assert np.flatnonzero(pieces.word == 0).tolist() == [shown.index("[MASK]")]
    long, empty = found.pieces
    assert len(long) == window
    assert len(long) - own.fixed == expected["text_tokens_kept"]
    assert names(own, empty.ids) == ["[CLS]", "ok", "[MASK]", ".", "[SEP]"]
    assert found.cut == (0,)
    assert "1 of 2 texts were cut" in caplog.text


def test_PROMPT_1_a_template_that_does_not_fit_is_an_error(tiny: SimpleNamespace) -> None:
    with pytest.raises(ConfigError, match=r"takes 6 of 6 pieces, which leaves no room"):
        prompter(tiny, "{text} the {mask} . .", window=6)


def test_PROMPT_2_label_words_of_several_pieces_are_refused_with_the_pieces_shown(
    cases: Path, tiny: SimpleNamespace
) -> None:
    case = json.loads((cases / "PROMPT-2.json").read_text())
    vocabulary = (cases / case["tokenizer"]).read_text().split("\n")
    tokenizer = masked(tiny.wordpiece([word for word in vocabulary if word]), "[MASK]")
    cutter = Cutter(tokenizer, 40, 0)
    for word in case["label_words"].values():
        pieces = case["pieces"][word]
        other = "cafe" if word != "cafe" else "run"
        prompt = Prompt("mine", "{text} {mask}", {"l": word, "other": other})
        if pieces == ["[UNK]"]:
            with pytest.raises(ConfigError, match=f"{word!r} is unknown"):
                Prompter(cutter, prompt, 40)
        elif len(pieces) > 1:
            with pytest.raises(ConfigError, match=" ".join(pieces)):
                Prompter(cutter, prompt, 40)
        else:
            assert tokenizer.convert_ids_to_tokens(Prompter(cutter, prompt, 40).label_pieces.tolist())[0] == word


def test_two_labels_never_share_a_word(tiny: SimpleNamespace) -> None:
    with pytest.raises(ConfigError, match="labels 'a' and 'b' have the same label word"):
        prompter(tiny, "{text} {mask}", {"a": "cat", "b": "Cat"})


def test_PROMPT_2_a_byte_level_label_word_has_its_leading_space(tiny: SimpleNamespace) -> None:
    tokenizer = masked(tiny.byte_level(add_prefix_space=True), "<mask>")
    own = Prompter(Cutter(tokenizer, 40, 0), Prompt("mine", "{text} the {mask} on", {"a": "cat", "b": "mat"}), 40)
    assert tokenizer.convert_ids_to_tokens(own.label_pieces.tolist()) == ["Ġcat", "Ġmat"]
    shown = names(own, own([Document("1", text="river bank")]).pieces[0].ids)
    assert shown[-4:] == ["Ġthe", "<mask>", "Ġon", "</s>"]


def test_what_looks_like_a_special_piece_in_a_text_is_text(tiny: SimpleNamespace) -> None:
    own = prompter(tiny, "{text} the {mask} .")
    shown = names(own, own([Document("1", text="cat [MASK] [SEP] cat")]).pieces[0].ids)
    assert shown.count("[MASK]") == shown.count("[SEP]") == 1


def test_the_longer_text_of_a_pair_is_cut_first_and_the_first_has_a_limit_of_its_own(tiny: SimpleNamespace) -> None:
    first, second = " ".join(["cat"] * 9), " ".join(["river"] * 4)
    own = prompter(tiny, "{text} {mask} , {pair}", window=14, max_pieces=13)
    shown = names(own, own([Document("1", text=first, pair=second)]).pieces[0].ids)
    assert len(shown) == 13
    assert (shown.count("cat"), shown.count("river")) == (5, 4)
    even = prompter(tiny, "{text} {mask} , {pair}", window=10)
    shown = names(even, even([Document("1", text=first, pair=second)]).pieces[0].ids)
    assert (len(shown), shown.count("cat"), shown.count("river")) == (10, 3, 3)
    limited = prompter(tiny, "{text} {mask} , {pair}", text_pieces=2)
    shown = names(limited, limited([Document("1", text=first, pair=second)]).pieces[0].ids)
    assert (shown.count("cat"), shown.count("river")) == (2, 4)


def test_texts_laid_before_stand_nearest_next_to_the_prompt_while_they_fit_whole(
    tiny: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    own = prompter(tiny, "{text} {mask} .", window=14)
    found = own([Document("1", text="x")], [["cat sat", "river bank", "the mat on", "a"]])
    assert " ".join(names(own, found.pieces[0].ids)) == "[CLS] river bank [SEP] cat sat [SEP] x [MASK] . [SEP]"
    assert found.fitted == (2,)
    assert found.cut == ()
    assert own([Document("1", text="x")]).fitted == (0,)
    with caplog.at_level("INFO", logger="encodeonce"):
        two = own([Document("1", text="x"), Document("2", text="x")], [["cat sat", "river bank", "a b c d"], ["a"]])
    assert two.fitted == (2, 1)
    assert "1.5 of 2.0 texts fit whole before a text, on average" in caplog.text


def test_a_second_text_is_never_dropped(tiny: SimpleNamespace) -> None:
    pair, single = Document("p", text="cat", pair="mat", place="f:1"), Document("s", text="cat", place="f:2")
    with pytest.raises(DataError, match=r"f:1: mine: .* has no slot \{pair\}, and this item has a second text"):
        prompter(tiny, "{text} on{mask}")([single, pair])
    with pytest.raises(DataError, match=r"f:2: mine: .* has a slot \{pair\}, and this item has no second text"):
        prompter(tiny, "{text}{mask} {pair}")([pair, single])


def test_a_label_that_is_written_leaves_no_gap_though_the_tokenizer_has_a_mask(tiny: SimpleNamespace) -> None:
    cutter = Cutter(masked(tiny.wordpiece(), "[MASK]"), 40, 0)
    own = Prompter(cutter, Prompt("mine", "the {text} is the", WORDS), 40, written=True)
    (pieces,) = own([Document("a", text="cat")]).pieces
    assert names(own, pieces.ids) == ["[CLS]", "the", "cat", "is", "the", "[SEP]"]
    assert len(pieces) == own.fixed + 1


def test_a_tokenizer_without_a_mask_piece_is_refused_by_name(tiny: SimpleNamespace) -> None:
    with pytest.raises(EncoderError, match="has no mask piece"):
        Prompter(Cutter(tiny.wordpiece(), 40, 0), Prompt("mine", "{text} {mask}", WORDS), 40)


def test_I34_label_words_of_all_15_tasks_are_single_pieces_of_minilm_mlm(shared: Path) -> None:
    from encodeonce.encoders.pretrained import Pretrained

    model = Pretrained(shared / "models" / "minilm-mlm")
    for prompt in known().values():
        own = model.prompter(prompt)
        assert len(own.label_pieces) == len(prompt.labels)
        pieces = own([Document("1", text="A fine film.", pair="It was seen." if prompt.pairs else "")]).pieces[0]
        assert (pieces.ids == own.mask).sum() == 1
