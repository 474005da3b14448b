"""The files of a comparison: the config that made it, its rows, and what encoding cost.

REPORT/config.toml      the resolved config of the first run, with tasks that came later; a later one must agree in all
                        that a row does not say
REPORT/data.json        SHA-256 of what the data files, the encoder and a run that weights begin with held at the first
                        run; rows of other contents are not mixed in, and where these are the same, names and places may
                        differ. And of config.toml as it was written
REPORT/results.jsonl    one row a task, split and metric of each finished cell, added together when the cell is done
REPORT/grid.jsonl       the same for the settings that were tried with the first seed
REPORT/encode.json      what the encoder's passes cost, by machine and threads: seconds of one are never said of another
REPORT/unfinished       a folder a cell that was interrupted: where its training goes on; gone once it is finished
"""

import gzip
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..corpus import format_of
from ..corpus.questions.questions import passages_beside
from ..errors import DataError, RunError
from ..report.results import ResultsRow, apart, append_rows, read_rows, surroundings, without, write_rows
from ..tasks import Task
from ..train.atomic import json_bytes, write_bytes
from ..types import Spec
from .cells import SHORT, Cell, Names
from .config import Config, absolute, load, to_toml
from .contenders import Contender
from .learning import Material
from .steps import held, recorded

__all__ = ["GRID", "RESULTS", "ReportFiles", "names_of"]

SAID_BY_ROW = ("method", "methods", "adapter", "finetune", "dtype", "layers", "store")
"""Keys of the config that a row's method and variant tell apart, or that lead to the same row."""

RESULTS, GRID, KEPT = "results.jsonl", "grid.jsonl", "data.json"

OTHERS = ("config.toml", "config.json", "store.json")
"""What a folder that is no report may hold: a config of its own, a saved run or an encoder, a store."""

READ = ("data.train", "data.dev", "data.test", "data.passages", "start")
"""Keys of the config that name files whose contents are kept, beside `encoder`."""

ENCODER_PARTS = ("weights", "config", "tokenizer")
"""Hashes of a Spec: what an encoder's files hold."""


def names_of(folder: Path, config: Config, experiment: str | None, dataset: str | None) -> Names:
    """How rows call what they come from; what is not given is as in the first row there, so that a report that was
    moved is not begun anew under another name. Where there is none: the folder's name, the training file's."""
    usual = Names(folder.resolve().name, Path(config.data.train[0]).name.split(".")[0], recorded(config.encoder))
    there = next((Names(row.experiment, row.dataset, row.encoder) for row in read_rows(folder / RESULTS)), usual)
    return Names(experiment or there.experiment, dataset or there.dataset, there.encoder)


