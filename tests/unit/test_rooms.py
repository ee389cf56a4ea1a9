"""The rules of the rooms: no circles, small folders that know few others, cores that know no
shells, small classes.

A room is a folder. In which direction rooms may import each other is written down in the contracts
of `pyproject.toml`; what those cannot express is here.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("broker", "bookie", "client", "ops")

ROOM_FILES_MAX = 16
CATALOGUES = ("broker/front/handlers", "broker/admin/resources", "ops/cli")
"""Rooms with one file per API, resource or command: they grow with what the product can do."""

LARGE_ROOMS: Mapping[str, int] = {}
"""Other rooms above the budget, with their number of files: it may shrink, not grow."""

TEST_ROOM_FILES_MAX = 20
TEST_CATALOGUES = (
    "tests/fakes",
    "tests/integration",
    "tests/integration/clients",
    "tests/property",
)
"""Folders of tests with one file per subject, program or stand-in: they grow with these."""

LARGE_TEST_ROOMS: Mapping[str, int] = {"tests/chaos": 22}
"""Other folders of tests above the budget: their number of files may shrink, not grow."""

ROOM_IMPORTS_MAX = 15
"""Other rooms of ours that a room may import: whoever reads it has to know so many."""

COMPOSITION_ROOTS: Mapping[str, str] = {
    "broker": "`app.py` makes a broker of all its rooms and hands each what it needs",
    "bookie": "`bookie.py` makes a bookie of all its rooms and knows the order of start and stop",
}
"""Rooms that put the others together, which is why the others need not know each other."""

CONNECTED_ROOMS: Mapping[str, int] = {
    "broker/admin/resources": 20,
    "broker/front/handlers": 26,
    "ops/bench/micro": 20,
    "ops/cli": 21,
}
"""Other rooms above the budget, with the number of rooms that they import: it may shrink, not
grow. Each has a file for each API, resource, command or thing that is measured alone, and each file
knows what it is about."""

CATALOGUE_FILE_IMPORTS_MAX = 10
"""The same for one file of a catalogue: whoever reads about one API, resource or command need not
know what the others are about."""

PUBLIC_METHODS_MAX = 12
FIELDS_MAX = 15
PARAMETERS_MAX = 7

COUNTERS = ("metrics.py", "stats.py")
"""Files whose classes are lists of counters: one field each, and nothing that could be split."""

RECORDS = ("NamedTuple", "Protocol", "Enum", "IntEnum", "enum.Enum", "enum.IntEnum")
"""Bases of classes that hold or describe values; like those of dataclasses, their fields are an
interface and not a state."""

LISTS_OF_WHAT_EXISTS: Mapping[str, str] = {
    "client.wire.buffer.Reader": (
        "one method for each primitive type of the wire formats: a second reader would only make"
        " decoders hold two positions in one frame"
    ),
    "client.metadata.store.MetadataStore": "one method for each operation of the store",
    "client.metadata.memory.MemoryStore": "one method for each operation of `MetadataStore`",
    "client.metadata.zookeeper.ZooKeeperStore": (
        "one method for each operation of `MetadataStore`, and its start"
    ),
    "client.spark.ledgers.metadata_view.MetadataView": (
        "one method for each operation of `MetadataStore`"
    ),
    "client.node.framed_server.FramedConnection": (
        "seven are asyncio's, which calls a connection by them"
    ),
}
"""Interfaces with one method for each thing that exists elsewhere, each with the reason why it is
not divided. How many methods they have is not for us to say; their fields and parameters are."""

LARGE_CLASSES: Mapping[str, Mapping[str, int]] = {}
"""Classes above a budget, with their present numbers. A number may only become smaller; a class
that is within its budgets again leaves the table."""

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


def test_rooms_are_small() -> None:
    counts = Counter(room_of(path) for path in FILES.values() if path.name != "__init__.py")
    large = {
        room: count
        for room, count in counts.items()
        if count > ROOM_FILES_MAX and room not in CATALOGUES
    }
    assert large == LARGE_ROOMS


def test_folders_of_tests_are_small() -> None:
    counts = Counter(
        room_of(path) for path in (ROOT / "tests").rglob("*.py") if path.name != "__init__.py"
    )
    large = {
        room: count
        for room, count in counts.items()
        if count > LARGE_TEST_ROOMS.get(room, TEST_ROOM_FILES_MAX) and room not in TEST_CATALOGUES
    }
    assert not large, "which two ideas does this folder hold?"


def room_of(path: Path) -> str:
    return path.parent.relative_to(ROOT).as_posix()


def rooms_imported(imports: Imports, files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the other rooms that the files of each room import."""
    found: dict[str, set[str]] = {}
    for name, others in imports.items():
        room = room_of(files[name])
        found.setdefault(room, set()).update({room_of(files[other]) for other in others} - {room})
    return found


def test_rooms_know_few_others() -> None:
    counts = {room: len(others) for room, others in rooms_imported(IMPORTS, FILES).items()}
    assert counts.keys() >= COMPOSITION_ROOTS.keys()
    connected = {
        room: count
        for room, count in counts.items()
        if count > ROOM_IMPORTS_MAX and room not in COMPOSITION_ROOTS
    }
    assert connected == CONNECTED_ROOMS, "a room knows more others, or fewer: correct the table"


