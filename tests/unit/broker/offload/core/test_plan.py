"""Which segment is copied next, and which ledger may go: lags, local retention, order, the tail."""

from __future__ import annotations

from broker.cluster.core.topic_config import RemoteStorage
from broker.offload.core.plan import Log, Plan, plan
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segment import Segment, SegmentFacts, StoredObject
from client.log.segments import SegmentList

NOW_MS = 1_000_000
DAY = RemoteStorage(is_on=True, local_ms=500)


def listed(*stored: bool | None, empty: int = -1) -> SegmentList:
    """Segments of ten records and 100 bytes, and the active one; None: its ledger is gone."""
    segments, base = [], 0
    for number, is_stored in enumerate(stored):
        count = 0 if number == empty else 10
        facts = SegmentFacts(Offset(base + count - 1), 100, NOW_MS - 1000 + number)
        copy = StoredObject(1, 1, 1, 1, NOW_MS - 100, is_stored is None)
        segments.append(
            Segment(
                LedgerId(number), Offset(base), LeaderEpoch(0), 0, facts,
                stored=None if is_stored is False else copy,
            )
        )  # fmt: skip
        base += count
    active = Segment(LedgerId(len(stored)), Offset(base), LeaderEpoch(0), 0)
    return SegmentList(LeaderEpoch(0), segments=(*segments, active))


def planned(
    found: SegmentList, remote: RemoteStorage = DAY, *, stable: int = 1000, grace_ms: int = 0
) -> Plan:
    return plan(Log(found, found.segments, Offset(stable), 0), remote, grace_ms, NOW_MS)


def ids(found: Plan) -> tuple[int | None, int | None]:
    return (
        None if found.copy is None else int(found.copy.ledger_id),
        None if found.drop is None else int(found.drop.ledger_id),
    )


def test_the_oldest_comes_first() -> None:
    assert ids(planned(listed(False, False, False))) == (0, None)
    assert ids(planned(listed(True, False, False))) == (1, 0)
    assert ids(planned(listed(None, True, True, True))) == (None, 1)


def test_the_tail_keeps_its_ledgers() -> None:
    assert ids(planned(listed(None, None, True))) == (None, None)


def test_nothing_that_is_not_decided_is_copied() -> None:
    assert ids(planned(listed(False, False), stable=9)) == (None, None)
    assert ids(planned(listed(False, False), stable=10)) == (0, None)


def test_nothing_is_skipped() -> None:
    """What comes after a segment that is not due waits, though it were due by itself."""
    late = DAY._replace(lag_ms=1_000, lag_bytes=10_000)
    assert ids(planned(listed(False, False), late)) == (0, None)
    assert planned(listed(False, False, False), late).lag_bytes == 100


def test_either_lag_is_enough() -> None:
    both = DAY._replace(lag_ms=10_000, lag_bytes=200)
    assert ids(planned(listed(False, False, False), both)) == (0, None)
    assert ids(planned(listed(False, False), both)) == (None, None)
    assert ids(planned(listed(False, False), DAY._replace(lag_ms=-1, lag_bytes=-1))) == (None, None)
    assert ids(planned(listed(False, False), DAY._replace(lag_ms=0, lag_bytes=99_999))) == (0, None)


def test_local_retention_by_size_and_grace() -> None:
    by_size = DAY._replace(local_ms=-1, local_bytes=250)
    assert ids(planned(listed(True, True, True, True), by_size)) == (None, 0)
    assert ids(planned(listed(True, True, True), by_size)) == (None, None)
    assert ids(planned(listed(True, True, True), grace_ms=101)) == (None, None)
    assert ids(planned(listed(True, True, True), DAY._replace(local_ms=-1))) == (None, None)


def test_who_copies_no_more_has_no_lag_but_drops() -> None:
    found = planned(listed(True, True, False, False), DAY._replace(copies=False))
    assert ids(found) == (None, 0)
    assert found.lag_bytes == 0


def test_segments_without_records_and_below_the_log_start_are_passed_over() -> None:
    assert ids(planned(listed(False, False, False, empty=0))) == (1, None)
    trimmed = listed(False, False, False)._replace(log_start_offset=Offset(10))
    assert ids(planned(trimmed)) == (1, None)


def test_the_lag_is_told_in_bytes_and_time() -> None:
    found = planned(listed(True, False, False))
    assert (found.lag_bytes, found.lag_since_ms) == (200, 0)
    assert planned(listed(True)).lag_since_ms == -1
