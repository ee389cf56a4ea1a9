"""The defences against D1 to D10: one rule each, and the tests that fail without it.

    python -m tests.hostile.defences [D1 ...]     tries those, or all: some minutes
    python -m tests.hostile.defences --page       prints the table of `DEFENCES.md`

A trial takes out one rule, and nothing else, in a process of its own: the code of the functions of
that file is replaced with what stands there without the rule, wherever it is used. Then the tests
that defend the rule run, and each of them has to fail. `test_defences.py` checks the table against
the sources, so the row of a rule that is rewritten has to be rewritten, too.
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


class Defence(NamedTuple):
    """One rule."""

    defect: str
    rule: str
    without: str
    """What is changed, for people."""
    changes: tuple[Change, ...]
    tests: tuple[str, ...]
    seen: str
    """What failed when it was tried."""


def defence(
    defect: str, rule: str, without: str, change: Change, *tests: str, seen: str
) -> Defence:
    """Return a rule that stands in one place."""
    return Defence(defect, rule, without, (change,), tests, seen)


def all_defences() -> tuple[Defence, ...]:
    """Return the whole table, by defect."""
    from tests.hostile import defences_of_flow, defences_of_requests, defences_of_tasks

    found = (
        *defences_of_flow.DEFENCES,
        *defences_of_requests.DEFENCES,
        *defences_of_tasks.DEFENCES,
    )
    return tuple(sorted(found, key=lambda each: int(each.defect[1:])))


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


def try_one(tried: Defence) -> tuple[list[str], list[str]]:
    """Take a rule out of this process; return the tests that passed, and what the others said."""
    take_out(tried.changes)
    outcomes, said = _Outcomes(), io.StringIO()
    with contextlib.redirect_stdout(said):
        pytest.main(
            ["-q", "-p", "no:cacheprovider", f"--timeout={_TEST_S_MAX}", *tried.tests],
            plugins=[outcomes],
        )
    failed = outcomes.failed
    passed = [test for test in tried.tests if test not in failed]
    return passed, [failed[test] for test in tried.tests if test in failed]


def page() -> str:
    """Return the table of `DEFENCES.md`."""
    rows = ["| | rule | taken out | test | what failed |", "|---|---|---|---|---|"]
    for each in all_defences():
        tests: dict[str, list[str]] = {}
        for test in each.tests:
            file, _, name = test.removeprefix("tests/").partition("::")
            tests.setdefault(file, []).append(f"`{name.rpartition('::')[2]}`")
        named = "; ".join(f"`{file}` {', '.join(names)}" for file, names in tests.items())
        files = ", ".join(dict.fromkeys(f"`{change.file}`" for change in each.changes))
        rows.append(
            f"| {each.defect} | {each.rule} | {files}: {each.without} | {named} | {each.seen} |"
        )
    return "\n".join(rows)


def main() -> int:
    """Try those that the command line names, or show the page."""
    words = sys.argv[1:]
    if words == ["--page"]:
        print(page())
        return 0
    chosen = [one for one in all_defences() if not words or one.defect in words]
    for change in (change for each in chosen for change in each.changes):
        importlib.import_module(change.file.removesuffix(".py").replace("/", "."))
    is_whole = True
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for each, (passed, reasons) in zip(chosen, pool.imap(try_one, chosen), strict=True):
            is_whole = is_whole and not passed
            outcome = f"NOT FOUND by {', '.join(passed)}" if passed else "; ".join(reasons)
            print(f"{each.defect}\t{each.rule}\t{outcome}", flush=True)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
