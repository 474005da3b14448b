"""Means, deviations and marks against hand-computed values and SciPy's own Welch test."""

import math
from dataclasses import replace

import pytest
from scipy import stats

from encodeonce.errors import DataError
from encodeonce.report.results import ResultsRow
from encodeonce.report.table import Score, aligned, comparison, markdown, metrics_of, scores, seconds, shown, steps

SEEDS = (13, 21, 42, 87, 100)


def rows_of(method: str, values: tuple[float, ...], task: str = "upos", **more: object) -> list[ResultsRow]:
    row = ResultsRow("e", "d", task, "tiny", method, "", None, "test", "accuracy", 0.0)
    return [replace(row, seed=seed, value=value, **more) for seed, value in zip(SEEDS, values, strict=False)]


FROZEN = rows_of("frozen", (80.0, 81.0, 79.0, 80.5, 79.5), train_s_per_batch=0.002, params_trainable=1000)
LINEAR = rows_of("linear", (90.0, 90.2, 89.8, 90.1, 89.9), train_s_per_batch=0.004, params_trainable=1008)
FUSION = rows_of("fusion", (90.1, 90.0, 89.9, 90.2, 89.9))


def test_mean_and_sample_deviation_are_the_textbooks() -> None:
    score = Score((80.0, 82.0, 84.0))
    assert score.mean == 82.0
    assert score.sd == pytest.approx(math.sqrt((4 + 0 + 4) / 2))
    assert str(score) == "82.00 ± 2.00"
    assert str(Score((80.0,))) == "80.00"


def test_a_mark_needs_two_seeds_and_follows_welch() -> None:
    one = comparison([FROZEN[0], replace(LINEAR[0], value=80.0001)])[1]
    assert [line[1] for line in one] == ["80.00 °", "**80.00**"]
    mixed = comparison([FROZEN[0], *LINEAR])[1]
    assert [line[1] for line in mixed] == ["80.00 °", "**90.00 ± 0.16**"], "however far apart: not tested"
    for shift in (0.05, 0.2, 0.4, 1.0):
        other = tuple(row.value - shift for row in FUSION)
        marked = comparison([*FUSION, *rows_of("agg", other)])[1][1][1].endswith("≈")
        assert marked == (stats.ttest_ind([row.value for row in FUSION], other, equal_var=False).pvalue >= 0.05)


def test_the_best_is_bold_and_its_equals_are_marked() -> None:
    header, lines = comparison([*FROZEN, *LINEAR, *FUSION])
    assert header == ["method", "upos (accuracy)", "ms/batch", "trainable"]
    assert lines == [
        ["frozen", "80.00 ± 0.79", "2.0", "1,000"],
        ["linear", "90.00 ± 0.16 ≈", "4.0", "1,008"],
        ["fusion", "**90.02 ± 0.13**", "–", "–"],
    ]


def test_what_ties_with_the_best_is_best_too() -> None:
    """Welch's test has no p without spread: of two methods that are always right the second would look worse."""
    tied = comparison([*rows_of("a", (100.0, 100.0)), *rows_of("b", (100.0, 100.0)), *rows_of("c", (99.0, 99.0))])[1]
    assert [line[1] for line in tied] == ["**100.00 ± 0.00**", "**100.00 ± 0.00**", "99.00 ± 0.00 °"]


def test_of_an_error_the_lowest_is_best() -> None:
    """Welch's t of (1.0, 1.2) and (1.1, 1.2) is 0.45, of (1.0, 1.2) and (9.0, 9.1) 71.1."""
    values = {"a": (9.0, 9.1), "b": (1.0, 1.2), "c": (1.1, 1.2)}
    rows = [replace(row, metric="mse") for name, own in values.items() for row in rows_of(name, own)]
    assert [line[1] for line in comparison(rows)[1]] == ["9.05 ± 0.07", "**1.10 ± 0.14**", "1.15 ± 0.07 ≈"]


def test_a_small_error_keeps_its_digits() -> None:
    assert str(Score((0.0512, 0.0532))) == "0.0522 ± 0.0014"
    assert [shown(value) for value in (0.05123, 0.0, 1.0, 87.654, None)] == [
        "0.0512",
        "0.00",
        "1.00",
        "87.65",
        "undefined",
    ]


