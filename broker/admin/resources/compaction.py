"""/topics/{topic}/partitions/{partition}/compaction: how clean a partition is, and cleaning it now.

What a partition waits for, or fails at, stands here in words: a cleaner that has stopped in silence
is what people complain about most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from broker.admin.context import AdminContext, at_leader
from broker.admin.operation import Operation, Role
from broker.admin.problems import Problem
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.resources.partitions import led_here
from broker.admin.schema import Schema, nullable, record, ref, text, truth, whole
from broker.partition.partition import Partition

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Compaction": record(
        "The state of a partition of a compacted topic. What is not known before the first check,"
        " some seconds after its leader took over, is null.",
        {
            "topic": text("The topic."),
            "partition": whole("Its number."),
            "state": text(
                "running; due: it waits for its turn; failing: the last round, or check, failed"
                " and is tried again; blocked: something other than a failure prevents it; clean:"
                " there is nothing to do; unknown: it was not checked yet.",
                enum=["running", "due", "failing", "blocked", "clean", "unknown"],
            ),
            "why": nullable(text("Why it is due: asked, overdue, tombstones or dirty.")),
            "reason": text(
                "Why the last check or round failed, or what prevents the next one; empty:"
                " nothing."
            ),
            "failures": whole("Checks or rounds that have failed since the last success."),
            "dirty_percent": nullable(
                whole("Share of bytes never compacted, of those that may be; see"
                      " min.cleanable.dirty.ratio.", 0, 100)
            ),
            "clean_bytes": nullable(whole("Bytes that were compacted.")),
            "dirty_bytes": nullable(whole("Bytes never compacted, of those that may be.")),
            "cleaned_until": whole("Below this offset only the last record of each key is left."),
            "cleanable_until": nullable(whole("What is below this offset may be compacted now.")),
            "cleaned_ms": nullable(whole("When the last round was complete, in ms since 1970.")),
            "overdue_ms": nullable(
                whole("When max.compaction.lag.ms is over for its oldest dirty segment.")
            ),
            "tombstones_ms": nullable(whole("When the first tombstone may go.")),
            "saved_bytes": whole(
                "Bytes by which compaction has made the log smaller, over all rounds."),
            "retired_ledgers": whole("Ledgers that were replaced and are kept for their readers."),
            "asked": truth("Whether somebody has asked for a round that has not begun yet."),
        },
    ),
}  # fmt: skip


def _compacted(context: AdminContext, partition: Partition) -> None:
    """Raises Problem for a topic that is not compacted here."""
    if not context.broker.compactor.covers(partition):
        policy = ",".join(partition.topic.config.cleanup_policy)
        what = f"cleanup.policy of {partition.topic.name} is {policy}"
        if partition.topic.config.compacts:
            what = f"{partition.topic.name} is kept small by its coordinators"
        raise Problem(
            409, "not-compacted", f"{what}: its records are not compacted by key",
            "PATCH the topic with cleanup.policy=compact, if that is what you want.",
        )  # fmt: skip


def _time(at_ms: float) -> int | None:
    return None if math.isinf(at_ms) or at_ms < 0 else int(at_ms)


def _shown(context: AdminContext, partition: Partition) -> dict[str, Any]:
    compactor = context.broker.compactor
    status = compactor.status(partition)
    listed = partition.usage.listed.compaction
    shown: dict[str, Any] = {
        "topic": partition.topic.name,
        "partition": partition.index,
        "cleaned_until": listed.cleaned_until,
        "cleaned_ms": _time(listed.cleaned_ms),
        "tombstones_ms": _time(listed.next_horizon_ms),
        "saved_bytes": listed.saved_bytes,
        "retired_ledgers": len(listed.retired),
        "asked": compactor.is_asked(partition),
    }
    found = None if status is None else status.found
    if status is None or found is None:
        unknown = (
            "why", "dirty_percent", "clean_bytes", "dirty_bytes", "cleanable_until", "overdue_ms",
        )  # fmt: skip
        state, reason, failures = "unknown", "", 0
        if status is not None:
            state, reason, failures = "failing", status.reason, status.failure_count
        return {**shown, "state": state, "reason": reason, "failures": failures,
                **dict.fromkeys(unknown)}  # fmt: skip
    state = "clean" if status.why is None else "due"
    if status.reason:
        state = "failing" if status.failure_count else "blocked"
    return {
        **shown,
        "state": "running" if status.is_running else state,
        "why": None if status.why is None else status.why.value,
        "reason": status.reason,
        "failures": status.failure_count,
        "dirty_percent": round(100 * found.dirty_ratio),
        "clean_bytes": found.clean_bytes,
        "dirty_bytes": found.dirty_bytes,
        "cleanable_until": found.end,
        "overdue_ms": _time(found.overdue_ms),
    }


async def describe(context: AdminContext, request: AdminRequest) -> Answer:
    """Tell how clean a partition is."""
    topic, index = await context.partition(request)
    partition = led_here(context, topic, index)
    _compacted(context, partition)
    return Answer(_shown(context, partition))


async def compact(context: AdminContext, request: AdminRequest) -> Answer:
    """Compact a partition as soon as possible."""
    topic, index = await context.partition(request)
    partition = led_here(context, topic, index)
    _compacted(context, partition)
    context.broker.compactor.ask(partition)
    return Answer(_shown(context, partition))


_PATH: Final = "/topics/{topic}/partitions/{partition}"
OPERATIONS: Final = (
    Operation(
        name="describe_compaction", role=Role.LOOK, method="GET", path=_PATH + "/compaction",
        summary="Tell how clean a partition of a compacted topic is, what it waits for, and why the"
        " last round failed if it did.",
        handle=describe, where=at_leader, gives={JSON: ref("Compaction")}, problems=(404, 409),
    ),
    Operation(
        name="compact_partition", role=Role.OPERATE, method="POST", path=_PATH + "/compact",
        summary="Compact a partition as soon as possible, however clean it is. Answers before that"
        " has happened. The newest segments stay as they are: roll first to have more compacted.",
        handle=compact, where=at_leader, gives={JSON: ref("Compaction")}, problems=(404, 409),
    ),
)  # fmt: skip
