"""A Kafka client connection for simulated clients, with layouts of its own.

It encodes and decodes the few requests that schedules need by fixed layouts, so that it shares
no mistake with the broker's own codecs and costs little. All versions are ones without tagged
fields.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.fakes.sasl_client import ScramClient

if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 9092
MECHANISM = "SCRAM-SHA-256"

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
CREATE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 19, 21, 22
EARLIEST, LATEST = -2, -1
OUT_OF_RANGE = 1

_VERSIONS = {
    PRODUCE: 7,
    FETCH: 11,
    LIST_OFFSETS: 4,
    METADATA: 7,
    SASL_HANDSHAKE: 1,
    SASL_AUTHENTICATE: 1,
    CREATE_TOPICS: 3,
    DELETE_RECORDS: 1,
    INIT_PRODUCER_ID: 1,
}
_WRONG_PASSWORD = 58
_CLIENT_ID = b"\x00\x03sim"


class Refused(Exception):
    """An error code that a broker answered."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code


class Account(NamedTuple):
    """Whom a client logs in as, and who is told what came of it."""

    user: str
    password: str
    heard: Callable[[str, str, float, bool], None]
    """(user, password, when its first request left, whether it was taken)"""
    unproven: Callable[[str, str], None]
    """(user, host): a broker took a login, and showed no knowledge of the password."""
    overstayed: Callable[[str, float], None]
    """A request that left so long after the login had ended was answered."""


class Leader(NamedTuple):
    """Who leads a partition, as one broker sees it."""

    host: str
    epoch: int


class Aborted(NamedTuple):
    """An aborted transaction, as a fetch's answer names it."""

    producer_id: int
    first_offset: int


class Fetched(NamedTuple):
    """A fetch's answer for one partition."""

    code: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: list[Aborted]
    records: bytes
    replica: int
    """The broker to read from instead; -1: this one."""


