"""Bytes of `__transaction_state`: Kafka's layouts, our own tags, older versions, damage."""

from __future__ import annotations

import random
import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.core.coordinator_types import CorruptCoordinatorRecord
from broker.transactions.core.transaction import (
    STATE_NAMES,
    TransactionConfig,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    TransactionVersion,
)
from broker.transactions.core.transaction_records import (
    TransactionEntry,
    UnknownEntry,
    decode,
    in_order,
    transaction_record,
)
from client.errors import ConfigError
from client.ids import ProducerId

TOPIC_ID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
METADATA = TransactionMetadata(
    ProducerId(7),
    3,
    60_000,
    TransactionState.ONGOING,
    (
        TransactionPartition("a", None, 0),
        TransactionPartition("a", None, 2),
        TransactionPartition("b", None, 1),
    ),
    updated_ms=1_700_000_000_002,
    start_ms=1_700_000_000_001,
)
PARTITIONS = b"\x03" + (
    b"\x02a\x03" + struct.pack(">ii", 0, 2) + b"\0" + b"\x02b\x02" + struct.pack(">i", 1) + b"\0"
)
HEAD = struct.pack(">hqhib", 1, 7, 3, 60_000, 1)
TIMES = struct.pack(">qq", 1_700_000_000_002, 1_700_000_000_001)


def round_trip(metadata: TransactionMetadata) -> TransactionMetadata | None:
    entry = decode(*transaction_record("tx", metadata))
    assert isinstance(entry, TransactionEntry)
    assert entry.transactional_id == "tx"
    return entry.metadata


def test_the_bytes_that_kafka_writes() -> None:
    record = transaction_record("tx", METADATA)
    assert record.key == b"\0\0\0\x02tx"
    assert record.value == HEAD + PARTITIONS + TIMES + b"\0"
    assert decode(*record) == TransactionEntry("tx", METADATA)


def test_tags_of_kafka() -> None:
    metadata = METADATA._replace(
        previous_producer_id=ProducerId(5),
        next_producer_id=ProducerId(9),
        version=TransactionVersion.TV2,
        next_epoch=4,
    )
    tags = b"\x04" + (
        b"\x00\x08" + struct.pack(">q", 5)
        + b"\x01\x08" + struct.pack(">q", 9)
        + b"\x02\x02" + struct.pack(">h", 2)
        + b"\x03\x02" + struct.pack(">h", 4)
    )  # fmt: skip
    assert transaction_record("tx", metadata).value == HEAD + PARTITIONS + TIMES + tags
    assert round_trip(metadata) == metadata


def test_tags_of_our_own() -> None:
    partitions = (TransactionPartition("a", None, 0), TransactionPartition("b", TOPIC_ID, 1))
    metadata = METADATA._replace(partitions=partitions, last_epoch=2, number=77)
    rows = b"\x03" + (
        b"\x02a\x02" + struct.pack(">i", 0) + b"\0" + b"\x02b\x02" + struct.pack(">i", 1) + b"\0"
    )
    tags = b"\x03" + (
        b"\x64\x02" + struct.pack(">h", 2)
        + b"\x65\x20" + bytes(16) + TOPIC_ID.bytes
        + b"\x66\x08" + struct.pack(">q", 77)
    )  # fmt: skip
    assert transaction_record("tx", metadata).value == HEAD + rows + TIMES + tags
    assert round_trip(metadata) == metadata


def test_a_topic_that_was_created_again_has_a_row_of_its_own() -> None:
    partitions = in_order(
        [
            TransactionPartition("a", UUID(int=number), index)
            for number in (1, 2)
            for index in (0, 1)
        ]
    )
    assert round_trip(METADATA._replace(partitions=partitions)) == METADATA._replace(
        partitions=partitions
    )


def test_an_empty_id_has_null_for_partitions() -> None:
    metadata = TransactionMetadata(ProducerId(7), 0, 60_000, TransactionState.EMPTY)
    record = transaction_record("tx", metadata)
    assert record.value == struct.pack(">hqhib", 1, 7, 0, 60_000, 0) + b"\0" + struct.pack(
        ">qqB", -1, -1, 0
    )
    assert round_trip(metadata) == metadata


def test_a_complete_one_has_an_empty_list() -> None:
    metadata = METADATA._replace(state=TransactionState.COMPLETE_COMMIT, partitions=())
    value = transaction_record("tx", metadata).value
    assert value is not None
    assert value[len(HEAD)] == 1
    assert round_trip(metadata) == metadata


@pytest.mark.parametrize("partitions", [b"\xff\xff\xff\xff", b"\0\0\0\0", None])
def test_version_0(partitions: bytes | None) -> None:
    rows = partitions or struct.pack(">ih1siiih1sii", 2, 1, b"a", 2, 0, 2, 1, b"b", 1, 1)
    value = struct.pack(">hqhib", 0, 7, 3, 60_000, 1) + rows + TIMES
    expected = METADATA if partitions is None else METADATA._replace(partitions=())
    assert decode(b"\0\0\0\x02tx", value) == TransactionEntry("tx", expected)