class ReportFiles:
    """One report folder. `agree` comes first."""

    def __init__(self, folder: Path, config: Config, names: Names) -> None:
        self.folder, self.config, self.names = folder, config, names

    def agree(self, write: bool = True) -> None:
        """Keep the config and what the data files hold, or compare both with what the finished cells were made of.
        RunError for a folder that holds something else."""
        self._refuse_other()
        path = self.folder / "config.toml"
        there = path.exists()
        if there:
            self._same({path.name: _sha256(path)}, (path.name,), write)
            self._same_config(path, write)
        if write or there:
            self._same_data(write)
        if write and not there:
            self._keep(self.config)

    def _keep(self, config: Config) -> None:
        """The config, and its hash last: killed in between, the report has none, and goes on."""
        path, told = self.folder / "config.toml", self._kept()
        if told.pop(path.name, None):
            write_bytes(self.folder / KEPT, json_bytes(told))
        write_bytes(path, to_toml(config, self.folder).encode())
        write_bytes(self.folder / KEPT, json_bytes({**told, path.name: _sha256(path)}))

    def _refuse_other(self) -> None:
        names = [name for name in OTHERS if (self.folder / name).exists()]
        if names and not any((self.folder / name).exists() for name in (KEPT, RESULTS, GRID)):
            raise RunError(
                f"{self.folder} is no report and holds {', '.join(names)}; a report needs a folder of its own. Choose "
                f"another, such as {self.folder / 'report'}."
            )

    def _same_config(self, path: Path, write: bool) -> None:
        """Compare the configs; tasks that are new are added to the one that is kept."""
        kept, own = load(path), self.config
        then, now_ = _comparable(kept), _comparable(own)
        known = set(map(_key, self._kept()))  # by content, whatever the files are called
        known |= set() if _by_all_tasks(own) else {"tasks"}
        changed = [
            f"{key}: {then.get(key)!r} then, {now_.get(key)!r} now"
            for key in now_
            if key not in known and then.get(key) != now_[key] and not (key.startswith("task.") and key not in then)
        ]
        if changed:
            raise RunError(
                f"{self.folder} holds results of another config, and a table must not mix them: {'; '.join(changed)}. "
                "Choose another folder, or put it back as it was."
            )
        fresh = [name for name in own.tasks if name not in kept.tasks]
        if write and fresh:
            options = {**kept.task, **{name: own.task[name] for name in fresh if name in own.task}}
            self._keep(kept.model_copy(update={"tasks": [*kept.tasks, *fresh], "task": options}))

    def _same_data(self, write: bool) -> None:
        config, data = self.config, self.config.data
        named = [(f"data.{split}", name) for split in ("train", "dev", "test") for name in getattr(data, split)]
        passages = [data.passages] if data.passages else _looked_up([name for _, name in named], data.format)
        named += [("data.passages", str(name)) for name in passages]
        named += [("start", str(Path(config.start) / "model.safetensors"))] if config.start else []
        found: dict[str, str] = {}
        for key, name in named:
            own = f"{key} {os.path.relpath(name, self.folder)}"
            while own in found:  # the same file once more
                own += " again"
            found[own] = _sha256(Path(name))
        self._same(found, READ, write)

    def same_encoder(self, spec: Spec, write: bool = True) -> None:
        """Keep what the encoder's files hold, or compare it. After `agree`."""
        self._same({f"encoder {part}": getattr(spec, part) for part in ENCODER_PARTS}, ("encoder",), write)

    def _same(self, now_: Mapping[str, str], keys: Sequence[str], write: bool) -> None:
        """Keep the hashes of these keys or compare them; a report that has none of a key was begun before it was kept,
        or without such a file, which its config says."""
        then = self._kept()
        changed = [said for key in keys for said in _differences(key, then, now_)]
        if changed:
            raise RunError(
                f"{self.folder} holds results of other files, and a table must not mix them: {'; '.join(changed)}. "
                "Choose another folder, or give what was read then."
            )
        known = set(map(_key, then))
        fresh = {name: digest for name, digest in now_.items() if _key(name) not in known}
        if write and fresh:
            write_bytes(self.folder / KEPT, json_bytes({**then, **fresh}))

    def _kept(self) -> dict[str, str]:
        """Key of the config and name of a file, with a space between -> hash."""
        return _object(self.folder / KEPT)

    def rows(self, file: str = RESULTS) -> list[ResultsRow]:
        """One row a cell, the last measured, whatever was trained beside it."""
        return list({apart(row).cell: row for row in read_rows(self.folder / file)}.values())

    def append(self, cell: Cell, rows: Iterable[ResultsRow]) -> None:
        """A finished cell: the file has all of its rows or none, for one of them says that it is finished."""
        path = self.folder / cell.file
        write_rows(path, [*read_rows(path), *rows])

    @contextmanager
    def begun(self, cell: Cell) -> Iterator[Path]:
        """Where a cell keeps its checkpoint until it is finished, here: seconds of two machines are not added up."""
        yield self._resting(cell) / _short(_place())
        self.ended(cell)

    def ended(self, cell: Cell) -> None:
        """Drop where a cell would go on, also where it was killed between its rows and this."""
        folder = self._resting(cell)
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # others may lie there
            folder.parent.rmdir()

    def _resting(self, cell: Cell) -> Path:
        own = [self.row_names(cell, task) for task in cell.tasks]
        return self.folder / "unfinished" / f"{cell.contender.method}-{cell.seed}-{_short([cell.file, *own])}"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep others from filling the folder meanwhile. RunError where a living process does."""
        with held(self.folder, "compare", "train the same cells twice"):
            yield

    def finished(self, cell: Cell) -> bool:
        """Whether all tasks of a cell have a row of their deciding score on test, defined or not."""
        there = {apart(row).cell for row in read_rows(self.folder / cell.file)}
        return all(cell.row(self.config, self.names, task, "test", task.metric).cell in there for task in cell.tasks)

    def row_names(self, cell: Cell, task: Task) -> tuple[Any, ...]:
        """What all rows of a cell and task are called."""
        return cell.row(self.config, self.names, task, "", "").cell[:7]

    def dev_score(self, cell: Cell, task: Task) -> float | None:
        """A finished cell's deciding score on dev; None where it was undefined."""
        wanted = cell.row(self.config, self.names, task, "dev", task.metric).cell
        found = [row.value for row in self.rows(cell.file) if apart(row).cell == wanted]
        return found[-1] if found else None

    def take_over(self, tried: Cell, result: Cell) -> None:
        """The rows of a cell that was tried or set aside, where it was, become results."""
        if self.finished(result):
            return
        wanted = {self.row_names(result, task) for task in result.tasks}
        if rows := [row for row in self.rows(tried.file) if apart(row).cell[:7] in wanted]:
            self.append(result, rows)

    def set_aside(self, contender: Contender, chosen: Mapping[str, str], others: Collection[tuple[str, str]]) -> None:
        """Rows of values that a wider grid no longer chooses go to `grid.jsonl`: results hold one choice a task.

        `chosen` is task -> variant; `others` are methods and variants that stand in the table by another name.
        """
        path, tried = self.folder / RESULTS, [SHORT.get(key, key) for key in contender.grid]
        kept: list[ResultsRow] = []
        moved: list[ResultsRow] = []
        for row in read_rows(path):
            now_ = chosen.get(row.task)
            then = apart(row).variant
            mine = row.method == contender.method and (row.method, then) not in others
            mine = mine and now_ is not None and then != now_
            stale = mine and without(then, tried) == without(now_ or "", tried)
            (moved if stale else kept).append(row)
        there = {apart(row).cell for row in read_rows(self.folder / GRID)}
        if moved:
            append_rows(self.folder / GRID, [row for row in moved if apart(row).cell not in there])
            write_rows(path, kept)

    def remember_encoding(self, material: Material) -> None:
        """Add this pass to `encode.json`: the seconds count once all items were written by passes that are in it."""
        report = material.encoded.report
        if not report.asked:
            return
        told = self._told()
        before = told.setdefault(_place(), {}).setdefault(_pass(material.spec), {"written": 0, "seconds": 0.0})
        if report.written and not report.hits:  # of all items, again where a store was lost
            before |= {"written": report.written, "seconds": material.encoded.seconds}
        elif report.written:
            before["written"] += report.written
            before["seconds"] += material.encoded.seconds
        before["items"] = report.asked - report.duplicates
        write_bytes(self.folder / "encode.json", json_bytes(told))

    def encode_seconds(self, spec: Spec) -> float | None:
        """What encoding all items took here; None where some were in the store before, or came from elsewhere."""
        told = self._told().get(_place(), {}).get(_pass(spec))
        return float(told["seconds"]) if told is not None and told["written"] == told["items"] else None

    def pass_seconds(self, split: str, layers: Sequence[int], measure: Callable[[], float]) -> float | None:
        """Seconds of the encoder's pass over a batch of a split up to the last of these layers, measured once a report
        on every machine and number of threads; None where nothing is read."""
        if not layers:
            return None
        key, told = str(max(layers)), self._told()
        passes = told.setdefault(_place(), {}).setdefault("pass_seconds_by_last_layer", {}).setdefault(split, {})
        if key not in passes:
            passes[key] = measure()
            write_bytes(self.folder / "encode.json", json_bytes(told))
        return float(passes[key])

    def _told(self) -> dict[str, Any]:
        return _object(self.folder / "encode.json")


