"""/topics/{topic}/partitions: who leads, how far the log goes, and moving, rolling, trimming it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.admin.operation import JSON, Answer, Ask, Operation
from broker.admin.pages import QUERY, number_after, numbers
from broker.admin.problems import wrong_field
from broker.admin.resources import led
from broker.admin.schema import INT_MAX, Schema, nullable, page_of, record, ref, text, whole
from broker.admin.site import Site, at_leader
from broker.core.topology import TopicInfo
from broker.partition import Partition
from client.ids import BrokerId, Offset

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
TIMESTAMP: Final = "timestamp"

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Partition": record(
        "A partition. What only its leader knows is null while that one cannot be asked.",
        {
            "topic": text("The topic."),
            "partition": whole("Its number."),
            "state": text(
                "led; opening: a broker is about to lead it; silent: its leader could not be"
                " asked; leaderless: no broker is there.",
                enum=["led", "opening", "silent", "leaderless"],
            ),
            "leader": nullable(whole("The broker that leads it, or should.")),
            "pinned_to": nullable(whole("The broker that somebody moved it to.")),
            "leader_epoch": nullable(whole("Grows with every change of leader.")),
            **{name: nullable(schema) for name, schema in led.COUNTS.items()},
        },
    ),
    "PartitionPage": page_of(ref("Partition"), "Partitions by number."),
    "Move": record(
        "Where a partition should be led.", {"broker_id": whole("A live broker.", 0, INT_MAX)}
    ),
    "Trim": record(
        "What to drop.",
        {"before_offset": whole("The records below this offset; at most the high watermark.")},
    ),
    "FoundOffset": record(
        "A place in a partition.",
        {
            "offset": whole("The offset."),
            "timestamp_ms": nullable(whole("Of the record there, if it was looked for.", -1)),
        },
    ),
}


def _shown(
    site: Site, topic: TopicInfo, index: int, row: Mapping[str, Any] | None, silent: bool
) -> dict[str, Any]:
    owner = site.broker.cluster.wanted_owner(topic, index)
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
        "pinned_to": topic.pins.get(index),
        **{name: None if row is None else row[name] for name in known},
    }


async def _rows(
    site: Site, topic: TopicInfo, after: int, limit: int
) -> tuple[dict[int, Mapping[str, Any]], Mapping[BrokerId, str]]:
    """Return what leaders say, by partition. After a move the later leader counts."""
    found = await led.of_partitions(site, topic, after, limit)
    rows: dict[int, Mapping[str, Any]] = {}
    for row in found.rows:
        known = rows.get(row["partition"])
        if known is None or known["leader_epoch"] < row["leader_epoch"]:
            rows[row["partition"]] = row
    return rows, found.silent


async def list_partitions(site: Site, ask: Ask) -> Answer:
    """List the partitions of a topic."""
    topic = await site.topic(ask.path["topic"])
    rows, silent = await _rows(site, topic, number_after(ask.query), ask.query["limit"])

    def show(index: int) -> dict[str, Any]:
        owner = site.broker.cluster.wanted_owner(topic, index)
        return _shown(site, topic, index, rows.get(index), owner in silent)

    return numbers(topic.partition_count, ask.query, show)


async def describe(site: Site, topic: TopicInfo, index: int) -> dict[str, Any]:
    """Return one partition, with what its leader says."""
    partition = site.broker.partitions.find(topic.name, index)
    if partition is not None:
        return _shown(site, topic, index, led.show(site, partition), False)
    rows, silent = await _rows(site, topic, index - 1, 1)
    owner = site.broker.cluster.wanted_owner(topic, index)
    return _shown(site, topic, index, rows.get(index), owner in silent)


async def describe_partition(site: Site, ask: Ask) -> Answer:
    """Describe a partition."""
    return Answer(await describe(site, *await site.partition(ask)))


def led_here(site: Site, topic: TopicInfo, index: int) -> Partition:
    """Return a partition that this broker leads. Raises NotLeader, LeaderNotAvailable."""
    partition = site.broker.partitions.leader(topic.name, index)
    partition.check_leading()
    return partition


async def move(site: Site, ask: Ask) -> Answer:
    """Wish for another leader, for as long as that broker lives."""
    topic, index = await site.partition(ask)
    broker = site.live_broker(ask.body["broker_id"])
    if broker.unloaded:
        raise wrong_field("broker_id", f"is {broker.id}, which is unloaded: load it first")
    topic = await site.broker.cluster.pin_partition(topic.name, index, broker.id)
    return Answer(await describe(site, topic, index))


async def unpin(site: Site, ask: Ask) -> Answer:
    """Leave the choice of a leader to the brokers again."""
    topic, index = await site.partition(ask)
    topic = await site.broker.cluster.pin_partition(topic.name, index, None)
    return Answer(await describe(site, topic, index))


async def roll(site: Site, ask: Ask) -> Answer:
    """Continue the partition in a new ledger."""
    topic, index = await site.partition(ask)
    await led_here(site, topic, index).roll()
    return Answer(await describe(site, topic, index))


async def trim(site: Site, ask: Ask) -> Answer:
    """Drop the records below an offset."""
    topic, index = await site.partition(ask)
    await led_here(site, topic, index).delete_records(Offset(ask.body["before_offset"]))
    return Answer(await describe(site, topic, index))


async def place_of(partition: Partition, at: str, timestamp_ms: int | None) -> tuple[Offset, int]:
    """Return (offset, timestamp or -1) of the earliest, the latest or a timed place.

    After the last record's timestamp comes the end of the log. Raises BrokerError.
    """
    if at == EARLIEST:
        return partition.log_start_offset, -1
    if at == TIMESTAMP and timestamp_ms is not None:
        found = await partition.offset_for_timestamp(timestamp_ms)
        if found is not None:
            return found
    return partition.high_watermark, -1


async def find_offset(site: Site, ask: Ask) -> Answer:
    """Find a place in a partition."""
    topic, index = await site.partition(ask)
    at, timestamp_ms = ask.query["at"], ask.query.get("timestamp_ms")
    if (at == TIMESTAMP) != (timestamp_ms is not None):
        raise wrong_field("timestamp_ms", f"belongs to at={TIMESTAMP}, and to nothing else")
    offset, found_ms = await place_of(led_here(site, topic, index), at, timestamp_ms)
    return Answer({"offset": offset, "timestamp_ms": None if found_ms < 0 else found_ms})


_PATH: Final = "/topics/{topic}/partitions"
OPERATIONS: Final = (
    Operation(
        name="list_partitions", method="GET", path=_PATH,
        summary="List the partitions of a topic.", handle=list_partitions, query=QUERY,
        gives={JSON: ref("PartitionPage")}, problems=(404,),
    ),
    Operation(
        name="describe_partition", method="GET", path=_PATH + "/{partition}",
        summary="Describe a partition.", handle=describe_partition,
        gives={JSON: ref("Partition")}, problems=(404,),
    ),
    Operation(
        name="move_partition", method="PUT", path=_PATH + "/{partition}/leader",
        summary="Let another broker lead a partition, whenever that one is there. Answers before"
        " it has moved.",
        handle=move, takes={JSON: ref("Move")}, gives={JSON: ref("Partition")}, problems=(404,),
    ),
    Operation(
        name="unpin_partition", method="DELETE", path=_PATH + "/{partition}/leader",
        summary="Leave the choice of a partition's leader to the brokers again.",
        handle=unpin, gives={JSON: ref("Partition")}, problems=(404,),
    ),
    Operation(
        name="roll_partition", method="POST", path=_PATH + "/{partition}/roll",
        summary="Close the ledger that a partition is written to, and go on in a new one.",
        handle=roll, where=at_leader, gives={JSON: ref("Partition")}, problems=(404,),
    ),
    Operation(
        name="trim_partition", method="POST", path=_PATH + "/{partition}/trim",
        summary="Drop the oldest records of a partition. Ledgers that hold no others are deleted.",
        handle=trim, where=at_leader, takes={JSON: ref("Trim")}, gives={JSON: ref("Partition")},
        problems=(404,),
    ),
    Operation(
        name="find_offset", method="GET", path=_PATH + "/{partition}/offset",
        summary="Find the first or last offset, or the first one from a time on.",
        handle=find_offset, where=at_leader, gives={JSON: ref("FoundOffset")}, problems=(404,),
        query={
            "at": text("Which place.", enum=[EARLIEST, LATEST, TIMESTAMP], default=LATEST),
            "timestamp_ms": whole("Milliseconds since 1970, with at=timestamp."),
        },
    ),
)  # fmt: skip
