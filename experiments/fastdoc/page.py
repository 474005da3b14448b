"""Writes docs/domains.md from the reports and rows of this experiment: nothing on that page is typed.

python experiments/fastdoc/page.py [RESULTS]
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from encodeonce.report.results import ResultsRow, latest, read_rows
from encodeonce.report.table import markdown

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MEAN = "mean"
Cells = dict[tuple[str, int, str], float]
"""(encoder, seed of fine-tuning, task) -> score."""


def spread(values: Sequence[float], sign: str = "") -> str:
    """Mean ± sample standard deviation."""
    own = f"{fmean(values):{sign}.1f}"
    return own if len(values) < 2 else f"{own} ± {stdev(values):.1f}"


def kind(label: str) -> str:
    """A run's name without its seed."""
    return label.rpartition("-")[0] or label


def start_of(label: str) -> str:
    """The untouched encoder that a run began with."""
    return "minilm" if "minilm" in label else "untouched"


def reports_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """DOMAIN-NAME -> the reports of its seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        found.setdefault(kind(path.stem), []).append(json.loads(path.read_text(encoding="utf-8")))
    return found


def pretraining(reports: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What was trained, what it cost, how held-out triplets come out."""
    lines = []
    for name, own in reports.items():
        costs, held = [report["costs"] for report in own], [report["held_out"] for report in own]

        def accuracy(side: str, key: str, held: Sequence[dict[str, Any]] = held) -> str:
            values = [one[side][key] for one in held if key in one[side]]
            return spread(values) if values else ""

        lines.append(
            [
                name,
                str(len(own)),
                f"{fmean(report['tuples'] for report in own):,.0f}",
                f"{fmean(cost['documents'] for cost in costs):,.0f}",
                *(f"{fmean(cost['flops'][key] for cost in costs) / 1e12:.1f}" for key in ("encode", "train", "total")),
                f"{fmean(cost['seconds']['total'] for cost in costs):,.0f}",
                f"{fmean(cost['masked_epoch_flops'] for cost in costs) / 1e12:.1f}",
                spread([one["plain mean of sentence vectors"] for one in held]),
                *(accuracy(side, "sentences") for side in ("untouched", "trained")),
                *(accuracy(side, "pieces") for side in ("untouched", "trained")),
                *(
                    " to ".join(f"{fmean(one[side][key] for one in held):.2f}" for side in ("untouched", "trained"))
                    for key in ("sentences_centred", "pieces_centred")
                ),
            ]
        )
    head = ["run", "seeds", "tuples", "documents", "encode TFLOP", "train TFLOP", "total TFLOP", "total s"]
    head += ["MLM epoch TFLOP", "plain mean", "sentences before", "after", "pieces before", "after"]
    head += ["centred, sentences", "centred, pieces"]
    what = (
        "Held-out triplet accuracy, per cent, from stored sentences and from pieces, before and after; beside it the "
        "plain mean of sentence vectors with no encoder above. MLM epoch: masked-language training over the same "
        "documents once, by formula. Seconds are those of the machine as it was, encoding of what no earlier run had "
        "stored included. Centred, before and after: share of the vectors' length that is not their mean (near 0, all "
        "documents point one way)."
    )
    return ["## Pre-training", what, markdown(head, lines)]


def cells_of(rows: Sequence[ResultsRow]) -> tuple[Cells, dict[str, str]]:
    """The deciding score of every cell, and each task's metric."""
    metrics: dict[str, str] = {}
    cells: Cells = {}
    for row in rows:
        if metrics.setdefault(row.task, row.metric) == row.metric and row.seed is not None:
            cells[row.encoder, row.seed, row.task] = 0.0 if row.value is None else row.value
    return cells, metrics