def _pass(spec: Spec) -> str:
    """What a pass stores: its number type and views."""
    return f"{spec.dtype} {' '.join(map(str, spec.layers))}"


def _place() -> str:
    """The machine as rows name it, and its threads: what measured seconds are of."""
    about = surroundings()
    return f"{about['machine']}, {about['threads']} threads"


def _short(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:8]


def _object(path: Path) -> dict[str, Any]:
    """What a file says; empty where there is none. RunError for a file that was damaged."""
    if not path.exists():
        return {}
    try:
        values = json.loads(path.read_bytes())
    except ValueError as problem:
        raise RunError(f"{path} was damaged: {problem}. Put it back as it was, or choose another folder.") from None
    if not isinstance(values, dict):
        raise RunError(f"{path} was damaged: it holds no object. Put it back as it was, or choose another folder.")
    return values


def _looked_up(files: Sequence[str], format: str | None) -> list[Path]:
    """Where questions look up passages by themselves."""
    asked = [name for name in files if Path(name).is_file() and format_of(name, format).name == "questions"]
    return list(dict.fromkeys(found for name in asked if (found := passages_beside(name)) is not None))


def _sha256(path: Path) -> str:
    """Of what a file holds, be it compressed; of a folder the names and contents of its files. DataError for one that
    was cut or damaged."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        told = [f"{file.relative_to(path).as_posix()} {_sha256(file)}" for file in files]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()
    digest = hashlib.sha256()
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise DataError(f"{path} is a damaged gzip file: {problem}.") from None
    return digest.hexdigest()


def _key(name: str) -> str:
    """The config's key of an entry of `data.json`."""
    return name.partition(" ")[0]


