"""The rules of the rooms: no circles, cores that know no shells, walks that lead through files.

A room is a folder. In which direction rooms may import each other is written down in the contracts
of `pyproject.toml`; what those cannot express is here. Nothing counts fields, parameters, methods
or files of a folder: a concept is one file, however large its class is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("broker", "bookie", "client", "ops")

Imports = Mapping[str, frozenset[str]]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, known: Iterable[str]) -> Iterator[str]:
    """Yield the modules that a file imports anywhere in it, in functions and for types too."""
    modules = frozenset(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


FILES = {
    module_name(path): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if "plugin" not in path.parts  # a top-level package of its own, for Spark
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
IMPORTS: Imports = {
    name: frozenset(imported(tree, FILES)) & FILES.keys() - {name} for name, tree in TREES.items()
}


def circles(imports: Imports) -> list[list[str]]:
    """Return every set of modules that reach each other (Tarjan's strong components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        open_.append(name)
        for other in sorted(imports[name]):
            if other not in order:
                visit(other)
            if other in open_:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            start = open_.index(name)
            component = open_[start:]
            del open_[start:]
            if len(component) > 1:
                found.append(sorted(component))

    for name in sorted(imports):
        if name not in order:
            visit(name)
    return found


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles(IMPORTS) == []


def test_a_circle_is_found_wherever_the_import_stands() -> None:
    known = ("a", "b", "c")
    sources = {
        "a": "import b",
        "b": "if TYPE_CHECKING:\n    from c import C",
        "c": "def f():\n    from a import A",
    }
    imports = {name: frozenset(imported(ast.parse(text), known)) for name, text in sources.items()}
    assert circles(imports) == [["a", "b", "c"]]
    assert circles({**imports, "c": frozenset()}) == []


def is_vocabulary(name: str, package: str) -> bool:
    """Whether a core may import a module: ids, errors, formats, pure helpers, other cores."""
    parts = name.split(".")
    return (
        (parts[0] in (package, "client") and "core" in parts)
        or name == f"{package}.errors"
        or name in VALUES
        or name.startswith(PURE)
    )


PURE = ("client.wire.", "client.log.")
"""Rooms without I/O, by the contracts."""

VALUES = ("client.errors", "client.ids", "client.fast_tuple", "client.metadata.json_node")
"""Single files without I/O that everything is made of."""


def test_cores_know_no_shells() -> None:
    strangers = {
        f"{name} imports {other}"
        for name, others in IMPORTS.items()
        if "core" in name.split(".")
        for other in others
        if not is_vocabulary(other, name.split(".")[0])
    }
    assert sorted(strangers) == []


def named_files(text: str) -> set[str]:
    return set(re.findall(r"`((?:[\w]+/)*\w+\.py)`", text))


def exists(name: str) -> bool:
    """Whether a file named in the broker's README is there, below the broker or from the root."""
    return (ROOT / "broker" / name).is_file() or (ROOT / name).is_file()


def test_the_brokers_map_shows_its_rooms() -> None:
    text = (ROOT / "broker/README.md").read_text(encoding="utf-8")
    table = text.split("## Rooms")[1].split("## Walks")[0]
    shown: set[str] = set()
    starts: set[str] = set()
    for row in re.findall(r"^\| (`.*)", table, re.MULTILINE):
        rooms, _, first = row.split(" | ")
        shown.update(re.findall(r"`([\w./]+)`", rooms))
        starts.update(rooms.strip("`") + name for name in named_files(first))
    there = {path.name for path in (ROOT / "broker").glob("*.py") if path.name != "__init__.py"}
    there |= {f"{path.parent.name}/" for path in (ROOT / "broker").glob("*/__init__.py")}
    assert shown == there
    assert {name for name in starts if not exists(name)} == set()


def test_the_brokers_walks_name_files_that_exist() -> None:
    text = (ROOT / "broker/README.md").read_text(encoding="utf-8")
    walks = text.split("## Walks")[1].split("\n## ")[0].split("\n### ")[1:]
    assert [walk.partition("\n")[0] for walk in walks] == [
        "Produce",
        "Fetch",
        "Takeover",
        "Transaction",
        "Compaction",
        "Offload",
        "Login and rights",
    ]
    assert {name for name in named_files(text.split("## Walks")[1]) if not exists(name)} == set()


WALKS_OF_ONE_LIST = {
    "bookie/README.md": "How a request travels",
    "client/spark/README.md": "How a read goes",
}
"""READMEs whose walk is the first numbered list of a section: a bookie's add, a batch of Spark."""


@pytest.mark.parametrize("page", WALKS_OF_ONE_LIST)
def test_other_walks_name_files_that_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    section = text.split(f"\n## {WALKS_OF_ONE_LIST[page]}\n")[1].split("\n## ")[0]
    steps = re.search(r"^1\. .*?(?=\n\n)", section, re.MULTILINE | re.DOTALL)
    assert steps is not None
    files = named_files(steps[0])
    assert len(files) > 10
    folder = (ROOT / page).parent
    assert [name for name in files if not ((folder / name).is_file() or exists(name))] == []
