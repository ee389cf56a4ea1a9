"""What the members of all groups give a broker to keep has a limit."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient

LIMIT = 20_000


async def join(client: WireClient, group: str, size: int, member_id: str = "") -> Any:
    """Join as an old client does, without asking for a member id first."""
    return await client.call(
        ApiKey.JOIN_GROUP, 3, group_id=group, session_timeout=10_000, rebalance_timeout=10_000,
        member_id=member_id, protocol_type="consumer",
        protocols=[{"name": "range", "metadata": bytes(size)}],
    )  # fmt: skip


async def test_members_beyond_the_limit_are_told_to_come_again(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(
        1, group_members_bytes_max=LIMIT, group_initial_rebalance_delay_ms=0
    )
    client = await WireClient.connect(broker.port)
    await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["a"])
    answers: list[Any] = []

    async def has_joined() -> bool:
        answers.append(await join(client, "a", LIMIT - 5_000))
        return answers[-1].error_code is ErrorCode.none

    while not await has_joined():  # its coordinator opens
        await until(lambda: True)
    first = answers[-1]
    groups = broker.services.groups
    assert groups.room.held == LIMIT - 5_000 + len("range")

    refused = await join(client, "b", 5_000)
    assert refused.error_code is ErrorCode.coordinator_not_available
    assert groups.room.held < LIMIT, "nothing of it is kept"
    small = await join(client, "c", 1_000)
    assert small.error_code is ErrorCode.none

    again = await join(client, "a", LIMIT - 5_000, first.member_id)
    assert again.error_code is ErrorCode.none, "who is there and does not grow may stay"
    assignments = [{"member_id": first.member_id, "assignment": bytes(5_000)}]
    sync = {"group_id": "a", "generation_id": again.generation_id, "member_id": first.member_id}
    answer = await client.call(ApiKey.SYNC_GROUP, 2, **sync, assignments=assignments)
    assert answer.error_code is ErrorCode.coordinator_not_available
    assignments = [{"member_id": first.member_id, "assignment": bytes(500)}]
    answer = await client.call(ApiKey.SYNC_GROUP, 2, **sync, assignments=assignments)
    assert (answer.error_code, answer.assignment) == (ErrorCode.none, bytes(500))
    assert groups.room.held == LIMIT - 5_000 + 1_000 + 500 + 2 * len("range")

    await client.call(ApiKey.LEAVE_GROUP, 0, group_id="a", member_id=first.member_id)
    assert groups.room.held == 1_000 + len("range")
    assert (await join(client, "b", 5_000)).error_code is ErrorCode.none
    await client.close()
