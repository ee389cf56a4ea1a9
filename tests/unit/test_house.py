"""The house rules that a linter does not know: sizes, banned calls, docstrings, names.

One concept is one file, so a file may be long; a function may not. The other budget is the number
of files that a produced batch passes (`tests/simulation/COST.md`). The import directions are
contracts in `pyproject.toml`.
"""

import ast
import asyncio
import functools
import multiprocessing
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("broker", "bookie", "client", "ops")
FILE_LINES_MAX = 900
FILE_LINES_P90_MAX = 500
FUNCTION_LINES_MAX = 60

PRODUCTION = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# What runs under the simulator: everything but the entry points (of programs, and of applications
# that use ledgers), ops, the process that does the work of compaction with the file that starts it,
# and the files that stand between us and threads, the disk, ZooKeeper and the kernel's sockets.
SHELLS_ON_REAL_THINGS = {
    "bookie/__main__.py",
    "bookie/storage/disk.py",
    "bookie/storage/index/level_db.py",
    "broker/__main__.py",
    "broker/compaction/child.py",
    "broker/compaction/child_worker.py",
    "client/config.py",
    "client/config_kinds.py",
    "client/ledger/standalone.py",
    "client/metadata/zookeeper.py",
    "client/objects/obstore_store.py",
    "client/metadata/zookeeper_io.py",
    "client/metadata/zookeeper_login.py",
    "client/node/tls/read_mark.py",
    "client/node/process.py",
}
OUTSIDE_THE_SIMULATOR = ("ops/", "client/pubsub/", "client/spark/")

BANNED = {
    "time.time": "loop.time() for intervals, an injected Clock for wall time",
    "time.monotonic": "loop.time()",
    "time.perf_counter": "loop.time()",
    "time.sleep": "await asyncio.sleep()",
    "datetime.now": "an injected Clock",
    "datetime.utcnow": "an injected Clock",
    "datetime.datetime.now": "an injected Clock",
    "uuid.uuid1": "an injected Rng",
    "uuid.uuid4": "an injected Rng",
    "os.urandom": "an injected Rng",
    "os.environ.get": "the config object",
    "os.getenv": "the config object",
    "asyncio.run": "an entry point",
    "asyncio.get_event_loop": "asyncio.get_running_loop()",
    "asyncio.to_thread": "the Disk interface",
    "asyncio.as_completed": "gather: its order is the order of its arguments",
    "asyncio.open_connection": "loop.create_connection with a Protocol",
    "asyncio.start_server": "loop.create_server with a Protocol",
    "print": "logging",
    "breakpoint": "nothing",
    "id": "an explicit key: addresses differ from run to run",
}
BANNED_MODULES = {
    "random": "an injected Rng",
    "secrets": "an injected Rng",
    "threading": "one event loop",
    "subprocess": "an entry point",
    "socket": "loop.create_connection / loop.create_server",
    "uvloop": "an entry point",
}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def runs_in_simulation(path: Path) -> bool:
    name = relative(path)
    return name not in SHELLS_ON_REAL_THINGS and not name.startswith(OUTSIDE_THE_SIMULATOR)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@functools.cache
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(read(path))


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count lines without the signature and the docstring."""
    body = function.body
    if ast.get_docstring(function) is not None:
        body = body[1:]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]


def long_file(path: Path) -> Iterator[str]:
    count = len(read(path).splitlines())
    if count > FILE_LINES_MAX:
        yield f"{count} lines, at most {FILE_LINES_MAX}: which two concepts does this file hold?"


def long_functions(path: Path) -> Iterator[str]:
    for function in functions(parse(path)):
        if (count := body_lines(function)) > FUNCTION_LINES_MAX:
            yield f"line {function.lineno}: {function.name} has {count} lines"


def missing_docstring(path: Path) -> Iterator[str]:
    if read(path).strip() and not ast.get_docstring(parse(path)):
        yield "a module opens with a docstring"


def violations(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "isinstance" and ast.unparse(node.args[1]) == "asyncio.Transport":
                yield f"line {node.lineno}: uvloop's transports are no asyncio.Transport, use cast"
            if name.endswith(".when"):
                yield f"line {node.lineno}: uvloop's due timers have no when(), keep the time"
            if name in BANNED:
                yield f"line {node.lineno}: {name}() is banned here, use {BANNED[name]}"
            if name.endswith(".run_in_executor") and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and first.value is None:
                    yield f"line {node.lineno}: run_in_executor(None, ...) uses a hidden pool"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in BANNED_MODULES:
                    yield f"line {node.lineno}: {alias.name}: use {BANNED_MODULES[alias.name]}"
        elif isinstance(node, ast.ImportFrom) and node.module in BANNED_MODULES:
            yield f"line {node.lineno}: {node.module}: use {BANNED_MODULES[node.module]}"


@pytest.mark.parametrize(
    "code",
    [
        "import random",
        "from threading import Lock",
        "import time\nnow = time.time()",
        "import uuid\nuuid.uuid4()",
        "print('x')",
        "loop.run_in_executor(None, work)",
        "for task in asyncio.as_completed(tasks): pass",
        "assert isinstance(transport, asyncio.Transport)",
        "if self._timer.when() <= at_s: pass",
    ],
)
def test_the_ban_finds_what_it_bans(code: str) -> None:
    assert len(list(violations(ast.parse(code)))) == 1


def iterated_sets(path: Path) -> Iterator[str]:
    """The order of a set of strings or objects differs from run to run."""
    for loop in ast.walk(parse(path)):
        if not isinstance(loop, ast.For | ast.comprehension):
            continue
        over = loop.iter
        if isinstance(over, ast.Set | ast.SetComp) or (
            isinstance(over, ast.Call) and ast.unparse(over.func) in ("set", "frozenset")
        ):
            yield f"line {over.lineno}: {ast.unparse(over)} is iterated"


def left_undone(path: Path) -> Iterator[str]:
    """What somebody meant to do later. A test that CI has no time for is named there (TOO_LATE)."""
    if path.name == "test_house.py":
        return
    yield from re.findall(
        r"\b(?:TODO|FIXME|XXX|HACK|NotImplementedError)\b|mark\.(?:skip|xfail)"
        r"|pytest\.skip\((?!TOO_LATE\))",
        read(path),
    )


def uses_of_the_outside(path: Path) -> Iterator[str]:
    """Protocol code gets time and chance from outside."""
    return violations(parse(path)) if runs_in_simulation(path) else iter(())


RULES: dict[Callable[[Path], Iterator[str]], list[Path]] = {
    long_file: [*PRODUCTION, *TESTS],
    missing_docstring: [*PRODUCTION, *TESTS],
    left_undone: [*PRODUCTION, *TESTS],
    long_functions: PRODUCTION,
    iterated_sets: PRODUCTION,
    uses_of_the_outside: PRODUCTION,
}
"""What is asked of every file, and of which."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps(rule: Callable[[Path], Iterator[str]]) -> None:
    found = [f"{relative(path)}: {what}" for path in RULES[rule] for what in rule(path)]
    assert not found, "\n".join(["", *found])