def test_columns_know_their_scores() -> None:
    rows = [*LINEAR, *(replace(row, metric="mse") for row in LINEAR), *rows_of("linear", (1.0,), task="ner")]
    asked = {"upos": ["mse", "accuracy"]}
    assert metrics_of(rows) == {"upos": "accuracy", "ner": "accuracy"}
    assert metrics_of(rows, metrics=asked) == {"upos accuracy": "accuracy", "upos mse": "mse", "ner": "accuracy"}
    assert list(metrics_of(rows, metrics=asked)) == list(scores(rows, metrics=asked))


def test_a_seed_counts_once_whatever_was_trained_beside_it() -> None:
    """Twice the same numbers are no more seeds: their deviation would shrink, and Welch's test find differences."""
    alone = rows_of("linear", (90.0, 92.0))
    both = [*alone, *(replace(row, variant="joint=upos+xpos") for row in alone)]
    assert scores(both)["upos"]["linear"].values == (90.0, 92.0)
    assert comparison(both)[1][0][1] == "**91.00 ± 1.41**"


def test_rates_of_seeds_of_their_own_are_not_averaged() -> None:
    slow, fast = rows_of("linear", (80.0, 82.0), variant="lr=0.001"), rows_of("linear", (90.0, 92.0))
    fast = [replace(row, variant="lr=0.002", seed=seed) for row, seed in zip(fast, (1, 2), strict=True)]
    means = {name: score.mean for name, score in scores([*slow, *fast])["upos"].items()}
    assert means == {"linear (lr=0.001)": 81.0, "linear (lr=0.002)": 91.0}


def test_paper_values_stand_beside_ours() -> None:
    header, lines = comparison([*FROZEN, *LINEAR], paper={"upos": {"linear": 95.1}})
    assert header[:3] == ["method", "upos (accuracy)", "upos paper"]
    assert [line[2] for line in lines] == ["", "95.10"]
    with_sd = comparison([*FROZEN, *LINEAR], paper={"upos": {"linear": [95.1, 0.04]}})[1]
    assert [line[2] for line in with_sd] == ["", "95.10 ± 0.04"]


def test_variants_of_a_method_are_told_apart_but_learning_rates_are_not() -> None:
    rows = [replace(FROZEN[0], variant="lr=0.001"), replace(FROZEN[1], task="xpos", variant="lr=0.002")]
    assert list(scores(rows)["upos"]) == ["frozen"]
    rows += [replace(FROZEN[2], variant="lr=0.001 store=int8")]
    assert list(scores(rows)["upos"]) == ["frozen (-)", "frozen (store=int8)"]


def test_epochs_and_rates_are_shown_only_where_they_tell_lines_apart() -> None:
    """Two settings of one cell are never averaged; what each task chose for itself is no line of its own."""
    first = [replace(row, variant="lr=0.1 epochs=2") for row in LINEAR]
    other = [replace(row, task="xpos", variant="lr=0.2 encoder_lr=0.1 epochs=9") for row in LINEAR]
    assert [list(by) for by in scores([*first, *other]).values()] == [["linear"], ["linear"]]
    twice = [*first, *(replace(row, variant="lr=0.1 epochs=5") for row in LINEAR)]
    assert list(scores(twice)["upos"]) == ["linear (lr=0.1 epochs=2)", "linear (lr=0.1 epochs=5)"]


def test_several_scores_of_a_task_stand_side_by_side() -> None:
    rows = [*FROZEN, *(replace(row, metric="uas", value=row.value + 1) for row in FROZEN)]
    header, lines = comparison(rows, metrics={"upos": ["uas", "accuracy"]}, paper={"upos uas": {"frozen": 7.0}})
    assert header[:4] == ["method", "upos accuracy", "upos uas", "upos uas paper"]
    assert [cell.split()[0] for cell in lines[0][1:4]] == ["**80.00", "**81.00", "7.00"]
    assert comparison(rows, metrics={"upos": ["uas"]})[0][1] == "upos (uas)"
    with pytest.raises(DataError, match=r"task 'upos' has no metric 'las' on test\. There is: accuracy, uas"):
        scores(rows, metrics={"upos": ["las"]})


