"""The front door is a list, and the list is true."""

import subprocess
import sys
from pathlib import Path

import pytest

import encodeonce


def test_every_listed_name_is_there() -> None:
    assert sorted(encodeonce.__all__) == encodeonce.__all__
    assert set(encodeonce.__all__) == {*encodeonce._HOME, "__version__"}
    for name in encodeonce.__all__:
        assert getattr(encodeonce, name) is not None


def test_every_listed_name_has_a_line_on_its_page() -> None:
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text("utf-8").splitlines()
    shown = {line.rpartition(".")[2] for line in page if line.startswith((".. autoclass::", ".. autofunction::"))}
    homes = {home.partition(":")[2] or name for name, home in encodeonce._HOME.items() if home != "errors"}
    assert homes <= shown, homes - shown


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match=r"no 'Stores'. There is: Aggregate, Answer, Answerer, Document"):
        _ = encodeonce.Stores


def test_rooms_are_there_by_their_whole_names() -> None:
    code = "import encodeonce; print(encodeonce.corpus.read is encodeonce.read, encodeonce.store.Search.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True Search\n", done.stderr


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, encodeonce; print(sorted({'torch', 'numpy', 'transformers', 'pydantic'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
