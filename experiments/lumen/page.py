"""The table and the curve of this folder's rows: `python experiments/lumen/page.py` writes table.md and curve.png.

Means with standard deviations over seeds; "gap closed" is (LUMEN - memory) / (FiD - memory), of exact match.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from encodeonce.report.results import ResultsRow, latest, read_rows

HERE = Path(__file__).parent
INK, BLUE, ORANGE = "#22272e", "#0072B2", "#E69F00"


def grouped(rows: Sequence[ResultsRow]) -> dict[tuple[str, str, str], dict[str, list[float]]]:
    """(data set, split, variant) -> metric -> a value a seed."""
    found: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in latest(rows):
        found.setdefault((row.dataset, row.split, row.variant), {}).setdefault(row.metric, []).append(row.value)
    return found


def written(values: Sequence[float]) -> str:
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def table(rows: Sequence[ResultsRow]) -> str:
    lines = ["| data | split | variant | seeds | exact match | F1 | gap closed, % |", "| --- " * 7 + "|"]
    cells = grouped(rows)
    for (dataset, split, variant), by in cells.items():
        if "exact_match" not in by:
            continue
        ends = [cells.get((dataset, split, f"live={live}"), {}).get("exact_match") for live in (0, 6)]
        gap = ""
        if ends[0] and ends[1] and mean(ends[1]) != mean(ends[0]):
            gap = f"{100 * (mean(by['exact_match']) - mean(ends[0])) / (mean(ends[1]) - mean(ends[0])):.0f}"
        f1 = written(by["f1"]) if "f1" in by else ""
        n = len(by["exact_match"])
        lines.append(f"| {dataset} | {split} | {variant} | {n} | {written(by['exact_match'])} | {f1} | {gap} |")
    times = [(v, by) for (_, split, v), by in cells.items() if split == "timing"]
    if times:
        lines += ["", "| variant | training step, % of FiD | answering, % of FiD |", "| --- " * 3 + "|"]
        lines += [f"| {v} | {by['train_ratio'][0]:.0f} | {by['answer_ratio'][0]:.0f} |" for v, by in times]
    return "\n".join(lines) + "\n"


def curve(rows: Sequence[ResultsRow], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), dpi=150, layout="constrained")
    sets = [name for name in dict.fromkeys(row.dataset for row in rows) if "amazon" not in name]
    axes = figure.subplots(1, len(sets), squeeze=False)[0]
    for axis, dataset in zip(axes, sets, strict=True):
        cells = {v: by["exact_match"] for (d, s, v), by in grouped(rows).items() if (d, s) == (dataset, "test")}
        plain = sorted((int(v[5:]), own) for v, own in cells.items() if v.startswith("live=") and " " not in v)
        axis.errorbar(
            [live for live, _ in plain],
            [mean(own) for _, own in plain],
            [stdev(own) if len(own) > 1 else 0 for _, own in plain],
            color=BLUE,
            marker="o",
            capsize=3,
            label="the paper's cut",
        )
        for variant, own in cells.items():
            if "blocks=" in variant:
                live = variant.split("blocks=")[1].split(" ")[0].count(",") + 1
                axis.errorbar([live], [mean(own)], [stdev(own) if len(own) > 1 else 0], color=ORANGE, marker="D")
                axis.annotate(variant, (live, mean(own)), fontsize=7, xytext=(6, -3), textcoords="offset points")
        axis.set_title(dataset, loc="left", fontsize=9, color=INK)
        axis.set_xlabel("live blocks of 6", fontsize=9)
        axis.set_ylabel("exact match, %", fontsize=9)
    figure.savefig(path, facecolor="white")


def main() -> None:
    rows = [row for name in ("rows.jsonl", "chains.jsonl") for row in read_rows(HERE / name)]
    if not rows:
        raise SystemExit("no row yet: run experiments/lumen/run first.")
    (HERE / "table.md").write_text(table(rows))
    curve(rows, HERE / "curve.png")


if __name__ == "__main__":
    main()