def test_the_encoders_pass_is_shown_apart_and_included() -> None:
    """Spec A12: (t_e + e (t_f + t_b)) / e a training batch and t_e + t_f an inference batch; here t_e = 0.1, e = 10."""
    row = replace(
        FROZEN[0],
        train_s_total=20.0,
        train_s_per_batch=0.02,
        train_encoder_s_per_batch=0.1 / 10,
        infer_s_per_batch=0.005,
        infer_encoder_s_per_batch=0.1,
    )
    header, lines = comparison([row])
    told = dict(zip(header, lines[0], strict=True))
    assert told["ms/batch"] == "20.0"
    assert told["ms/batch + encoding"] == f"{1000 * (0.1 + 10 * 0.02) / 10:.1f}"
    assert told["infer ms/batch"] == "5.0"
    assert told["infer ms/batch + encoder"] == "105.0"
    assert seconds([row])["upos"]["frozen"] == pytest.approx(20.0 * 1.5)
    assert seconds([replace(row, encode_s=7.0)])["upos"]["frozen"] == 27.0  # the pass itself, where it is known
    assert seconds([replace(row, encode_s=7.0, train_encoder_s_per_batch=None)])["upos"]["frozen"] == 27.0


def test_what_reads_views_whose_pass_is_not_known_has_no_time_of_training() -> None:
    """Else it would stand beside fine-tuning, which reads none, without its encoder."""
    row = replace(FROZEN[0], train_s_total=20.0, train_s_per_batch=0.02)
    assert seconds([row])["upos"]["frozen"] == 20.0
    assert seconds([replace(row, store_mb=7.0)]) == {}
    assert seconds([replace(row, store_mb=7.0, encode_s=5.0)])["upos"]["frozen"] == 25.0
    assert seconds([replace(row, store_mb=7.0, train_encoder_s_per_batch=0.01)])["upos"]["frozen"] == 30.0


def test_a_cost_that_is_known_of_some_rows_is_a_dash() -> None:
    """Of one fast row, the mean with the encoder's pass would lie below that without it of all rows."""
    fast, slow = (replace(row, train_s_per_batch=s) for row, s in zip(FROZEN[:2], (0.01, 0.09), strict=True))
    header, lines = comparison(
        [
            replace(fast, train_encoder_s_per_batch=0.02),
            slow,
            *(replace(r, train_encoder_s_per_batch=0.02) for r in LINEAR),
        ]
    )
    assert header[2:4] == ["ms/batch", "ms/batch + encoding"]
    assert [line[2:4] for line in lines] == [["50.0", "–"], ["4.0", "24.0"]]


def test_a_later_row_of_a_cell_replaces_the_earlier() -> None:
    assert scores([FROZEN[0], replace(FROZEN[0], value=10.0)])["upos"]["frozen"].values == (10.0,)


def test_an_undefined_value_is_in_no_mean_and_a_method_without_any_in_no_task() -> None:
    rows = [replace(FROZEN[0], value=None), *FROZEN[1:], *(replace(row, value=None) for row in LINEAR)]
    assert {name: score.values for name, score in scores(rows)["upos"].items()} == {
        "frozen": tuple(row.value for row in FROZEN[1:])
    }
    assert [(line[0], line[1] == "") for line in comparison(rows)[1]] == [("frozen", False), ("linear", True)]


def test_other_splits_stay_out() -> None:
    assert scores([replace(FROZEN[0], split="dev")]) == {}


def test_markdown_and_aligned() -> None:
    assert markdown(["a", "b"], [["x|y", "1"]]) == "| a | b |\n| :-- | --: |\n| x\\|y | 1 |"
    assert aligned(["method", "b"], [["x", "10.5"]]) == "method     b\n──────  ────\nx       10.5"


def test_steps_are_differences_of_means_with_scipys_p() -> None:
    table = scores([*FROZEN, *LINEAR, *rows_of("frozen", (50.0,), "ner"), *rows_of("linear", (52.0,), "ner")])
    header, lines = steps(table, [("frozen", "linear"), ("linear", "absent")])
    p = stats.ttest_ind([80.0, 81.0, 79.0, 80.5, 79.5], [90.0, 90.2, 89.8, 90.1, 89.9], equal_var=False).pvalue
    assert len(header) == 4
    assert lines == [["upos", "linear − frozen", "+10.00", f"{p:.2g}"], ["ner", "linear − frozen", "+2.00", "°"]]
