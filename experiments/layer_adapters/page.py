"""Writes docs/results.md, and the figures of README.md, from the rows of this experiment and from benchmarks/results/.

Nothing on that page, and nothing between the two marks in README.md, is typed.

python experiments/layer_adapters/page.py
"""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from time_to_quality import SAID, time_to_quality

from encodeonce.cli.published import published
from encodeonce.metrics.significance import welch
from encodeonce.report.results import ResultsRow, latest, made_by, read_rows
from encodeonce.report.table import comparison, markdown, scores, steps

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MACHINES = {"Xeon": RESULTS, "EPYC": RESULTS / "epyc", "AVX2": RESULTS / "avx2"}
"""Processors that were measured, and where their results lie."""

ORDER = (("frozen", "linear"), ("linear", "adapted"), ("linear", "agg"), ("agg", "adapted"), ("fusion", "linear"))
METHODS = ("frozen", "linear", "fusion", "agg", "adapted")
SETS = (
    ("ewt", "UD English-EWT (v2.16), test", "ud-bert-large-cased"),
    ("ncbi", "NCBI-disease named entities, test", None),
)
CURVE = (("1 %", "ewt-0.01"), ("10 %", "ewt-0.1"), ("100 %", "ewt"))
"""Part of the training sentences, and the folder of its rows."""


def rows_of(folder: str) -> list[ResultsRow]:
    """The rows of one comparison; none where it has not been run."""
    found = latest(read_rows(HERE / folder / "results.jsonl"))
    return sorted(found, key=lambda row: METHODS.index(row.method))


def section(folder: str, title: str, paper: str | None) -> list[str]:
    """One data set: table, steps, how it was made."""
    rows = rows_of(folder)
    if not rows:
        return []
    beside = published(HERE / "paper.yaml", paper) if paper else None
    header, lines = comparison(rows, paper=beside)
    context = (
        "The paper's columns are BERT-large-cased on UD v2.3: context, not a like-for-like comparison." if paper else ""
    )
    picture = f"```{{image}} ../experiments/layer_adapters/{folder}/improvement.png\n```"
    parts = [f"## {title}", markdown(header, lines), context, markdown(*steps(scores(rows), ORDER)), made_by(rows)]
    return [part for part in [*parts, picture if (HERE / folder / "improvement.png").exists() else ""] if part]


def curve() -> list[str]:
    """Scores by part of the training set."""
    found = [(name, scores(rows_of(folder))) for name, folder in CURVE if rows_of(folder)]
    if len(found) < 2:
        return []
    parts = ["## Learning curve, UD English-EWT, test accuracy"]
    for task in found[-1][1]:
        methods = list(found[-1][1][task])
        lines = [
            [name, *(str(table[task][m]) if task in table and m in table[task] else "" for m in methods)]
            for name, table in (
                (n, {t: {k.partition(" (")[0]: v for k, v in by.items()} for t, by in table.items()})
                for n, table in found
            )
        ]
        parts += [f"### {task}", markdown(["training sentences", *methods], lines)]
    return [*parts, *(made_by(rows_of(folder)) for _, folder in CURVE[:-1] if rows_of(folder))]


def otherwise(base_folder: str, folder: str, title: str, names: tuple[str, str]) -> list[str]:
    """States made or stored otherwise against those of `base_folder`, same methods, seeds and rate."""
    rows, base = rows_of(folder), rows_of(base_folder)
    if not rows or not base:
        return []
    small, large = scores(rows), scores(base)
    lines = []
    for task, by in small.items():
        for method, score in by.items():
            plain = method.partition(" (")[0]
            other = large[task].get(plain)
            if other:
                p = welch(score.values, other.values)["p"]
                lines.append(
                    [
                        task,
                        plain,
                        str(other),
                        str(score),
                        f"{score.mean - other.mean:+.2f}",
                        "" if p is None else f"{p:.2g}",
                    ]
                )
    sizes = {row.variant: row.store_mb for row in rows}
    ratio = (max(v for v in sizes.values() if v) or 0) / max(row.store_mb or 0 for row in base)
    return [
        f"## {title}",
        markdown(["task", "method", *names, "difference", "p (Welch)"], lines),
        f"Bytes on disk, {names[1]} to {names[0]}: {ratio:.3f}.",
        made_by([*base, *rows]),
    ]


