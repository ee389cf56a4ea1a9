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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("there is no topic t", "There is no topic t."),
        ("timeout", "Timeout."),
        ("localhost:9092: refused", "localhost:9092: refused."),
        ("admin_tls_cert needs a key", "admin_tls_cert needs a key."),
        ("/data is full!", "/data is full!"),
    ],
)
def test_a_sentence_begins_with_a_capital_unless_it_is_a_name(text: str, shown: str) -> None:
    assert console.sentence(QuireError(text)) == shown


def test_ctrl_c_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "")


def test_success_leaves_no_exit(capsys: pytest.CaptureFixture[str]) -> None:
    console.run(asyncio.sleep(0))
    assert capsys.readouterr() == ("", "")


def test_tables_in_pipes_are_aligned_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(["NAME", "N"], [["a" * 200, 5], ["b", None], ["c", 1234]])
    assert capsys.readouterr().out.splitlines() == [
        "NAME" + " " * 196 + "     N",
        "a" * 200 + "     5",
        "b" + " " * 199 + "     -",
        "c" + " " * 199 + "  1234",
    ]
