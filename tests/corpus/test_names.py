"""Names as parts of paths (RUNTIME-2 b)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodeonce.corpus.names import path_part

RESERVED = {"con", "prn", "aux", "nul", *(f"{d}{i}" for d in ("com", "lpt") for i in range(10))}


def check(part: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,100}", part), part
    assert part.split(".")[0].lower() not in RESERVED
    assert part not in (".", "..")
    assert part[-1] not in ". "


@pytest.mark.parametrize(
    "name", ["org/name:v1", "CON", "con.txt", "a" * 300, "", ".", "..", "é/😀", "nul", "-x", "x.", "\ud800"]
)
def test_RUNTIME_2_b_names_the_system_refuses(name: str) -> None:
    check(path_part(name))


def test_RUNTIME_2_b_names_that_differ_only_in_case_do_not_collide() -> None:
    names = [
        "org/Model",
        "org/model",
        "ORG/model",
        "model",
        "Model",
        "MODEL",
        "con",
        "CON",
        "a:b",
        "a/b",
        "a-b",
        "a" * 300,
        "a" * 301,
    ]
    parts = [path_part(name).lower() for name in names]
    assert len(set(parts)) == len(names)
    assert path_part("upos") == "upos"
    assert path_part("org/model").startswith("org-model-")
    assert path_part(path_part("org/model")) != path_part("org/model")


NAMES = st.text(alphabet="aAbB01.-_/: é\\\u00c9", max_size=120)


@given(NAMES, NAMES)
def test_RUNTIME_2_b_any_two_names(one: str, other: str) -> None:
    check(path_part(one))
    assert (path_part(one).lower() == path_part(other).lower()) == (one == other)
