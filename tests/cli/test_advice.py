"""What a plan advises, case by case."""

from dataclasses import replace

import pytest

from encodeonce.cli.advice import Advice, Facts, advised, bytes_text, seconds_text

GB = 1e9
SIZES = {("all", 4.0), ("4", 2.0), ("last", 0.5)}
FACTS = Facts(
    method="adapted",
    epochs=10,
    live_epochs=3,
    largest=12.0,
    bytes={
        (layers, dtype): size * factor * GB
        for layers, size in SIZES
        for dtype, factor in (("fp32", 2), ("fp16", 1), ("bf16", 1), ("int8", 0.5))
    },
    held=0,
    complete=False,
    disk=int(100 * GB),
    memory=int(50 * GB),
    first=60.0,
    cached=5.0,
    live={1: 20.0, 2: 40.0, 3: 60.0, 4: 80.0, 5: 100.0, 6: 120.0},
)


def chosen(**changes: object) -> dict[str, Advice]:
    return {one.choice: one for one in advised(replace(FACTS, **changes))}  # type: ignore[arg-type]


def test_with_room_and_time_everything_is_stored_in_fp16() -> None:
    found = chosen()
    assert [found[key].value for key in ("store", "layers", "dtype", "live")] == ["yes", "all", "fp16", "1"]
    assert "10 epochs of adapted take 110 s, 3 epochs of fine-tuning 6.00 min" in found["store"].reason
    assert "live_mix takes 20.0 s an epoch, 17 %" in found["live"].reason


@pytest.mark.parametrize(
    ("changes", "layers", "dtype"),
    [
        ({"memory": int(3 * GB)}, "all", "int8"),
        ({"memory": int(1.5 * GB)}, "4", "int8"),
        ({"memory": int(0.6 * GB)}, "last", "fp16"),
        ({"memory": None}, "all", "fp16"),
        ({"disk": int(3 * GB)}, "all", "int8"),
        ({"disk": int(0.7 * GB)}, "last", "fp16"),
        ({"disk": int(0.3 * GB)}, "last", "int8"),
        ({"disk": int(0.3 * GB), "held": int(4.2 * GB)}, "all", "fp16"),
        ({"largest": 70000.0}, "all", "bf16"),
        ({"method": "frozen", "view": "last"}, "last", "fp16"),
        ({"method": "top1", "view": "[5]"}, "[5]", "fp16"),
        ({"method": "lora", "view": "[0]", "disk": int(0.3 * GB)}, "[0]", "int8"),
        # nothing fits the memory: what fits the disk is read from it
        ({"memory": int(0.1 * GB)}, "all", "fp16"),
    ],
)
def test_the_best_choice_that_fits(changes: dict[str, object], layers: str, dtype: str) -> None:
    found = chosen(**changes)
    assert (found["layers"].value, found["dtype"].value) == (layers, dtype)
    assert found["store"].value == "yes"


def test_a_method_of_one_view_is_told_which_and_nothing_of_mixing() -> None:
    assert chosen(method="top1", view="[5]")["layers"].reason == "top1 reads view 5 only: 500 MB"
    assert chosen(method="frozen", view="last")["layers"].reason == "frozen reads the last view only: 500 MB"


def test_a_full_disk_means_no_store_and_all_blocks() -> None:
    found = chosen(disk=int(0.1 * GB))
    assert set(found) == {"store", "live"}
    assert found["store"].value == "no"
    assert "takes 250 MB, and the disk has 100 MB free" in found["store"].reason
    assert found["live"].value == "6"


def test_a_pass_that_one_training_does_not_pay_for_is_for_several() -> None:
    dear = chosen(first=600.0)["store"]
    assert dear.value == "yes, for several tasks or runs"
    assert chosen(first=600.0, cached=40.0)["store"].value == "no"
    assert chosen(first=0.0, complete=True)["store"].reason.startswith("everything is stored already")


def test_live_depth_is_the_deepest_within_a_quarter() -> None:
    assert chosen(live={1: 10.0, 2: 20.0, 3: 30.0, 4: 120.0})["live"].value == "3"
    assert chosen(live={1: 40.0, 2: 120.0})["live"].value == "0"
    assert chosen(live={1: 40.0})["live"].value == "0"


def test_every_reason_is_one_line() -> None:
    for changes in ({}, {"disk": 1}, {"view": "last"}, {"largest": 1e6}, {"memory": int(GB)}, {"complete": True}):
        assert all(one.reason and "\n" not in one.reason for one in advised(replace(FACTS, **changes)))


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0.00 B"), (7, "7.00 B"), (999, "999 B"), (1000, "1.00 kB"), (854_321_000, "854 MB"), (1.7e9, "1.70 GB")],
)
def test_bytes_are_said_with_three_digits(n: float, text: str) -> None:
    assert bytes_text(n) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [(0.0123, "12.3 ms"), (1, "1.00 s"), (119, "119 s"), (120, "2.00 min"), (7200, "2.00 h"), (2e5, "2.31 days")],
)
def test_seconds_are_said_with_three_digits(n: float, text: str) -> None:
    assert seconds_text(n) == text


def test_attention_alone_of_a_second_block_is_advised_where_it_fits_and_two_whole_ones_do_not() -> None:
    found = chosen(attention=28.0)["live"]
    assert found.value == "2, attention_only = [-1]"
    assert "a whole block and the attention of the next take 28.0 s an epoch, 23 % of fine-tuning's" in found.reason
    assert chosen(attention=31.0)["live"].value == "1"
    assert chosen(attention=15.0, live={1: 10.0, 2: 20.0, 3: 120.0})["live"].value == "2"
    assert chosen(attention=2.0, disk=int(0.1 * GB))["live"].value == "6"