PIECE = 2 * 6 * (4 * 384**2 + 2 * 384 * 1536)
"""FLOPs of one piece in the matrix products of MiniLM's six blocks."""

GOALS = (
    ("encoding, fp32, to the plain padded loop", "5", "encode", ("ratios_to_plain", "fp32")),
    ("encoding, bf16x3 (error below 1e-5), to the plain padded loop", "5", "encode", ("ratios_to_plain", "bf16x3")),
    ("encoding, bf16x3 (error below 1e-5), to the length-sorted loop", "1.9", "encode", ("ratios_to_sorted", "bf16x3")),
    ("encoding, bf16, to the length-sorted loop", "3", "encode", ("ratios_to_sorted", "bf16")),
    ("training step, textbook port to ours", "4.5 (aim 8)", "step", ("ratios", "textbook adapted / adapted")),
    ("encode once + 10 epochs, textbook fine-tuning to ours", "75", "whole", ("ratios", "finetune")),
    ("the same, fine-tuning with bf16 and buckets to ours", "11 (aim 18)", "whole", ("ratios", "finetune_fast")),
    ("encode once in bf16 + 10 epochs, textbook fine-tuning to ours", "75", "whole-bf16", ("ratios", "finetune")),
    ("the same, fine-tuning with bf16 and buckets to ours", "11 (aim 18)", "whole-bf16", ("ratios", "finetune_fast")),
    (
        "peak memory of training, ours to fine-tuning's",
        "at most 0.15",
        "step",
        ("ratios", "peak memory (own + mapped) adapted / finetune"),
    ),
    ("three tasks apart to three tasks together", "", "multitask", ("ratio",)),
    ("a step of LoRA (PEFT) to one of ours", "10", "live", ("ratios", "PEFT LoRA with bf16 and buckets / adapted")),
    ("the same, LoRA by this library", "10", "live", ("ratios", "the library's LoRA / adapted")),
    (
        "answers of five tasks from one pass to those of one",
        "at most 1.5",
        "serving",
        ("ratios", "five tasks / one task"),
    ),
    ("answers of Adapted to the bare encoder", "at most 1.05", "serving", ("ratios", "adapted / bare encoder")),
    ("the same, its wide products in bf16", "at most 1.05", "serving", ("ratios", "adapted bf16 / bare encoder")),
    (
        "exact search of 64 in 100,000 rows, ms a query, one at a time",
        "under 10",
        "search",
        ("ms_a_query", "exact", "one"),
    ),
    ("four methods compared on one task from nothing, killed half-way, s", "300", "compare", ("wall_s",)),
    ("the same, on two threads", "300", "compare-two", ("wall_s",)),
    ("sentences parsed a minute, decision A-12's parser", "2,000", "parse", ("sentences_per_minute", "A-12")),
    ("the same, a smaller parser", "2,000", "parse", ("sentences_per_minute", "small")),
    ("warm read, store to a raw map", "0.5", "read", ("warm_store_to_raw",)),
    ("cold read of random batches, store to plain maps", "1.5", "read", ("cold_sample_store_to_plain",)),
    ("cold read of a whole pass, store to plain maps", "1.5", "read", ("cold_pass_store_to_plain",)),
    ("bytes of an int8 store to fp16's", "at most 0.52", "read", ("int8_to_fp16_bytes",)),
)
"""What is claimed, the ratio that was aimed at, the benchmark and where its figure stands."""


