"""/topics/{topic}/partitions/{partition}/offload: what the object store has of a partition, and
what that waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.admin.context import AdminContext, at_leader
from broker.admin.operation import Operation, Role
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.resources.partitions import led_here
from broker.admin.schema import Schema, nullable, record, ref, text, truth, whole
from broker.offload.offloader import OffloadStatus
from broker.partition.partition import Partition

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Offload": record(
        "What the object store has of a partition. What is only known after the first check, some"
        " seconds after its leader took over, is 0 or null until then.",
        {
            "topic": text("The topic."),
            "partition": whole("Its number."),
            "is_on": truth("Whether the topic has remote.storage.enable."),
            "store": nullable(text("Where the objects are; null: this broker has no store.")),
            "state": text(
                "off: nothing is there, and nothing goes there; failing: the last piece of work"
                " failed and is tried again; copying, dropping or cleaning up: that is being done;"
                " behind: segments wait to be copied; current: none does.",
                enum=[
                    "off", "failing", "copying", "dropping", "cleaning up", "behind", "current",
                ],
            ),
            "reason": text("Why the last piece of work failed; empty: it did not."),
            "failures": whole("Pieces of work that have failed since the last success."),
            "log_start_offset": whole("First offset of the log."),
            "local_from": whole("Bookies have no ledger of what is below this offset."),
            "stored_until": whole("The object store has everything below this offset."),
            "lag_bytes": whole("Bytes of sealed segments that should be in the store and are not."),
            "lag_since_ms": nullable(
                whole("When the oldest of them was ended, in ms since 1970; null: there is none.")
            ),
            "buried_objects": whole("Objects that nobody needs and that are not deleted yet."),
        },
    ),
}  # fmt: skip


def _state(partition: Partition, status: OffloadStatus) -> str:
    if not (partition.topic.config.remote.is_on or status.state.used):
        return "off"
    if status.doing:
        return status.doing
    if status.reason:
        return "failing"
    return "behind" if status.plan.lag_bytes else "current"


async def describe(context: AdminContext, request: AdminRequest) -> Answer:
    """Tell what the object store has of a partition."""
    topic, index = await context.partition(request)
    partition, offloader = led_here(context, topic, index), context.broker.offloader
    status, archive = offloader.status(partition), offloader.archive
    shown: dict[str, Any] = {
        "topic": partition.topic.name,
        "partition": partition.index,
        "is_on": partition.topic.config.remote.is_on,
        "store": None if archive is None else archive.store.place,
        "state": _state(partition, status),
        "reason": status.reason,
        "failures": status.failure_count,
        "log_start_offset": partition.log_start_offset,
        "local_from": max(partition.log_start_offset, status.state.local_from),
        "stored_until": status.state.stored_until,
        "lag_bytes": status.plan.lag_bytes,
        "lag_since_ms": None if status.plan.lag_since_ms < 0 else status.plan.lag_since_ms,
        "buried_objects": len(status.state.graves),
    }
    return Answer(shown)


OPERATIONS: Final = (
    Operation(
        name="describe_offload", role=Role.LOOK, method="GET",
        path="/topics/{topic}/partitions/{partition}/offload",
        summary="Tell what the object store has of a partition, how far that is behind, and why the"
        " last piece of work failed if it did.",
        handle=describe, where=at_leader, gives={JSON: ref("Offload")}, problems=(404,),
    ),
)  # fmt: skip
