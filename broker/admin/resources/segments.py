"""/topics/{topic}/partitions/{partition}/segments: the ledgers that a partition consists of.

Any broker reads them from the metadata store, so they are listed even without a leader; only the
progress of the ledger that is being written is asked of the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from broker.admin.context import AdminContext
from broker.admin.operation import Operation, Role
from broker.admin.pages import QUERY, number_after
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.resources import partitions
from broker.admin.schema import Schema, list_of, nullable, page_of, record, ref, text, truth, whole
from broker.cluster.core.topology import TopicInfo
from client.errors import NoNode, NoSuchLedger
from client.ids import LedgerId
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.log.segment_pages import PageRef
from client.log.segments import Segment, SegmentList, decode_segments
from client.metadata import paths
from client.segments.pages import SegmentPages

_OLDEST: Final = "oldest"
_NEWEST: Final = "newest"

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Fragment": record(
        "A run of entries on the same bookies.",
        {
            "first_entry": whole("Its first entry."),
            "last_entry": nullable(whole("Its last entry; null: it is being written.", -1)),
            "bookies": list_of(
                text("A bookie."), "The ensemble; entry i goes to the write quorum from i on."
            ),
        },
    ),
    "Segment": record(
        "A ledger as an offset range of a partition. What is not known yet is null.",
        {
            "ledger_id": whole("The ledger."),
            "state": text(
                "State of the ledger; gone: it left the bookies, and the object store has it.",
                enum=["open", "in_recovery", "closed", "gone", "missing"],
            ),
            "is_stored": truth("Whether the object store has a copy of it."),
            "is_sealed": truth("Whether the end of the segment is final."),
            "base_offset": nullable(whole("Offset of its first record.")),
            "last_offset": nullable(whole("Offset of its last record; below base: none.", -1)),
            "bytes": nullable(whole("Size of its records, counted once.")),
            "leader_epoch": whole("Under which leader it was begun."),
            "created_ms": whole("When it was begun."),
            "max_timestamp_ms": nullable(whole("Newest timestamp of a record.", -1)),
            "ensemble_size": whole("Bookies that it is striped over."),
            "write_quorum": whole("Copies of each entry."),
            "ack_quorum": whole("Synced copies before an acknowledgement."),
            "last_entry": nullable(whole("Last entry of a closed ledger.", -1)),
            "fragments": list_of(ref("Fragment"), "Where its entries are."),
        },
    ),
    "SegmentPage": page_of(ref("Segment"), "Segments by age."),
}


async def list_segments(context: AdminContext, request: AdminRequest) -> Answer:
    """List the segments of a partition."""
    topic, index = await context.partition(request)
    pages = SegmentPages(context.broker.store, paths.partition(topic.id_text, index))
    newest_first = request.query["order"] == _NEWEST
    before = None
    while True:
        listed = await _segment_list(context, topic, index)
        try:
            chosen, more = await _page(listed, pages, request.query, newest_first=newest_first)
            break
        except NoNode:  # a trim or a swap let the page go: then the list is another one
            if listed == before:
                raise
            before = listed
    metadata = await asyncio.gather(*(_metadata(context, item.ledger_id) for item in chosen))
    live: Mapping[str, Any] | None = None
    if any(item.facts is None for item in chosen):
        live = await partitions.describe(context, topic, index)
    rows = [
        _shown(segment, ledger, _active(listed, segment, live))
        for segment, ledger in zip(chosen, metadata, strict=True)
    ]
    return Answer({"items": rows, "next": str(chosen[-1].ledger_id) if more else None})


async def _segment_list(context: AdminContext, topic: TopicInfo, index: int) -> SegmentList:
    try:
        node = await context.broker.store.get(paths.partition(topic.id_text, index))
    except NoNode:
        return SegmentList()
    return decode_segments(node.data)


async def _page(
    listed: SegmentList, pages: SegmentPages, query: Mapping[str, Any], *, newest_first: bool
) -> tuple[list[Segment], bool]:
    """Return the segments after the one with the ledger id `after`, in the order asked for, and
    whether there are more. Reads the pages of the list in which they are.

    Segments go at the old end only. So if that ledger is not listed any more, every older one
    is gone too, and the rest begins with the oldest.
    """
    after, limit = number_after(query), query["limit"]
    if after >= 0:
        following = _from(listed, pages, LedgerId(after), newest_first)
        chosen = await _take(following, limit + 2)
        if chosen or newest_first:
            return chosen[1 : limit + 1], len(chosen) > limit + 1
    chosen = await _take(pages.segments(listed, newest_first=newest_first), limit + 1)
    return chosen[:limit], len(chosen) > limit


async def _from(
    listed: SegmentList, pages: SegmentPages, ledger_id: LedgerId, newest_first: bool
) -> AsyncGenerator[Segment, None]:
    """Walk the list from a ledger on; nothing if it is not listed."""
    found = False

    def wanted(ref: PageRef) -> bool:
        return found or ref.may_hold(ledger_id)

    async with aclosing(pages.segments(listed, wanted, newest_first=newest_first)) as walk:
        async for segment in walk:
            found = found or segment.ledger_id == ledger_id
            if found:
                yield segment


async def _take(segments: AsyncGenerator[Segment, None], count: int) -> list[Segment]:
    taken: list[Segment] = []
    async with aclosing(segments):
        async for segment in segments:
            taken.append(segment)
            if len(taken) == count:
                break
    return taken


async def _metadata(context: AdminContext, ledger_id: LedgerId) -> LedgerMetadata | None:
    try:
        return await context.broker.ledgers.describe(ledger_id)
    except NoSuchLedger:
        return None


def _active(
    listed: SegmentList, segment: Segment, live: Mapping[str, Any] | None
) -> Mapping[str, int] | None:
    """Return how far the segment being written has got, if its leader said so."""
    is_last = segment == listed.segments[-1]
    if not is_last or live is None or live["high_watermark"] is None:
        return None
    return {
        "last_offset": live["high_watermark"] - 1,
        "bytes": max(0, live["bytes"] - listed.size_bytes),
    }


def _shown(
    segment: Segment, ledger: LedgerMetadata | None, active: Mapping[str, int] | None
) -> dict[str, Any]:
    facts = segment.facts
    if facts is not None:
        last_offset, size, newest = facts.last_offset, facts.size_bytes, facts.max_timestamp_ms
    return {
        "ledger_id": segment.ledger_id,
        "state": _state(segment, ledger),
        "is_stored": segment.stored is not None,
        "is_sealed": facts is not None,
        "base_offset": segment.base_offset,
        "last_offset": last_offset if facts else active and active["last_offset"],
        "bytes": size if facts else active and active["bytes"],
        "leader_epoch": segment.leader_epoch,
        "created_ms": segment.created_ms,
        "max_timestamp_ms": newest if facts else None,
        "ensemble_size": ledger.ensemble_size if ledger else 0,
        "write_quorum": ledger.write_quorum if ledger else 0,
        "ack_quorum": ledger.ack_quorum if ledger else 0,
        "last_entry": ledger.last_entry if ledger and ledger.is_closed else None,
        "fragments": _fragments(ledger) if ledger else [],
    }


def _state(segment: Segment, ledger: LedgerMetadata | None) -> str:
    if segment.is_ledger_gone:
        return "gone"
    return "missing" if ledger is None else ledger.state.name.lower()


def _fragments(ledger: LedgerMetadata) -> list[dict[str, Any]]:
    ends: list[int | None] = [fragment.first_entry - 1 for fragment in ledger.fragments[1:]]
    ends.append(ledger.last_entry if ledger.is_closed else None)
    return [
        {
            "first_entry": fragment.first_entry,
            "last_entry": end,
            "bookies": list(fragment.ensemble),
        }
        for fragment, end in zip(ledger.fragments, ends, strict=True)
    ]


OPERATIONS: Final = (
    Operation(
        name="list_segments", role=Role.LOOK, method="GET",
        path="/topics/{topic}/partitions/{partition}/segments",
        summary="List the ledgers of a partition: state, offsets, size, and on which bookies.",
        handle=list_segments, gives={JSON: ref("SegmentPage")}, problems=(404,),
        query={
            **QUERY,
            "order": text("Which comes first.", enum=[_OLDEST, _NEWEST], default=_OLDEST),
        },
    ),
)  # fmt: skip
