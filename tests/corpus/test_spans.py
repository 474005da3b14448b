"""Tag schemes: read, detected, converted. Brute force over all short tag sequences, and the field's cases."""

import json
import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB2, IOBES, Tokens

from encodeonce.corpus.spans import SCHEMES, Span, convert, detect, from_spans, split_tag, to_spans
from encodeonce.errors import ConfigError, DataError

TAGS = ["O", *(f"{p}-{t}" for p in "BI" for t in ("x", "y-z"))]
FULL = ["O", *(f"{p}-{t}" for p in "BIES" for t in ("x", "y"))]


@st.composite
def spans(draw: st.DrawFn) -> tuple[list[Span], int]:
    """Flat spans over some words, many of them touching."""
    steps = draw(st.lists(st.tuples(st.sampled_from([None, "x", "y-z", "_"]), st.integers(1, 4)), max_size=8))
    found, at = [], 0
    for type_, length in steps:
        if type_:
            found.append(Span(type_, at, at + length))
        at += length
    return found, at


@given(spans(), st.sampled_from(SCHEMES))
@settings(max_examples=200, deadline=None)
def test_spans_to_tags_to_spans_is_the_identity_under_both_rules(case: tuple[list[Span], int], scheme: str) -> None:
    wanted, n = case
    tags = from_spans(wanted, n, scheme)
    assert len(tags) == n
    assert to_spans(tags, scheme) == wanted
    assert to_spans(tags, scheme, strict=True) == wanted


@given(spans(), st.sampled_from(SCHEMES), st.sampled_from(SCHEMES))
@settings(max_examples=100, deadline=None)
def test_conversion_there_and_back_is_the_identity(case: tuple[list[Span], int], one: str, other: str) -> None:
    tags = from_spans(*case, one)
    assert convert(convert(tags, one, other), other, one) == tags


def test_lenient_equals_seqeval_on_every_short_sequence() -> None:
    for n in range(5):
        for tags in product(TAGS, repeat=n):
            ours = [(s.type, s.start, s.stop - 1) for s in to_spans(tags)]
            assert ours == get_entities(list(tags)), tags
    for tags in product(FULL, repeat=3):
        assert [(s.type, s.start, s.stop - 1) for s in to_spans(tags, "BIOES")] == get_entities(list(tags)), tags


def test_strict_equals_seqeval_on_every_short_sequence() -> None:
    for n in range(5):
        for tags in product(TAGS, repeat=n):
            theirs = [(e.tag, e.start, e.end) for e in Tokens(list(tags), IOB2).entities]
            assert [tuple(s) for s in to_spans(tags, "IOB2", strict=True)] == theirs, tags
    for tags in product(FULL, repeat=3):
        theirs = [(e.tag, e.start, e.end) for e in Tokens(list(tags), IOBES).entities]
        assert [tuple(s) for s in to_spans(tags, "BIOES", strict=True)] == theirs, tags
        written = [tag.replace("E-", "L-").replace("S-", "U-") for tag in tags]
        theirs = [(e.tag, e.start, e.end) for e in Tokens(written, BILOU).entities]
        assert [tuple(s) for s in to_spans(written, "BILOU", strict=True)] == theirs, tags


def test_iob1_by_hand() -> None:
    tags = ["I-x", "I-x", "B-x", "I-y", "O", "I-y"]
    wanted = [Span("x", 0, 2), Span("x", 2, 3), Span("y", 3, 4), Span("y", 5, 6)]
    assert to_spans(tags, "IOB1") == to_spans(tags, "IOB1", strict=True) == wanted
    assert convert(tags, "IOB1", "BIOES") == ["B-x", "E-x", "S-x", "S-y", "O", "S-y"]
    assert to_spans(["B-x", "O"], "IOB1", strict=True) == []