def encoding(found: Mapping[str, Any], machine: str) -> list[str]:
    """The tables of encode.json, encode-batches.json and products.json of one machine."""
    parts = []
    if "encode" in found:
        one = found["encode"]
        lines = [
            [
                name,
                f"{speed:,}",
                *(f"{one[key][name]:.2f}" for key in ("ratios_to_plain", "ratios_to_sorted")),
                f"{one['relative_error'][name]:.1e}",
            ]
            for name, speed in one["pieces_per_second"].items()
        ]
        head = ["", "pieces/s", "to plain", "to sorted", "relative error, all views"]
        what = (
            f"{one['sentences']:,} sentences, {one['pieces']:,} pieces, CPU seconds of one thread, least of the rounds"
        )
        parts += [f"### Encoding on the {machine}\n\n{what}.", markdown(head, lines)]
    if "encode-batches" in found:
        one = found["encode-batches"]
        budgets = list(next(iter(one["seconds"].values())))
        lines = [
            [name, *(f"{one['pieces'] / min(v):,.0f} / {one['pieces'] / median(v):,.0f}" for v in by.values())]
            for name, by in one["seconds"].items()
        ]
        parts += ["Pieces/s by the budget of a batch in pieces, best / median round:", markdown(["", *budgets], lines)]
    if "products" in found:
        names = ("plain", "onednn", "bf16x3", "bf16", "bf16_onednn")
        lines = [
            [
                shape.replace("x", " x "),
                *(f"{by[n]['0.01']:.0f} / {by[n]['0.5']:.0f}" if n in by else "" for n in names),
            ]
            for shape, by in found["products"]["gflops"].items()
        ]
        head = ["rows x inputs x outputs", *names]
        parts += ["GFLOP/s of products at the fastest percentile of calls / at the median:", markdown(head, lines)]
    if "encode" in found and "products" in found:
        lines = bounds(found["encode"], found["products"]["gflops"])
        head = ["", "GFLOP/s", "pieces/s at most", "to plain", "to sorted"]
        parts += [
            f"What products alone allow, at the fastest percentile of the fastest shape: a piece takes "
            f"{PIECE / 1e6:.1f} MFLOP, everything else is left out.",
            markdown(head, lines),
        ]
    return parts


