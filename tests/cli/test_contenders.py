"""Which value of a setting a method gets, and which names and values are refused."""

import logging
from typing import Any

import click
import pytest

from encodeonce.cli.cells import grouped
from encodeonce.cli.compare import _seeds
from encodeonce.cli.config import parse
from encodeonce.cli.contenders import SEEDS, contender, contenders, say_unused, seeds_of
from encodeonce.errors import ConfigError
from encodeonce.methods.aggregate import Variant
from encodeonce.methods.finetune import ENCODER_RATES, Tuning
from encodeonce.tasks import named

VALUES: dict[str, Any] = {
    "encoder": "e",
    "adapter": {"key_width": 64, "n_heads": 4},
    "finetune": {"over": "linear", "compute": "bf16"},
    "train": {"learning_rate": 4e-3, "num_train_epochs": 7},
    "methods": {
        "small": {"method": "adapted", "adapter": {"key_width": 16, "n_heads": 2}},
        "finetune": {"num_train_epochs": 3, "seeds": 2, "grid": {"encoder_learning_rate": [1e-4, 2e-4]}},
        "top1": {"learning_rate": 4e-3, "encoder_learning_rate": 5e-4},
    },
}


def test_the_nearest_value_counts() -> None:
    config = parse(VALUES, "here")
    assert contender(config).settings() == Variant("adapted", key_width=64, n_heads=4)
    assert contender(config, "small").settings() == Variant("adapted", key_width=16, n_heads=2)
    assert contender(config, "live_mix").settings() == Tuning("live_mix", over="linear", compute="bf16")
    assert contender(config, "live_mix").settings({"live": 1}) == Tuning(
        "live_mix", live=1, over="linear", compute="bf16"
    )
    training = contender(config, "finetune").training
    assert (training(config).learning_rate, training(config).num_train_epochs) == (4e-3, 3)
    assert training(config, {"num_train_epochs": 5}, seed=9).num_train_epochs == 5
    assert training(config, seed=9).seed == 9


def test_blocks_of_the_encoder_have_a_rate_of_their_own() -> None:
    config = parse(VALUES, "here")

    def rate(name: str, **train: float) -> float:
        changed = config.model_copy(update={"train": config.train.model_copy(update=train)})
        return contender(changed, name).training(changed).encoder_learning_rate

    assert rate("live_mix") == ENCODER_RATES["live_mix"]
    assert rate("top1") == 5e-4
    assert rate("live_mix", encoder_learning_rate=3e-4) == 3e-4
    assert rate("live_mix", encoder_learning_rate=0.0) == 0.0
    assert rate("live_mix", encoder_learning_rate=0.0) == 0.0
    assert rate("lora") == rate("adapted") == 0.0


def test_a_comparison_gives_seeds_and_rates_to_those_without_any() -> None:
    config = parse(VALUES, "here")
    found = {one.name: one for one in contenders(config, ["adapted", "finetune", "live_mix"], [1, 2, 3], [1e-3])}
    assert {name: one.seeds for name, one in found.items()} == {
        "adapted": (1, 2, 3),
        "finetune": SEEDS[:2],
        "live_mix": (1, 2, 3),
    }
    assert {name: dict(one.grid) for name, one in found.items()} == {
        "adapted": {"learning_rate": (1e-3,)},
        "finetune": {"encoder_learning_rate": [1e-4, 2e-4]},
        "live_mix": {},
    }


def test_seeds_are_a_number_of_them_or_the_seeds() -> None:
    assert seeds_of(3) == SEEDS[:3]
    assert seeds_of(8) == (13, 21, 42, 87, 100, 1, 2, 3)
    assert len(set(seeds_of(100))) == 100
    assert seeds_of([5, 3]) == (5, 3)


@pytest.mark.parametrize(
    ("name", "section", "message"),
    [
        ("adaptd", None, r"method 'adaptd' is not known\. There is: frozen, .*live_mix.*Did you mean 'adapted'\?"),
        ("mine", {"learning_rate": 1e-3}, r"method 'mine' is not known"),
        (
            "linear",
            {"finetune": {"live": 1}},
            r"\[methods\.linear\.finetune\]: linear takes its options from .*adapter",
        ),
        (
            "linear",
            {"grid": {"learning_rat": [1]}},
            r"\[methods\.linear\.grid\]: linear has no use for 'learning_rat'\. Did you mean 'learning_rate'",
        ),
        ("linear", {"grid": {"live": [1]}}, r"linear has no use for 'live'"),
        ("linear", {"grid": {"seed": [1]}}, r"linear has no use for 'seed'"),
        ("linear", {"grid": {"dropout": []}}, r"dropout = \[\] tries nothing"),
        ("linear", {"grid": {"dropout": ["much"]}}, r"\[methods\.linear\.grid\]: dropout = 'much'"),
        ("linear", {"grid": {"learning_rate": [1e-3, 0]}}, r"\[methods\.linear\.grid\]: learning_rate = 0"),
        ("live_mix", {"grid": {"live": [1.5, 2]}}, r"\[methods\.live_mix\.grid\]: live = 1\.5"),
        ("live_mix", {"grid": {"blocks": [0, 1]}}, r"\[methods\.live_mix\.grid\]: blocks = 0"),
        ("live_mix", {"grid": {"shared": [False, True]}}, r"shared says which tasks are trained together"),
        ("top1", {"finetune": {"blocks": [1]}}, r"blocks=\[1\] is a setting of live_mix"),
        (
            "frozen",
            {"adapter": {"key_width": 32}},
            r"\[methods\.frozen\.adapter\]: frozen has no use for 'key_width'.*: dropout, pre_norm_layers, compute\.$",
        ),
        ("linear", {"grid": {"n_heads": [2, 4]}}, r"\[methods\.linear\.grid\]: linear has no use for 'n_heads'"),
        ("top1", {"finetune": {"over": "linear"}}, r"\[methods\.top1\.finetune\]: top1 has no use for 'over'"),
        ("top1", {"finetune": {"lora_alpha": 8}}, r"top1 has no use for 'lora_alpha'"),
        ("live_mix", {"finetune": {"over": "linear", "key_width": 8}}, r"live_mix has no use for 'key_width'"),
        ("lora", {"encoder_learning_rate": 1e-4}, r"\[methods\.lora\]: lora has no use for 'encoder_learning_rate'"),
        ("adapted", {"grid": {"encoder_learning_rate": [1e-4]}}, r"adapted has no use for 'encoder_learning_rate'"),
    ],
)
def test_what_a_method_cannot_have_is_refused(name: str, section: dict[str, Any] | None, message: str) -> None:
    config = parse({"encoder": "e", "methods": {} if section is None else {name: section}}, "here")
    with pytest.raises(ConfigError, match=message):
        contender(config, name)