def test_SPANS_2_types_with_hyphens_bare_tags_and_tags_that_are_none(cases: Path) -> None:
    case = json.loads((cases / "SPANS-2.json").read_text("utf-8"))
    for tags, wanted in ((case["tags"], case["entities"]), (case["bare_tags"], case["bare_entities"])):
        for strict in (False, True):
            assert [[s.type, s.start, s.stop - 1] for s in to_spans(tags, strict=strict)] == wanted
    assert from_spans(to_spans(case["bare_tags"]), 4) == case["bare_tags"]
    for tag in [*case["no_prefix_tags"], "B-", "b-x", "X-y", "", "BPER", "I_PER", "OO"]:
        with pytest.raises(DataError, match=r"f:3: .* is no chunk tag. Chunk tags are O, or B, I, .*accuracy"):
            split_tag(tag, "f:3")


def test_detection_says_the_name_and_the_evidence() -> None:
    for tags, name, evidence in (
        ([["B-x", "I-x", "O"], ["B-y"]], "IOB2", "all 2 spans begin with B"),
        ([["I-x", "B-x", "O"], ["I-y", "I-x"]], "IOB1", "spans begin with I, and B stands only right after"),
        ([["B-x", "E-x", "S-x"]], "BIOES", "2 tags that only BIOES has"),
        ([["B-x", "L-x", "U-x"]], "BILOU", "2 tags that only BILOU has"),
        ([["O", "O"]], "IOB2", "no spans"),
        ([["B-x", "O", "I-x"]], "mixed", "of 2 spans, 1 begin with B where IOB1 has I, 1 with I where IOB2 has B"),
        ([["S-x", "U-x"]], "mixed", "1 tags of BIOES .* 1 tags of BILOU"),
        ([["S-x", "B-x", "O"]], "mixed", "1 tags of BIOES, but 1 of 2 spans break it"),
    ):
        found = detect(tags)
        assert found.name == name
        assert re.search(evidence, found.evidence), found.evidence
    assert detect([["B-x", "O", "I-x"]]).begins_i == 1


@given(st.lists(spans(), min_size=1, max_size=3), st.sampled_from(SCHEMES))
@settings(max_examples=100, deadline=None)
def test_what_is_written_in_a_scheme_is_never_called_mixed(case: list[tuple[list[Span], int]], scheme: str) -> None:
    tags = [from_spans(*one, scheme) for one in case]
    found = detect(tags)
    assert found.name in SCHEMES
    for sentence, (wanted, _) in zip(tags, case, strict=True):
        assert to_spans(sentence, found.name, strict=True) == wanted


def test_conversion_never_changes_the_rule_in_silence() -> None:
    with pytest.raises(DataError, match=r"f:1: tags \['I-x'\] of words 1 to 1 break IOB2.*strict=False"):
        convert(["O", "I-x"], "IOB2", "BIOES", place="f:1")
    assert convert(["O", "I-x"], "IOB2", "BIOES", strict=False) == ["O", "S-x"]
    with pytest.raises(ConfigError, match=r"scheme='IOB' is not known. There is: IOB1, IOB2, BIOES, BILOU"):
        convert(["O"], "IOB", "BIOES")
    with pytest.raises(ConfigError, match="overlaps"):
        from_spans([("x", 0, 2), ("x", 1, 3)], 3)
    with pytest.raises(ConfigError, match="lies outside the 2 words"):
        from_spans([("x", 1, 3)], 2)


@pytest.mark.parametrize("name", ["ncbi-disease", "jnlpba", "sciie", "bc5cdr_typed"])
def test_real_files_are_iob2(unchecked: None, shared: Path, name: str) -> None:
    from encodeonce.corpus import read

    found = detect(d.columns["tag"] for d in read(shared / "data" / "science" / "ner" / name / "dev.conll.gz"))
    assert (found.name, found.spans) == (
        "IOB2",
        {"ncbi-disease": 787, "jnlpba": 4551, "sciie": 808, "bc5cdr_typed": 9593}[name],
    )