def bounds(encode: Mapping[str, Any], gflops: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[list[str]]:
    """How many pieces a second each back end could encode if nothing but its products took time."""
    lines = []
    for name in ("onednn", "bf16x3", "bf16", "bf16_onednn"):
        best = [by[name]["0.01"] for by in gflops.values() if name in by]
        if best:
            most = 1e9 * max(best) / PIECE
            speeds = encode["pieces_per_second"]
            lines.append(
                [name, f"{max(best):.0f}", f"{most:,.0f}", *(f"{most / speeds[of]:.2f}" for of in ("plain", "sorted"))]
            )
    return lines


def quality(found: Mapping[str, Any]) -> list[str]:
    """Whether the faster way is as good: the tables of step-accuracy.json and quality*.json; kills.json."""
    parts = []
    if "step-accuracy" in found:
        one = found["step-accuracy"]
        pairs = [(run["ours"], run["textbook"]) for run in one["dev_accuracy"]]
        lines = [
            [str(seed), f"{ours:.2f}", f"{theirs:.2f}", f"{ours - theirs:+.2f}"]
            for seed, (ours, theirs) in zip(one["seeds"], pairs, strict=True)
        ]
        means = [sum(column) / len(pairs) for column in zip(*pairs, strict=True)]
        lines.append(["mean", f"{means[0]:.2f}", f"{means[1]:.2f}", f"{means[0] - means[1]:+.2f}"])
        parts += [
            "### Equal accuracy\n\nThe step's two sides trained alike, dev accuracy by seed.",
            markdown(["seed", "ours", "textbook port", "difference"], lines),
        ]
    parts += time_to_quality([found[name] for name in ("quality", "quality-one") if name in found])
    if "kills" in found:
        one = found["kills"]
        lines = [
            [
                f"{trial['after_s']:.1f}{' (had ended)' if trial['ended_before'] else ''}",
                f"{trial['left_mb']:.0f}",
                "yes" if trial["byte_equal"] else "no",
            ]
            for trial in one["trials"]
        ]
        parts += [
            f"### Killed while encoding\n\n`kill -9` at random moments of a pass of {one['undisturbed_s']:.0f} s, then "
            f"the same command again: {one['byte_equal']} of {len(lines)} stores end byte-equal to an undisturbed one. "
            f"{sum(trial['ended_before'] for trial in one['trials'])} of the passes had ended before they were killed.",
            markdown(["killed after s", "MB left", "byte-equal"], lines),
        ]
    if "plan" in found:
        parts += forecasts(found["plan"])
    return parts


def forecasts(one: Mapping[str, Any]) -> list[str]:
    """The table of plan.json: medians of its rounds."""
    lines = []
    for name, ratio in one["ratios"].items():
        said, done = (median(line[half][name] for line in one["rounds"]) for half in ("predicted", "actual"))
        lines.append([name, f"{said:,.2f}", f"{done:,.2f}", f"{ratio:.2f}"])
    cores = [line["others_cores"] for line in one["rounds"]]
    return [
        f"### Forecasts of `plan`\n\n{one['sentences']:,} sentences, a budget of {one['budget_s']:.0f} s; rounds: "
        f"{len(cores)}, medians of them, on {one['machine']}; other processes used up to {max(cores):.1f} "
        "cores. CPU seconds of one thread, but for bytes and both break-even points; the goal is a "
        "ratio from 0.8 to 1.25.",
        markdown(["", "forecast", "then", "ratio"], lines),
    ]


def at(found: Any, keys: tuple[str, ...]) -> str:
    """What a results file has under these keys."""
    for key in keys:
        found = found.get(key) if found is not None else None
    return "not run" if found is None else f"{found:.2f}"


def said(found: dict[str, Any], key: str) -> str:
    """What a results file says of its making, or each of its parts where these were measured one by one."""
    parts = [found] if "commit" in found else [part for part in found.values() if isinstance(part, dict)]
    return ", ".join(dict.fromkeys(str(part[key]) for part in parts if part.get(key)))


COSTS = (
    ("training step, Adapted to Frozen", "train", ("adapted", "frozen"), "step", "adapted / frozen"),
    (
        "training step, LoRA to Adapted",
        "train",
        ("lora", "adapted"),
        "live",
        "PEFT LoRA with bf16 and buckets / adapted",
    ),
    (
        "training step, fine-tuning to Adapted",
        "train",
        ("finetune", "adapted"),
        "step",
        "fine-tuning with bf16 and length buckets / adapted",
    ),
    (
        "predicting, Adapted to the encoder alone",
        "inference",
        ("adapted", "frozen"),
        "serving",
        "adapted / bare encoder",
    ),
)
"""What costs how many times what: the paper's row and its two methods, our benchmark and its ratio."""


def costs(measured: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The shape of the paper's Table 3 beside ours."""
    paper = published(HERE / "paper.yaml", "efficiency")
    lines = []
    for what, row, (dear, cheap), stem, key in COSTS:
        theirs = float(paper[row][dear]) / float(paper[row][cheap])
        ours = [at(found.get(stem), ("ratios", key)) for found in measured.values()]
        lines.append([what, f"{theirs:.2f}", *ours, f"`benchmarks/{stem}.py`"])
    return [
        "### What costs how many times what, beside the paper's Table 3",
        "The paper's seconds are BERT-large's on one GPU, ours MiniLM's on one core, so ratios alone can be compared. "
        "The paper counts the encoder's pass in, divided by the epochs that it serves; ours are steps from stored "
        "states. LoRA and fine-tuning are `transformers` and PEFT with bf16 and length buckets.",
        markdown(["ratio", "paper", *measured, "by"], lines),
    ]


def speed() -> list[str]:
    """The ratios beside what was aimed at, the tables of encoding, and where every part stands."""
    files = {name: sorted(folder.glob("*.json")) for name, folder in MACHINES.items()}
    if not files["Xeon"]:
        return []
    measured = {
        name: {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
        for name, paths in files.items()
    }
    found, others = measured["Xeon"], measured["EPYC"]
    lines = [
        [
            what,
            goal,
            *(at(one.get(stem), keys) for one in measured.values()),
            f"`benchmarks/{stem.partition('-')[0]}.py`",
        ]
        for what, goal, stem, keys in GOALS
    ]
    origins = [
        [
            f"`{path.relative_to(ROOT)}`",
            *(said(measured[name][path.stem], key) for key in ("commit", "started", "machine")),
        ]
        for name, paths in files.items()
        for path in paths
    ]
    return [
        "## Speed",
        "The same benchmarks on three processors: an Intel Xeon with AMX, an AMD EPYC (Zen 4) with AVX-512 BF16 and no "
        "AMX, and an AMD EPYC with AVX2 alone, where bf16 has no units. The tables below this one are of the "
        "first where they do not say otherwise.",
        markdown(["ratio", "aimed at", *measured, "by"], lines),
        "What keeps the ratios of encoding and of the whole way below their aims is in [Speed](speed.md).",
        *costs(measured),
        *quality({**measured["AVX2"], **others, **found}),
        *encoding(found, "Xeon"),
        *encoding(others, "EPYC"),
        "All parts are in these files:",
        markdown(["file", "commit", "started", "machine"], origins),
    ]


def front() -> str:
    """What README.md says of scores and time."""
    table, curves = scores(rows_of("ewt")), json.loads((MACHINES["AVX2"] / "quality.json").read_text(encoding="utf-8"))
    shown = [name for name in METHODS if name in table["upos"]]
    lines = [[name, *(f"{table[task][name].mean:.2f}" for task in ("upos", "xpos", "deprel"))] for name in shown]
    ends = [
        [SAID[way], str(len(line)), f"{curves['last_mean_dev_accuracy'][way]:.2f}", f"{line[-1]['cpu_s']:.0f}"]
        for way, line in curves["curves"].items()
    ]
    return "\n\n".join(
        [
            "UD English-EWT over stored layers of a 22 M encoder (MiniLM), test accuracy, mean of five seeds:",
            markdown(["", "UPOS", "XPOS", "DEPREL"], lines),
            f"The three tasks trained together, one seed: mean dev accuracy, and seconds of one core of an "
            f"{curves['machine'].partition(',')[0]}, encoding included.",
            markdown(["", "epochs", "dev accuracy", "seconds"], ends),
        ]
    )


def main() -> None:
    """Write the page and the README's part."""
    parts = [
        "# Results",
        "Written by `experiments/layer_adapters/page.py` from `experiments/layer_adapters/*/results.jsonl` and "
        "`benchmarks/results/*.json`; nothing here is typed by hand. `experiments/layer_adapters/run` makes the rows. "
        "Encoder everywhere: all-MiniLM-L6-v2, 6 blocks, width 384, a sentence encoder whose last layer is poor for "
        "single words; frozen methods over it look worse, and mixing layers better, than with a masked language model. "
        "The rows were made while other work used the same two cores: their seconds are no measure of speed, the "
        "benchmarks below are. The encoder's pass over a batch of training, measured on test documents, was scaled "
        "by the mean number of pieces on 30 November 2026, and Frozen's bytes are those of the view that it reads.",
    ]
    for folder, title, paper in SETS:
        parts += section(folder, title, paper)
    parts += [
        *curve(),
        *otherwise("ewt-fp32", "ewt-int8", "int8 against fp16 storage", ("fp16", "int8")),
        *otherwise("ewt-fp32", "ewt-bf16", "An encoder that computes in bf16 against one in fp32", ("fp32", "bf16")),
        *speed(),
    ]
    (ROOT / "docs" / "results.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    readme = ROOT / "README.md"
    before, start, rest = readme.read_text(encoding="utf-8").partition("<!-- figures: written by page.py -->\n")
    _, end, after = rest.partition("\n<!-- end of figures -->")
    readme.write_text(before + start + front() + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
