"""A saved run made ready to answer: the bundle, its encoder, and the store it was trained on where that is at hand.

A saved few-shot estimator is made ready alike.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from ..encoders.pretrained import Pretrained
from ..errors import EncoderError, NotStored, StoreError
from ..integrations._saved import is_estimator
from ..serve.bundle import load, made_for
from ..serve.folder import encoder_of
from ..serve.predictor import Predictor
from ..store import Store
from ..tasks import in_parts
from ..types import Document, Spec
from .config import load as load_config
from .few_shot_run import FewShotPredictor

__all__ = ["parts_of", "predictor_of"]

log = logging.getLogger("encodeonce")


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
