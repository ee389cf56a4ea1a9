"""/topics/{topic}/partitions: describe, move, roll and trim partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.admin.context import AdminContext, at_leader
from broker.admin.operation import Operation, Role
from broker.admin.pages import QUERY, number_after, numbers
from broker.admin.problems import wrong_field
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.resources import led
from broker.admin.schema import INT_MAX, Schema, nullable, page_of, record, ref, text, whole
from broker.cluster.core.topology import TopicInfo
from broker.partition.partition import Partition
from client.ids import BrokerId, Offset

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
TIMESTAMP: Final = "timestamp"

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Partition": record(
        "A partition. What only its leader knows is null while the leader cannot be reached.",
        {
            "topic": text("The topic."),
            "partition": whole("Its number."),
            "state": text(
                "led; opening: a broker is about to lead it; silent: its leader could not be"
                " reached; leaderless: there is no live broker.",
                enum=["led", "opening", "silent", "leaderless"],
            ),
            "leader": nullable(whole("The broker that leads it, or should.")),
            "pinned_to": nullable(whole("The broker that an operator moved it to.")),
            "leader_epoch": nullable(whole("Grows with every change of leader.")),
            **{name: nullable(schema) for name, schema in led.COUNTS.items()},
        },
    ),
    "PartitionPage": page_of(ref("Partition"), "Partitions by number."),
    "Move": record(
        "The broker that should lead a partition.",
        {"broker_id": whole("A live broker.", 0, INT_MAX)},
    ),
    "Trim": record(
        "What to delete.",
        {"before_offset": whole("The records below this offset; at most the high watermark.")},
    ),
    "FoundOffset": record(
        "A position in a partition.",
        {
            "offset": whole("The offset."),
            "timestamp_ms": nullable(whole("Of the record there, if it was looked for.", -1)),
        },
    ),
}


def _shown(
    context: AdminContext, topic: TopicInfo, index: int, row: Mapping[str, Any] | None, silent: bool
) -> dict[str, Any]:
    owner = context.broker.cluster.preferred_leader(topic, index)
    if row is not None:
        state, leader = "led", row["leader"]
    else:
        leader = owner
        state = "leaderless" if owner is None else "silent" if silent else "opening"
    known = ("leader_epoch", *led.COUNTS)
    return {
        "topic": topic.name,
        "partition": index,
        "state": state,
        "leader": leader,
        "pinned_to": next(iter(topic.assignments.get(index, ())), None),
        **{name: None if row is None else row[name] for name in known},
    }


async def _rows(
    context: AdminContext, topic: TopicInfo, after: int, limit: int
) -> tuple[dict[int, Mapping[str, Any]], Mapping[BrokerId, str]]:
    """Return what leaders say, by partition. After a move the later leader counts."""
    found = await led.of_partitions(context, topic, after, limit)
    rows: dict[int, Mapping[str, Any]] = {}
    for row in found.rows:
        known = rows.get(row["partition"])
        if known is None or known["leader_epoch"] < row["leader_epoch"]:
            rows[row["partition"]] = row
    return rows, found.silent


async def list_partitions(context: AdminContext, request: AdminRequest) -> Answer:
    """List the partitions of a topic."""
    topic = await context.topic(request.path["topic"])
    rows, silent = await _rows(context, topic, number_after(request.query), request.query["limit"])

    def show(index: int) -> dict[str, Any]:
        owner = context.broker.cluster.preferred_leader(topic, index)
        return _shown(context, topic, index, rows.get(index), owner in silent)

    return await numbers(context.broker.services.turns, topic.partition_count, request.query, show)


async def describe(context: AdminContext, topic: TopicInfo, index: int) -> dict[str, Any]:
    """Return one partition, with what its leader says."""
    partition = context.broker.partitions.find(topic.name, index)
    if partition is not None:
        return _shown(context, topic, index, led.show(context, partition), False)
    rows, silent = await _rows(context, topic, index - 1, 1)
    owner = context.broker.cluster.preferred_leader(topic, index)
    return _shown(context, topic, index, rows.get(index), owner in silent)


async def describe_partition(context: AdminContext, request: AdminRequest) -> Answer:
    """Describe a partition."""
    return Answer(await describe(context, *await context.partition(request)))


def led_here(context: AdminContext, topic: TopicInfo, index: int) -> Partition:
    """Return a partition that this broker leads. Raises NotLeader, LeaderNotAvailable."""
    partition = context.broker.partitions.leader(topic.name, index)
    partition.check_leading()
    return partition


async def move(context: AdminContext, request: AdminRequest) -> Answer:
    """Prefer another leader, for as long as that broker lives."""
    topic, index = await context.partition(request)
    broker = context.live_broker(request.body["broker_id"])
    if broker.unloaded:
        raise wrong_field("broker_id", f"is {broker.id}, which is unloaded: load that broker first")
    topic = await context.broker.topics.assign(topic.name, {index: (broker.id,)})
    return Answer(await describe(context, topic, index))


async def unpin(context: AdminContext, request: AdminRequest) -> Answer:
    """Remove the pin: the brokers choose the leader again."""
    topic, index = await context.partition(request)
    topic = await context.broker.topics.assign(topic.name, {index: ()})
    return Answer(await describe(context, topic, index))


async def roll(context: AdminContext, request: AdminRequest) -> Answer:
    """Continue the partition in a new ledger."""
    topic, index = await context.partition(request)
    await led_here(context, topic, index).changes.roll()
    return Answer(await describe(context, topic, index))


async def trim(context: AdminContext, request: AdminRequest) -> Answer:
    """Delete the records below an offset."""
    topic, index = await context.partition(request)
    partition = led_here(context, topic, index)
    await partition.changes.delete_records(Offset(request.body["before_offset"]))
    return Answer(await describe(context, topic, index))


async def place_of(partition: Partition, at: str, timestamp_ms: int | None) -> tuple[Offset, int]:
    """Return (offset, timestamp or -1) of the earliest, the latest or a timed place.

    After the last record's timestamp comes the end of the log. Raises BrokerError.
    """
    if at == EARLIEST:
        return partition.log_start_offset, -1
    if at == TIMESTAMP and timestamp_ms is not None:
        found = await partition.reader.offset_for_timestamp(timestamp_ms)
        if found is not None:
            return found
    return partition.high_watermark, -1


async def find_offset(context: AdminContext, request: AdminRequest) -> Answer:
    """Find a position in a partition."""
    topic, index = await context.partition(request)
    at, timestamp_ms = request.query["at"], request.query.get("timestamp_ms")
    if (at == TIMESTAMP) != (timestamp_ms is not None):
        raise wrong_field(
            "timestamp_ms", f"can only be given with at={TIMESTAMP}, and must be then"
        )
    offset, found_ms = await place_of(led_here(context, topic, index), at, timestamp_ms)
    return Answer({"offset": offset, "timestamp_ms": None if found_ms < 0 else found_ms})


_PATH: Final = "/topics/{topic}/partitions"
OPERATIONS: Final = (
    Operation(
        name="list_partitions", role=Role.LOOK, method="GET", path=_PATH,
        summary="List the partitions of a topic.", handle=list_partitions, query=QUERY,
        gives={JSON: ref("PartitionPage")}, problems=(404,),
    ),
    Operation(
        name="describe_partition", role=Role.LOOK, method="GET", path=_PATH + "/{partition}",
        summary="Describe a partition.", handle=describe_partition,
        gives={JSON: ref("Partition")}, problems=(404,),
    ),
    Operation(
        name="move_partition", role=Role.OPERATE, method="PUT", path=_PATH + "/{partition}/leader",
        summary="Let another broker lead a partition whenever that broker is live. Answers before"
        " the partition has moved.",
        handle=move, takes={JSON: ref("Move")}, gives={JSON: ref("Partition")}, problems=(404,),
    ),
    Operation(
        name="unpin_partition", role=Role.OPERATE,
        method="DELETE", path=_PATH + "/{partition}/leader",
        summary="Let the brokers choose a partition's leader again.",
        handle=unpin, gives={JSON: ref("Partition")}, problems=(404,),
    ),
    Operation(
        name="roll_partition", role=Role.OPERATE, method="POST", path=_PATH + "/{partition}/roll",
        summary="Close the ledger that a partition is written to, and continue in a new one.",
        handle=roll, where=at_leader, gives={JSON: ref("Partition")}, problems=(404,),
    ),
    Operation(
        name="trim_partition", role=Role.ADMINISTER,
        method="POST", path=_PATH + "/{partition}/trim",
        summary="Delete the oldest records of a partition, with the ledgers that hold no others.",
        handle=trim, where=at_leader, takes={JSON: ref("Trim")}, gives={JSON: ref("Partition")},
        problems=(404,),
    ),
    Operation(
        name="find_offset", role=Role.LOOK, method="GET", path=_PATH + "/{partition}/offset",
        summary="Find the first or last offset, or the first one from a time on.",
        handle=find_offset, where=at_leader, gives={JSON: ref("FoundOffset")}, problems=(404,),
        query={
            "at": text("Which position.", enum=[EARLIEST, LATEST, TIMESTAMP], default=LATEST),
            "timestamp_ms": whole("Milliseconds since 1970, with at=timestamp."),
        },
    ),
)  # fmt: skip
