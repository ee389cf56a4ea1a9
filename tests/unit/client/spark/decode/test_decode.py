"""Decoding record batches into Arrow: what is given, what is left out, what is refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import cramjam
import pytest

from client.errors import RemoteProtocolError
from client.spark.decode.batch_run import read_run
from client.spark.decode.decode import DamagedBatch, Wanted, decode, decode_runs
from client.spark.decode.record_fields import PADDING
from client.spark.decode.record_starts import LANES_MIN
from client.spark.splits import AbortedTransaction
from client.wire.kafka.batches.records import Codec, Record, build_batch, pack_batch, parse_header

ALL = 1 << 60


def batch(count: int = 3, base_offset: int = 0, **settings: object) -> bytes:
    found = [Record(b"k", b"v%d" % (base_offset + index), 1000) for index in range(count)]
    return build_batch(found, base_offset=base_offset, **settings)


def offsets(
    chunks: list[bytes],
    start: int = 0,
    end: int = ALL,
    aborted: Sequence[AbortedTransaction] = (),
    **more: object,
) -> list[int]:
    return [
        offset
        for made in decode(chunks, Wanted("t", 3, start, end, ["offset"], **more), aborted)
        for offset in made.column(0).to_pylist()
    ]


def refusal(chunk: bytes, columns: list[str] | None = None, **more: object) -> str:
    with pytest.raises(DamagedBatch) as caught:
        list(decode([batch(7), chunk], Wanted("t", 3, 0, ALL, columns or ["value"], **more)))
    text = str(caught.value)
    assert text.startswith("topic t partition 3: the batch at offset ")
    return text.removeprefix("topic t partition 3: the batch at offset ")


def test_many_batches_of_unequal_sizes_and_lengths() -> None:
    rng = random.Random(5)
    chunks, values, offset = [], [], 0
    for _ in range(3 * LANES_MIN):
        sizes = [rng.choice([0, 1, 70, 130, 9000]) for _ in range(rng.choice([1, 2, 40, 90]))]
        made = [rng.randbytes(size) for size in sizes]
        chunks.append(build_batch([Record(None, one) for one in made], base_offset=offset))
        values += made
        offset += len(made)
    rows = [
        (offset, value)
        for one in decode(chunks, Wanted("t", 0, 0, ALL, ["offset", "value"]))
        for offset, value in zip(*one.to_pydict().values(), strict=True)
    ]
    assert rows == list(enumerate(values))


def test_arrow_batches_are_neither_small_nor_large() -> None:
    chunks = [batch(100, base_offset=at) for at in range(0, 5000, 100)]
    by_rows = [
        one.num_rows for one in decode(chunks, Wanted("t", 0, 0, ALL, ["value"], batch_rows=1000))
    ]
    assert by_rows == [1000] * 5
    large = [build_batch([Record(None, bytes(1000))] * 100)]
    by_bytes = list(decode(large, Wanted("t", 0, 0, ALL, ["value"], batch_bytes=10_000)))
    assert max(one.num_rows for one in by_bytes) <= 10
    assert sum(one.num_rows for one in by_bytes) == 100


def test_chunks_are_asked_for_one_at_a_time() -> None:
    asked = []

    def chunks():
        for at in range(0, 10_000, 100):
            asked.append(at)
            yield batch(100, base_offset=at)

    made = decode(chunks(), Wanted("t", 0, 0, ALL, ["value"], batch_rows=1000))
    next(made)
    assert len(asked) < 40


def test_a_fetch_that_begins_in_the_middle_gives_nothing_twice() -> None:
    whole = batch(10)
    compacted_meanwhile = build_batch([Record(None, b"x")] * 15, base_offset=5)
    assert offsets([whole, whole, compacted_meanwhile], 2, 18) == list(range(2, 18))


def test_batches_outside_of_the_range_are_not_opened() -> None:
    damaged = bytearray(batch(3, base_offset=3))
    damaged[-1] ^= 1
    assert offsets([batch(3) + damaged], 0, 3) == [0, 1, 2]
    assert offsets([damaged + batch(3, base_offset=6)], 6) == [6, 7, 8]


def test_aborted_transactions_and_control_batches_are_no_rows() -> None:
    log = [
        batch(2, 0, producer_id=7, transactional=True),
        batch(2, 2, producer_id=8, transactional=True),
        batch(2, 4, producer_id=7),
        batch(1, 6, producer_id=7, transactional=True, control=True),
        batch(2, 7, producer_id=7, transactional=True),
    ]
    aborted = [AbortedTransaction(7, 0, 6)]
    everything = [0, 1, 2, 3, 4, 5, 7, 8]
    assert offsets(log) == offsets(log, aborted=aborted) == everything
    assert offsets(log, aborted=aborted, read_committed=True) == everything[2:]


def test_the_aborted_list_may_grow_while_chunks_come() -> None:
    aborted: list[AbortedTransaction] = []

    def chunks():
        yield batch(2, 0, producer_id=7, transactional=True)
        aborted.append(AbortedTransaction(7, 2, 3))
        yield batch(2, 2, producer_id=7, transactional=True)

    assert offsets(chunks(), aborted=aborted, read_committed=True) == [0, 1]


def test_snappy_in_the_framing_of_java() -> None:
    plain = batch(50)
    body = plain[61:]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for at in range(0, len(body), 100):
        block = bytes(cramjam.snappy.compress_raw(body[at : at + 100]))
        framed += struct.pack(">i", len(block)) + block
    java = pack_batch(parse_header(plain)._replace(attributes=Codec.SNAPPY), framed)
    assert offsets([java]) == list(range(50))


def test_header_keys_that_are_no_text() -> None:
    made = build_batch([Record(None, b"v", headers=(("é", b"1"),))])
    changed = made[61:].replace("é".encode(), b"\xff\xfe")
    (rows,) = decode([pack_batch(parse_header(made), changed)], Wanted("t", 0, 0, ALL, ["headers"]))
    assert rows.to_pylist() == [{"headers": [{"key": "��", "value": b"1"}]}]


@pytest.mark.parametrize("position", [20, 40, 70, -1])
def test_a_flipped_bit_is_noticed(position: int) -> None:
    damaged = bytearray(batch(3, base_offset=7))
    damaged[position] ^= 4
    assert refusal(bytes(damaged)) == "7 is damaged: wrong checksum"


def test_a_batch_that_is_cut_off() -> None:
    whole = batch(3, base_offset=7)
    assert refusal(whole[:-1]).startswith("7 is damaged: record batch at 0 claims")
    assert refusal(whole[:30]) == "7 is damaged: 30 bytes at 0 are not a record batch"


def test_a_chunk_that_is_cut_off_does_not_go_on_in_the_next_one() -> None:
    whole = batch(3, base_offset=7)
    with pytest.raises(
        DamagedBatch, match=f"offset 7 is damaged: .* claims {len(whole)} of 80 bytes"
    ):
        list(decode([batch(7), whole[:80], whole[80:]], Wanted("t", 3, 0, ALL, ["value"])))
    with pytest.raises(
        DamagedBatch, match="offset 0 is damaged: 30 bytes at 0 are not a record batch"
    ):
        list(decode([whole[:30], whole[30:]], Wanted("t", 3, 0, ALL, ["value"])))


def test_records_that_are_decoded_where_they_lie() -> None:
    """Behind the last batch of an answer there may be anything, and a run may be of any size."""
    chunk = b"".join(batch(100, base_offset=at) for at in range(0, 5000, 100))
    run = read_run(chunk + batch(1)[:50] + b"\xff" * len(PADDING))
    assert run.records == chunk
    made = list(decode_runs([(run, 0)], Wanted("t", 0, 150, 4711, ["offset"], batch_rows=300)))
    assert [at for one in made for at in one.column(0).to_pylist()] == list(range(150, 4711))
    assert max(one.num_rows for one in made) <= 300


def test_batches_of_old_formats() -> None:
    old = bytearray(batch(3, base_offset=7))
    old[16] = 1
    assert refusal(bytes(old)) == "7 is damaged: record batch at 0 has magic 1"


def test_errors_of_whoever_gives_the_chunks_stay_what_they_are() -> None:
    def chunks():
        yield batch(7)
        raise RemoteProtocolError("no answer of Kafka's")

    with pytest.raises(RemoteProtocolError, match="no answer of Kafka's"):
        list(decode(chunks(), Wanted("t", 0, 0, ALL, ["offset"])))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_what_a_batch_may_decompress_to_is_bounded(codec: Codec) -> None:
    bomb = build_batch([Record(None, bytes(1 << 20))], base_offset=7, codec=codec)
    assert len(bomb) < 1 << 17
    text = refusal(bomb, decompressed_bytes_max=1 << 18)
    assert text.startswith("7 is damaged: ")
    assert "262144" in text
    assert list(decode([bomb], Wanted("t", 3, 0, ALL, ["value"], decompressed_bytes_max=1 << 21)))


def test_more_records_than_bytes() -> None:
    made = batch(3, base_offset=7)
    wrong = pack_batch(parse_header(made)._replace(record_count=1 << 30), made[61:])
    assert refusal(wrong) == f"7 is damaged: {1 << 30} records in {len(made) - 61} bytes"


def test_a_field_longer_than_its_record() -> None:
    made = batch(1, base_offset=7)
    body = bytearray(made[61:])
    body[4] = 126  # the key's length, zigzag
    wrong = pack_batch(parse_header(made), body)
    assert refusal(wrong) == "7 is damaged: key of 63 bytes, 5 are left"


def test_offsets_outside_their_batch() -> None:
    made = batch(3, base_offset=7)
    wrong = pack_batch(parse_header(made)._replace(last_offset_delta=1), made[61:])
    assert refusal(wrong) == "7 is damaged: wrong offset delta"


def test_offsets_that_do_not_grow() -> None:
    made = batch(2, base_offset=7)
    body = bytearray(made[61:])
    body[len(body) // 2 + 3] = 0  # the second record's offset delta
    assert refusal(pack_batch(parse_header(made), body)) == "7 is damaged: offsets do not grow"


def test_timestamps_that_spark_cannot_hold() -> None:
    made = build_batch([Record(None, b"v", 1 << 62)], base_offset=7)
    text = refusal(made, ["timestamp"])
    assert text.startswith("7 is damaged: timestamp beyond Spark's range")
    assert "columns" in text
    assert offsets([made]) == [7]