def _differences(key: str, then: Mapping[str, str], now_: Mapping[str, str]) -> list[str]:
    """What a key's files held then and hold now, in words; nothing where it is the same or was not kept."""
    before, after = ({name: one for name, one in told.items() if _key(name) == key} for told in (then, now_))
    if not before or list(before.values()) == list(after.values()):
        return []
    if list(before) == list(after):
        return [f"{name} was changed" for name in after if before[name] != after[name]]
    names = [", ".join(name.partition(" ")[2] for name in told) or "nothing" for told in (before, after)]
    return [f"{key}: {names[0]} then, {names[1]} now, which holds something else"]


def _by_all_tasks(config: Config) -> bool:
    """Whether a task's row depends on which others there are: dev is held out by the labels of the first, or they have
    one trunk."""
    lines = [config.finetune, *(section.finetune for section in config.methods.values())]
    return bool(config.data.dev_fraction) or any(line.shared for line in lines)


def _comparable(config: Config) -> dict[str, Any]:
    """The config's values that rows do not say, flat, with absolute paths."""
    values = {key: value for key, value in absolute(config).model_dump().items() if key not in SAID_BY_ROW}
    train, data = dict(values.pop("train")), dict(values.pop("data"))
    for key in ("seed", "learning_rate", "logging_steps", "save_steps"):
        train.pop(key)
    train["encoder_learning_rate"] = train["encoder_learning_rate"] or 0.0  # reports of reading methods say 0
    data.pop("train_fraction")
    options = values.pop("task")
    flat = {f"train.{key}": value for key, value in train.items()} | {
        f"data.{key}": value for key, value in data.items()
    }
    return values | flat | {f"task.{name}": options.get(name, {}) for name in config.tasks}
