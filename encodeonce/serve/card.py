"""A saved run's README.md: what it is, how good, made from what, by which command."""

from collections.abc import Mapping
from typing import Any

from ..encoders.checkpoint import label

__all__ = ["card"]


def card(config: Mapping[str, Any]) -> str:
    """Markdown with a Hub header, from the values of config.json."""
    spec = config["spec"]
    encoder = label(spec["encoder"])
    names = [_name(task) for task in config["tasks"]]
    lines = [
        "---",
        "library_name: encodeonce",
        f"pipeline_tag: {'text' if all(map(_whole, config['tasks'])) else 'token'}-classification",
        "tags: [encodeonce, layer-adapter]",
        "---",
        "",
        f"# {', '.join(names)} over {encoder}",
        "",
        _made(config),
        "",
        "## Scores",
        "",
        *_scores(config["scores"]),
        "",
        "## Base encoder",
        "",
        f"`{encoder}`, {spec['n_blocks']} blocks, width {spec['width']}, layers {_listed(spec['layers'])}, "
        f"window {spec['window']}, stored as {spec['dtype']}. Only this encoder fits:",
        "",
        "| file | SHA-256 |",
        "| --- | --- |",
        *(f"| {part} | `{spec[part]}` |" for part in ("weights", "config", "tokenizer")),
        "",
        "## Labels",
        "",
        *(
            f"- {_name(task)}: {len(task['labels'])} labels, "
            + ("one answer a document" if _whole(task) else f"the {task['piece']} piece of a word")
            for task in config["tasks"]
        ),
        "",
        "## Data",
        "",
        *([f"- {split}: {name}" for split, name in config["data"].items()] or ["Not recorded."]),
        "",
        "## Made by",
        "",
        "```",
        config["command"] or "(not recorded)",
        "```",
        "",
        ", ".join(f"{name} {version}" for name, version in config["versions"].items()) + ".",
    ]
    return "\n".join(lines) + "\n"


def _made(config: Mapping[str, Any]) -> str:
    variant = config["variant"]
    if config["method"] == "aggregate":
        return f"Adapter `{variant['name']}` and a head a task, trained on the frozen encoder's stored layers."
    below = "a trunk for all tasks" if variant["shared"] else "blocks for each task"
    return f"`{variant['name']}`: {below}, copied from the encoder and trained, and a head a task."


def _name(task: Mapping[str, Any]) -> str:
    return str(task["column"]) if task["kind"] == "tagging" else str(task.get("called") or task["kind"])


def _whole(task: Mapping[str, Any]) -> bool:
    return str(task["piece"]).startswith("document")


def _listed(layers: list[int]) -> str:
    return f"{layers[0]} to {layers[-1]}" if layers == list(range(layers[0], layers[-1] + 1)) else str(layers)


def _scores(scores: Mapping[str, Any]) -> list[str]:
    rows = [
        f"| {split} | {task} | {metric} | {'undefined' if value is None else f'{value:.2f}'} |"
        for split, tasks in scores.items()
        for task, metrics in tasks.items()
        for metric, value in metrics.items()
    ]
    return ["| split | task | metric | value |", "| --- | --- | --- | --- |", *rows] if rows else ["Not recorded."]
