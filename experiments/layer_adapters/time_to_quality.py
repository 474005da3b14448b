"""The tables of benchmarks/quality.py: how long each way takes to what the others end with."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from encodeonce.report.results import read_rows
from encodeonce.report.table import markdown

__all__ = ["SAID", "caveat", "time_to_quality"]

SAID = {
    "adapted": "Adapted",
    "live_mix": "live blocks on the layer mix",
    "finetune": "fine-tuning, bf16 and buckets",
}
GRID = Path(__file__).parents[1] / "structures" / "ewt" / "grid.jsonl"
"""Dev scores of fine-tuning at several rates, each task trained by itself."""


def time_to_quality(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """One table of all runs, and each way's accuracy after each epoch."""
    if not found:
        return []
    ways = list(found[0]["curves"])
    reached = [
        [tasks_of(one), f"{SAID[goal]} ({value:.2f})", *map(seconds, (one["cpu_s_to_last_of"][goal][w] for w in ways))]
        for one in found
        for goal, value in one["last_mean_dev_accuracy"].items()
    ]
    said = f"{' '.join(map(made, found))} {caveat(found[0])}".rstrip()
    parts = [
        "### Time to quality\n\nCPU seconds of one thread, encoding included, until the mean dev accuracy is what a "
        f"way ends with. {said}",
        markdown(["trained together", "to the last of", *(SAID[way] for way in ways)], reached),
    ]
    for one in found:
        lines = [
            [SAID[way], str(line["epoch"]), f"{line['cpu_s']:.0f}", *(f"{value:.2f}" for value in line["dev"].values())]
            for way in ways
            for line in one["curves"][way]
        ]
        header = ["", "epoch", "CPU s", *one["tasks"]]
        parts += [f"Dev accuracy after each epoch, {tasks_of(one)}:", markdown(header, lines)]
    return parts


def caveat(one: Mapping[str, Any]) -> str:
    """Of a run from before fine-tuning had its best rate and epochs: what it reaches with them."""
    if "ways" in one:
        return ""
    rows = [row for row in read_rows(GRID) if row.method == "finetune" and row.split == "dev"]

    def best(epochs: int) -> float:
        own = [row for row in rows if f"epochs={epochs}" in row.variant]
        return fmean(max(row.value for row in own if row.task == task) for task in one["tasks"])

    return (
        "Fine-tuning had one rate there, 5e-4 for heads and encoder, and 3 epochs, which are not its best: with the "
        f"best rates of a grid, each task by itself, it ends at {best(3):.2f} after 3 epochs and at {best(5):.2f} "
        f"after 5 ({tasks_of(one)}; `experiments/structures/ewt/grid.jsonl`): here it ends lower than it can."
    )


def tasks_of(one: Mapping[str, Any]) -> str:
    return ", ".join(one["tasks"])


def made(one: Mapping[str, Any]) -> str:
    """How a run was made."""
    return (
        f"{tasks_of(one)}: {one['sentences']:,} sentences, seed {one['seed']}, {one['machine']}, "
        f"{one['encode_s']:.0f} s of it encoding."
    )


def seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f}"
