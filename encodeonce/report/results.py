"""One results row, everywhere: what `compare` appends, `evaluate --json` prints and every table and plot reads.

A file of rows is JSON Lines, one object a line, appended and synced as rows are finished: a killed run keeps them.
"""

import functools
import json
import logging
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, get_type_hints

from ..errors import DataError
from ..train.atomic import write_bytes

__all__ = [
    "COMPANY",
    "ResultsRow",
    "apart",
    "append_row",
    "append_rows",
    "command_line",
    "latest",
    "made_by",
    "now",
    "provenance",
    "read_rows",
    "surroundings",
    "without",
    "write_rows",
]

COMPANY = ("joint",)
"""Keys of a variant that say what was trained beside it."""

log = logging.getLogger("encodeonce")


@dataclass(frozen=True, slots=True)
class ResultsRow:
    """One number and all that is needed to know what it is. Unknown is None, never 0.

    `value` is 0-100 where the field reports per cent, None where the score is undefined. `variant` holds what
    distinguishes this row from the method's defaults, as "key=value" pairs with spaces between. `n` is the number of
    examples `value` is computed over.

    Times are wall seconds. The frozen encoder's pass over what a method reads from the store is in none of them but its
    own: over all items (`encode_s`), over a batch of training and divided by the epochs that it serves
    (`train_encoder_s_per_batch`), over a batch of predicting (`infer_encoder_s_per_batch`); unknown where nothing is
    read, and the first where embeddings alone are. `peak_mb` is memory that training added to the process, pages of
    mapped files left out; `store_mb` is what the views that are read take in a store of these items; both in 10^6
    bytes. `flops` are floating point operations of the
    whole training.
    """

    experiment: str
    dataset: str
    task: str
    encoder: str
    method: str
    variant: str
    seed: int | None
    split: str
    metric: str
    value: float | None
    n: int | None = None
    train_s_per_batch: float | None = None
    train_s_total: float | None = None
    encode_s: float | None = None
    infer_s_per_batch: float | None = None
    params_trainable: int | None = None
    peak_mb: float | None = None
    store_mb: float | None = None
    flops: float | None = None
    commit: str | None = None
    machine: str | None = None
    device: str | None = None
    threads: int | None = None
    torch: str | None = None
    started: str | None = None
    command: str | None = None
    train_encoder_s_per_batch: float | None = None
    infer_encoder_s_per_batch: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise DataError(
                    f"results row {self.cell}: {field.name} is {value}; a row holds finite numbers or null."
                )

    @property
    def cell(self) -> tuple[str, str, str, str, str, str, int | None, str, str]:
        """What this number is of; two rows with equal cells are two measurements of one thing."""
        return (
            self.experiment,
            self.dataset,
            self.task,
            self.encoder,
            self.method,
            self.variant,
            self.seed,
            self.split,
            self.metric,
        )

    def to_json(self) -> dict[str, Any]:
        """A plain dict, every field present."""
        return asdict(self)


def append_row(path: Path, row: ResultsRow) -> None:
    """Add one row and sync it to the disk. A half-written last line left by a killed writer is cut off first."""
    append_rows(path, [row])


