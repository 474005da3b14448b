"""Writes docs/structures.md, and its pictures, from the rows of experiments/structures and experiments/parsing. Nothing
on it is typed.

python experiments/structures/page.py
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from encodeonce.cli.config import load
from encodeonce.cli.published import published
from encodeonce.report.plots import cost, improvement
from encodeonce.report.results import ResultsRow, latest, made_by, read_rows
from encodeonce.report.table import (
    Score,
    comparison,
    deciding,
    markdown,
    metrics_of,
    scores,
    seconds,
    steps,
    training_seconds,
)

HERE = Path(__file__).parent
EXPERIMENTS = HERE.parent
PAGE = EXPERIMENTS.parent / "docs" / "structures.md"
PAPER = EXPERIMENTS / "layer_adapters" / "paper.yaml"
SETS: Mapping[str, tuple[str | None, Mapping[str, Sequence[str]]]] = {
    "structures/ewt": ("ud-bert-large-cased", {}),
    "parsing/ewt": ("ud-bert-large-cased", {}),
    "structures/gum": (None, {}),
    "structures/chunks": (None, {}),
    "structures/ncbi": (None, {}),
    "structures/bc5cdr": (None, {}),
    "structures/jnlpba": (None, {}),
    "structures/scierc": (None, {"relations": ["ner_f1_strict", "re_f1_strict"]}),
    "structures/webnlg": ("webnlg-bert-large-cased", {"relations": ["ner_f1_head_word", "re_f1_head_word"]}),
    "structures/cola": (None, {}),
    "structures/sst2": (None, {}),
    "structures/mrpc": (None, {}),
    "structures/rte": (None, {}),
    "structures/stsb": (None, {}),
    "structures/mrpc_apart": (None, {}),
    "structures/rte_apart": (None, {}),
    "structures/stsb_apart": (None, {}),
}
"""A comparison's folder; the paper's table that stands beside it, and the scores shown where a task has several."""
ORDER = ("frozen", "linear", "fusion", "agg", "agg_tailor", "adapted", "top1", "top2", "one_block")
ORDER += ("one_and_attention", "live_mix", "lora")
OWN = {"live=1": "one_block", "attention_only=2": "one_and_attention"}
"""What sets a variant of live_mix apart, and its name in the configurations."""
WHOLE = "finetune"
STEPS = (("frozen", "adapted"), ("agg", "adapted"), ("adapted", "one_block"), ("one_block", "live_mix"))
STEPS += (
    ("one_block", "one_and_attention"),
    ("one_and_attention", "live_mix"),
    ("adapted", "live_mix"),
    ("adapted", WHOLE),
    ("live_mix", WHOLE),
    ("lora", WHOLE),
)


def named(row: ResultsRow) -> ResultsRow:
    """With the method as the configurations call it: variants of live blocks on the mix have their own names there."""
    own = row.variant.split() if row.method == "live_mix" else []
    return next((replace(row, method=name) for said, name in OWN.items() if said in own), row)


def rows_of(folder: str) -> list[ResultsRow]:
    """The rows of one comparison, simplest method first; none where it has not been run."""
    found = [named(row) for row in latest(read_rows(EXPERIMENTS / folder / "results.jsonl"))]
    tasks = load(configuration(folder)).tasks
    return sorted(found, key=lambda row: ((*ORDER, WHOLE).index(row.method), tasks.index(row.task)))


def configuration(folder: str) -> Path:
    """The comparison's settings."""
    return EXPERIMENTS / f"{folder}.toml"


def title(folder: str) -> tuple[str, str]:
    """The first sentence that a configuration says of itself, and the rest of its first line."""
    with configuration(folder).open(encoding="utf-8") as lines:
        first, _, rest = next(lines).removeprefix("#").strip().partition(". ")
    return first.removesuffix("."), rest


def shares(table: Mapping[str, Mapping[str, Score]], rows: Sequence[ResultsRow], rate: str) -> list[str]:
    """What part of fine-tuning's score every method has, and of its seconds a batch and in all where both were measured
    on one kind of machine; `rate` says how fine-tuning's was chosen."""
    tasks = [task for task, by in table.items() if WHOLE in by]
    if not tasks:
        return []
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        of = [f"{100 * table[t][method].mean / table[t][WHOLE].mean:.1f}" if method in table[t] else "" for t in tasks]
        costs = [
            part(cost_of, [row for row in rows if row.method == method], [row for row in rows if row.method == WHOLE])
            for cost_of in (lambda row: row.train_s_per_batch, training_seconds)
        ]
        lines.append([method, *of, *costs])
    return [
        "Per cent of fine-tuning's score, and parts of its time: of a training step from stored states, and of a "
        "training of one task with the encoder's pass, where one kind of machine ran both and the pass is known."
        + rate,
        markdown(["", *(f"{task}, %" for task in tasks), "step", "training"], lines),
    ]


