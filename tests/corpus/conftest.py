"""What the tests of forms with entities and relations share; whole treebanks without the type checks of every call."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest

from encodeonce.corpus import write
from encodeonce.graphs import Graph
from encodeonce.types import Document


def put(path: Path, *values: dict) -> Path:
    """The path, with a line of JSON a value."""
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def graph(document: Document) -> Graph:
    return Graph.of(document.meta["entities"], document.meta["relations"], len(document.words), document.place)


def written(source: object, columns: dict, **options: str) -> str:
    """What `write` makes of it."""
    stream = io.BytesIO()
    write(stream, source, columns, **options)  # type: ignore[arg-type]
    return stream.getvalue().decode("utf-8")


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Type checks switched off: a hundred times faster."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