def append_rows(path: Path, rows: Iterable[ResultsRow]) -> None:
    """The same for rows that belong together: all are computed before the first is written, in one write."""
    lines = b"".join(map(_line, rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        _cut_half_line(file, path)
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def write_rows(path: Path, rows: Iterable[ResultsRow]) -> None:
    """Put these rows in the place of a file's, at once or not at all."""
    write_bytes(path, b"".join(map(_line, rows)))


def _line(row: ResultsRow) -> bytes:
    return json.dumps(row.to_json(), allow_nan=False, ensure_ascii=False).encode() + b"\n"


def _cut_half_line(file: Any, path: Path) -> None:
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        log.warning("%s: the last line was cut while it was written; its cell is computed again", path)
        file.truncate(whole)


def read_rows(path: Path) -> list[ResultsRow]:
    """All rows of a file; an empty list where there is none yet. A line that is no row is a DataError with its number,
    save a last line without its line end, which a killed writer leaves and `append_row` cuts off."""
    if not path.exists():
        return []
    *lines, rest = path.read_bytes().split(b"\n")
    if rest:
        log.warning("%s:%d: skipped, the line was cut while it was written", path, len(lines) + 1)
    kinds = get_type_hints(ResultsRow)
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(_row(json.loads(line), kinds))
        except (ValueError, TypeError, DataError) as problem:
            said = str(problem).removesuffix(".")
            raise DataError(f"{path}:{number}: not a results row: {said}. Correct the line or take it out.") from None
    return rows


def _row(values: Any, kinds: Mapping[str, Any]) -> ResultsRow:
    """What a line says. DataError or TypeError for what is no row; `kinds` are the types of a row's fields."""
    if not isinstance(values, dict):
        raise DataError(f"a {type(values).__name__}, not an object")
    unknown = sorted(set(values) - set(kinds))
    if unknown:
        raise DataError(f"unknown fields {unknown}; a results row has {sorted(kinds)}")
    for name, value in values.items():
        whole = isinstance(value, int) and not isinstance(value, bool)  # JSON writes 80.0 as 80, too
        if not isinstance(float(value) if whole and kinds[name] == float | None else value, kinds[name]):
            raise DataError(f"{name} is {value!r}; it must be {getattr(kinds[name], '__name__', kinds[name])}")
    return ResultsRow(**values)


def without(variant: str, keys: Sequence[str]) -> str:
    """A variant without these keys."""
    return " ".join(part for part in variant.split() if part.partition("=")[0] not in keys)


def apart(row: ResultsRow) -> ResultsRow:
    """The row without the names of the tasks that were trained beside it: they change times, not scores."""
    return replace(row, variant=without(row.variant, COMPANY))


def latest(rows: Iterable[ResultsRow]) -> list[ResultsRow]:
    """One row a cell, the last measured."""
    return list({row.cell: row for row in rows}.values())


def made_by(rows: Sequence[ResultsRow]) -> str:
    """Where, when, from which seeds and by which commands some rows were made, in Markdown; "" for none."""
    if not rows:
        return ""
    commits = dict.fromkeys(row.commit or "unknown" for row in rows)
    times = sorted(row.started for row in rows if row.started)
    commands = dict.fromkeys(row.command for row in rows if row.command)
    seeds: dict[str, list[str]] = {}
    machines: dict[str, list[str]] = {}
    for method in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == method]
        for own, whose in _seeds(method, mine).items():
            seeds.setdefault(own, []).extend(whose)
        for one in dict.fromkeys(
            f"{row.machine or 'unknown'}, {row.threads} thread(s), torch {row.torch}" for row in mine
        ):
            machines.setdefault(one, []).append(method)
    parts = [*(["Seeds " + ", ".join(_whose(seeds))] if seeds else []), *_whose(machines)]
    parts += ["commit " + ", ".join(commits)]
    parts += [f"{times[0]} to {times[-1]}"] if times else []
    return "\n\n".join(["; ".join(parts) + ".", *(["\n".join(f"    {one}" for one in commands)] if commands else [])])


def _seeds(method: str, rows: Sequence[ResultsRow]) -> dict[str, list[str]]:
    """Seeds -> what has them: the method, or it on each task where tasks differ."""
    of: dict[str, set[int]] = {}
    for row in rows:
        if row.seed is not None:
            of.setdefault(row.task, set()).add(row.seed)
    found: dict[str, list[str]] = {}
    for task, own in of.items():
        found.setdefault(", ".join(map(str, sorted(own))), []).append(f"{method} on {task}")
    return found if len(found) > 1 else {own: [method] for own in found}


def _whose(found: Mapping[str, Sequence[str]]) -> list[str]:
    """Each value, followed by its methods where there are several values."""
    return [one if len(found) == 1 else f"{one} ({', '.join(methods)})" for one, methods in found.items()]


def now() -> str:
    """The time of day in UTC, ISO 8601 to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def surroundings(device: str = "cpu") -> dict[str, Any]:
    """The fields `commit, machine, device, threads, torch` of rows made here. Names no host, user or path. The commit
    is that of the first call in this process: what takes long calls it as it begins, when its code is loaded."""
    import torch

    return {
        "commit": _commit(),
        "machine": _machine(torch.backends.cpu.get_cpu_capability()),
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": metadata.version("torch"),
    }


def provenance(started: str, device: str = "cpu") -> dict[str, Any]:
    """What a results file says of how it was made: `surroundings`, when that `started`, and the command."""
    return {**surroundings(device), "started": started, "command": command_line()}


def command_line() -> str:
    """The command that is running, with the last part of every absolute path: no place of this machine is recorded. A
    script that lies in a project (the folder of a pyproject.toml) is named from there."""
    words, script = [_without_place(word) for word in sys.argv[1:]], Path(sys.argv[0]).resolve()
    package = Path(__file__).resolve().parents[1]
    home = next((folder for folder in script.parents if (folder / "pyproject.toml").is_file()), None)
    installed = package in script.parents or "site-packages" in script.parts
    if script.suffix == ".py" and home and not installed:
        return shlex.join(["python", script.relative_to(home).as_posix(), *words])
    return shlex.join(["encodeonce", *words])


def _without_place(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and Path(value.strip("\"'")).is_absolute():
        return f"{name}={Path(value.strip(chr(34) + chr(39))).name}"
    return Path(word).name if Path(word).is_absolute() else word


@functools.cache
def _commit() -> str | None:
    """The commit of the checkout this package runs from, "+" after it where files differ; None outside one."""
    home = Path(__file__).resolve().parents[2]
    if not (home / ".git").exists():
        return None
    try:
        name = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=home, capture_output=True, text=True)
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--", "encodeonce"], cwd=home, capture_output=True, text=True
        )
    except OSError:
        return None
    return name.stdout.strip() + ("+" if changed.stdout.strip() else "") if name.returncode == 0 else None


def _machine(units: str) -> str:
    """Processor model with its vector `units` (a hypervisor may give many processors one name), cores and memory."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        memory = f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (ValueError, OSError, AttributeError):
        memory = ""
    return f"{model} ({units}), {cores} cores{memory}"
