"""What a comparison has yet to do: cells by contender, and how long they will take, where like ones are finished."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

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

__all__ = ["outlook"]


def outlook(
    comparison: "Comparison", config: "Config", splits: Mapping[str, Sequence[Document]], tasks: tuple[Task, ...]
) -> str:
    """A table of what `run` would do with what `learning.learned` gave: nothing is encoded, trained or written.

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
        everything = [document for documents in splits.values() for document in documents]
        there = steps.planned(Path(config.store), spec, everything if any(reads) else [], model)
        distinct = there.missing + there.hits
        said.append(f"store: {there.missing:,} of {distinct:,} items to encode ({there.bytes:,} bytes)")
    except EncoderError as problem:
        said.append(f"the encoder is not here, so views and blocks were not checked: {problem}")
    header = ["method", "to try", "to train", "done", "about"]
    return "\n".join([*said, "", aligned(header, [_line(comparison, one, tasks) for one in comparison.contenders])])


def _line(comparison: "Comparison", one: Contender, tasks: Sequence[Task]) -> list[str]:
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
    about = "" if not left else f"{left * fmean(known):,.0f} s" if known else "unknown"
    return [one.name, f"{len(to_try):,}", f"{'at most ' if to_try else ''}{to_train:,}", f"{done:,}", about]
