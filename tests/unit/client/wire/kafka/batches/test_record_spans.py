"""Records taken out of a batch: what stays is what it was."""

from __future__ import annotations

import pytest

from client.errors import RemoteProtocolError
from client.ids import Offset
from client.wire.kafka.batches.record_spans import open_records, rebuilt, record_spans
from client.wire.kafka.batches.records import (
    DELETE_HORIZON_BIT,
    Codec,
    Record,
    build_batch,
    crc_of,
    parse_header,
    records,
    stamp_log_append_time,
)

MADE = [
    Record(b"a", b"1", 1000, (("h", b"x"),)),
    Record(b"b", None, 900),
    Record(None, b"3", 5000),
    Record(b"", b"", 1001),
]


def made(codec: Codec = Codec.NONE) -> bytes:
    return build_batch(MADE, base_offset=Offset(70), codec=codec, base_sequence=5)


@pytest.mark.parametrize("codec", list(Codec))
def test_what_stays_keeps_offset_time_key_value_and_headers(codec: Codec) -> None:
    batch = made(codec)
    header = parse_header(batch)
    body = open_records(batch, header)
    spans = [*record_spans(body, header.record_count)]
    assert [span[5] for span in spans] == [b"a", b"b", None, b""]
    assert [span[6] for span in spans] == [True, False, True, True]
    for kept in ([0], [1, 3], [0, 1, 2, 3]):
        after = rebuilt(header, body, [spans[at] for at in kept], None)
        changed = parse_header(after)
        assert changed.crc == crc_of(memoryview(after))
        expected = [MADE[at]._replace(offset=Offset(70 + at)) for at in kept]
        assert [*records(after)] == expected
        same = ("base_offset", "last_offset_delta", "base_timestamp", "base_sequence", "attributes")
        for name in same:
            assert getattr(changed, name) == getattr(header, name)
        assert changed.max_timestamp == max(record.timestamp_ms for record in expected)


def test_a_delete_horizon_moves_no_timestamp() -> None:
    batch = made()
    header = parse_header(batch)
    body = open_records(batch, header)
    spans = [*record_spans(body, header.record_count)]
    after = rebuilt(header, body, spans[1:], 123_456_789)
    changed = parse_header(after)
    assert changed.attributes & DELETE_HORIZON_BIT
    assert changed.base_timestamp == 123_456_789
    assert [record.timestamp_ms for record in records(after)] == [900, 5000, 1001]
    again = rebuilt(
        changed, open_records(after, changed),
        [*record_spans(open_records(after, changed), 3)][:1], None,
    )  # fmt: skip
    assert parse_header(again).base_timestamp == 123_456_789
    assert [record.timestamp_ms for record in records(again)] == [900]


def test_a_time_that_the_broker_has_set_stays_that_of_all() -> None:
    batch = bytearray(made())
    header = parse_header(batch)
    head = stamp_log_append_time(
        memoryview(batch), header, header.base_offset, header.leader_epoch, 777
    )
    batch[: len(head)] = head
    header = parse_header(batch)
    body = open_records(batch, header)
    after = rebuilt(header, body, [*record_spans(body, 4)][1:2], 99)
    assert [record.timestamp_ms for record in records(after)] == [777]


def test_damage_is_an_error() -> None:
    batch = made()
    header = parse_header(batch)
    body = open_records(batch, header)
    for cut in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            list(record_spans(body[:cut], header.record_count))
