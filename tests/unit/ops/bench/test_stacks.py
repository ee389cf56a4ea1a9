"""Shares of functions and modules, from stacks as py-spy records them."""

import pytest

from ops.bench.stacks import ROOT, Function, function_of, limits_table, markdown, module_of, shares

MAIN = f"main ({ROOT}/broker/__main__.py:10)"
WORK = f"work ({ROOT}/broker/partition/partition.py:20)"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (f"{ROOT}/client/log/segments.py", "client/log/segments.py"),
        ("/usr/lib/python3.11/asyncio/events.py", "python: asyncio/events"),
        (f"{ROOT}/.venv/lib/python3.11/site-packages/kazoo/client.py", "kazoo"),
        (f"{ROOT}/.venv/lib/python3.11/site-packages/crc32c.py", "crc32c"),
        ("uvloop/loop.pyx", "loop.pyx"),
        ("/somewhere/else.py", "else.py"),
    ],
)
def test_files_are_named_as_people_know_them(file: str, expected: str) -> None:
    assert module_of(file) == expected


def test_frames_with_brackets_in_the_name_and_frames_without_a_file() -> None:
    assert function_of("<listcomp> (/x/a.py:3)") == Function("<listcomp>", "a.py")
    assert function_of("f (g) (/x/a.py:3)") == Function("f (g)", "a.py")
    assert function_of("memcpy") == Function("memcpy", "native")


def test_samples_count_to_the_innermost_itself_and_to_all_with_callees() -> None:
    found = shares([f"{MAIN};{WORK} 3\n", f"{MAIN} 1\n", "\n"])
    work, main = (
        Function("work", "broker/partition/partition.py"),
        Function("main", "broker/__main__.py"),
    )
    assert found.samples == 4
    assert found.itself == [(work, 0.75), (main, 0.25)]
    assert found.with_callees == [(main, 1.0), (work, 0.75)]
    assert found.modules == [("broker/partition/partition.py", 0.75), ("broker/__main__.py", 0.25)]


def test_recursion_counts_a_sample_once() -> None:
    assert shares([f"{WORK};{WORK} 2"]).with_callees[0][1] == 1.0


def test_no_samples_are_an_empty_table() -> None:
    assert markdown(shares([]), 5).count("\n") == 2


def test_the_table_has_three_lists_side_by_side() -> None:
    lines = markdown(shares([f"{MAIN};{WORK} 3", f"{MAIN} 1"]), 1).splitlines()
    assert lines[2:] == [
        "| broker/partition/partition.py | 75.0% | `work` broker/partition/partition.py | 75.0%"
        " | `main` broker/__main__.py | 100.0% |"
    ]


def test_limits_are_rounded() -> None:
    assert "| a | 0.123 |\n| b | 1,234 |\n" in limits_table({"a": 0.12345, "b": 1234.4})
