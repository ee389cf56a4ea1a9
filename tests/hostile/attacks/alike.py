"""Attacks on a broker of the same kind as D1 to D10, which nobody had listed."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Codec, compress
from tests.fakes.wire_client import WireClient
from tests.hostile.attacks.target import Attack, Target, until
from tests.hostile.costly_admin import ALL
from tests.hostile.stalls import prepare, send
from tests.integration.memory_crowd import crowd

_WIDE: Final = 200
_SESSIONS: Final = 600
_PARTITIONS: Final = 1_000
_IDS: Final = 1_500
_PIPELINED: Final = 100


async def everything(target: Target) -> str:
    """Each request of `costly.py` and `costly_admin.py`."""
    await prepare(target.port, time.time_ns() // 1_000_000)
    for attack in ALL:
        _, was_closed = await send(target.port, attack.frames(time.time_ns() // 1_000_000))
        assert attack.may_close or not was_closed, attack.name
    return f"{len(ALL)} attacks"


async def wide_sessions(target: Target) -> str:
    """Fetch sessions of many partitions, more of them than fit, of which none is closed."""
    await target.create("wide", partitions=_WIDE)
    client = await target.connect()
    rows = [
        {"partition": at, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1}
        for at in range(_WIDE)
    ]
    for _ in range(_SESSIONS):
        answer = await client.call(
            ApiKey.FETCH, 12, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1,
            isolation_level=0, session_id=0, session_epoch=0, forgotten_topics_data=[],
            rack_id="", topics=[{"topic": "wide", "partitions": rows}],
        )  # fmt: skip
        assert answer.error_code is ErrorCode.none
    held = (await asyncio.to_thread(target.metrics))["quire_broker_fetch_session_partitions"]
    await client.close()
    assert held <= 100_000, held
    return f"{_SESSIONS * _WIDE} partitions asked for, {held:.0f} remembered"


async def many_partitions(target: Target) -> str:
    """One client makes a thousand partitions."""
    await target.create("many", partitions=_PARTITIONS)
    return f"{_PARTITIONS} partitions"


async def joins(target: Target) -> str:
    """A thousand members join ten groups again and again, and vanish."""
    client = await target.connect()
    fields: dict[str, Any] = {
        "session_timeout": 10_000, "rebalance_timeout": 1_000, "member_id": "",
        "group_instance_id": None, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(1_000)}],
    }  # fmt: skip
    for _ in range(5):
        says = [
            client.frame(ApiKey.JOIN_GROUP, 5, {**fields, "group_id": f"storm-{at % 10}"})
            for at in range(1_000)
        ]
        async with crowd(says, target.port, 1_000):
            await asyncio.sleep(0.5)
    await client.close()
    return "5,000 joins of 10 groups"


async def left_transactions(target: Target) -> str:
    """Many transactional ids, each with a transaction that is opened and left, until all of them
    have run out of time."""
    await target.create("left", partitions=10)
    client = await target.connect()
    await _coordinated(client)
    made = await _pipelined(client, [
        (ApiKey.INIT_PRODUCER_ID, 1, {
            "transactional_id": f"left-{at}", "transaction_timeout": 10_000})
        for at in range(_IDS)
    ])  # fmt: skip
    assert {one.error_code for one in made} == {ErrorCode.none}
    added = await _pipelined(client, [
        (ApiKey.ADD_PARTITIONS_TO_TXN, 1, {
            "v3_and_below_transactional_id": f"left-{at}",
            "v3_and_below_producer_id": one.producer_id,
            "v3_and_below_producer_epoch": one.producer_epoch,
            "v3_and_below_topics": [{"name": "left", "partitions": list(range(10))}]})
        for at, one in enumerate(made)
    ])  # fmt: skip
    rows = [row for one in added for row in one.results_by_topic_v3_and_below]
    assert {each.partition_error_code for row in rows for each in row.results_by_partition} == {
        ErrorCode.none
    }
    await client.close()

    async def are_over() -> bool:
        found = await asyncio.to_thread(target.metrics)
        over = found.get('quire_transaction_events_total{kind="timed_out"}', 0.0)
        return over >= _IDS and not found["quire_transaction_markers"]

    await until(are_over, 120)
    return f"{_IDS} transactions of 10 partitions, all of which ran out of time"


async def _coordinated(client: WireClient) -> None:
    """Wait until transactional ids have a coordinator."""
    async with asyncio.timeout(60):
        while True:
            found = await client.call(
                ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["left-0"]
            )
            made = await client.call(
                ApiKey.INIT_PRODUCER_ID, 1, transactional_id="left-0", transaction_timeout=60_000
            )
            if found.coordinators[0].error_code is made.error_code is ErrorCode.none:
                return
            await asyncio.sleep(0.1)


async def _pipelined(client: WireClient, requests: list[tuple[int, int, dict[str, Any]]]) -> Any:
    answers = []
    for at in range(0, len(requests), _PIPELINED):
        some = requests[at : at + _PIPELINED]
        for key, version, fields in some:
            client.send(key, version, **fields)
        answers += [await client.receive(60) for _ in some]
    return answers


async def patterns(target: Target) -> str:
    """Regular expressions that take for ever elsewhere."""
    client = await target.connect()
    hostile = [
        "(a*)*b", "(a|aa)+$", "a{1000}{1000}", "((a{100}){100}){100}", "(" * 900 + ")" * 900,
        "[" + "a-z" * 300 + "]*" * 1, "x*" * 450, "\\pL{900}", "a" * 30_000,
    ]  # fmt: skip
    codes = []
    for pattern in hostile * 20:
        answer = await client.call(
            ApiKey.LIST_TRANSACTIONS, 2, state_filters=[], producer_id_filters=[],
            duration_filter=-1, transactional_id_pattern=pattern,
        )  # fmt: skip
        codes.append(answer.error_code)
    await client.close()
    return f"{len(codes)} expressions, {sum(map(bool, codes))} refused"


async def telemetry(target: Target) -> str:
    """Metrics of clients that open to a thousandfold, from many instances."""
    client = await target.connect()
    bomb = compress(Codec.ZSTD, bytes(64 << 20))
    wanted = {"metrics": "*", "interval.ms": "1000"}
    made = await client.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, validate_only=False, resources=[{
            "resource_type": 16, "resource_name": "hostile", "configs": [
                {"name": name, "config_operation": 0, "value": value}
                for name, value in wanted.items()]}]
    )  # fmt: skip
    assert made.responses[0].error_code is ErrorCode.none
    asked = await _pipelined(client, [
        (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": UUID(int=at)})
        for at in range(1, 301)
    ])  # fmt: skip
    answers = await _pipelined(client, [
        (ApiKey.PUSH_TELEMETRY, 0, {
            "client_instance_id": UUID(int=at), "subscription_id": one.subscription_id,
            "terminating": False, "compression_type": int(Codec.ZSTD), "metrics": bomb})
        for at, one in enumerate(asked, 1)
    ])  # fmt: skip
    codes = sorted({one.error_code.name for one in answers})
    await client.close()
    return f"300 pushes of {len(bomb)} bytes that open to 64 MiB: {', '.join(codes)}"


async def settings(target: Target) -> str:
    """A setting of a topic is changed a thousand times as fast as it goes."""
    await target.create("changed", partitions=4)
    client = await target.connect()
    answers = await _pipelined(client, [
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"validate_only": False, "resources": [
            {"resource_type": 2, "resource_name": "changed", "configs": [
                {"name": "retention.ms", "config_operation": 0, "value": f"{1_000_000 + at}"}]}]})
        for at in range(1_000)
    ])  # fmt: skip
    assert {one.responses[0].error_code for one in answers} == {ErrorCode.none}
    await client.close()
    return "1,000 changes"


async def slow_bodies(target: Target) -> str:
    """Connections to the admin API that send a part of a head, or of a body, and no more."""
    head = b"POST /topics HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    says = [head, head + b"Content-Length: 1000000\r\n\r\n{", b"GET"]
    async with crowd(says, target.admin_port, 600) as members:
        for _ in range(40):
            for member in members:
                if not member.transport.is_closing():
                    member.transport.write(b" ")
            await asyncio.sleep(0.1)
    async with asyncio.timeout(60):
        while True:
            try:
                await asyncio.to_thread(target.metrics)
                break
            except OSError:
                await asyncio.sleep(0.1)
    return f"{len(members)} connections for 4 s, and it answers afterwards"


ATTACKS: Final = (
    Attack("all costly requests", everything),
    Attack("wide fetch sessions", wide_sessions),
    Attack("many partitions", many_partitions),
    Attack("storm of joins", joins),
    Attack("transactions that are left", left_transactions),
    Attack("regular expressions", patterns),
    Attack("telemetry that opens to much", telemetry),
    Attack("storm of settings", settings),
    Attack("admin API: slow heads and bodies", slow_bodies),
)