def tried(folder: str, metrics: Mapping[str, Sequence[str]] | None) -> str:
    """How fine-tuning's rate for the encoder was chosen, and where the best lies at the end of what was tried."""
    every = [row for row in read_rows(EXPERIMENTS / folder / "grid.jsonl") if row.method == WHOLE]
    if not every:
        return ""
    rows = [(row, rate_of(row)) for row in deciding(latest(every), "dev", metrics)]
    rates = sorted({rate for _, rate in rows})
    if len(rates) < 2:
        return ""
    best = {
        task: max(((row.value or 0.0, rate) for row, rate in rows if row.task == task))[1]
        for task in dict.fromkeys(row.task for row, _ in rows)
    }
    ends = [f"{task} {rate:g}" for task, rate in best.items() if rate in (rates[0], rates[-1])]
    said = f" Fine-tuning's encoder has the rate that is best on dev of {', '.join(f'{rate:g}' for rate in rates)}"
    return f"{said}, at an end of these: {', '.join(ends)}." if ends else f"{said}."


def rate_of(row: ResultsRow) -> float:
    """The encoder's."""
    return float(dict(word.partition("=")[::2] for word in row.variant.split())["encoder_lr"])


def part(cost_of: Callable[[ResultsRow], float | None], rows: Sequence[ResultsRow], whole: Sequence[ResultsRow]) -> str:
    """Mean cost of some rows over that of the whole's, by the machine that has most rows of both whose cost is known; a
    dash where none has."""
    rows, whole = ([row for row in some if cost_of(row)] for some in (rows, whole))
    both = {row.machine for row in rows} & {row.machine for row in whole}
    if not both:
        return "–"
    machine = max(sorted(both, key=str), key=lambda one: sum(row.machine == one for row in [*rows, *whole]))
    means = [fmean(cost_of(row) or 0.0 for row in some if row.machine == machine) for some in (rows, whole)]
    return f"{means[0] / means[1]:.3f}"


def at_home(rows: Sequence[ResultsRow]) -> list[ResultsRow]:
    """Those of the machine that has most."""
    machine, _ = Counter(row.machine for row in rows).most_common(1)[0]
    return [row for row in rows if row.machine == machine]


def section(folder: str, rows: Sequence[ResultsRow]) -> list[str]:
    """One comparison: scores and costs, beside fine-tuning, steps, how it was made; pictures of all its rows, where
    `compare` draws those of the methods it is asked for."""
    paper, metrics = SETS[folder]
    table = scores(rows, metrics=metrics)
    header, lines = comparison(rows, paper=published(PAPER, paper) if paper else None, metrics=metrics)
    home = at_home(rows)
    foreign = {row.method for row in rows if row.machine != home[0].machine}
    lines = [[f"{line[0]} †" if line[0] in foreign else line[0], *line[1:]] for line in lines]
    name, more = title(folder)
    taken = seconds(home, metrics=metrics)
    what, at, metric = name.partition(":")[0], EXPERIMENTS / folder, metrics_of(rows, metrics=metrics)
    drawn = [improvement(table, at / "improvement.png", title=f"{what}: gain over Frozen", metric=metric)]
    if any(len(by) > 1 for by in taken.values()):
        drawn.append(cost(table, taken, at / "cost.png", f"{what}: score by cost of training", metric))
    pictures = [f"```{{image}} ../{path.relative_to(EXPERIMENTS.parent).as_posix()}\n```" for path in drawn]
    above, gains = steps(table, STEPS)
    beside = shares(table, deciding(rows, "test", metrics), tried(folder, metrics))
    parts = [f"## {name}", more, markdown(header, lines), *beside]
    if foreign:
        parts.insert(
            3,
            "† Times of another processor, or of two, not to be set beside the others: see the last lines. The picture "
            "of costs has those of the processor that ran most.",
        )
    parts += [markdown(above, gains)] if gains else []
    return [part for part in [*parts, made_by(rows), *pictures] if part]


def main() -> None:
    found = {folder: rows for folder in SETS if (rows := rows_of(folder))}
    absent = [folder for folder in SETS if folder not in found]
    parts = [
        "# Results of structures",
        "Methods over stored layers and methods that train blocks, on test; mean and standard deviation over seeds, "
        "the best of a column bold, ≈ what does not differ from it at p < 0.05, ° what cannot be tested (one seed, or "
        "no spread); a dash stands for a cost that is not known of all rows, or for none. A part that has not been run "
        "to its end has fewer seeds, which its last lines name. The paper's columns are BERT-large-cased on other "
        "versions of the data: context, not a like-for-like comparison. Its parsing column is above what is published "
        "of larger encoders on this treebank, and may be of another quantity. The rows were made on machines that did "
        "other work too, and on the one with AVX2 alone, before commit fffaca8, with slower kernels "
        "than now: Adapted's times and those of methods that train blocks are too long there. In rows of before "
        "30 November 2026, 11:30 UTC, costs of the encoder were mended afterwards: its pass over a batch of training, "
        "measured on test documents, is scaled by the mean number of pieces, what another processor had measured is "
        "taken out, and bytes and the pass over all items are those of the views that a method reads.",
        "`experiments/structures/run` and `experiments/parsing/run` make the rows, `experiments/structures/page.py` "
        "this page from them.",
        *(part for folder, rows in found.items() for part in section(folder, rows)),
    ]
    if absent:
        parts += [
            "## Not run yet",
            "\n".join(f"- {title(folder)[0]} (`experiments/{folder}.toml`)" for folder in absent),
        ]
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
