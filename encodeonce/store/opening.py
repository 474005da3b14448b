"""What stands in a folder before a shard is looked at: a store of this Spec, another one, or neither."""

from dataclasses import replace
from pathlib import Path

from ..errors import ConfigError, CorruptStore, SpecMismatch, StoreError
from ..types import Spec
from .claim import room_for, writable, write_atomically
from .format import FORMAT, parse_sealed, sealed

__all__ = ["compare", "create", "nothing_yet", "read_spec", "refuse_other_content"]


def refuse_other_content(folder: Path) -> None:
    """StoreError where `folder` is something else than an empty place for a new store."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StoreError(f"{folder} is a file; a store is a folder.")
    content = sorted(path.name for path in folder.iterdir() if not path.name.startswith("store.json."))
    if (folder / "store.json").exists():
        return  # another process made it meanwhile
    if any(name.endswith(".safetensors") for name in content):
        raise StoreError(
            f"{folder} has shards but no store.json, so nothing says what made them. Encode into a new folder."
        )
    if content:
        raise StoreError(f"{folder} is no store and not empty (it holds {content[0]!r}). Choose a new or empty folder.")


def create(folder: Path, spec: Spec) -> None:
    """Write store.json first; where another process was faster, its file stands and is compared next.

    StoreError where the folder cannot be made, StoreFull where there is no room.
    """
    if spec.format != FORMAT:
        raise StoreError(f"Spec.format is {spec.format}; this version writes format {FORMAT}.")
    if folder.is_symlink() and not folder.exists():
        raise StoreError(f"{folder} is a link to {folder.readlink()}, which is not there. Make that folder first.")
    try:
        with writable(folder), room_for(folder, 0, "A folder"):
            folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as problem:
        raise StoreError(f"{folder} cannot be made: {problem.strerror}. A store needs a folder of its own.") from None
    write_atomically(folder / "store.json", sealed({"format": FORMAT, "spec": spec.to_json()}), replace=False)


def read_spec(folder: Path) -> Spec:
    """The Spec in store.json."""
    values = parse_sealed(folder / "store.json")
    try:
        return Spec.from_json(values["spec"])
    except (ConfigError, KeyError) as problem:
        raise CorruptStore(f"{folder / 'store.json'} holds no Spec: {problem}") from None


def nothing_yet(folder: Path) -> str:
    """A next step where a store was begun and never filled, because it would have become too large for instance."""
    holds = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return f" It holds nothing yet: to begin anew, delete {folder / 'store.json'}." if holds == ["store.json"] else ""


def compare(folder: Path, stored: Spec, asked: Spec) -> tuple[int, ...]:
    """The layers to read; SpecMismatch with every difference where the store was made by something else."""
    if set(asked.layers) <= set(stored.layers):
        differences = replace(asked, layers=stored.layers).differences(stored)
    else:
        differences = asked.differences(stored)
    if differences:
        lines = "\n".join(f"  {line}" for line in differences)
        raise SpecMismatch(
            f"{folder} was made by something else (here: what you ask for; there: the store, by {stored.encoder}):\n"
            f"{lines}\nAsk for what the store holds, or encode into another folder.{nothing_yet(folder)}"
        )
    return asked.layers