def test_few_files_are_long() -> None:
    counts = sorted(len(read(path).splitlines()) for path in PRODUCTION)
    assert counts[len(counts) * 9 // 10] < FILE_LINES_P90_MAX


def test_folder_names_say_something() -> None:
    vague = {"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"}
    found = [relative(path) for path in PRODUCTION if vague & {*path.parts, path.stem}]
    assert found == []


def test_package_inits_hold_no_logic() -> None:
    for path in PRODUCTION:
        if path.name == "__init__.py":
            kinds = {type(node) for node in parse(path).body}
            assert kinds <= {ast.Expr, ast.ImportFrom, ast.Import, ast.Assign, ast.AnnAssign}, path


def test_every_program_has_its_documents() -> None:
    documents = (
        "client/ledger/PROTOCOL.md",
        "bookie/FORMAT.md",
        "broker/TAKEOVER.md",
        "ops/README.md",
    )
    assert [name for name in documents if not (ROOT / name).is_file()] == []


KNOWN_FAILURES = {
    "recovery and fencing": "2614 2615 2612 1067 2273 3952 2908 BOOKKEEPER-135 BOOKKEEPER-500 4462"
    " 4701 4812 4843 BOOKKEEPER-584 1712",
    "the writer": "4651 4660 4097 4194 1591 1592 1886 3005 3041 1857 4459 4261 4171 4175 4557 2006"
    " 1967 4680 4788 4404 4289 4293 4789",
    "storage": "3329 4105 4740 4844 867 1534 1536 4040 4041 4607 BOOKKEEPER-530 1254 2087 2305 544"
    " 3306 4640 4525 4544",
    "metadata": "865 875 870 876 4731 4668 3466 4613",
    "auto recovery": "BOOKKEEPER-742 3220 3239 3783 4163 3817 2855 4419 3887 3905 3917 4490 4872",
}
"""Issues of Apache BookKeeper that its history teaches; each needs a row."""


def test_the_table_of_known_failures_is_complete() -> None:
    text = (ROOT / "tests/README.md").read_text(encoding="utf-8")
    rows = [row.split(" | ")[0] for row in text.splitlines() if row.startswith("| ")]
    found = {word for row in rows for word in re.findall(r"[\w-]+", row)}
    wanted = {word for words in KNOWN_FAILURES.values() for word in words.split()}
    assert wanted - found == set()
    assert {str(number) for number in range(1, 18)} <= found


def missing_tests(rows: Iterator[str], file: str, folders: tuple[str, ...]) -> list[str]:
    """Return what rows name in their last column and is not there: files, and tests after them."""
    missing: list[str] = []
    for row in rows:
        source = ""
        for quoted in re.findall(r"`([\w./]+)`", row.rpartition(" | ")[2]):
            if quoted.endswith(".py"):
                file = quoted
            paths = [ROOT / "tests" / folder / file for folder in folders]
            source = next(
                (path.read_text(encoding="utf-8") for path in paths if path.is_file()), ""
            )
            if quoted.endswith(".py"):
                missing += [] if source else [file]
            elif quoted.startswith("test_") and f"def {quoted.removesuffix('...')}" not in source:
                missing.append(f"{file} {quoted}")
    return missing


def test_the_table_of_hostile_input_names_tests_that_exist() -> None:
    text = (ROOT / "tests/hostile/README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert missing_tests(iter(rows), "", ("hostile", "")) == []
    assert [row for row in rows if "`test_" not in row] == []
    named = set(re.findall(r"`(test_\w+)`", text))
    ours = {
        function.name
        for path in (ROOT / "tests/hostile").glob("test_*.py")
        for function in functions(parse(path))
        if function.name.startswith("test_")
    }
    assert ours - named <= HOSTILE_RULES, "a test without a row"


HOSTILE_RULES = {
    "test_each_defence_stands_where_its_row_says",
    "test_each_defence_has_tests_that_exist_and_failed",
    "test_the_page_is_made_of_the_table",
    "test_a_stream_of_frames_is_never_overdue",
    "test_who_was_not_read_is_not_to_blame",
    "test_the_oldest_of_the_large_ones_goes_first",
    "test_a_slow_answer_is_no_silence",
    "test_the_good_ones_are_read",
}
"""Tests of how the limits are kept, and that they do not strike the wrong ones."""


def test_the_table_of_known_failures_names_tests_that_exist() -> None:
    """`tests/README.md`: in each row a file, or the section's, and tests of it after it."""
    text = (ROOT / "tests/README.md").read_text(encoding="utf-8")
    missing: list[str] = []
    for section in text.split("\n### ")[1:]:
        named = re.search(r"All in `([\w/]+\.py)`", section)
        rows = [line for line in section.splitlines() if line.startswith("| ")]
        for row in rows:
            missing += missing_tests(iter([row]), named.group(1) if named else "", ("",))
    assert missing == []


TESTED_TOGETHER = {
    "apis": "test_codec",
    "coordinator_types": "test_shard",
    "decoder": "test_codec",
    "encoder": "test_codec",
    "group_members": "test_group_states",
    "group_table": "test_group_shard",
    "group_types": "test_group",
    "offset_requests": "test_group_shard",
    "requests": "test_fetch_client",
    "segment": "test_segments",
    "shapes": "test_codec",
    "transaction_table": "test_transaction_shard",
}
"""Modules that are halves of something, and the test file of the whole."""


def test_every_core_wire_and_log_module_has_a_test_file() -> None:
    """Of its own name, in the folder that mirrors its own; what only declares needs none."""
    rules = {
        path: f"test_{path.stem}"
        for path in PRODUCTION
        if {"core", "wire", "log"} & {*path.relative_to(ROOT).parts} and any(functions(parse(path)))
    }
    assert len(rules) > 100, "the rule finds no modules"
    missing = [
        relative(path)
        for path, own in rules.items()
        if not any(
            (ROOT / "tests/unit" / path.parent.relative_to(ROOT) / f"{name}.py").is_file()
            for name in (own, TESTED_TOGETHER.get(path.stem, own))
        )
    ]
    assert missing == [], "write its test file, or name the one that tests it"
    assert TESTED_TOGETHER.keys() <= {path.stem for path in rules}


def starts_a_process() -> dict[str, Callable[[], object]]:
    return {
        "subprocess": lambda: subprocess.run(["true"], check=True),
        "asyncio": lambda: asyncio.run(asyncio.create_subprocess_exec("true")),
        "multiprocessing": lambda: multiprocessing.get_context("spawn").Process().start(),
        "fork": os.fork,
        "posix_spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "system": lambda: os.system("true"),
    }


@pytest.mark.parametrize("way", starts_a_process())
def test_unit_tests_start_no_processes(way: str) -> None:
    """`tests/unit/conftest.py` sees to it."""
    with pytest.raises(pytest.fail.Exception, match="move it to tests/integration"):
        starts_a_process()[way]()
