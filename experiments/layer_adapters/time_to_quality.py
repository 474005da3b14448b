"""The tables of benchmarks/quality.py: how long each way takes to what the others end with."""

from collections.abc import Mapping, Sequence
from typing import Any

from encodeonce.report.table import markdown

__all__ = ["SAID", "time_to_quality"]

SAID = {
    "adapted": "Adapted",
    "live_mix": "two live blocks on the layer mix",
    "one_and_attention": "one live block and the attention of the next",
    "one_block": "one live block",
    "finetune": "fine-tuning",
}


def time_to_quality(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """One table of all runs, and each way's accuracy after each epoch."""
    if not found:
        return []
    ways = [way for way in SAID if any(way in one["curves"] for one in found)]
    reached = [
        [tasks_of(one), f"{SAID[goal]} ({value:.2f})", *(reached_in(one, goal, way) for way in ways)]
        for one in found
        for goal, value in one["last_mean_dev_accuracy"].items()
    ]
    parts = [
        "### Time to quality\n\nCPU seconds of one thread, encoding included, until the mean dev accuracy is what a "
        f"way ends with. Fine-tuning is by `transformers` with length buckets, in bf16 where the processor has "
        f"instructions for it. {' '.join(map(made, found))}",
        markdown(["trained together", "to the last of", *(SAID[way] for way in ways)], reached),
    ]
    for one in found:
        epochs = {way: an_epoch(lines) for way, lines in one["curves"].items()}
        lines = [
            [SAID[way], f"{epoch:.0f}", f"{epoch / epochs['finetune']:.3f}", f"{part:.2f}"]
            for way, epoch in epochs.items()
            for part in [100 * one["last_mean_dev_accuracy"][way] / one["last_mean_dev_accuracy"]["finetune"]]
        ]
        header = ["", "CPU s an epoch", "part of fine-tuning's", "last accuracy, % of fine-tuning's"]
        parts += [f"An epoch of training after the first, {tasks_of(one)}:", markdown(header, lines)]
    for one in found:
        lines = [
            [SAID[way], str(line["epoch"]), f"{line['cpu_s']:.0f}", *(f"{value:.2f}" for value in line["dev"].values())]
            for way, own in one["curves"].items()
            for line in own
        ]
        header = ["", "epoch", "CPU s", *one["tasks"]]
        parts += [f"Dev accuracy after each epoch, {tasks_of(one)}:", markdown(header, lines)]
    return parts


def an_epoch(lines: Sequence[Mapping[str, Any]]) -> float:
    """Mean CPU seconds of an epoch, the first left out, whose seconds have the encoding in them."""
    return float(lines[-1]["cpu_s"] - lines[0]["cpu_s"]) / (len(lines) - 1)


def tasks_of(one: Mapping[str, Any]) -> str:
    return ", ".join(one["tasks"])


def made(one: Mapping[str, Any]) -> str:
    """How a run was made."""
    return (
        f"{tasks_of(one)}: {one['sentences']:,} sentences, seed {one['seed']}, {one['machine']}, "
        f"{one['encode_s']:.0f} s of it encoding."
    )


def reached_in(one: Mapping[str, Any], goal: str, way: str) -> str:
    """CPU seconds of a way until what another ends with; a dash where the run had no such way."""
    if way not in one["curves"]:
        return "–"
    value = one["cpu_s_to_last_of"][goal][way]
    return "never" if value is None else f"{value:.0f}"
