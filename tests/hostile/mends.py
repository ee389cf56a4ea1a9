"""What D1 to D10 were mended by, rule by rule, and the tests that fail without it.

    python -m tests.hostile.mends [D1 ...]     tries those, or all: some minutes
    python -m tests.hostile.mends --page       prints the table of `MENDS.md`

A trial takes one rule out, and nothing else, in a process of its own: the code of the functions of
that file is exchanged for what stands there without the rule, in all places that use it. Then the
tests that defend it run there, and each of them has to fail. `test_mends.py` holds the table to the
sources, so a rule that is written in another way gets its row again.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent.parent
HANDLERS: Final = "tests/unit/broker/front/handlers/"
LEDGER: Final = "tests/unit/client/ledger/"
_TEST_S_MAX: Final = 120
"""A test that hangs without its rule has failed, too."""


class Change(NamedTuple):
    """A place in the sources, which is there once, and what stands there without the rule."""

    file: str
    text: str
    without: str


class Mend(NamedTuple):
    """One rule."""

    defect: str
    rule: str
    without: str
    """What is changed, for people."""
    changes: tuple[Change, ...]
    tests: tuple[str, ...]
    seen: str
    """What failed when it was tried."""


def mended(defect: str, rule: str, without: str, change: Change, *tests: str, seen: str) -> Mend:
    """Return a rule that stands in one place."""
    return Mend(defect, rule, without, (change,), tests, seen)


def all_mends() -> tuple[Mend, ...]:
    """Return the whole table, by defect."""
    from tests.hostile import mends_of_flow, mends_of_requests, mends_of_tasks

    found = (*mends_of_flow.MENDS, *mends_of_requests.MENDS, *mends_of_tasks.MENDS)
    return tuple(sorted(found, key=lambda mend: int(mend.defect[1:])))


def take_out(changes: tuple[Change, ...]) -> None:
    """Let this process run without a rule."""
    texts: dict[str, str] = {}
    for file, text, without in changes:
        before = texts.get(file) or (ROOT / file).read_text(encoding="utf-8")
        assert before.count(text) == 1, (file, text)
        texts[file] = before.replace(text, without)
    for file, source in texts.items():
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        codes = dict(_codes(compile(source, str(ROOT / file), "exec"), ""))
        for name, function in _functions(vars(module), module.__name__):
            if name in codes:
                function.__code__ = codes[name]


def _codes(code: CodeType, prefix: str) -> Iterator[tuple[str, CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each.co_qualname, each
            yield from _codes(each, prefix)


def _functions(names: dict[str, Any], module: str) -> Iterator[tuple[str, FunctionType]]:
    for each in list(names.values()):
        if isinstance(each, property):
            each = each.fget
        each = getattr(each, "__func__", getattr(each, "__wrapped__", each))
        if isinstance(each, FunctionType) and each.__module__ == module:
            yield each.__qualname__, each
        elif isinstance(each, type) and each.__module__ == module:
            yield from _functions(dict(vars(each)), module)


class _Outcomes:
    """A plugin of pytest that keeps what became of each test."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = str(crash.message if crash is not None else report.longrepr)
            self.failed.setdefault(report.nodeid.partition("[")[0], " ".join(text.split())[:110])


def try_one(mend: Mend) -> tuple[list[str], list[str]]:
    """Take a rule out of this process; return the tests that passed, and what the others said."""
    take_out(mend.changes)
    outcomes, said = _Outcomes(), io.StringIO()
    with contextlib.redirect_stdout(said):
        pytest.main(
            ["-q", "-p", "no:cacheprovider", f"--timeout={_TEST_S_MAX}", *mend.tests],
            plugins=[outcomes],
        )
    failed = outcomes.failed
    passed = [test for test in mend.tests if test not in failed]
    return passed, [failed[test] for test in mend.tests if test in failed]


def page() -> str:
    """Return the table of `MENDS.md`."""
    rows = ["| | rule | taken out | test | what failed |", "|---|---|---|---|---|"]
    for mend in all_mends():
        tests: dict[str, list[str]] = {}
        for test in mend.tests:
            file, _, name = test.removeprefix("tests/").partition("::")
            tests.setdefault(file, []).append(f"`{name.rpartition('::')[2]}`")
        named = "; ".join(f"`{file}` {', '.join(names)}" for file, names in tests.items())
        files = ", ".join(dict.fromkeys(f"`{change.file}`" for change in mend.changes))
        rows.append(
            f"| {mend.defect} | {mend.rule} | {files}: {mend.without} | {named} | {mend.seen} |"
        )
    return "\n".join(rows)


def main() -> int:
    """Try those that the command line names, or show the page."""
    words = sys.argv[1:]
    if words == ["--page"]:
        print(page())
        return 0
    chosen = [one for one in all_mends() if not words or one.defect in words]
    for change in (change for mend in chosen for change in mend.changes):
        importlib.import_module(change.file.removesuffix(".py").replace("/", "."))
    is_whole = True
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for mend, (passed, reasons) in zip(chosen, pool.imap(try_one, chosen), strict=True):
            is_whole = is_whole and not passed
            outcome = f"NOT FOUND by {', '.join(passed)}" if passed else "; ".join(reasons)
            print(f"{mend.defect}\t{mend.rule}\t{outcome}", flush=True)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
