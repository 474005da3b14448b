"""What a comparison has yet to do: cells by contender, and how long they will take, where like ones are finished."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..errors import EncoderError
from ..report.table import aligned
from ..serve.methods import check
from ..tasks import Task
from ..types import Document
from . import learning, steps
from .contenders import Contender
from .report_files import GRID, RESULTS

if TYPE_CHECKING:
    from .comparing import Comparison
    from .config import Config

__all__ = ["Outlook", "outlook"]


@dataclass(frozen=True)
class Line:
    """One contender's cells: of its grid, of its results (`at_most` where the grid has yet to choose), and finished
    ones; `seconds` for those to do, None where no like one is finished."""

    method: str
    to_try: int
    to_train: int
    at_most: bool
    done: int
    seconds: float | None


@dataclass(frozen=True)
class Outlook:
    """`said` are lines about the data and the store."""

    said: Sequence[str]
    lines: Sequence[Line]

    def text(self) -> str:
        """For people."""
        header = ["method", "to try", "to train", "done", "about"]
        return "\n".join([*self.said, "", aligned(header, [_cells(line) for line in self.lines])])

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def outlook(
    comparison: "Comparison", config: "Config", splits: Mapping[str, Sequence[Document]], tasks: tuple[Task, ...]
) -> Outlook:
    """What `run` would do with what `learning.learned` gave: nothing is encoded, trained or written.

    Raises what `run` would raise of methods and layers; an encoder that is not here is said, not raised.
    """
    said = [f"{split}: {len(documents):,} documents" for split, documents in splits.items()]
    try:
        model = steps.pretrained(config)
        spec = steps.spec_of(config, model)
        comparison.files.same_encoder(spec, write=False)
        reads = [learning.layers_of(one.settings(), spec) for one in comparison.contenders]
        for one in comparison.contenders:
            for settings in one.possible:
                check(settings, spec, tasks, model)
        learning.begun_from(config)
        splits = learning.parted(splits, tasks, model)
        learning.refuse_over_window(splits, [one.settings() for one in comparison.contenders], model)
        everything = [document for documents in splits.values() for document in documents]
        there = steps.planned(Path(config.store), spec, everything if any(reads) else [], model)
        distinct = there.missing + there.hits
        said.append(f"store: {there.missing:,} of {distinct:,} items to encode ({there.bytes:,} bytes)")
    except EncoderError as problem:
        said.append(f"the encoder is not here, so views and blocks were not checked: {problem}")
    return Outlook(said, [_line(comparison, one, tasks) for one in comparison.contenders])


def _cells(line: Line) -> list[str]:
    about = "" if not line.to_try + line.to_train else "unknown" if line.seconds is None else f"{line.seconds:,.0f} s"
    to_train = f"{'at most ' if line.at_most else ''}{line.to_train:,}"
    return [line.method, f"{line.to_try:,}", to_train, f"{line.done:,}", about]


def _line(comparison: "Comparison", one: Contender, tasks: Sequence[Task]) -> Line:
    """A contender's cells, and the seconds of those to do by the mean of its method's finished ones."""
    files, tries = comparison.files, comparison.tries(one, tasks)
    to_try = [cell for cell in tries if not files.finished(cell)]
    if to_try:  # each task may choose a point of its own; the first seed's cells are then in the grid
        results = len(one.seeds[1:]) * len(tasks)
        to_train, done = results, len(tries) - len(to_try)
    else:
        cells = comparison.results(one, comparison.best(one, tasks))
        finished = [cell for cell in cells if files.finished(cell) or files.finished(replace(cell, file=GRID))]
        to_train, done = len(cells) - len(finished), len(tries) + len(finished)
    rows = [row for file in (RESULTS, GRID) for row in files.rows(file) if row.method == one.method]
    known = [row.train_s_total for row in rows if row.train_s_total is not None]
    left = len(to_try) + to_train
    seconds = left * fmean(known) if known else None
    return Line(one.name, len(to_try), to_train, bool(to_try), done, seconds)
