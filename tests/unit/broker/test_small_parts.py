"""Deadlines, the read budget, background tasks, settings and config resources."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from bookie.config import BookieConfig
from broker.config import BrokerConfig, TelemetrySettings
from broker.front.config_listing import broker_settings
from broker.front.deadlines import Deadlines
from broker.front.endpoints import endpoints_of
from broker.front.read_budget import ReadBudget
from broker.partition.core.log_limits import LogLimits
from broker.security.config import SecurityConfig
from broker.settings.live_settings import LiveSettings
from broker.transactions.config import TransactionSettings
from client.errors import ConfigError
from client.ledger.config import LedgerClientConfig
from client.metadata.memory import MemoryCluster
from client.node import background


class TestDeadlines:
    """Coarse timeouts on one timer."""

    async def test_they_come_after_their_time_unless_cancelled(self) -> None:
        deadlines = Deadlines()
        came: list[str] = []
        deadlines.after(1_000, lambda: came.append("much later"))
        deadlines.after(0, lambda: came.append("now"))
        ticket = deadlines.after(0, lambda: came.append("cancelled"))
        deadlines.cancel(ticket)
        deadlines.cancel(ticket)
        deadlines._look()
        assert came == ["now"]
        assert len(deadlines) == 1
        assert deadlines._timer is not None
        deadlines.close()

    async def test_the_timer_runs_only_while_something_waits(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("broker.front.deadlines.INTERVAL_S", 0.001)
        deadlines = Deadlines()
        assert deadlines._timer is None
        came = asyncio.Event()
        deadlines.after(0, came.set)
        async with asyncio.timeout(10):
            await came.wait()
        assert deadlines._timer is None

    async def test_one_may_cancel_another_of_the_same_round(self) -> None:
        deadlines = Deadlines()
        came: list[str] = []
        tickets: list[int] = []
        deadlines.after(0, lambda: deadlines.cancel(tickets[0]))
        tickets.append(deadlines.after(0, lambda: came.append("x")))
        deadlines._look()
        assert came == []

    async def test_one_that_raises_takes_no_other_along(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("broker.front.deadlines.INTERVAL_S", 0.001)
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        deadlines = Deadlines()
        came = asyncio.Event()

        def fail() -> None:
            raise ZeroDivisionError

        deadlines.after(0, fail)
        deadlines.after(0, came.set)
        async with asyncio.timeout(10):
            await came.wait()
        assert isinstance(told[0]["exception"], ZeroDivisionError)
        assert deadlines._timer is None

    async def test_closing_forgets_all(self) -> None:
        deadlines = Deadlines()
        deadlines.after(0, pytest.fail)
        deadlines.close()
        assert len(deadlines) == 0
        assert deadlines._timer is None


class TestReadBudget:
    """Bytes of answers that are read from bookies."""

    def test_it_is_taken_and_given_back(self) -> None:
        budget = ReadBudget(10)
        assert budget.take(6)
        assert not budget.take(5)
        budget.keep(6, 2)
        assert budget.taken == 2
        budget.give(2)
        assert budget.take(11), "who is alone may have more than there is"
        budget.give(11)
        with pytest.raises(AssertionError):
            budget.give(1)

    async def test_who_waits_is_served_in_order_and_never_overtaken(self) -> None:
        budget = ReadBudget(10)
        assert budget.take(8)
        large = asyncio.create_task(budget.acquire(9))
        small = asyncio.create_task(budget.acquire(1))
        await asyncio.sleep(0)
        assert not budget.take(1), "a large one would wait for ever"
        budget.give(4)
        await asyncio.sleep(0)
        assert not large.done()
        assert not small.done()
        budget.give(4)
        await asyncio.gather(large, small)
        assert budget.taken == 10

    async def test_who_waits_no_longer_takes_nothing(self) -> None:
        budget = ReadBudget(10)
        assert budget.take(8)
        gone, other = (asyncio.create_task(budget.acquire(size)) for size in (9, 2))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone, other])
        assert budget.taken == 10
        late = asyncio.create_task(budget.acquire(5))
        await asyncio.sleep(0)
        budget.give(10)
        late.cancel()
        await asyncio.wait([late])
        assert budget.taken == 0, "it had them already"

    async def test_bytes_that_come_back_while_the_first_in_line_goes_away_are_not_lost(
        self,
    ) -> None:
        budget = ReadBudget(10)
        assert budget.take(8)
        gone, other = (asyncio.create_task(budget.acquire(size)) for size in (9, 2))
        await asyncio.sleep(0)
        gone.cancel()
        budget.give(8)  # before `gone` has run
        await asyncio.wait([gone, other], timeout=1)
        assert gone.cancelled()
        assert other.done()
        assert budget.taken == 2


class TestBackground:
    """Tasks that must not end by themselves."""

    async def test_a_failure_reaches_the_loops_handler(self) -> None:
        told: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))

        async def fail() -> None:
            raise ZeroDivisionError

        task = background.run(fail(), "eyes")
        await asyncio.wait([task])
        await background.stop(task)
        (context,) = told
        assert context["fatal"]
        assert "eyes" in context["message"]
        loop.set_exception_handler(None)

    async def test_being_stopped_is_no_failure(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: pytest.fail("told"))
        await background.stop(background.run(asyncio.sleep(60), "sleeper"))
        await background.stop(None)
        await asyncio.sleep(0)
        asyncio.get_running_loop().set_exception_handler(None)


@pytest.mark.parametrize(
    "settings",
    [
        {"node_id": -1},
        {"port": 70_000},
        {"zookeeper": ()},
        {"control_request_bytes_max": 200 << 20},
        {"default_min_insync_replicas": 4},
        {"default_ensemble_size": 2},
        {"group_session_timeout_min_ms": 2_000_000},
        {"log_in_flight_bytes_max": 1 << 20},
        {"in_flight_bytes_max": 1 << 20},
        {"in_flight_bytes_max": 100 << 20},
        {
            "ledger": LedgerClientConfig(
                writer_in_flight_bytes_max=65 << 20, writer_unanswered_bytes_max=65 << 20
            )
        },
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        dataclasses.replace(BrokerConfig(), **settings)


def test_a_limit_that_would_never_fill_the_one_below_it_is_named() -> None:
    wanted = (
        r"^ledger.writer_in_flight_bytes_max \(16777216\) is larger than log_in_flight_bytes_max"
    )
    with pytest.raises(ConfigError, match=wanted):
        BrokerConfig(log_in_flight_bytes_max=1 << 20)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"partition_hold_bytes_max": 2 << 30}, "partition_hold_bytes_max (2147483648)"),
        ({"connection_in_flight_bytes_max": 2 << 30}, "connection_in_flight_bytes_max"),
        (
            {"transactions": TransactionSettings(held_bytes_max=2 << 30)},
            "transactions.held_bytes_max (2147483648) is larger than in_flight_bytes_max",
        ),
        ({"unfinished_bytes_max": 1 << 20}, "request_bytes_max"),
        ({"unread_bytes_max": 1 << 20}, "fetch_bytes_max"),
        (
            {
                "unread_bytes_max": 1 << 20,
                "fetch_bytes_max": 1024,
                "send_buffer_bytes_max": 2 << 20,
            },
            "send_buffer_bytes_max (2097152) is larger than unread_bytes_max (1048576)",
        ),
        ({"read_ahead_bytes_max": 1 << 20}, "read_ahead_reader_bytes_max"),
        (
            {"telemetry": TelemetrySettings(series_max=10)},
            "telemetry.client_series_max (1000) is larger than telemetry.series_max (10)",
        ),
        (
            {"control_request_bytes_max": 1024},
            "telemetry.push_bytes_max (1048576) is larger than control_request_bytes_max",
        ),
        (
            {"security": SecurityConfig(sasl_login_bytes_max=200 << 20)},
            "security.sasl_login_bytes_max",
        ),
        (
            {"ledger": LedgerClientConfig(frame_bytes_max=1 << 20)},
            "ledger.frame_bytes_max (1048576) is too small",
        ),
    ],
)
def test_what_one_may_have_is_at_most_what_all_may_have(
    settings: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(wanted)):
        BrokerConfig(**settings)


def test_nothing_at_all_is_no_contradiction() -> None:
    assert BrokerConfig(read_ahead_bytes_max=0, telemetry=TelemetrySettings(series_max=0))


def test_speculation_that_would_begin_after_its_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="speculative_read_ms"):
        LedgerClientConfig(speculative_read_ms=5_000)


@pytest.mark.parametrize("name", ["frame_bytes_max", "unsent_bytes_max"])
def test_what_a_bookies_client_may_leave_unread_holds_one_answer(name: str) -> None:
    limits = {"unread_bytes_max": 1 << 20, "frame_bytes_max": 1 << 20, "unsent_bytes_max": 1 << 20}
    assert BookieConfig(data_dir=Path("data"), **limits)
    with pytest.raises(ConfigError, match=f"unread_bytes_max is smaller than {name}"):
        BookieConfig(data_dir=Path("data"), **{**limits, name: 2 << 20})


def test_the_registered_host() -> None:
    def registered_host(config: BrokerConfig) -> str:
        return endpoints_of(config, {"PLAINTEXT": 9092})["PLAINTEXT"].host

    assert registered_host(BrokerConfig()) == "127.0.0.1"
    anywhere = BrokerConfig(listen_host="0.0.0.0", hostname="box")
    assert registered_host(anywhere) == "box"
    assert registered_host(dataclasses.replace(anywhere, hostname=None)) == "127.0.0.1"
    assert registered_host(dataclasses.replace(anywhere, advertised_host="a")) == "a"


def test_broker_settings_have_each_name_once() -> None:
    names = [
        row.name
        for row in broker_settings(
            LiveSettings(MemoryCluster().session(), BrokerConfig()),
            endpoints_of(BrokerConfig(), {"PLAINTEXT": 9092}),
        )
    ]
    assert names == sorted(dict.fromkeys(names))


def test_the_limits_of_shared_entries_and_snapshots_are_settings() -> None:
    limits = BrokerConfig(
        log_shared_entry_bytes_max=1_000,
        log_shared_entry_batches_max=7,
        log_snapshot_interval_bytes=100_000,
        log_snapshot_interval_entries=9,
        log_segment_page_entries=11,
    ).log_limits()
    assert (limits.shared_entry_bytes_max, limits.shared_entry_batches_max) == (1_000, 7)
    assert (limits.snapshot_interval_bytes, limits.snapshot_interval_entries) == (100_000, 9)
    assert limits.segment_page_entries == 11


def test_the_limits_of_open_transactions_are_settings() -> None:
    settings = TransactionSettings(open_max=7, held_bytes_max=2_000_000)
    limits = BrokerConfig(transactions=settings).log_limits()
    assert (limits.open_transactions_max, limits.held_bytes_max) == (7, 2_000_000)


def test_settings_left_alone_are_what_partition_logs_have_by_themselves() -> None:
    assert BrokerConfig().log_limits() == LogLimits()