def table_of(title: str, rows: Sequence[ResultsRow]) -> list[str]:
    """Scores by task, and differences to the encoder it began with, of equal seed of fine-tuning."""
    cells, metrics = cells_of(rows)
    names = list(dict.fromkeys(kind(row.encoder) for row in rows))
    scores, gains, counted = [], [], []
    for name in names:
        labels = sorted({row.encoder for row in rows if kind(row.encoder) == name})
        own = {task: [v for (e, _, t), v in cells.items() if e in labels and t == task] for task in metrics}
        runs = [paired(cells, label, list(metrics)) for label in labels]
        pairs = [pair for own in runs for pair in own]
        scores.append([name, *(spread(own[task]) if own[task] else "" for task in metrics)])
        if name != start_of(name) and pairs:
            gains.append([name, *(spread([pair[task] for pair in pairs], "+") for task in [*metrics, MEAN])])
            means = [fmean(pair[MEAN] for pair in own) for own in runs if own]
            error = f"{stdev(means) / len(means) ** 0.5:.2f}" if len(means) > 1 else ""
            above = f"{sum(pair[MEAN] > 0 for pair in pairs)} of {len(pairs)}"
            counted.append([name, str(len(means)), f"{fmean(means):+.2f}", error, above])
    variants = " | ".join(dict.fromkeys(f"{row.method} {row.variant}" for row in rows))
    machines = ", ".join(dict.fromkeys(f"{row.machine}, {row.threads} thread(s), torch {row.torch}" for row in rows))
    commits = ", ".join(dict.fromkeys(row.commit or "unknown" for row in rows))
    tasks = [f"{task} ({metric})" for task, metric in metrics.items()]
    parts = [
        f"## {title}",
        f"{variants}; mean ± sd over seeds of pre-training and of fine-tuning. An undefined score counts as 0. "
        f"{machines}; commit {commits}.",
        markdown(["encoder", *tasks], scores),
    ]
    if not gains:
        return [*parts, "No pre-trained encoder has been through all of these tasks yet."]
    return [
        *parts,
        "Differences to the encoder that training began with, same task and same seed of fine-tuning; `mean` is over "
        "all tasks.",
        markdown(["encoder", *metrics, MEAN], gains),
        "Runs over one pre-trained encoder are averaged first; the standard error is over seeds of pre-training, the "
        "seeds of fine-tuning and the untouched encoder's runs being the same for all.",
        markdown(["encoder", "seeds of pre-training", "mean difference", "standard error", "runs above"], counted),
    ]


def paired(cells: Cells, label: str, tasks: Sequence[str]) -> list[dict[str, float]]:
    """For each seed of fine-tuning that this encoder and the one it began with finished: task -> difference, and their
    mean."""
    found = []
    for seed in sorted({s for e, s, _ in cells if e == label}):
        sides = [[cells.get((e, seed, task)) for task in tasks] for e in (label, start_of(label))]
        if all(value is not None for side in sides for value in side):
            gain = {task: (a or 0.0) - (b or 0.0) for task, a, b in zip(tasks, *sides, strict=True)}
            found.append({**gain, MEAN: fmean(gain.values())})
    return found


def readers(folder: Path) -> list[str]:
    """Trained readers and rankers on the question sets, one seed each; none where nothing was run."""
    lines, made = [], []
    for path in sorted((folder / "readers").glob("*.json")):
        rows = json.loads(path.read_text(encoding="utf-8"))
        scores = ", ".join(f"{row['metric']} {row['value']:.1f}" for row in rows if row["value"] is not None)
        first = rows[0]
        lines.append([path.stem, f"{first['n']:,}", scores, f"{first['train_s_total']:,.0f}"])
        made.append(
            f"{first['machine']}, {first['threads']} thread(s), torch {first['torch']}; commit {first['commit']}"
        )
    if not lines:
        return []
    what = (
        "MiniLM, fine-tuned, one seed, small: see `readers` in `experiments/fastdoc/run`. The sets are rebuilt from "
        "what there is of them (`prepare.py` says how), so no number is one of the paper's. Per cent; seconds of "
        f"training, on a machine that did other work. {'; '.join(dict.fromkeys(made))}."
    )
    return ["## Question sets", what, markdown(["run", "questions", "scores", "train s"], lines)]


TITLES = {
    ("science", "finetune"): "Six scientific tasks, fine-tuned",
    ("science", "linear"): "Six scientific tasks, read frozen",
    ("glue", "finetune"): "Forgetting: eight GLUE tasks, fine-tuned",
}


def main(folder: str = str(HERE / "results")) -> None:
    """Write the page."""
    reports, rows = reports_of(Path(folder)), latest(read_rows(Path(folder) / "downstream.jsonl"))
    parts = [
        "# Domain encoders: results",
        "Written by `experiments/fastdoc/page.py` from `experiments/fastdoc/results/`; nothing here is typed by hand. "
        "`experiments/fastdoc/run` makes the rows, `experiments/fastdoc/run table` this page. Encoder trained: a "
        "masked language model of MiniLM's shape that had seen the training part of the arXiv and support documents "
        "(in the tables untouched), and in runs with minilm in their name all-MiniLM-L6-v2 itself (minilm); frozen "
        "sentence encoder: all-MiniLM-L6-v2. Objectives: [FastDoc](methods/fastdoc.md).",
    ]
    parts += pretraining(reports) if reports else ["No run has been made yet."]
    for (dataset, method), title in TITLES.items():
        own = [row for row in rows if row.dataset == dataset and row.method == method]
        parts += table_of(title, own) if own else []
    parts += readers(Path(folder))
    (ROOT / "docs" / "domains.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
