"""Which methods a plan times, and with which settings.

Axes: none
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers

from encodeonce.cli import plan_methods
from encodeonce.cli.config import parse
from encodeonce.cli.contenders import contender
from encodeonce.cli.plan_methods import Timed
from encodeonce.cli.sampling import Estimate
from encodeonce.methods.aggregate import Variant
from encodeonce.methods.finetune import Tuning
from encodeonce.types import Spec

from .conftest import Run

SPEC = Spec("mini", "", "", "", n_blocks=6, width=8, layers=tuple(range(7)), window=32, overlap=0)


def timed(**values: Any) -> Timed:
    config = parse({"encoder": "mini", **values}, "here")
    return Timed.of(config, contender(config), SPEC)


def test_a_method_that_reads_is_held_against_blocks_as_the_config_has_them() -> None:
    found = timed(method="linear", finetune={"compute": "bf16", "shared": True, "over": "adapted", "key_width": 8})
    assert found.weighed.name == "linear"
    assert (found.tuning, found.tunings) == (None, [*found.live.values(), found.attention])
    assert list(found.live) == [1, 2, 6]
    assert found.attention == replace(found.live[2], attention_only=(-1,))
    for depth, one in found.live.items():
        assert (one.name, len(one.plan(SPEC).blocks)) == ("finetune" if depth == 6 else "live_mix", depth)
        assert (one.compute, one.shared, one.over, one.key_width) == ("bf16", True, "adapted", 8)
    own = timed(method="linear", methods={"finetune": {"finetune": {"shared": True}}})
    assert [one.shared for one in own.live.values()] == [False, False, True]


@pytest.mark.parametrize("options", [{"live": 1}, {"lora": 4}, {"live": 0}, {"live": 2, "lora": 4}])
def test_fine_tuning_is_of_all_blocks_whatever_the_config_has_for_another(options: dict[str, int]) -> None:
    refused = options == {"live": 0}  # low-rank terms in no block
    for method in ("top1", "adapted", *(() if refused else ("lora",))):
        whole = timed(method=method, finetune=options).live[6]
        assert (len(whole.plan(SPEC).blocks), whole.rank, whole.plan(SPEC).pieces) == (6, 0, True)


def test_blocks_of_ones_own_choice_are_those_that_are_timed() -> None:
    found = timed(method="live_mix", finetune={"blocks": [0, 3, 5], "residual": False})
    assert list(found.live) == [1, 2, 3, 6]
    assert found.tuning == found.live[3]
    assert found.tuning.plan(SPEC).blocks == (0, 3, 5)
    assert found.live[2].plan(SPEC).blocks == (1, 2)
    assert not any(one.residual for depth, one in found.live.items() if depth < 6)


def test_attention_alone_is_timed_where_it_was_chosen() -> None:
    found = timed(method="live_mix", finetune={"attention_only": [2]})
    assert found.tuning == found.live[2] == Tuning("live_mix", attention_only=(2,))
    assert found.attention is None
    assert [one.attention_only for one in found.live.values()] == [(), (2,), ()]
    assert not any(one.attention_only for one in timed(method="top1", finetune={"live": 1}).live.values())


def test_attention_alone_is_timed_where_a_block_has_a_half_of_its_own_and_two_are_not_all() -> None:
    assert timed(method="live_mix", finetune={"blocks": [0, 4]}).attention == Tuning(
        "live_mix", blocks=(0, 4), attention_only=(-1,)
    )
    config = parse({"encoder": "mini"}, "here")
    assert Timed.of(config, contender(config), SPEC, repeats=True).attention is None
    shallow = replace(SPEC, n_blocks=2, layers=(0, 1, 2))
    assert Timed.of(config, contender(config), shallow).attention is None
    assert Timed.of(config, contender(config), replace(SPEC, n_blocks=3, layers=(0, 1, 2, 3))).attention is not None


@pytest.mark.parametrize("method", ["lora", "top1", "top2"])
def test_a_method_that_is_not_in_the_row_is_timed_beside_it(method: str) -> None:
    found = timed(method=method)
    assert found.tuning == Tuning(method)
    assert found.tunings == [*found.live.values(), found.attention, Tuning(method)]


def test_a_method_that_reads_no_view_is_fine_tuning_itself() -> None:
    found = timed(method="mine", methods={"mine": {"method": "finetune", "finetune": {"compute": "bf16"}}})
    assert (found.weighed.name, found.tuning) == ("adapted", None)
    assert found.live[6] == Tuning("finetune", compute="bf16")


def test_options_of_a_line_of_ones_own_are_timed() -> None:
    found = timed(method="mine", methods={"mine": {"method": "adapted", "adapter": {"key_width": 4}}})
    assert found.variants["adapted"] == Variant("adapted", key_width=4)


def test_a_line_that_has_the_name_of_another_method_is_not_that_method() -> None:
    found = timed(methods={"live_mix": {"method": "agg"}, "finetune": {"method": "agg"}})
    assert [one.name for one in found.live.values()] == ["live_mix", "live_mix", "finetune"]


def test_numbers_of_blocks_between_lie_on_the_line() -> None:
    found = timed()
    ends = ((1.0, 0.5, 1.5), (2.0, 1.0, 3.0), (10.0, 9.0, 11.0))
    epochs = {one: Estimate(*values) for one, values in zip(found.live.values(), ends, strict=True)}
    by_depth = found.by_depth(epochs)
    assert list(by_depth) == [1, 2, 3, 4, 5, 6]
    assert by_depth[3] == Estimate(4.0, 3.0, 5.0)
    assert by_depth[2] == epochs[found.live[2]]
    assert plan_methods._between({1: Estimate.exactly(3.0)}, 1) == Estimate.exactly(3.0)


def deeper(tiny: Path, folder: Path, kind: str, **options: int) -> Path:
    """An encoder of 3 blocks, or as the options have it, beside the tokenizer of the tiny one."""
    shutil.copytree(tiny, folder)
    settings = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32}
    config = getattr(transformers, f"{kind}Config")(vocab_size=200, **{"num_hidden_layers": 3, **settings, **options})
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    return folder


def test_a_plan_times_attention_alone_of_a_second_block(run: Run, config: Path, tiny: Path, tmp_path: Path) -> None:
    chosen = ("--set", f"encoder={deeper(tiny, tmp_path / 'bert', 'Bert')}", "--budget-seconds", "0.1")
    found = json.loads(run("plan", config, *chosen, "--json").stdout)["seconds"]
    assert found["attention"]["value"] > 0
    assert list(found["live"]) == ["1", "2", "3"]
    text = run("plan", config, *chosen).stdout
    assert re.search(r"epoch, live_mix, 1 live block and the attention of the next +\d", text)


def test_blocks_that_run_again_have_no_half_and_are_refused_one_before_anything_is_encoded(
    run: Run, config: Path, tiny: Path, tmp_path: Path
) -> None:
    albert = ("--set", f"encoder={deeper(tiny, tmp_path / 'albert', 'Albert', embedding_size=8)}")
    found = json.loads(run("plan", config, *albert, "--budget-seconds", "0.1", "--json").stdout)["seconds"]
    assert (found["attention"], list(found["live"])) == (None, ["1", "2", "3"])
    half = ("--set", "method=live_mix", "--set", "finetune.attention_only=[-1]")
    compare = ("compare", config, "--methods", "live_mix", "-o", "report")
    for command in (("train", config, "-o", "run"), ("plan", config), compare):
        refused = run(*command, *albert, *half, code=1).stderr
        assert "attention_only=[1]: " in refused
        assert "live blocks [0, 1] are attention alone all of them or none" in refused
    assert not list((tmp_path / "states").glob("*.safetensors"))


def test_a_config_that_trains_can_be_planned(run: Run, config: Path, tiny: Path, tmp_path: Path) -> None:
    """With items that no live block can be given, over an encoder of one block, beside settings of another method."""
    (tmp_path / "long.jsonl").write_text(json.dumps({"words": ["cats"] * 60, "upos": ["NOUN"] * 60}) + "\n")
    long = ("--set", "data.train=long.jsonl", "--set", 'tasks=["upos"]', "--budget-seconds", "0.1")
    found = json.loads(run("plan", config, *long, "--json").stdout)
    assert (found["seconds"]["live"], found["seconds"]["attention"], found["seconds"]["live_left_out"]) == ({}, None, 1)
    assert (found["break_even"]["epochs"], found["break_even"]["tasks"]) == (None, None)
    said = {one["choice"]: one["value"] for one in found["advice"]}
    assert (said["store"], said["live"]) == ("yes", "0")
    text = run("plan", config, *long).stdout
    assert "live blocks refuse 1 training items" in text
    assert "against fine-tuning" not in text
    assert "longer than 32 pieces" in run("plan", config, *long, "--set", "method=top1", code=1).stderr

    low = deeper(tiny, tmp_path / "low", "Bert", num_hidden_layers=1)
    short = ("--budget-seconds", "0.1", "--json")
    one = json.loads(run("plan", config, *short, "--set", f"encoder={low}").stdout)["seconds"]
    assert (list(one["live"]), one["attention"]) == (["1"], None)
    run("plan", config, *short, "--set", "finetune.blocks=[7]")
