"""A saved run made ready to answer: the bundle, its encoder, and the store it was trained on where that is at hand.

A saved few-shot estimator is made ready alike.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..corpus import format_of
from ..corpus._files import ending
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, DataError, EncoderError, NotStored, StoreError
from ..integrations._saved import is_estimator
from ..serve.bundle import load, made_for
from ..serve.folder import encoder_of
from ..serve.predictor import Predictor
from ..store import Store
from ..tasks import in_parts
from ..types import Document, Spec
from .config import load as load_config
from .config import toml_value
from .few_shot_run import FewShotPredictor
from .steps import documents_of

__all__ = ["Reading", "parts_of", "predictor_of", "read_for"]

log = logging.getLogger("encodeonce")

READ = ("form", "words", "text", "pair", "sentences", "id")
"""Our names of what is read of an item, beside its labels, which a file that is to be labelled may lack."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a file is read: the format's name, where values stand, the reader's own options."""

    format: str | None = None
    columns: Mapping[str, int | str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def predictor_of(folder: Path, encoder: str | None = None, store: str | None = None) -> Predictor | FewShotPredictor:
    """The run in `folder`, with another place for its encoder or its store where these are given.

    Raises RunError where the folder is no run or the encoder is another one, StoreError where a given store is not
    there, SpecMismatch where it is of another encoder. The store that the run's own config names is used where it is
    there and fits.
    """
    if is_estimator(folder):
        return FewShotPredictor.load(folder, encoder, store)
    spec = made_for(folder)
    opened = _given_store(Path(store), spec) if store else _own_store(folder, spec)
    try:
        model = encoder_of(folder, spec, encoder)
    except EncoderError as problem:
        if opened is None or encoder is not None:
            raise
        log.warning(
            "the run's encoder is not here (%s); only texts that %s holds can be answered", problem, opened.path
        )
        model = None
    return Predictor(load(folder, model), opened, model)


def read_for(folder: Path, file: str, asked: Reading, passages: str | None = None) -> tuple[list[Document], Reading]:
    """The documents of a file that the run in `folder` is to answer, and how they were read: as `asked`, and in all
    that it leaves open as the run's own data were, where the file has their format. Of columns that the file has not
    the labels' are left out, then all. DataError as `read`.
    """
    usual = _usual(folder, file, asked)
    tries = [usual]
    if asked.columns is None and usual.columns and not Path(file).is_fifo():  # which could be read only once
        texts = {name: place for name, place in usual.columns.items() if name in READ}
        tries += [replace(usual, columns=some) for some in (*([texts] if texts else []), None)]
    first: DataError | None = None
    for tried in tries:
        try:
            found = documents_of([file], tried.format, tried.columns, passages, tried.options)
        except DataError as problem:
            first = first or problem
            continue
        said = _in_words(tried) or "its own columns"
        if first is not None:
            log.warning("%s has not all columns of the run's own data, and is read with %s. %s", file, said, first)
        elif tried != asked:
            log.info("%s is read as the run's own data were, with %s", file, said)
        return found, tried
    assert first is not None
    raise first


def _usual(folder: Path, file: str, asked: Reading) -> Reading:
    """What is asked, filled up from the config of the run where its data have the file's format. Running text is never
    taken for another format."""
    path = folder / "config.toml"
    if not path.exists():
        return asked
    data = load_config(path).data
    there, own = asked.format or _kind(file), data.format or _kind(data.train[0])
    format = asked.format
    if format is None and data.format is not None and there != "text":
        same_ending = ending(file) == ending(data.train[0])
        format = there = data.format if there is None or same_ending else there
    if own is None or there != own:
        return asked
    columns = data.columns if asked.columns is None else asked.columns
    return Reading(format, columns, {**data.options, **asked.options})


def _kind(file: str) -> str | None:
    try:
        return format_of(file).name
    except ConfigError:
        return None


def _in_words(reading: Reading) -> str:
    columns = ",".join(f"{name}={place}" for name, place in (reading.columns or {}).items())
    said = [f"--format {reading.format}"] if reading.format else []
    said += [f"--columns {columns}"] if columns else []
    return " ".join([*said, *(f"--read {name}={toml_value(value)}" for name, value in reading.options.items())])


def parts_of(predictor: Predictor | FewShotPredictor, documents: Sequence[Document]) -> list[list[Document]]:
    """What the run reads of each document: itself, or parts of it (`Task.shown`). NotStored where these have to be cut
    and the encoder, whose pieces they are counted in, is not here."""
    run = predictor.run
    if not any(task.reads_parts for task in run.tasks):
        return [[document] for document in documents]
    if not isinstance(predictor.encoder, Pretrained):
        raise NotStored("This run reads long documents in parts of its encoder's pieces. Name the encoder: --encoder.")
    return in_parts(run.tasks, documents, predictor.encoder, run.spec.window)


def _given_store(place: Path, spec: Spec) -> Store:
    if not (place / "store.json").exists():
        raise StoreError(
            f"There is no store at {place}. Name one that `encode` made, or leave --store out: what is not stored is "
            "encoded for the answer, and not kept."
        )
    return Store.open(place, spec)


def _own_store(folder: Path, spec: Spec) -> Store | None:
    path = folder / "config.toml"
    if not path.exists():
        return None
    place = Path(load_config(path).store)
    if not (place / "store.json").exists():
        return None
    try:
        return Store.open(place, spec)
    except StoreError as problem:
        log.warning("the store that %s names is not used: %s", path, problem)
        return None
