"""The built-in text: what is kept, and what `restore` makes of a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodeonce.corpus import manual
from encodeonce.types import Document


@pytest.mark.parametrize(
    ("sentence", "words", "case", "punct"),
    [
        (
            'If "x" is None, the ValueError (see PEP 8) isn’t raised.',
            "if x is none the valueerror see pep 8 isn’t raised",
            "Capitalised lower lower Capitalised lower mixed lower UPPER lower lower lower",
            "none none none comma none none none none none none period",
        ),
        (
            "Read-only, e.g. UTF-8: really?! Yes; go—now",
            "read-only e.g. utf-8 really yes go now",
            "Capitalised lower UPPER lower Capitalised lower lower",
            "comma none colon question semicolon none none",
        ),
        ("Wait ... etc.", "wait etc", "Capitalised lower", "period period"),
        ("A , b", "a b", "Capitalised lower", "comma none"),
        ("?! -- …", "", "", ""),
        ("", "", "", ""),
    ],
)
def test_restore_by_hand(sentence: str, words: str, case: str, punct: str) -> None:
    assert manual.restore(sentence) == (tuple(words.split()), tuple(case.split()), tuple(punct.split()))


def test_restored_is_the_inverse_where_the_labels_say_all() -> None:
    for sentence in ("If None is given, Python ends: why?", "UTF-8 is used; A is not!"):
        assert manual.restored(*manual.restore(sentence)) == sentence
    assert manual.restored(("valueerror",), ("mixed",), ("period",)) == "valueerror."


@given(st.text(alphabet="aB1 .,:;?!'\"()-—é…ß", max_size=40))
def test_restore_gives_equal_lengths_known_labels_and_real_words(sentence: str) -> None:
    words, case, punct = manual.restore(sentence)
    Document("x", words, columns={"case": case, "punct": punct})
    assert all(any(c.isalnum() for c in word) and word == word.lower() for word in words)
    assert set(case) <= set(manual.CASES)
    assert set(punct) <= {"none", *manual.MARKS.values()}


def test_prose_is_kept_and_the_rest_is_not() -> None:
    text = """The "assert" statement
**********************

Assert statements are a convenient way to insert debugging
assertions into a program, as is well known [1]:

   assert_stmt ::= "assert" expression ["," expression]

* If the value is greater than the limit, the call raises an error. It
  is then up to the caller to decide what happens next, if anything.

* Print x_y and os.path to the screen with f(x) whenever you like it.

Changed in version 3.7: The function now accepts any number of paths.

+-----+-----+
| This table is no prose at all, although it ends well.    |
+-----+-----+

>>> Doctests are never kept, however long they are in the end.

Too short."""
    assert list(manual.prose(text)) == [
        "If the value is greater than the limit, the call raises an error.",
        "It is then up to the caller to decide what happens next, if anything.",
        "The function now accepts any number of paths.",
    ]


def test_the_corpus_is_large_deterministic_and_split_by_content(unchecked: None) -> None:
    sentences = manual.corpus(1500)
    assert len(sentences) == 1500 == len({sentence for sentence, _ in sentences})
    assert manual.corpus(200) == sentences[:200]
    splits = manual.task(1500)
    assert list(splits) == ["train", "dev", "test"]
    sizes = {name: len(documents) for name, documents in splits.items()}
    assert sum(sizes.values()) == 1500
    assert 0.75 < sizes["train"] / 1500 < 0.85
    assert min(sizes["dev"], sizes["test"]) > 100
    keys = {name: {d.key for d in documents} for name, documents in splits.items()}
    assert not keys["train"] & keys["dev"]
    assert not keys["train"] & keys["test"]
    assert not keys["dev"] & keys["test"]
    first = splits["train"][0]
    assert manual.restore(first.meta["text"])[0] == first.words
    assert first.place.startswith("pydoc_data.topics:")


def test_the_split_of_a_sentence_never_changes() -> None:
    shown = [manual.split_of(f"This is sentence number {i} of all.") for i in range(12)]
    assert shown == [manual.split_of(f"this is SENTENCE number {i}, of all?") for i in range(12)]
    assert set(shown) <= set(manual.SPLITS)


def test_docstrings_are_read_without_importing() -> None:
    source = b'raise SystemExit\nclass A:\n "One."\n async def f(self):\n  """Two."""\n  x = """no"""\n'
    assert sorted(manual._of_source(source)) == ["One.", "Two."]
    assert list(manual._of_source(b"not python")) == []
