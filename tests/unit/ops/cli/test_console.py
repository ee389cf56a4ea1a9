"""The command line's manners: one sentence per error, exit codes, tables in pipes."""

from __future__ import annotations

import asyncio

import pytest

from client.errors import QuireError
from client.pubsub.errors import BrokerUnreachable
from ops.cli import console


def _exit_code(error: BaseException) -> int:
    async def work() -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        console.run(work())
    return int(str(caught.value.code))


def test_an_error_is_one_sentence_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(QuireError("it broke")) == 1
    assert capsys.readouterr().err == "quire: It broke.\n"


def test_an_error_says_what_to_do_where_we_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(BrokerUnreachable("nothing listens at h:1")) == 1
    assert capsys.readouterr().err.startswith(
        "quire: Nothing listens at h:1. Start a cluster with `quire up`"
    )


def test_ctrl_c_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "")


def test_success_leaves_no_exit() -> None:
    console.run(asyncio.sleep(0))


def test_tables_in_pipes_are_aligned_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(["NAME", "N"], [["a" * 200, 5], ["b", None], ["c", 1234]])
    assert capsys.readouterr().out.splitlines() == [
        "NAME" + " " * 196 + "     N",
        "a" * 200 + "     5",
        "b" + " " * 199 + "     -",
        "c" + " " * 199 + "  1234",
    ]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 records"), (1, "1 record"), (1234, "1,234 records")]
)
def test_counts(number: int, text: str) -> None:
    assert console.count(number, "record") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (3210, "3.2 kB"), (5 * 10**13, "50.0 TB")],
)
def test_sizes(number: int, text: str) -> None:
    assert console.size(number) == text
