"""Span scores against seqeval (lenient and strict, micro and macro) and the field's cases."""

import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.scheme import IOB2, IOBES

from encodeonce.corpus import read
from encodeonce.errors import ConfigError, DataError
from encodeonce.metrics.spans import all_pieces, span_scores, spans_per_type

IOB_TAGS = ["O", *(f"{p}-{t}" for p in "BI" for t in ("x", "y-z", "w"))]
FULL_TAGS = ["O", *(f"{p}-{t}" for p in "BIES" for t in ("x", "y"))]


def pairs(tags: list[str]) -> st.SearchStrategy[list[tuple[list[str], list[str]]]]:
    tag = st.sampled_from(tags)
    sentence = st.lists(st.tuples(tag, st.booleans(), tag), min_size=1, max_size=9)
    cut = sentence.map(lambda rows: ([g for g, _, _ in rows], [g if same else p for g, same, p in rows]))
    return st.lists(cut, min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("tags", "options", "theirs"),
    [
        (IOB_TAGS, {}, {}),
        (IOB_TAGS, {"strict": True}, {"mode": "strict", "scheme": IOB2}),
        (FULL_TAGS, {"scheme": "BIOES"}, {}),
        (FULL_TAGS, {"scheme": "BIOES", "strict": True}, {"mode": "strict", "scheme": IOBES}),
    ],
)
def test_scores_equal_seqeval_on_random_tags(tags: list[str], options: dict, theirs: dict) -> None:
    @given(pairs(tags))
    @settings(max_examples=60, deadline=None)
    def check(case: list[tuple[list[str], list[str]]]) -> None:
        gold, predicted = [g for g, _ in case], [p for _, p in case]
        ours = span_scores(gold, predicted, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
                # seqeval says 0 where there is nothing to divide by
                expected = 100 * score(gold, predicted, zero_division=0, **theirs)
                assert (ours[name] or 0.0) == pytest.approx(expected), name
            if ours["gold"] or ours["predicted"]:
                expected = 100 * f1_score(gold, predicted, average="macro", zero_division=0, **theirs)
                assert ours["macro_f1"] == pytest.approx(expected)

    check()


def test_SPANS_1_the_result_says_its_rule(cases: Path) -> None:
    case = json.loads((cases / "SPANS-1.json").read_text("utf-8"))
    lenient = span_scores(case["gold"], case["pred"])
    strict = span_scores(case["gold"], case["pred"], strict=True)
    assert (lenient["f1"], lenient.rule) == (100 * case["lenient_conlleval_f1"], "lenient (conlleval)")
    assert (strict["f1"], strict.rule) == (100 * case["strict_iob2_f1"], "strict IOB2")


def test_SPANS_2_part_of_speech_tags_are_refused(cases: Path) -> None:
    case = json.loads((cases / "SPANS-2.json").read_text("utf-8"))
    with pytest.raises(DataError, match=r"gold item 0: 'NOUN' is no chunk tag.*use accuracy"):
        span_scores([case["no_prefix_tags"]], [["O", "O"]])
    with pytest.raises(DataError, match="predicted item 0: 'NOUN' is no chunk tag"):
        span_scores([["O", "O"]], [case["no_prefix_tags"]])
    assert sorted(spans_per_type([case["tags"]], [case["tags"]])) == ["gene-mut", "gene_x"]
    assert span_scores([case["bare_tags"]], [case["bare_tags"]])["correct"] == 2


def test_LABELS_1_an_unseen_gold_type_counts_as_a_miss(cases: Path) -> None:
    expected = json.loads((cases / "LABELS-1.expected.json").read_text("utf-8"))
    gold = [document.columns["tag"] for document in read(cases / "LABELS-1-dev.conll")]
    scores = span_scores(gold, [expected["prediction_used"]])
    assert scores["precision"] == 100 * expected["precision"]
    assert scores["recall"] == 100 * expected["recall"]
    assert scores["f1"] == pytest.approx(100 * expected["f1"], abs=0.01)
    assert spans_per_type(gold, [expected["prediction_used"]])["Z"]["precision"] is None


def test_LONG_1_every_gold_entity_is_scored_and_short_predictions_are_refused(cases: Path) -> None:
    expected = json.loads((cases / "LONG-1.expected.json").read_text("utf-8"))
    gold = [document.columns["tag"] for document in read(cases / "LONG-1.conll")]
    assert span_scores(gold, gold)["gold"] == expected["entities"]
    cut = [tags[:512] for tags in gold]
    with pytest.raises(ConfigError, match="item 0: 700 gold labels but 512 predicted ones; each word needs"):
        span_scores(gold, cut)
    filled = [(*tags, *["O"] * (expected["words"] - 512)) for tags in cut]
    scores = span_scores(gold, filled)
    assert scores["gold"] == expected["entities"]
    assert scores["recall"] is not None
    assert scores["recall"] < 75


def test_LABELS_2_undefined_scores_are_none() -> None:
    nothing = span_scores([["O"]], [["O"]])
    assert [nothing[name] for name in ("precision", "recall", "f1", "macro_f1")] == [None] * 4
    missed = span_scores([["B-x"]], [["O"]])
    assert (missed["precision"], missed["recall"], missed["f1"]) == (None, 0.0, 0.0)
    invented = span_scores([["O"]], [["B-x"]])
    assert (invented["precision"], invented["recall"], invented["f1"]) == (0.0, None, 0.0)


def test_gold_and_prediction_given_twice_do_not_raise_recall() -> None:
    scores = span_scores([["B-x", "B-x"]], [["B-x", "I-x"]])
    assert (scores["gold"], scores["predicted"], scores["correct"]) == (2.0, 1.0, 0.0)


def test_the_scores_are_a_plain_dict_for_json() -> None:
    assert json.loads(json.dumps(span_scores([["B-x"]], [["B-x"]])))["f1"] == 100.0


def test_every_piece_labelled_by_hand_and_by_seqeval() -> None:
    """A B- word of three pieces is three entities; perfect at word level, its pieces going on with I- score 0."""
    gold, predicted = [["B-x", "I-x", "O", "B-y"]], [["B-x", "O", "O", "B-y"]]
    pieces = [[3, 1, 1, 2]]
    both = [all_pieces(side, pieces) for side in (gold, predicted)]
    assert both[0] == [("B-x", "B-x", "B-x", "I-x", "O", "B-y", "B-y")]
    found = span_scores(*both)
    assert (found["gold"], found["predicted"], found["correct"]) == (5, 5, 4), "the third x is longer in gold"
    assert found["f1"] == pytest.approx(100 * f1_score(*[[list(own) for own in side] for side in both]))
    assert span_scores(all_pieces(gold, pieces), all_pieces(gold, pieces))["f1"] == 100
    going_on = [("B-x", "I-x", "I-x")]
    assert span_scores(all_pieces([["B-x"]], [[3]]), going_on)["f1"] == 0
    with pytest.raises(ConfigError, match=r"item 0: 2 tags, pieces \[1\]"):
        all_pieces([["O", "O"]], [[1]])
    with pytest.raises(ConfigError, match="at least one piece a word"):
        all_pieces([["O"]], [[0]])
