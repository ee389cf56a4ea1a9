"""Every record of a batch is read: what is a fault, and that the compiled form says the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from client.wire.kafka.batches import records
from client.wire.kafka.batches.records import (
    BLAMED_MAX,
    HEADER_BYTES,
    TIME_MAX,
    TIME_MIN,
    Fault,
    Record,
    RecordFacts,
    build_batch,
    fault_text,
    put_varint,
    read_records,
    read_slowly,
)
from client.wire.steps import STEP_RECORDS, finish

BASE = 1_000


def varint(value: int) -> bytes:
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


def field(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record(
    *, time: int = 0, number: int = 0, key: bytes | None = b"k", value: bytes | None = b"v",
    headers: bytes = b"\x00", behind: bytes = b"", longer: int = 0,
) -> bytes:  # fmt: skip
    inner = b"\x00" + varint(time) + varint(number) + field(key) + field(value) + headers + behind
    return varint(len(inner) + longer) + inner


def slowly(*arguments: Any) -> RecordFacts:
    return finish(read_slowly(*arguments))


FORMS: list[Callable[..., RecordFacts]] = [slowly, read_records]
"""The reference, and what brokers use: compiled, unless this checkout has nothing built."""


def facts(body: bytes, count: int = 1, base: int = BASE, **terms: Any) -> RecordFacts:
    """Read in all forms, which must agree."""
    terms = {"oldest_ms": TIME_MIN, "latest_ms": TIME_MAX, "keys_required": False, **terms}
    found = [form(body, 0, count, base, *terms.values()) for form in FORMS]
    assert found[0] == found[1], body.hex()
    return found[0]


GOOD = {
    "one": record(),
    "nothing in it": record(key=None, value=None),
    "empty": record(key=b"", value=b""),
    "large": record(key=b"k" * 200, value=bytes(70_000)),
    "headers": record(headers=varint(2) + field(b"a") + field(None) + field(b"") + field(b"v")),
    "a header's name that is no text": record(headers=varint(1) + field(b"\xff") + field(b"")),
    "numbers that are longer than they need be": record(headers=b"\x80\x80\x80\x80\x00"),
}


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD.keys())
def test_what_can_be_read(body: bytes) -> None:
    assert facts(body) == RecordFacts(0, 1, BASE, True, (), ())


BAD = {
    "nothing": (b"", Fault.CUT_OFF),
    "no whole length": (b"\x80", Fault.CUT_OFF),
    "longer than the batch": (record(longer=1), Fault.CUT_OFF),
    "a length of -1": (b"\x01" + bytes(20), Fault.BAD_LENGTH),
    "a length of 33 bits": (b"\xff\xff\xff\xff\x1f" + bytes(20), Fault.LONG_NUMBER),
    "a length without end": (b"\xff" * 30, Fault.LONG_NUMBER),
    "no room for attributes": (b"\x00", Fault.UNEVEN),
    "no room for numbers": (b"\x02\x00", Fault.UNEVEN),
    "shorter than its fields": (record(longer=-1) + b"", Fault.UNEVEN),
    "bytes behind its headers": (record(behind=b"x"), Fault.UNEVEN),
    "a time of 65 bits": (b"\x2a\x00" + b"\xff" * 9 + b"\x02" + bytes(10), Fault.LONG_NUMBER),
    "a delta of 33 bits": (b"\x2a\x00\x00" + b"\xff" * 4 + b"\x10" + bytes(14), Fault.LONG_NUMBER),
    "a key of -2": (b"\x10\x00\x00\x00\x03\x00\x00\x00\x00", Fault.BAD_LENGTH),
    "a value of -2": (b"\x10\x00\x00\x00\x00\x03\x00\x00\x00", Fault.BAD_LENGTH),
    "a key beyond it": (b"\x10\x00\x00\x00\x7e\x00\x00\x00\x00" + bytes(90), Fault.UNEVEN),
    "a value beyond it": (b"\x10\x00\x00\x00\x00\x7e\x00\x00\x00" + bytes(90), Fault.UNEVEN),
    "-1 headers": (record(headers=varint(-1)), Fault.BAD_HEADERS),
    "more headers than bytes": (record(headers=varint(9) + bytes(8)), Fault.BAD_HEADERS),
    "a header without a name": (record(headers=varint(1) + b"\x01\x00"), Fault.NAMELESS),
    "a header's value of -2": (record(headers=varint(1) + b"\x00\x03"), Fault.BAD_LENGTH),
    "a header's value that is cut": (record(headers=varint(1) + b"\x00\x08"), Fault.UNEVEN),
    "bytes behind the last record": (record() + b"\x00", Fault.TRAILING),
    "a record more than told": (record() + record(), Fault.TRAILING),
}  # fmt: skip


@pytest.mark.parametrize(("body", "fault"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_read(body: bytes, fault: Fault) -> None:
    found = facts(body)
    assert (Fault(found.fault), found.record) == (fault, int(fault is Fault.TRAILING))
    later = facts(record() + record() + body, 3)
    assert (Fault(later.fault), later.record) == (fault, 2 + (fault is Fault.TRAILING))
    assert f"record {later.record} of the batch" in fault_text(later)


def test_fewer_records_than_told() -> None:
    assert facts(record() + record(), 3)[:2] == (Fault.CUT_OFF, 2)


def test_the_newest_time_is_that_of_a_record() -> None:
    body = record(time=5) + record(time=20, number=1) + record(time=-7, number=2)
    assert facts(body, 3).newest_ms == BASE + 20
    assert facts(record(time=-BASE - 1)).newest_ms == -1
    assert facts(record(time=-BASE - 9)).newest_ms == -1  # as Kafka: nothing is older than none


@pytest.mark.parametrize(("base", "delta"), [(TIME_MAX, 1), (TIME_MIN, -1), (-2, TIME_MIN)])
def test_a_time_has_64_bits(base: int, delta: int) -> None:
    assert facts(record(time=delta), base=base).fault == Fault.BAD_TIME
    assert facts(record(time=0), base=base).fault == Fault.NONE


def test_times_out_of_bounds_are_named_and_none_is_always_in_bounds() -> None:
    times = [BASE, BASE + 10, BASE + 11, -1, BASE - 10, BASE - 11]
    body = b"".join(record(time=time - BASE, number=at) for at, time in enumerate(times))
    found = facts(body, len(times), oldest_ms=BASE - 10, latest_ms=BASE + 10)
    assert found == RecordFacts(0, 6, BASE + 11, True, (), (2, 5))


def test_keys_that_are_missing_are_named_where_they_are_required() -> None:
    body = b"".join(record(key=b"" if at % 2 else None, number=at) for at in range(5))
    assert facts(body, 5).keyless == ()
    assert facts(body, 5, keys_required=True).keyless == (0, 2, 4)


def test_not_all_of_millions_are_named() -> None:
    body = record(key=None) * 300
    found = facts(body, 300, keys_required=True, latest_ms=0)
    assert found.keyless == found.mistimed == tuple(range(BLAMED_MAX))


@pytest.mark.parametrize("deltas", [(0, 0, 0), (2, 1, 0), (0, 1, 5), (-1, 0, 1)])
def test_deltas_that_do_not_count_up_are_told_and_no_fault(deltas: tuple[int, ...]) -> None:
    body = b"".join(record(number=number) for number in deltas)
    assert facts(body, 3) == RecordFacts(0, 3, BASE, False, (), ())


def test_the_reference_takes_steps() -> None:
    count = 3 * STEP_RECORDS
    terms = (TIME_MIN, TIME_MAX, False)
    assert sum(1 for _ in read_slowly(record() * count, 0, count, BASE, *terms)) == 3
    headers = varint(count) + bytes(2) * count
    assert sum(1 for _ in read_slowly(record(headers=headers), 0, 1, BASE, *terms)) == 3


def random_records(rng: random.Random) -> tuple[bytes, int]:
    def content() -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice([0, 1, 3, 70, 200]))

    made = [
        Record(
            content(), content(), BASE + rng.choice([0, 0, 1, -5, 100_000, -BASE - 1]),
            tuple((f"h{at}", content()) for at in range(rng.choice([0, 0, 1, 3]))),
        )
        for _ in range(rng.randrange(1, 8))
    ]  # fmt: skip
    return build_batch(made)[HEADER_BYTES:], len(made)


def mutations(rng: random.Random, body: bytes) -> Iterator[bytes]:
    yield body
    for _ in range(20):
        data = bytearray(body)
        for _ in range(rng.choice([1, 1, 2])):
            at = rng.randrange(len(data))
            kind = rng.randrange(5)
            if kind == 0:
                data[at] = rng.choice([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            elif kind == 1:
                data[at:at] = rng.choice([b"\x00", b"\xff" * 9, b"\x80\x00", rng.randbytes(3)])
            elif kind == 2 and len(data) > 1:
                del data[at]
            elif kind == 3:
                data += rng.randbytes(rng.randrange(1, 20))
            else:
                data = data[: at + 1]
        yield bytes(data)


def test_both_forms_say_the_same_of_generated_batches() -> None:
    """Good ones, and ones with every kind of fault."""
    rng = random.Random(20)
    seen = dict.fromkeys(Fault, 0)
    for _ in range(1_000):
        body, count = random_records(rng)
        for data in mutations(rng, body):
            told = count + rng.choice([0, 0, 0, 0, 0, 1, -1])
            base = rng.choice([BASE, BASE, -1, TIME_MAX - 50_000, TIME_MIN + 3])
            found = facts(
                data, told, base, keys_required=rng.random() < 0.5,
                oldest_ms=rng.choice([TIME_MIN, BASE]), latest_ms=rng.choice([TIME_MAX, BASE + 9]),
            )  # fmt: skip
            seen[Fault(found.fault)] += 1
    assert min(seen.values()) >= 20, seen


def test_where_nothing_is_compiled_the_reference_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "compiled", None)
    terms = (TIME_MIN, TIME_MAX, False)
    assert read_records(record(time=3), 0, 1, BASE, *terms).newest_ms == BASE + 3
