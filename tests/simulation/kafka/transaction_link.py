"""A connection of a transactional client, with layouts of its own, in both transaction protocols.

As `connection.py`, for the requests that transactions add. The first protocol (TV1) is spoken in
versions without tagged fields wherever there are such; the second one (TV2, KIP-890) and what came
after them is flexible: strings and arrays have varint lengths plus one, structures end in tags.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tests.simulation.kafka.connection import (
    INIT_PRODUCER_ID,
    PRODUCE,
    Answer,
    KafkaLink,
    Refused,
    text_of,
)

FIND_COORDINATOR, OFFSET_FETCH = 10, 9
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
GROUP_KEY, TRANSACTION_KEY = 0, 1

_FLEXIBLE_SINCE = {
    PRODUCE: 9,
    OFFSET_FETCH: 6,
    FIND_COORDINATOR: 3,
    INIT_PRODUCER_ID: 2,
    ADD_PARTITIONS: 3,
    ADD_OFFSETS: 3,
    END_TXN: 3,
    TXN_OFFSET_COMMIT: 3,
}
_NO_TAGS = b"\0"
_CLIENT_ID = b"\x00\x03sim"


class ProducerKey(NamedTuple):
    """Producer id and epoch."""

    producer_id: int
    epoch: int


class Request(NamedTuple):
    """A request that may be sent over any connection."""

    key: int
    version: int
    body: bytes

    @property
    def is_flexible(self) -> bool:
        """Whether its version has tagged fields."""
        return self.version >= _FLEXIBLE_SINCE[self.key]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _compact(text: str | None) -> bytes:
    return b"\0" if text is None else _varint(len(text) + 1) + text.encode()


def _length(answer: Answer) -> int:
    """Take the length of a compact string or array; -1 for null."""
    number = shift = 0
    while True:
        byte = answer.one("B")
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number - 1


def _skip_tags(answer: Answer) -> None:
    for _ in range(_length(answer) + 1):
        _length(answer)
        answer.bytes(_length(answer) + 1)


# -------------------------------------------------------------------------------- requests


def find_coordinator(key: str, key_type: int) -> Request:
    """Ask for the coordinator of a group or a transactional id."""
    return Request(FIND_COORDINATOR, 2, text_of(key) + struct.pack(">b", key_type))


def init_producer(
    name: str, timeout_ms: int, expected: ProducerKey | None, *, generation: int
) -> Request:
    """Ask for a producer id and epoch, or for another epoch of the one that is expected."""
    key = ProducerKey(-1, -1) if expected is None else expected
    body = _compact(name) + struct.pack(">iqh", timeout_ms, *key) + _NO_TAGS
    return Request(INIT_PRODUCER_ID, 3 + generation, body)


def add_partitions(name: str, key: ProducerKey, topic: str, indexes: list[int]) -> Request:
    """Add partitions of a topic to the transaction (TV1)."""
    rows = struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    body = text_of(name) + struct.pack(">qhi", *key, 1) + text_of(topic) + rows
    return Request(ADD_PARTITIONS, 0, body)


def add_offsets(name: str, key: ProducerKey, group: str) -> Request:
    """Add the offsets of a group to the transaction (TV1)."""
    return Request(ADD_OFFSETS, 0, text_of(name) + struct.pack(">qh", *key) + text_of(group))


def end_transaction(name: str, key: ProducerKey, *, commit: bool, generation: int) -> Request:
    """End the transaction."""
    tail = struct.pack(">qh?", *key, commit)
    if generation == 1:
        return Request(END_TXN, 1, text_of(name) + tail)
    return Request(END_TXN, 5, _compact(name) + tail + _NO_TAGS)


class Offset(NamedTuple):
    """An offset of a group to be committed."""

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str


def commit_offset(name: str, key: ProducerKey, what: Offset, *, generation: int) -> Request:
    """Commit an offset of a group as part of the transaction; the group has no members."""
    if generation == 1:
        head = text_of(name) + text_of(what.group) + struct.pack(">qhi", *key, 1)
        row = struct.pack(">iiqi", 1, what.partition, what.offset, -1) + text_of(what.metadata)
        return Request(TXN_OFFSET_COMMIT, 2, head + text_of(what.topic) + row)
    head = _compact(name) + _compact(what.group) + struct.pack(">qhi", *key, -1)
    row = struct.pack(">iqi", what.partition, what.offset, -1) + _compact(what.metadata) + _NO_TAGS
    topic = _varint(2) + _compact(what.topic) + _varint(2) + row + _NO_TAGS
    return Request(TXN_OFFSET_COMMIT, 5, head + _compact("") + _compact(None) + topic + _NO_TAGS)


def fetch_offset(group: str, topic: str, index: int) -> Request:
    """Ask for a group's stable offset of a partition."""
    row = _varint(2) + struct.pack(">i", index) + _NO_TAGS
    topics = _varint(2) + _compact(topic) + row
    return Request(OFFSET_FETCH, 7, _compact(group) + topics + b"\x01" + _NO_TAGS)


