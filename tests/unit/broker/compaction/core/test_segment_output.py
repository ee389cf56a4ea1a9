"""A compacted ledger: snapshots at both ends, batches together, places for searches."""

from __future__ import annotations

from broker.compaction.core.segment_output import ENTRY_BYTES, SegmentOutput
from client.ids import LeaderEpoch, Offset
from client.log.entry_format import first_offset, is_internal
from client.log.snapshot import open_snapshot
from client.wire.kafka.batches.records import parse_header
from tests.fakes.keyed import keyed


def test_it_begins_and_ends_with_a_snapshot_and_shares_entries() -> None:
    output = SegmentOutput(Offset(10), LeaderEpoch(3), 2)
    entries = [output.begin()]
    sizes = 0
    for offset in range(10, 200, 5):
        batch = keyed(("k", "v" * 5000), base_offset=offset, timestamp_ms=1000 + offset)
        sizes += len(batch)
        entry = output.add(batch, parse_header(batch))
        if entry:
            assert sum(map(len, entry[0])) >= ENTRY_BYTES
            entries += entry
    entries += output.end(Offset(230))
    first, *_, last = [b"".join(map(bytes, entry)) for entry in entries]
    assert is_internal(first)
    assert first_offset(first) == 10
    snapshot = open_snapshot(last)
    assert (snapshot.log_end_offset, snapshot.leader_epoch) == (230, 3)
    assert snapshot.max_timestamp_ms == 1195
    assert [(point.offset, point.entry_id) for point in snapshot.points] == [(10, 1)]
    facts = output.facts(Offset(230), Offset(230))
    assert (facts.last_offset, facts.max_timestamp_ms) == (229, 1195)
    assert facts.size_bytes == sizes + len(first) + len(last)


def test_one_without_batches_is_two_snapshots() -> None:
    output = SegmentOutput(Offset(10), LeaderEpoch(3), 2)
    output.begin()
    assert len(output.end(Offset(30))) == 1
    assert output.facts(Offset(30), Offset(30)).max_timestamp_ms == -1
