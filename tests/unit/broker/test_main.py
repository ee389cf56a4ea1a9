"""`python -m broker`: exit codes, one sentence for each failure, and a graceful end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from typing import Any

import pytest

from broker import __main__ as program
from client.histogram import Histogram
from client.ids import BookieId
from client.metadata import paths
from client.metadata.memory import MemoryCluster, MemoryStore
from tests.fakes.ledgers import FakeLedgerClient, FakeLedgers


class Store(MemoryStore):
    """A session that is opened by `start`, as ZooKeeper's is."""

    request_seconds = Histogram()

    async def start(self) -> None:
        for number in range(3):
            await self.create(paths.cookie(BookieId(f"b{number}")), make_parents=True)


class Ledgers(FakeLedgerClient):
    """The fake with the life of the real client."""

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put fakes in the place of ZooKeeper and the bookies."""

    def store(hosts: object, session_timeout_ms: int, **_: Any) -> Store:
        tree = MemoryCluster()
        made = tree.session()
        made.__class__ = Store
        return made  # type: ignore[return-value]

    def ledgers(store: object, **_: Any) -> Ledgers:
        return Ledgers(FakeLedgers(), "broker")

    monkeypatch.setattr(program, "ZooKeeperStore", store)
    monkeypatch.setattr(program, "LedgerClient", ledgers)
    # The runner's loop must be one that the fakes can be made in.
    monkeypatch.setattr(program.uvloop, "run", asyncio.run)


def run(monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    monkeypatch.setattr("sys.argv", ["broker", *flags])
    return program.main()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--port", "x"], "--port must be a whole number"),
        (["--no-such-flag"], "unknown flag --no-such-flag"),
        (["--default-min-insync-replicas", "9"], "default_min_insync_replicas exceeds"),
        (["--config", "/no/such/file"], "cannot read /no/such/file"),
    ],
)
def test_bad_settings_are_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    flags: list[str],
    reason: str,
) -> None:
    assert run(monkeypatch, *flags) == 2
    (line,) = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.startswith("broker.cannot_start")
    assert reason in line


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_gracefully(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: signal.Signals
) -> None:
    class SendsSignal(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("broker.serving"):
                os.kill(os.getpid(), number)

    handler = SendsSignal()
    caplog.set_level(logging.INFO)
    logging.getLogger("broker.app").addHandler(handler)
    try:
        assert run(monkeypatch, "--port", "0") == 0
    finally:
        logging.getLogger("broker.app").removeHandler(handler)
    assert any(record.message.startswith("broker.closed") for record in caplog.records)


@pytest.mark.usefixtures("surroundings")
def test_a_taken_port_is_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(monkeypatch, "--port", str(port), "--admin-port", "-1") == 2
    (line,) = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert "address already in use" in line
    assert str(port) in line


def test_a_failed_background_task_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(program.os, "_exit", codes.append)
    loop = asyncio.new_event_loop()
    program._on_exception(loop, {"message": "a callback failed", "exception": ValueError("x")})
    assert codes == []
    program._on_exception(
        loop, {"message": "a task failed", "exception": ValueError("x"), "fatal": True}
    )
    assert codes == [1]
    assert len([record for record in caplog.records if "broker.bug" in record.message]) == 2
    loop.close()
