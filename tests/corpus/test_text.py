"""Sentences, words and plain text files. The invariants are checked on random text."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodeonce.corpus import read, text, write
from encodeonce.errors import ConfigError, DataError

RANDOM = st.text(alphabet=st.sampled_from("aB1 .!?…\n\t\"')(•-。é\u0301\u200b\x1f\u2028'n't@,"), max_size=60)


def check_spans(whole: str, spans: list[tuple[int, int]]) -> None:
    covered = [False] * len(whole)
    last = 0
    for start, stop in spans:
        assert last <= start < stop
        last = stop
        covered[start:stop] = [True] * (stop - start)
    assert all(inside or character.isspace() for inside, character in zip(covered, whole, strict=True))


@given(RANDOM)
@settings(max_examples=300, deadline=None)
def test_no_character_is_lost_and_no_span_overlaps(whole: str) -> None:
    check_spans(whole, text.sentences(whole))
    check_spans(whole, text.words(whole))
    for start, stop in text.sentences(whole):
        assert whole[start:stop] == whole[start:stop].strip()
    for start, stop in text.words(whole):
        assert not any(character.isspace() for character in whole[start:stop])


def test_PRETRAIN_1_sentence_counts(cases: Path) -> None:
    expected = json.loads((cases / "PRETRAIN-1.expected.json").read_text("utf-8"))["sentences"]
    for line in (cases / "PRETRAIN-1.jsonl").read_text("utf-8").split("\n"):
        if line:
            item = json.loads(line)
            spans = text.sentences(item["text"])
            check_spans(item["text"], spans)
            if isinstance(expected[item["id"]], int):
                assert len(spans) == expected[item["id"]], item["id"]


@pytest.mark.parametrize(
    ("whole", "n"),
    [
        ("Mr. and Mrs. Smith left. They ran!", 2),
        ('He said "Go." Then he went.', 2),
        ("See J. R. Smith. He knows.", 2),
        ("Version 3.5 is out. Get it at example.com. Now!", 3),
        ("It costs No. 5 points. Really?! Yes...", 3),
        ("1. First point. 2. Second point.", 2),
        ("one line\nwrapped here. two", 1),
        ("para one\n\npara two", 2),
        ("Wait... what? Oh... Right.", 3),
    ],
)
def test_sentences_by_hand(whole: str, n: int) -> None:
    assert len(text.sentences(whole)) == n, [whole[a:b] for a, b in text.sentences(whole)]


@pytest.mark.parametrize(
    ("whole", "wanted"),
    [
        ("Don't stop, it's 3.50!", "Do n't stop , it 's 3.50 !"),
        ("well-known os.path (U.S.)", "well-known os.path ( U.S. )"),
        ("See https://a.b/c?d=e. Mail x.y@z.org...", "See https://a.b/c?d=e . Mail x.y@z.org ..."),
        ("今天 ok", "今 天 ok"),
        ("e\u0301te\u0301 हिन्दी l'eau", "e\u0301te\u0301 हिन्दी l'eau"),
        ("1,000 and 10:30, 'quoted'", "1,000 and 10:30 , ' quoted '"),
        ("a__b __init__ $5 50%", "a__b __init__ $ 5 50 %"),
    ],
)
def test_words_by_hand(whole: str, wanted: str) -> None:
    assert [whole[a:b] for a, b in text.words(whole)] == wanted.split(" ")


def test_units_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes("\ufeffOne two. Three\r\nfour.\r\n\r\n \r\nFive!\u2028Six".encode())
    lines = read(path)
    assert [(d.text, d.place) for d in lines] == [
        ("One two. Three", f"{path}:1"),
        ("four.", f"{path}:2"),
        ("Five!\u2028Six", f"{path}:5"),
    ]
    assert [d.text for d in read(path, unit="paragraph")] == ["One two. Three\nfour.", "Five!\u2028Six"]
    assert [d.text for d in read(path, unit="sentence")] == ["One two.", "Three\nfour.", "Five!", "Six"]
    (first, *_) = read(path, unit="sentence", words=True)
    assert first.words == ("One", "two", ".")
    assert first.meta["offsets"] == ((0, 3), (4, 7), (7, 8))
    assert first.meta["source"] == "x:1"
    with pytest.raises(ConfigError, match=r"unit='page' is not known. There is: line, paragraph, sentence"):
        read(path, unit="page")
    with pytest.raises(ConfigError, match="a text file has none"):
        read(path, columns={"text": 0})


def test_offsets_point_into_the_source_text(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("First one. Second, two.\n", encoding="utf-8")
    (whole,) = read(path)
    parts = text.split(whole)
    assert [d.words for d in parts] == [("First", "one", "."), ("Second", ",", "two", ".")]
    for part in parts:
        assert tuple(whole.text[a:b] for a, b in part.meta["offsets"]) == part.words


def test_predictions_for_text(tmp_path: Path) -> None:
    path, out = tmp_path / "x.txt", tmp_path / "out"
    path.write_text("Go on.\nStop\n", encoding="utf-8")
    write(out, path, {"tag": [["V", "P", "."], ["V"]]})
    assert out.read_text("utf-8") == "Go\tV\non\tP\n.\t.\n\nStop\tV\n\n"
    write(out, path, {"label": ["yes", "no"]})
    assert out.read_text("utf-8") == "yes\tGo on.\nno\tStop\n"
    with pytest.raises(DataError, match=r"x.txt:1: column 'tag' has 1 labels for 3 words"):
        write(out, path, {"tag": [["V"], ["V"]]})
    with pytest.raises(DataError, match=r"x.txt:2: column 'tag' has 'VP', one label, and other texts have one a word"):
        write(out, path, {"tag": [["V", "P", "."], "VP"]})
    for columns in ({"label": ["yes", "a\tb"]}, {"tag": [["V", "P", "."], ["a\tb"]]}, {"n": [1, 2], "m": ["", "a\tb"]}):
        with pytest.raises(DataError, match=r"x.txt:2: the label 'a\\tb' holds a tab or a line end"):
            write(out, path, columns)
    assert out.read_text("utf-8") == "yes\tGo on.\nno\tStop\n"
    with pytest.raises(DataError, match="has values for 1 texts; there are 2"):
        write(out, path, {"label": ["yes"]})


@pytest.mark.parametrize(
    ("whole", "parts"),
    [
        ("one\ntwo\n \t\nthree\n\n\nfour", ["one\ntwo", "three", "four"]),
        ("one\ntwo\n", ["one", "two"]),
        ("\n\n one line \n\n", ["one line"]),
        ("  \n ", []),
    ],
)
def test_paragraphs_stand_between_blank_lines_or_are_lines(whole: str, parts: list[str]) -> None:
    assert [whole[start:stop] for start, stop in text.paragraphs(whole)] == parts


@pytest.mark.parametrize(
    ("whole", "phrase", "found"),
    [
        ("The cat. A category; a CAT", "cat", [(4, 7), (23, 26)]),
        ("in New\n York", "new york", [(3, 12)]),
        ("中国的首都是北京。", "北京", [(6, 8)]),
        ("首都 北京。", "首都北京", []),
        ("เมืองหลวงคือกรุงเทพ", "กรุงเทพ", [(12, 19)]),
        ("我的iPhone很好, iPhones", "iPhone", [(2, 8)]),
        ("read 《红楼梦》", "红楼梦》", [(6, 10)]),
        ("1999年", "99年", []),
        ("any", " ", []),
    ],
)
def test_a_phrase_is_found_as_words_or_where_a_script_shows_no_words(
    whole: str, phrase: str, found: list[tuple[int, int]]
) -> None:
    assert text.occurrences(whole, phrase) == found


@given(RANDOM)
@settings(max_examples=200, deadline=None)
def test_paragraphs_lose_no_character(whole: str) -> None:
    check_spans(whole, text.paragraphs(whole))


@pytest.mark.parametrize(("coding", "named"), [("utf-16", "utf-16"), ("latin1", "latin1")])
def test_a_file_in_another_coding_is_refused_with_a_command_that_converts_it(
    tmp_path: Path, coding: str, named: str
) -> None:
    (tmp_path / "x.txt").write_bytes("caf\u00e9".encode(coding))
    with pytest.raises(DataError, match=rf"is not UTF-8\. Convert the file, .*: iconv -f {named} -t utf-8"):
        read(tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("whole", "phrase", "found"),
    [
        ("\u0939\u093f\u0928\u094d\u0926\u0940", "\u0939\u093f\u0928", []),
        ("\u0915\u0940\u0915\u093e", "\u0915\u093e", []),
        ("cafe\u0301 noir", "cafe", []),
        ("a cafe\u0301 noir", "cafe\u0301", [(2, 7)]),
    ],
)
def test_a_mark_is_part_of_its_word(whole: str, phrase: str, found: list[tuple[int, int]]) -> None:
    assert text.occurrences(whole, phrase) == found