def test_tags_that_we_do_not_know_are_passed_over() -> None:
    inner = PARTITIONS.replace(b"\0\x02b", b"\x01\x09\x01x\x02b")
    value = HEAD + inner + TIMES + b"\x02" + b"\x63\x01y" + b"\x66\x08" + struct.pack(">q", 5)
    assert decode(b"\0\0\0\x02tx", value) == TransactionEntry("tx", METADATA._replace(number=5))


def test_tombstones_and_kinds_of_the_future() -> None:
    assert transaction_record("tx", None) == (b"\0\0\0\x02tx", None)
    assert decode(b"\0\0\0\x02tx", None) == TransactionEntry("tx", None)
    assert decode(b"\0\x01whatever", b"") == UnknownEntry(1)


@pytest.mark.parametrize(
    ("state", "epoch", "good"),
    [
        (TransactionState.ONGOING, 32_766, True),
        (TransactionState.ONGOING, 32_767, False),
        (TransactionState.EMPTY, 32_767, False),
        (TransactionState.COMPLETE_COMMIT, 32_767, False),
        (TransactionState.PREPARE_COMMIT, 32_767, True),
        (TransactionState.PREPARE_ABORT, 32_767, True),
        (TransactionState.COMPLETE_ABORT, 32_767, True),
        (TransactionState.ONGOING, -1, False),
        (TransactionState.DEAD, 0, False),
        (TransactionState.PREPARE_EPOCH_FENCE, 0, False),
    ],
)
def test_what_was_never_stored_is_damage(state: TransactionState, epoch: int, good: bool) -> None:
    metadata = METADATA._replace(state=state, epoch=epoch, partitions=())
    if good:
        assert round_trip(metadata) == metadata
    else:
        with pytest.raises(CorruptCoordinatorRecord):
            round_trip(metadata)


VALUE = HEAD + PARTITIONS + TIMES


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", VALUE),
        (b"\xff\xff\0\x02tx", VALUE),
        (b"\0\0\xff\xff", VALUE),
        (b"\0\0\0\x02tx!", VALUE),
        (b"\0\0\0\x02\xff\xff", VALUE),
        (b"\0\0\0\x02tx", b""),
        (b"\0\0\0\x02tx", VALUE),
        (b"\0\0\0\x02tx", VALUE + b"\0\0"),
        (b"\0\0\0\x02tx", b"\0\x02" + VALUE[2:] + b"\0"),
        (b"\0\0\0\x02tx", HEAD + b"\xff\xff\xff\xff\x07" + TIMES + b"\0"),
        (b"\0\0\0\x02tx", VALUE + b"\x01\x02\x02\0\x07"),
        (b"\0\0\0\x02tx", VALUE + b"\x01\x66\x01\0"),
        (b"\0\0\0\x02tx", VALUE + b"\x01\x65\x10" + bytes(16)),
        (b"\0\0\0\x02tx", VALUE + b"\x01\x65\x7f"),
        (b"\0\0\0\x02tx", VALUE + b"\x7f"),
    ],
)
def test_damage(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptCoordinatorRecord):
        decode(key, value)


def test_bits_that_flip_end_in_one_error_only() -> None:
    rng = random.Random(4)
    record = transaction_record("tx", METADATA._replace(number=9, last_epoch=1))
    assert record.value is not None
    for _ in range(3_000):
        spoilt = bytearray(record.value)
        for _ in range(rng.randint(1, 3)):
            spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
        cut = bytes(spoilt[: rng.randint(0, len(spoilt))]) if rng.random() < 0.3 else bytes(spoilt)
        try:
            decode(record.key, cut)
        except CorruptCoordinatorRecord:
            continue


names = st.text(min_size=1, max_size=6)
partitions = st.builds(
    TransactionPartition,
    names,
    st.none() | st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number)),
    st.integers(0, 2**31 - 1),
)
values = st.builds(
    TransactionMetadata,
    producer_id=st.integers(0, 2**63 - 1).map(ProducerId),
    epoch=st.integers(0, 32_766),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if 0 < state < 6]),
    partitions=st.lists(partitions, max_size=6).map(in_order),
    updated_ms=st.integers(-1, 2**50),
    start_ms=st.integers(-1, 2**50),
    previous_producer_id=st.integers(-1, 2**63 - 1).map(ProducerId),
    next_producer_id=st.integers(-1, 2**63 - 1).map(ProducerId),
    version=st.sampled_from(TransactionVersion),
    next_epoch=st.integers(-1, 32_767),
    last_epoch=st.integers(-1, 32_767),
    number=st.integers(0, 2**63 - 1),
)


@given(names, values)
def test_every_value_is_read_as_it_was_written(name: str, metadata: TransactionMetadata) -> None:
    record = transaction_record(name, metadata)
    assert decode(*record) == TransactionEntry(name, metadata)
    assert transaction_record(name, metadata) == record


def test_every_state_has_the_name_that_tools_know() -> None:
    assert STATE_NAMES.keys() == set(TransactionState)
    assert all(name.upper() == state.name.replace("_", "") for state, name in STATE_NAMES.items())


def test_limits_must_make_sense() -> None:
    for name in (
        "transaction_timeout_max_ms",
        "timeout_interval_ms",
        "transactional_ids_max",
        "complete_linger_ms",
    ):
        with pytest.raises(ConfigError):
            TransactionConfig(**{name: 0})
    with pytest.raises(ConfigError):
        TransactionConfig(parked_requests_max=-1)
