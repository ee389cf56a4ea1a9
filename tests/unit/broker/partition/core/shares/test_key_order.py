"""Order by key, dead letters and waits in the window of a share group: a test for each rule."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.partition.core.shares.key_order import KeyOrder, key_hashes
from broker.partition.core.shares.share_partition import (
    ACCEPT,
    REJECT,
    RELEASE,
    Acknowledgement,
    Extent,
    SharePartition,
    ShareTerms,
)
from broker.partition.core.shares.share_updates import ShareUpdate, decode_updates, encode_updates
from client.ids import Offset
from client.wire.kafka.batches.records import Codec, Record, build_batch, parse_header

PLAIN = ShareTerms(lock_s=10.0, deliveries_max=3, window_max=100)
TERMS = PLAIN._replace(is_ordered=True)
LETTERS = PLAIN._replace(has_dead_letters=True)
WAITS = PLAIN._replace(retry_ms=1_000, retry_max_ms=3_000)
NOW_MS = 1_000_000


def share(start: int = 0) -> SharePartition:
    return SharePartition("g", UUID(int=1), Offset(start))


def take(
    one: SharePartition, last: int, terms: ShareTerms = TERMS, keys: dict[int, int] | None = None
) -> list[tuple[int, int]]:
    wanted = one.wanted(terms)
    if wanted is None or wanted > last:
        return []
    found = one.acquire(
        [Extent(wanted, Offset(last))], "m", 0.0, terms,
        read_from=wanted, count_max=100, is_strict=False, keys=keys or {},
    )  # fmt: skip
    one.check()
    return [(each.first, each.last) for each in found]


def say(one: SharePartition, offset: int, kind: int, terms: ShareTerms = TERMS) -> ShareUpdate:
    asked = [Acknowledgement(Offset(offset), Offset(offset), [kind])]
    update = one.acknowledge("m", asked, 1.0, terms, NOW_MS)
    one.check()
    assert update is not None
    return update


def again(*updates: ShareUpdate) -> SharePartition:
    found = share()
    for update in decode_updates(memoryview(encode_updates(updates))):
        found.apply(update)
    found.check()
    return found


def test_key_late_the_next_comes_when_the_end_of_the_last_is_durable() -> None:
    one, keys = share(), {0: 7, 1: 7, 2: 8}
    assert take(one, 2, keys=keys) == [(0, 0), (2, 2)]
    update = say(one, 0, ACCEPT)
    assert take(one, 2, keys=keys) == []
    assert one.on_durable(update), "who waits is told"
    assert take(one, 2, keys=keys) == [(1, 1)]


def test_what_is_released_keeps_its_place() -> None:
    one, keys = share(), {0: 7, 1: 7}
    take(one, 1, keys=keys)
    one.on_durable(say(one, 0, RELEASE))
    assert take(one, 1, keys=keys) == [(0, 0)]


def test_a_record_that_waits_holds_back_its_key_and_no_other_also_after_a_takeover() -> None:
    terms, keys = WAITS._replace(is_ordered=True), {0: 7, 1: 7, 2: 8, 3: 8}
    one = share()
    assert take(one, 3, terms, keys) == [(0, 0), (2, 2)]
    update = say(one, 0, RELEASE, terms)
    one.on_durable(update)
    one.on_durable(say(one, 2, ACCEPT, terms))
    assert take(one, 3, terms, keys) == [(3, 3)]
    found = again(one.whole())
    assert found.wanted(terms) == 0, "its key has to be known"
    assert take(found, 3, terms, keys) == [(3, 3)]
    assert take(found, 3, terms, keys) == []
    assert found.free_due(NOW_MS + 1_000)
    assert take(found, 3, terms, keys) == [(0, 0)]


def test_a_trim_lets_the_next_of_a_key_come() -> None:
    one, keys = share(), {0: 7, 1: 7}
    take(one, 1, keys=keys)
    one.trim(Offset(1))
    assert take(one, 1, keys=keys) == [(1, 1)]


def test_order_is_for_the_window_only() -> None:
    one = share()
    keys = dict.fromkeys(range(1_000), 7)
    for offset in range(300):
        assert take(one, 999, keys=keys) == [(offset, offset)]
        one.on_durable(say(one, offset, ACCEPT))
    assert one._order is not None
    assert len(one._order) <= TERMS.window_max
    one._order.check()


@pytest.mark.parametrize("codec", list(Codec))
def test_keys_of_a_batch(codec: Codec) -> None:
    rows = [Record(b"a", b"1"), Record(None, b"2"), Record(b"b", b"3"), Record(b"a", None)]
    batch = build_batch(rows, base_offset=Offset(10), codec=codec)
    found = key_hashes(batch, parse_header(batch))
    assert list(found) == [10, 12, 13]
    assert found[10] == found[13] != found[12]


def test_a_batch_that_cannot_be_opened_has_no_keys() -> None:
    batch = bytearray(build_batch([Record(b"a", b"1")], codec=Codec.GZIP))
    batch[-8:] = b"damaged!"
    assert key_hashes(batch, parse_header(batch)) == {}


def test_what_leaves_twice_or_was_never_there() -> None:
    order = KeyOrder()
    order.learn(0, 2, {0: 7, 2: 7})
    assert order.leave(0, 0) and not order.leave(0, 1)
    assert not order.leave(0, 1_000_000)
    assert len(order) == 0
    order.check()


# --- dead letters ---------------------------------------------------------------------------


def test_archiving_first_and_letter_first() -> None:
    one = share()
    take(one, 2, LETTERS)
    update = say(one, 1, REJECT, LETTERS)
    assert one.archiving(10) == [], "that it is dead is not durable"
    one.on_durable(update)
    (waiting,) = one.archiving(10)
    assert tuple(waiting) == (1, 1, 3, -1), "rejected, after one delivery"
    say(one, 0, ACCEPT, LETTERS)
    assert one.start == 1, "a record that waits for its letter is not passed"
    archived = one.archived([waiting])
    assert archived is not None and one.start == 2
    assert again(update, archived).start == 2
    assert one.archived([waiting]) is None, "and that once"


def test_archiving_stays_through_a_takeover_with_its_cause() -> None:
    terms = LETTERS._replace(deliveries_max=2)
    one = share()
    take(one, 0, terms)
    one.on_durable(say(one, 0, RELEASE, terms))
    take(one, 1, terms)
    say(one, 0, RELEASE, terms)
    take(one, 1, terms)
    say(one, 1, REJECT, terms)
    found = again(one.whole())
    assert [tuple(each) for each in found.archiving(10)] == [(0, 0, 3, 2), (1, 1, 3, -1)]
    assert [tuple(each)[:2] for each in found.archiving(1)] == [(0, 0)]
    assert found.wanted(terms) == 2, "and is not lent"
    assert found.counts() == (0, 0, 0, 2)


def test_a_trim_does_not_pass_what_waits_for_its_letter() -> None:
    one = share()
    take(one, 4, LETTERS)
    one.on_durable(say(one, 2, REJECT, LETTERS))
    one.trim(Offset(9))
    one.check()
    assert (one.start, one.end) == (2, 9)
    assert one.wanted(LETTERS) == 9
    one.archived(one.archiving(10))
    assert one.start == 9


def test_locks_that_pass_for_the_last_time_make_letters_too() -> None:
    terms = LETTERS._replace(deliveries_max=1)
    one = share()
    take(one, 0, terms)
    update = one.expire(99.0, terms)
    assert update is not None
    one.on_durable(update)
    assert [tuple(each) for each in one.archiving(10)] == [(0, 0, 3, 1)]


# --- waiting --------------------------------------------------------------------------------


def test_each_wait_is_twice_as_long_up_to_the_longest() -> None:
    terms = WAITS._replace(deliveries_max=10)
    one, waits = share(), []
    for _ in range(4):
        take(one, 0, terms)
        update = say(one, 0, RELEASE, terms)
        waits.append(update.waits[0].free_at_ms - NOW_MS)
        one.on_durable(update)
        assert one.wanted(terms) == 1, "nothing is free before its time"
        assert not one.free_due(NOW_MS + waits[-1] - 1)
        assert one.free_due(NOW_MS + waits[-1])
    assert waits == [1_000, 2_000, 3_000, 3_000]


def test_a_record_that_waits_and_is_compacted_away_holds_nobody_up() -> None:
    terms, keys = WAITS._replace(is_ordered=True), {0: 7, 2: 7}
    one = share()
    take(one, 2, terms, keys)
    one.on_durable(say(one, 0, RELEASE, terms))
    found = again(one.whole())
    assert found.wanted(terms) == 0
    acquired = found.acquire(
        [Extent(Offset(1), Offset(2))], "m", 0.0, terms,
        read_from=Offset(0), count_max=10, is_strict=False, keys=keys,
    )  # fmt: skip
    assert [(each.first, each.last) for each in acquired] == [(1, 1), (2, 2)]
    assert found.start == 1


def test_who_goes_gives_back_at_once() -> None:
    one = share()
    take(one, 0, WAITS)
    update = one.release_member("m", WAITS)
    assert update is not None and not update.waits
    one.on_durable(update)
    assert one.wanted(WAITS) == 0
