"""`encodeonce debug-data`: what is in the files, and what is wrong with them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import json_option, read_option, reader_options

if TYPE_CHECKING:
    from ..encoders.pretrained import Pretrained
    from ..tasks import Task
    from ..types import Document, Pieces
    from .config import Config

__all__ = ["debug_data"]

NOT_LABELS = frozenset({"form", "lemma", "feats", "head", "deps", "misc"})
"""Columns that are looked through only when they are named."""


@click.command("debug-data")
@click.argument("files", nargs=-1, metavar="[CONFIG.toml | FILE...]")
@click.option("--train", multiple=True, help="A file of the training split; repeatable.")
@click.option("--dev", multiple=True, help="A file of the development split; repeatable.")
@click.option("--test", multiple=True, help="A file of the test split; repeatable.")
@click.option("--column", "-c", "chosen", multiple=True, help="Only this column; repeatable.  [default: all of labels]")
@click.option("--encoder", "-e", help="Its tokenizer finds words without pieces and items over its window.")
@reader_options
@read_option
@json_option
def debug_data(
    files: tuple[str, ...],
    train: tuple[str, ...],
    dev: tuple[str, ...],
    test: tuple[str, ...],
    chosen: tuple[str, ...],
    encoder: str | None,
    format: str | None,
    columns: dict[str, int | str] | None,
    reading: dict[str, Any],
    as_json: bool,
) -> None:
    """Counts, labels, entities and relations, repeats, overlap between splits, labels that training never has, words
    without pieces.

    Give a config, whose tasks say which columns, or files: each FILE is a split of its own, --train, --dev and --test
    name theirs.
    """
    asked: list[str] = []
    tasks: list[Task] = []
    passages = window = None
    splits = {name: given for name, given in (("train", train), ("dev", dev), ("test", test)) if given}
    if len(files) == 1 and files[0].endswith(".toml"):
        from .config import load

        config = load(Path(files[0]))
        named = {split: tuple(getattr(config.data, split)) for split in ("train", "dev", "test")}
        splits = {**{split: given for split, given in named.items() if given}, **splits}
        format, columns = format or config.data.format, columns or config.data.columns
        reading, passages = {**config.data.options, **reading}, config.data.passages
        tasks = _tasks_of(config)
        if not any(task.reads_parts for task in tasks):  # else pairs may well be longer than the window
            encoder, window = encoder or config.encoder, config.window
        asked = _columns_of(tasks)
    else:
        for file in files:
            splits[_split_name(file, splits)] = (file,)
    if not splits:
        raise click.UsageError("Give a config, files, or --train, --dev and --test.")
    from ..corpus.diagnose import diagnose
    from .steps import documents_of

    documents = {name: documents_of(given, format, columns, passages, reading) for name, given in splits.items()}
    pieces = None
    if encoder is not None:
        from ..encoders.pretrained import Pretrained

        model = Pretrained(encoder, window=window)
        if tasks:
            documents = {name: [tasks[0].prepared(one) for one in found] for name, found in documents.items()}
        pieces = {name: _cut(model, found) for name, found in documents.items()}
    found = diagnose(documents, chosen or asked or _label_columns(documents), pieces=pieces)
    click.echo(json.dumps(found.to_json(), indent=1) if as_json else str(found))


def _cut(model: "Pretrained", documents: list["Document"]) -> list["Pieces"]:
    """The pieces of each document, none of an empty one, which is a problem to be listed."""
    import numpy as np

    from ..types import Pieces

    nothing = np.empty(0, np.int32)
    found = iter(model.cut([one for one in documents if not one.empty]))
    return [Pieces(one.key, nothing, nothing, 0, ()) if one.empty else next(found) for one in documents]


def _tasks_of(config: "Config") -> list["Task"]:
    from ..tasks import named

    return [named(name, **config.task.get(name, {})) for name in config.tasks]


def _columns_of(tasks: list["Task"]) -> list[str]:
    """The columns of labels that tasks read; an attribute is looked for in FEATS, which is none, and what is read in
    parts has answers and no labels."""
    columns = [str(getattr(task, "column", "")) for task in tasks if not task.reads_parts]
    return [column for column in dict.fromkeys(columns) if column and not column.startswith("feats:")]


def _split_name(file: str, taken: dict[str, tuple[str, ...]]) -> str:
    """A file's name without its endings; the whole path where that is taken."""
    name = Path(Path(file).name.removesuffix(".gz")).stem
    return file if name in taken else name


def _broken(document: "Document") -> list[str]:
    """Lists as long as the words that are no labels, such as numbers."""
    from ..corpus.diagnose import why_no_column

    lists = [name for name, value in document.meta.items() if isinstance(value, list)]
    return [n for n in lists if len(document.meta[n]) == len(document.words) and why_no_column(document, n)]


def _label_columns(documents: dict[str, list["Document"]]) -> list[str]:
    """Every column of labels, be its labels no strings, or the field "label" of texts."""
    columns = [
        name for found in documents.values() for document in found for name in (*document.columns, *_broken(document))
    ]
    chosen = [name for name in dict.fromkeys(columns) if name not in NOT_LABELS]
    labelled = any("label" in document.meta for found in documents.values() for document in found)
    return chosen or (["label"] if labelled else [])