def produce(
    name: str, topic: str, index: int, batch: bytes, timeout_ms: int, *, generation: int
) -> Request:
    """Produce a batch of a transaction; in TV2 that adds its partition, too."""
    numbers = struct.pack(">hi", -1, timeout_ms)
    if generation == 1:
        head = text_of(name) + numbers + struct.pack(">i", 1) + text_of(topic)
        return Request(PRODUCE, 7, head + struct.pack(">iii", 1, index, len(batch)) + batch)
    row = struct.pack(">i", index) + _varint(len(batch) + 1) + batch + _NO_TAGS
    topics = _varint(2) + _compact(topic) + _varint(2) + row + _NO_TAGS
    return Request(PRODUCE, 12, _compact(name) + numbers + topics + _NO_TAGS)


# -------------------------------------------------------------------------------- answers


def read_coordinator(answer: Answer) -> str:
    """Return the host of a coordinator. Raises Refused."""
    _, code = answer.take("ih")
    answer.text()
    answer.take("i")
    host = answer.text()
    if code:
        raise Refused(code, "find coordinator")
    return host


def read_producer(answer: Answer) -> ProducerKey:
    """Return what InitProducerId gave. Raises Refused."""
    _, code, producer_id, epoch = answer.take("ihqh")
    if code:
        raise Refused(code, "init producer")
    return ProducerKey(producer_id, epoch)


def read_added(answer: Answer) -> None:
    """Read the answer to AddPartitionsToTxn. Raises Refused with the most telling error."""
    answer.take("i")
    codes = []
    for _ in range(answer.one("i")):
        answer.text()
        codes += [answer.take("ih")[1] for _ in range(answer.one("i"))]
    _refuse(codes, "add partitions")


def read_code(answer: Answer, what: str) -> None:
    """Read an answer that is an error code. Raises Refused."""
    _refuse([answer.take("ih")[1]], what)


def read_ended(answer: Answer, key: ProducerKey, *, generation: int) -> ProducerKey:
    """Return the producer id and epoch of the next transaction. Raises Refused."""
    read_code(answer, "end transaction")
    return key if generation == 1 else ProducerKey(*answer.take("qh"))


def read_offset_committed(answer: Answer, *, generation: int) -> None:
    """Read the answer to TxnOffsetCommit. Raises Refused."""
    answer.take("i")
    if generation == 1:
        assert answer.one("i") == 1
        answer.text()
        _, _, code = answer.take("iih")
    else:
        assert _length(answer) == 1
        answer.bytes(_length(answer))
        assert _length(answer) == 1
        _, code = answer.take("ih")
    _refuse([code], "commit offset")


def read_offset(answer: Answer) -> int:
    """Return a group's offset of the partition that was asked for. Raises Refused."""
    answer.take("i")
    codes, offset = [], -1
    for _ in range(_length(answer)):
        answer.bytes(_length(answer))
        for _ in range(_length(answer)):
            _, offset, _ = answer.take("iqi")
            answer.bytes(_length(answer))
            codes.append(answer.one("h"))
            _skip_tags(answer)
        _skip_tags(answer)
    codes.append(answer.one("h"))
    _refuse(codes, "fetch offset")
    return offset


def read_produced(answer: Answer, *, generation: int) -> int:
    """Return the base offset of the batch. Raises Refused."""
    if generation == 1:
        assert answer.one("i") == 1
        answer.text()
        _, _, code, base, _, _ = answer.take("iihqqq")
    else:
        assert _length(answer) == 1
        answer.bytes(_length(answer))
        assert _length(answer) == 1
        _, code, base = answer.take("ihq")
    _refuse([code], "produce")
    return base


def _refuse(codes: list[int], what: str) -> None:
    """Raise what says most: OPERATION_NOT_ATTEMPTED only says that something else failed."""
    wrong = sorted(filter(None, codes), key=lambda code: code == _NOT_ATTEMPTED)
    if wrong:
        raise Refused(wrong[0], what)


_NOT_ATTEMPTED = 55


class TransactionLink(KafkaLink):
    """One connection. Answers come in the order of requests."""

    def frame_of(self, request: Request) -> bytes:
        """Encode the next request."""
        self._number += 1
        head = struct.pack(">hhi", request.key, request.version, self._number) + _CLIENT_ID
        if request.is_flexible:
            head += _NO_TAGS
        return struct.pack(">i", len(head) + len(request.body)) + head + request.body

    def write(self, frame: bytes) -> None:
        """Send an encoded request."""
        self._writer.write(frame)

    async def ask(self, request: Request, timeout_s: float) -> Answer:
        """Send a request and read its answer. Raises OSError, EOFError, TimeoutError."""
        self.write(self.frame_of(request))
        return await self.answer_to(request, timeout_s)

    async def answer_to(self, request: Request, timeout_s: float) -> Answer:
        """Read the answer to the oldest request, which is this one. Raises as `ask`."""
        answer = await self.receive(timeout_s)
        if request.is_flexible:
            _skip_tags(answer)
        return answer