def test_files_of_catalogues_know_few_rooms() -> None:
    counts = {
        name: len({room_of(FILES[other]) for other in others} - {room_of(FILES[name])})
        for name, others in IMPORTS.items()
        if room_of(FILES[name]) in CATALOGUES
    }
    connected = {
        name: count for name, count in counts.items() if count > CATALOGUE_FILE_IMPORTS_MAX
    }
    assert not connected, "a file knows too many rooms"


def test_rooms_are_counted_once_and_never_by_themselves() -> None:
    files = {
        "a": ROOT / "x/a.py",
        "b": ROOT / "x/b.py",
        "c": ROOT / "y/c.py",
        "d": ROOT / "y/d.py",
        "e": ROOT / "y/core/e.py",
    }
    imports = {
        "a": frozenset({"b", "c", "d"}),
        "b": frozenset({"e"}),
        "c": frozenset({"d"}),
        "d": frozenset({"a"}),
        "e": frozenset[str](),
    }
    assert rooms_imported(imports, files) == {"x": {"y", "y/core"}, "y": {"x"}, "y/core": set()}


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


def is_record(definition: ast.ClassDef) -> bool:
    return any(ast.unparse(base) in RECORDS for base in definition.bases) or any(
        "dataclass" in ast.unparse(decorator) for decorator in definition.decorator_list
    )


def fields(definition: ast.ClassDef) -> set[str]:
    """Return the attributes that a class sets on itself, or on class level declares."""
    return {
        node.attr
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def sizes(definition: ast.ClassDef, file_name: str) -> dict[str, int]:
    """Return what of a class is above its budget."""
    methods = [
        node for node in definition.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    public = {method.name for method in methods if not method.name.startswith("_")}
    parameters = 0
    for method in methods:
        if method.name == "__init__":
            parameters = len(method.args.args) + len(method.args.kwonlyargs) - 1
    is_list_of_values = is_record(definition) or file_name in COUNTERS
    found = {
        "methods": (len(public), PUBLIC_METHODS_MAX),
        "fields": (0 if is_list_of_values else len(fields(definition)), FIELDS_MAX),
        "parameters": (parameters, PARAMETERS_MAX),
    }
    return {what: count for what, (count, budget) in found.items() if count > budget}


def large_classes() -> dict[str, dict[str, int]]:
    found = {}
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and (above := sizes(node, FILES[name].name)):
                found[f"{name}.{node.name}"] = above
    for listing in LISTS_OF_WHAT_EXISTS:
        found[listing].pop("methods")  # it leaves the table when it has no more than others
    return {name: above for name, above in found.items() if above}


def test_classes_are_small() -> None:
    assert large_classes() == LARGE_CLASSES, "a class grew, or shrank: then correct the table"


def test_the_budgets_count_what_they_say() -> None:
    lines = [f"    def method{number}(self): self.x{number} = 0" for number in range(16)]
    lines += [f"    def __init__(self, {', '.join('abcdefgh')}): ..."]
    source = "\n".join(["class Large:", *lines])
    (large,) = ast.parse(source).body
    assert isinstance(large, ast.ClassDef)
    assert sizes(large, "large.py") == {"methods": 16, "fields": 16, "parameters": 8}
    assert sizes(large, "metrics.py") == {"methods": 16, "parameters": 8}
    (record,) = ast.parse(source.replace("Large", "Large(NamedTuple)")).body
    assert isinstance(record, ast.ClassDef)
    assert "fields" not in sizes(record, "large.py")


WALK_FILES_MAX = 20


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


def test_the_brokers_walks_are_short_and_name_files_that_exist() -> None:
    text = (ROOT / "broker/README.md").read_text(encoding="utf-8")
    walks = text.split("## Walks")[1].split("\n## ")[0].split("\n### ")[1:]
    assert [walk.partition("\n")[0] for walk in walks] == [
        "Produce",
        "Fetch",
        "Takeover",
        "Transaction",
        "Compaction",
        "Login and rights",
    ]
    for walk in walks:
        assert len(named_files(walk)) <= WALK_FILES_MAX
    assert {name for name in named_files(text.split("## Walks")[1]) if not exists(name)} == set()


WALKS_OF_ONE_LIST = {
    "bookie/README.md": "How a request travels",
    "client/spark/README.md": "How a read goes",
}
"""READMEs whose walk is the first numbered list of a section: a bookie's add, a batch of Spark."""


@pytest.mark.parametrize("page", WALKS_OF_ONE_LIST)
def test_other_walks_are_as_short(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    section = text.split(f"\n## {WALKS_OF_ONE_LIST[page]}\n")[1].split("\n## ")[0]
    steps = re.search(r"^1\. .*?(?=\n\n)", section, re.MULTILINE | re.DOTALL)
    assert steps is not None
    files = named_files(steps[0])
    assert 10 < len(files) <= WALK_FILES_MAX
    folder = (ROOT / page).parent
    assert [name for name in files if not ((folder / name).is_file() or exists(name))] == []
