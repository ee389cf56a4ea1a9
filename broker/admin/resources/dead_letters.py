"""/groups/{group}/dead-letters: what waits for a dead letter; and dead letters, published again.

A letter goes back to the partition that its record came from, as a new record without the headers
that made it a letter. One that has headers only is about a record that is read from there; if that
is gone, the letter is left where it is, and said so. Nothing is deleted: whoever replays says from
where, and `quire group dead-letters NAME replay` remembers where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from broker.admin.context import AdminContext, at_broker, at_leader
from broker.admin.operation import Operation, Role
from broker.admin.pages import QUERY, SILENT, merged_page, page
from broker.admin.problems import Problem
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.resources.partitions import led_here
from broker.admin.resources.records import decoded, publish_anywhere, read_from, shown
from broker.admin.schema import (
    NAME_CHARS_MAX,
    Schema,
    list_of,
    nullable,
    record,
    ref,
    text,
    truth,
    whole,
)
from broker.errors import UnknownTopicOrPartition
from broker.front.core import dead_letters as core
from client.errors import QuireError
from client.ids import Offset
from client.wire.kafka.batches.records import Record

_LETTERS_MAX: Final = 100
_BYTES_MAX: Final = 512 * 1024
"""Of the letters that are published in one batch, if they are more than one."""
_GONE: Final = ("no-such-record", "offset-out-of-range")
_KEPT: Final = ("key", "key_encoding", "value", "value_encoding", "headers")

SCHEMAS: Final[Mapping[str, Schema]] = {
    "WaitingLetters": record(
        "Adjacent records that wait for their dead letters: they have been rejected, or delivered"
        " too often, and are kept until the letters are written.",
        {
            "place": text("Topic, partition and first offset; orders the list."),
            "topic": text("Their topic."),
            "partition": whole("Their partition."),
            "first_offset": whole("The first of them."),
            "last_offset": whole("The last of them."),
            "deliveries": whole("How often each was delivered."),
            "reason": text("Why they are dead letters; Kafka's words."),
            "leader": whole("The broker that leads the partition, and writes the letters."),
            "attempts": whole("How often it has tried since it wrote the last one."),
            "problem": nullable(text("What came of the last attempt; null: nothing yet.")),
            "next_ms": nullable(whole("When the next attempt is due; null: it is under way.")),
        },
    ),
    "WaitingLettersPage": record(
        "Records that wait for their dead letters.",
        {
            "items": list_of(ref("WaitingLetters"), "What was asked for, in order."),
            "next": nullable(text("Pass it as `after` to continue; null: this was the last page.")),
            SILENT: list_of(whole("A broker."), "Brokers whose records are missing here."),
        },
    ),
    "ReplayLetters": record(
        "Which letters of a partition to publish again.",
        {
            "group": text("Only letters of this group.", minLength=1, maxLength=NAME_CHARS_MAX),
            "offset": whole("Where to begin; before the first there is: there."),
            "limit": whole("Records to look at.", 1, _LETTERS_MAX, default=_LETTERS_MAX),
            "dry_run": truth("Only say what would be done.", default=False),
        },
        optional=("limit", "dry_run"),
    ),
    "ReplayedLetters": record(
        "What became of them.",
        {
            "replayed": whole("Letters whose records were published again, or would be."),
            "left": list_of(
                record(
                    "A letter that was not.",
                    {"offset": whole("Of the letter."), "reason": text("Why.")},
                ),
                "Letters that were left where they are.",
            ),
            "next_offset": whole("Where to go on."),
            "high_watermark": whole("Offset after the last letter there is."),
            "problem": nullable(text("Why it ended before `limit`; null: it did not.")),
        },
    ),
}


async def list_waiting_here(context: AdminContext, request: AdminRequest) -> Answer:
    """List what waits in partitions that this broker leads."""
    rows = [
        {
            "place": f"{one.partition.topic.name}/{one.partition.index:010}/{one.first:020}",
            "topic": one.partition.topic.name,
            "partition": one.partition.index,
            "first_offset": one.first,
            "last_offset": one.last,
            "deliveries": one.deliveries,
            "reason": one.reason,
            "leader": context.me,
            "attempts": one.attempts,
            "problem": one.problem or None,
            "next_ms": one.next_ms,
        }
        for one in context.broker.letters.rows(request.path["group"])
    ]
    answer = await page(
        context.broker.services.turns, sorted(rows, key=lambda row: str(row["place"])),
        request.query, lambda row: str(row["place"]), lambda row: row,
    )  # fmt: skip
    answer.body[SILENT] = []
    return answer


async def list_waiting(context: AdminContext, request: AdminRequest) -> Answer:
    """List what waits at all brokers."""
    path = f"groups/{quote(request.path['group'], safe='')}/dead-letters"
    return await merged_page(context, request, path, list_waiting_here, "place")


# --- replay ---------------------------------------------------------------------------------


class _Found(NamedTuple):
    """A letter, and the record that it becomes."""

    offset: Offset
    topic: str
    partition: int
    record: Record


async def replay(context: AdminContext, request: AdminRequest) -> Answer:
    """Publish letters of one partition again, where their records came from."""
    topic, index = await context.partition(request)
    partition, body = led_here(context, topic, index), request.body
    start = max(Offset(body["offset"]), partition.log_start_offset)
    letters, unreadable, end = await read_from(context, partition, start, body["limit"])
    left: list[dict[str, Any]] = [
        {"offset": one.offset, "reason": one.reason} for one in unreadable
    ]
    batch: list[_Found] = []
    replayed, problem, at = 0, None, start
    try:
        for letter in letters:
            at = letter.offset
            about = _about(letter)
            if about.get(core.GROUP) != body["group"]:
                continue
            found = await _found(context, letter, about)
            if isinstance(found, str):
                left.append({"offset": letter.offset, "reason": found})
                continue
            if batch and not _fits(batch, found):
                replayed += await _publish(context, batch, is_dry=body["dry_run"])
                batch = []
            batch.append(found)
        if batch:
            replayed += await _publish(context, batch, is_dry=body["dry_run"])
    except QuireError as error:  # a Problem is one
        problem = str(error)
        end = batch[0].offset if batch else at
        left = [one for one in left if one["offset"] < end]
    return Answer(
        {
            "replayed": replayed,
            "left": sorted(left, key=lambda one: int(one["offset"])),
            "next_offset": end,
            "high_watermark": partition.high_watermark,
            "problem": problem,
        }
    )


def _about(letter: Record) -> dict[str, str]:
    """Return what the headers say; of those that come twice, the last."""
    return {
        name: (value or b"").decode(errors="replace")
        for name, value in letter.headers
        if name in core.OURS
    }


async def _found(context: AdminContext, letter: Record, about: Mapping[str, str]) -> _Found | str:
    """Return what a letter becomes, or why it becomes nothing. Raises Problem, BrokerError."""
    topic, partition, offset = (about.get(name, "") for name in core.OURS[:3])
    if (
        not (partition.isdecimal() and offset.isdecimal())
        or max(map(len, (partition, offset))) > 19
    ):
        return "it does not say which record it is about"
    info = context.broker.cluster.topics.get(topic)
    if info is None or int(partition) >= info.partition_count:
        return f"there is no partition {topic}-{partition} any more"
    headers = tuple(one for one in letter.headers if one[0] not in core.OURS)
    now_ms = context.broker.services.clock.now_ms()
    found: Record | None = Record(letter.key, letter.value, now_ms, headers)
    if letter.key is None and letter.value is None and not headers:
        found = await _original(context, topic, int(partition), int(offset))
    if found is None:
        return f"it has headers only, and record {offset} of {topic}-{partition} is gone"
    return _Found(letter.offset, topic, int(partition), found._replace(timestamp_ms=now_ms))


async def _original(context: AdminContext, topic: str, index: int, offset: int) -> Record | None:
    """Return the record that a letter is about, None: it is gone. Raises Problem, BrokerError."""
    info = context.broker.cluster.topics[topic]
    partition = context.broker.partitions.find(topic, index)
    if partition is None:
        leader = context.leader_of(info, index)
        path = f"/topics/{topic}/partitions/{index}/records/{offset}"
        try:
            row = await context.peer_client.ask(leader, path)
        except Problem as problem:
            if problem.name in _GONE:
                return None
            raise
        return decoded([{name: row[name] for name in _KEPT}], 0)[0]
    if not partition.log_start_offset <= offset < partition.high_watermark:
        return None
    found, _, _ = await read_from(context, partition, Offset(offset), 1)
    return found[0] if found and found[0].offset == offset else None


def _fits(batch: list[_Found], one: _Found) -> bool:
    first = batch[0]
    size = sum(core.size_of(each.record) for each in (*batch, one))
    return (first.topic, first.partition) == (one.topic, one.partition) and size <= _BYTES_MAX


async def _publish(context: AdminContext, batch: list[_Found], *, is_dry: bool) -> int:
    first = batch[0]
    topic = context.broker.cluster.topics.get(first.topic)
    if topic is None:
        raise UnknownTopicOrPartition(f"topic {first.topic!r} was just deleted")
    if not is_dry:
        found = [one.record for one in batch]
        rows = [shown(first.partition, one, None) for one in found]
        new = [{name: row[name] for name in _KEPT} for row in rows]
        await publish_anywhere(context, topic, first.partition, new, found)
    return len(batch)


OPERATIONS: Final = (
    Operation(
        name="list_dead_letters", role=Role.LOOK, method="GET",
        path="/groups/{group}/dead-letters",
        summary="List the records of a share group that wait for their dead letters, and why.",
        handle=list_waiting, query=QUERY, gives={JSON: ref("WaitingLettersPage")},
    ),
    Operation(
        name="list_led_dead_letters", role=Role.LOOK, method="GET",
        path="/brokers/{broker_id}/groups/{group}/dead-letters",
        summary="List those in partitions that a broker leads.", handle=list_waiting_here,
        where=at_broker, query=QUERY, gives={JSON: ref("WaitingLettersPage")}, problems=(404,),
    ),
    Operation(
        name="replay_dead_letters", role=Role.OPERATE, method="POST",
        path="/topics/{topic}/partitions/{partition}/dead-letters",
        summary="Publish dead letters of one partition again, to the partitions that their records"
        " came from. Some may be published twice if an answer is lost.",
        handle=replay, where=at_leader, takes={JSON: ref("ReplayLetters")},
        gives={JSON: ref("ReplayedLetters")}, problems=(404, 409),
    ),
)  # fmt: skip
