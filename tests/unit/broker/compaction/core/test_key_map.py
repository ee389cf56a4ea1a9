"""The key map: newest offsets, a limit, a hash that depends on its secret."""

from __future__ import annotations

import random

from broker.compaction.core.key_map import SECRET_BYTES, SLOT_BYTES, KeyMap, slots_within
from client.ids import Offset

SECRET = bytes(range(SECRET_BYTES))
ALL = (Offset(0), Offset(1 << 40))


def test_it_knows_what_a_dict_knows() -> None:
    rng = random.Random(3)
    keys, known = KeyMap(2000, SECRET, *ALL), {}
    for offset in range(5000):
        key = b"k%d" % rng.randrange(1700)
        assert keys.put(key, Offset(offset))
        known[key] = offset
    assert len(keys) == len(known)
    assert all(keys.newest(key) == offset for key, offset in known.items())
    assert keys.newest(b"other") == -1


def test_a_full_map_takes_newer_offsets_of_its_keys_and_no_other_key() -> None:
    keys = KeyMap(10, SECRET, *ALL)
    assert [keys.put(b"%d" % number, Offset(number)) for number in range(10)] == [True] * 9 + [
        False
    ]
    assert keys.put(b"3", Offset(50))
    assert (keys.newest(b"3"), keys.newest(b"9")) == (50, -1)
    assert keys.size_bytes == 10 * (SLOT_BYTES + 1)


def test_what_a_newer_record_supersedes_is_noted_as_far_as_there_is_room() -> None:
    keys = KeyMap(4, SECRET, Offset(100), Offset(1000))
    for offset, key in enumerate([b"a", b"b", b"a", b"a", *[b"b"] * 40], 100):
        assert keys.put(key, Offset(offset))
    superseded = keys.superseded
    assert (superseded.start, superseded.end, superseded.size_bytes) == (100, 132, 4)
    assert [one for one in range(100, 132) if not superseded.has(Offset(one))] == [103]


def test_an_empty_map_knows_nothing() -> None:
    assert KeyMap(2, SECRET, *ALL).newest(b"") == -1


def test_where_a_key_stands_depends_on_the_secret() -> None:
    keys = [b"%d" % number for number in range(50)]

    def places(secret: bytes) -> list[tuple[int, int]]:
        return [KeyMap(1000, secret, *ALL)._halves(key) for key in keys]

    assert places(SECRET) == places(SECRET)
    assert not {*places(SECRET)} & {*places(bytes(SECRET_BYTES))}


def test_slots_are_as_many_as_may_be_needed_or_as_fit() -> None:
    assert slots_within(64 << 20, 1000) * 9 // 10 >= 1000
    assert slots_within(25 * 100, 1 << 40) == 100
    assert slots_within(1, 0) == 2
