"""Which room may import which. The whole rule is the table below: lower floors only, never the own or a higher one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import encodeonce

ROOT = Path(encodeonce.__file__).parent
FLOORS = [
    {"types", "errors", "resolve", "spans", "graphs", "prompts"},
    {"corpus", "nn", "metrics", "costs"},
    {"encoders", "store", "adapters", "heads", "batching"},
    {"methods.multitask", "retrieval"},
    {"methods.aggregate", "methods.fastdoc", "methods.finetune", "methods.lumen"},
    {"methods.fewshot", "methods.refusion"},
    {"tasks", "train", "memory"},
    {"report", "serve"},
    {"integrations"},
    {"cli"},
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room(parts: tuple[str, ...]) -> str:
    return ".".join(parts[:2]) if parts[0] == "methods" else parts[0]


def imports(tree: ast.AST, here: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every module of ours that a file of ours imports, as parts below the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level]
            if node.module:
                yield (*base, *node.module.split("."))
            else:
                yield from ((*base, *alias.name.split(".")) for alias in node.names)
        elif isinstance(node, (ast.ImportFrom, ast.Import)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (tuple(name.split(".")[1:]) for name in names if name.startswith("encodeonce."))


def violations(path: Path, text: str) -> list[str]:
    relative = path.relative_to(ROOT)
    parts = relative.with_suffix("").parts
    here = room(parts)
    wrong = []
    for target in imports(ast.parse(text), parts):
        there = room(target)
        if there in ("__init__", "__version__", here):
            continue
        if FLOOR[there] >= FLOOR[here] and FLOOR[here] != 0:
            wrong.append(f"{relative} (floor {FLOOR[here]}) imports {there} (floor {FLOOR[there]})")
    return wrong


def sources() -> list[Path]:
    top = {"__init__.py", "__main__.py"}
    return [path for path in sorted(ROOT.rglob("*.py")) if not (path.parent == ROOT and path.name in top)]


def test_every_room_has_a_floor() -> None:
    homeless = sorted(
        {room(p.relative_to(ROOT).with_suffix("").parts) for p in sources()} - set(FLOOR) - {"methods.__init__"}
    )
    assert not homeless, f"give these rooms a floor in tests/test_rooms.py: {homeless}"


def test_rooms_look_down_only() -> None:
    wrong = [
        line
        for path in sources()
        if path.parent.name != "methods"
        for line in violations(path, path.read_text("utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_rule_sees_each_way_of_breaking_it() -> None:
    store = ROOT / "store" / "reader.py"
    for line in (
        "from ..encoders import bert",
        "from .. import encoders",
        "import encodeonce.cli.main",
        "from encodeonce.train.fit import fit",
    ):
        assert len(violations(store, line)) == 1, line
    assert violations(store, "from ..errors import StoreError\nfrom .format import Header\nimport json") == []


def test_only_encoders_import_transformers() -> None:
    """transformers costs seconds to import and changes often: one room meets it."""
    wrong = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom) and not node.level
                else []
            )
            if (
                any(name.split(".")[0] == "transformers" for name in names)
                and path.relative_to(ROOT).parts[0] != "encoders"
            ):
                wrong.append(str(path.relative_to(ROOT)))
    assert not wrong, wrong