class Answer:
    """Reads fields from an answer."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, layout: str) -> tuple[int, ...]:
        """Take the fields of a struct layout."""
        packed = ">" + layout
        values = struct.unpack_from(packed, self._body, self._at)
        self._at += struct.calcsize(packed)
        return values

    def one(self, layout: str) -> int:
        """Take one field."""
        return self.take(layout)[0]

    def bytes(self, size: int) -> bytes:
        """Take so many bytes; none for a negative size."""
        size = max(size, 0)
        data = self._body[self._at : self._at + size]
        assert len(data) == size
        self._at += size
        return data

    def text(self) -> str:
        """A string; null is empty."""
        return self.bytes(self.one("h")).decode()


def text_of(text: str) -> bytes:
    """Encode a string."""
    return struct.pack(">h", len(text)) + text.encode()


def produce_body(topic: str, index: int, batch: bytes, timeout_ms: int) -> bytes:
    """Encode a Produce request of one batch with acks=all."""
    head = struct.pack(">hhii", -1, -1, timeout_ms, 1) + text_of(topic)
    return head + struct.pack(">iii", 1, index, len(batch)) + batch


class KafkaLink:
    """One connection. Answers come in the order of requests."""

    def __init__(
        self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.host = host
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._heard = 0
        self._account: Account | None = None
        self._ends_s = math.inf
        self._sent_s: deque[float] = deque()
        """When the requests left that are not answered, where there are logins."""

    @classmethod
    async def connect(cls, host: str, timeout_s: float, account: Account | None = None) -> Self:
        """Connect to a broker, and log in if there is an account. Raises OSError,
        IncompleteReadError, TimeoutError, Refused."""
        async with asyncio.timeout(timeout_s):
            link = cls(host, *await asyncio.open_connection(host, PORT))
        if account is not None:
            try:
                await link.log_in(account, timeout_s)
            except BaseException:
                link.close()
                raise
        return link

    async def log_in(self, account: Account, timeout_s: float) -> None:
        """Log in. Raises OSError, IncompleteReadError, TimeoutError, Refused."""
        sent_s = asyncio.get_running_loop().time()
        answer = await self.call(SASL_HANDSHAKE, text_of(MECHANISM), timeout_s)
        if code := answer.one("h"):
            raise Refused(code, "handshake")
        scram = ScramClient(MECHANISM, account.user, account.password)
        challenge, _ = await self._token(scram.first(), timeout_s)
        signature = b""
        try:
            signature, lifetime_ms = await self._token(scram.final(challenge), timeout_s)
        except Refused as refused:
            if refused.code == _WRONG_PASSWORD:  # else nobody knows, and it is to be tried again
                account.heard(account.user, account.password, sent_s, False)
            raise
        account.heard(account.user, account.password, sent_s, True)
        if signature != scram.expected:
            account.unproven(account.user, self.host)
            raise Refused(_WRONG_PASSWORD, "login: the broker does not know the password")
        self._account = account
        if lifetime_ms:
            self._ends_s = asyncio.get_running_loop().time() + lifetime_ms / 1000

    async def _token(self, token: bytes, timeout_s: float) -> tuple[bytes, int]:
        """Send a token; return what is answered, and how long the login lasts. Raises Refused."""
        body = struct.pack(">i", len(token)) + token
        answer = await self.call(SASL_AUTHENTICATE, body, timeout_s)
        code = answer.one("h")
        answer.text()
        if code:
            raise Refused(code, "login")
        return answer.bytes(answer.one("i")), answer.one("q")

    def close(self) -> None:
        """Close without waiting."""
        self._writer.close()

    @property
    def transport(self) -> asyncio.Transport:
        """The connection itself, for those who do not behave."""
        return self._writer.transport

    def frame(self, key: int, body: bytes) -> bytes:
        """Encode the next request."""
        self._number += 1
        head = struct.pack(">hhi", key, _VERSIONS[key], self._number) + _CLIENT_ID
        return struct.pack(">i", len(head) + len(body)) + head + body

    def send(self, key: int, body: bytes) -> None:
        """Send a request without waiting for its answer."""
        if self._account is not None:
            self._sent_s.append(asyncio.get_running_loop().time())
        self._writer.write(self.frame(key, body))

    async def receive(self, timeout_s: float) -> Answer:
        """Read the next answer. Raises OSError, IncompleteReadError, TimeoutError."""
        async with asyncio.timeout(timeout_s):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            body = await self._reader.readexactly(size)
        self._heard += 1
        assert int.from_bytes(body[:4], "big") == self._heard, "answers out of order"
        if self._account is not None and (sent_s := self._sent_s.popleft()) > self._ends_s:
            self._account.overstayed(self._account.user, sent_s - self._ends_s)
        return Answer(body[4:])

    async def call(self, key: int, body: bytes, timeout_s: float) -> Answer:
        """Send a request and read its answer."""
        self.send(key, body)
        return await self.receive(timeout_s)

    # ---------------------------------------------------------------- requests

    async def leaders(self, topic: str, timeout_s: float) -> dict[int, Leader]:
        """Ask who leads each partition of a topic; those without a leader are left out."""
        return (await self.topic(topic, timeout_s))[1]

    async def topic(self, topic: str, timeout_s: float) -> tuple[int, dict[int, Leader]]:
        """Ask about a topic: (error code, who leads each partition that has a leader)."""
        answer = await self.call(METADATA, struct.pack(">i", 1) + text_of(topic) + b"\0", timeout_s)
        answer.take("i")
        hosts: dict[int, str] = {}
        for _ in range(answer.one("i")):
            node = answer.one("i")
            hosts[node] = answer.text()
            answer.take("i")
            answer.text()
        answer.text()
        answer.take("i")
        found: dict[int, Leader] = {}
        code = 0
        for _ in range(answer.one("i")):
            code = answer.one("h")
            answer.text()
            answer.take("b")
            for _ in range(answer.one("i")):
                _, index, leader, epoch = answer.take("hiii")
                for _ in range(3):
                    answer.take(f"{answer.one('i')}i")
                if leader in hosts:
                    found[index] = Leader(hosts[leader], epoch)
        return code, found

    def send_produce(self, topic: str, index: int, batch: bytes, timeout_ms: int) -> None:
        """Send a batch with acks=all."""
        self.send(PRODUCE, produce_body(topic, index, batch, timeout_ms))

    async def produced(self, timeout_s: float) -> tuple[int, int]:
        """Read the answer to the oldest batch: (error code, base offset)."""
        answer = await self.receive(timeout_s)
        assert answer.one("i") == 1
        answer.text()
        _, _, code, base, _, _ = answer.take("iihqqq")
        return code, base

    async def fetch(
        self,
        topic: str,
        index: int,
        offset: int,
        epoch: int,
        *,
        max_bytes: int,
        timeout_s: float,
        committed: bool = False,
        rack: str = "",
    ) -> Fetched:
        """Fetch from one partition; `committed`: with isolation level read_committed; `rack`: where
        the client says that it is."""
        answer = await self.call(
            FETCH,
            struct.pack(">iiiibiii", -1, 300, 1, max_bytes, committed, 0, -1, 1)
            + text_of(topic)
            + struct.pack(">iiiqqi", 1, index, epoch, offset, -1, max_bytes)
            + struct.pack(">i", 0)
            + text_of(rack),
            timeout_s,
        )
        _, code, _ = answer.take("ihi")
        if code:
            raise Refused(code, "fetch")
        assert answer.one("i") == 1
        answer.text()
        _, _, code, high, stable, start = answer.take("iihqqq")
        aborted = [Aborted(*answer.take("qq")) for _ in range(answer.one("i"))]
        replica = answer.one("i")
        return Fetched(code, high, stable, start, aborted, answer.bytes(answer.one("i")), replica)

    async def offset(
        self,
        topic: str,
        index: int,
        timestamp: int,
        epoch: int,
        timeout_s: float,
        *,
        committed: bool = False,
    ) -> int:
        """List one offset by timestamp; `committed` as for a fetch. Raises Refused."""
        answer = await self.call(
            LIST_OFFSETS,
            struct.pack(">ibi", -1, committed, 1)
            + text_of(topic)
            + struct.pack(">iiiq", 1, index, epoch, timestamp),
            timeout_s,
        )
        answer.take("ii")
        answer.text()
        _, _, code, _, offset, _ = answer.take("iihqqi")
        if code:
            raise Refused(code, "list offsets")
        return offset

    async def init_producer(self, timeout_s: float) -> int:
        """Get a producer id. Raises Refused."""
        answer = await self.call(INIT_PRODUCER_ID, struct.pack(">hi", -1, 1000), timeout_s)
        _, code, producer_id, _ = answer.take("ihqh")
        if code:
            raise Refused(code, "init producer")
        return producer_id

    async def create_topic(
        self, topic: str, partitions: int, copies: int, configs: dict[str, str], timeout_s: float
    ) -> None:
        """Create a topic. Raises Refused."""
        rows = b"".join(text_of(key) + text_of(value) for key, value in configs.items())
        answer = await self.call(
            CREATE_TOPICS,
            struct.pack(">i", 1)
            + text_of(topic)
            + struct.pack(">ihii", partitions, copies, 0, len(configs))
            + rows
            + struct.pack(">i?", 2000, False),
            timeout_s,
        )
        answer.take("ii")
        answer.text()
        code = answer.one("h")
        if code:
            raise Refused(code, "create topic")

    async def delete_records(self, topic: str, index: int, offset: int, timeout_s: float) -> int:
        """Delete what is below an offset; return the new log start. Raises Refused."""
        answer = await self.call(
            DELETE_RECORDS,
            struct.pack(">i", 1) + text_of(topic) + struct.pack(">iiqi", 1, index, offset, 2000),
            timeout_s,
        )
        answer.take("ii")
        answer.text()
        _, _, low, code = answer.take("iiqh")
        if code:
            raise Refused(code, "delete records")
        return low