def test_lists_and_numbers_in_words_can_be_tried() -> None:
    section = {"grid": {"attention_only": [[-1], []], "key_width": [16.0, "32"]}}
    tried = contender(parse({"encoder": "e", "methods": {"live_mix": section}}, "here"), "live_mix")
    assert tried.grid == {"attention_only": [(-1,), ()], "key_width": [16, 32]}
    assert len(tried.possible) == 4
    points = {named("upos"): {"attention_only": (-1,)}, named("xpos"): {"attention_only": (-1,)}}
    assert grouped(points) == [({"attention_only": (-1,)}, tuple(points))]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"adaptd": {"learning_rate": 5}}, r"\[methods\.adaptd\]: method 'adaptd' is not .*Did you mean 'adapted'\?"),
        ({"mine": {"method": "linar"}}, r"\[methods\.mine\]: method 'linar' is not known.*Did you mean 'linear'\?"),
    ],
)
def test_a_table_of_no_method_is_refused_whoever_takes_part(tables: dict[str, Any], message: str) -> None:
    config = parse({"encoder": "e", "method": "frozen", "methods": tables}, "here")
    with pytest.raises(ConfigError, match=message):
        contender(config)
    with pytest.raises(ConfigError, match=message):
        contenders(config, ["frozen", "linear"], [1])


def test_a_comparison_says_which_seeds_it_takes_where_a_table_has_another() -> None:
    config = parse({"encoder": "e", "methods": {"linear": {"seed": 3}}}, "here")
    assert contender(config, "linear").training(config).seed == 3
    with pytest.raises(ConfigError, match=r"\[methods\.linear\]: seed = 3 is of `train`.*Write seeds = \[3\]"):
        contenders(config, ["linear"], [1])


@pytest.mark.parametrize("none", [0, [], -1, [13, -1]])
def test_no_seed_and_one_below_zero_is_refused(none: int | list[int]) -> None:
    with pytest.raises(ConfigError, match="give at least one"):
        seeds_of(none)


@pytest.mark.parametrize(("text", "wanted"), [("3", 3), ("42,", [42]), ("13, 21", [13, 21]), ("0,1", [0, 1])])
def test_seeds_on_the_command_line(text: str, wanted: int | list[int]) -> None:
    assert _seeds(text) == wanted


@pytest.mark.parametrize("text", ["0", "-1", "", ",", "1,-2", "two"])
def test_seeds_that_are_none_on_the_command_line(text: str) -> None:
    with pytest.raises(click.BadParameter):
        _seeds(text)


def test_what_makes_a_difference_at_one_point_of_a_grid_has_a_use() -> None:
    tables = {
        "live_mix": {"finetune": {"key_width": 8}, "grid": {"over": ["linear", "agg"]}},
        "top1": {"grid": {"lora": [0, 4], "lora_alpha": [8.0], "encoder_learning_rate": [1e-4]}},
    }
    config = parse({"encoder": "e", "methods": tables}, "here")
    assert "key_width" in contender(config, "live_mix").uses
    assert {"lora_alpha", "encoder_learning_rate"} < set(contender(config, "top1").uses)


def test_tables_for_all_methods_warn_where_nobody_has_a_use(caplog: pytest.LogCaptureFixture) -> None:
    values = {"encoder": "e", "adapter": {"key_width": 64}, "finetune": {"over": "linear"}}
    config = parse({**values, "train": {"encoder_learning_rate": 1e-3}}, "here")
    with caplog.at_level(logging.WARNING, "encodeonce"):
        say_unused(config, [contender(config, name) for name in ("frozen", "linear")])
        assert caplog.messages == [
            "[adapter] sets key_width, which changes nothing in frozen, linear",
            "[train] sets encoder_learning_rate, which changes nothing in frozen, linear",
        ]
        caplog.clear()
        say_unused(config, [contender(config, name) for name in ("frozen", "agg", "top1", "live_mix")])
        assert caplog.messages == []


def test_patience_needs_a_dev_split() -> None:
    config = parse({"encoder": "e", "train": {"early_stopping_patience": 3}}, "here")
    with pytest.raises(ConfigError, match=r"train\.early_stopping_patience = 3 counts epochs .*Set data\.dev or"):
        contender(config).training(config)
    held = config.model_copy(update={"data": config.data.model_copy(update={"dev_fraction": 0.1})})
    assert contender(held).training(held).early_stopping_patience == 3
