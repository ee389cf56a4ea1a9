"""Says the same to two brokers, request by request, and notes where they answer differently.

What differs between any two clusters is left out or replaced by what it stands for: addresses,
times, generated ids. Of error messages counts only whether there is one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import re
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from client.wire.kafka.apis import ApiKey, schema_versions
from tests.fakes.wire_client import WireClient

Fields = Mapping[str, Any]

LEFT_OUT = frozenset(
    ("throttle_time", "host", "port", "cluster_id", "log_append_time", "commit_timestamp",
     "transaction_start_time", "last_timestamp", "timestamp", "records", "rack", "producer_id",
     "log_dir", "partition_size")
)  # fmt: skip
TEXTS = frozenset(("error_message", "batch_index_error_message", "documentation"))


def answers(port: int) -> bool:
    """Whether a broker answers ApiVersions and knows itself."""
    request = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
            link.settimeout(2)
            link.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", link.recv(4))
            return size > 24 and bool(struct.unpack(">i", link.recv(size)[4:8])[0])
    except (OSError, struct.error):
        return False


class Seen:
    """What a broker made up, by the order in which it came: ids, members."""

    def __init__(self) -> None:
        self.topics: dict[str, UUID] = {}
        self.members: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        """What steps note for later steps."""

    def name_of(self, topic_id: UUID | None) -> str | None:
        for name, known in self.topics.items():
            if known == topic_id:
                return f"id of {name}"
        return None if topic_id is None else "some id"


class Step(NamedTuple):
    """One request of a conversation."""

    name: str
    key: ApiKey
    fields: Callable[[Seen, int], Fields]
    """What is asked, given what was seen and the version."""
    versions: Sequence[int] | None = None
    """None: every version that both serve."""
    note: Callable[[Seen, Any], None] | None = None
    """Remembers something of the answer."""
    settle: Callable[[Any], bool] | None = None
    """Asked again until this holds: for what takes effect later."""


class Difference(NamedTuple):
    """One field that is not the same."""

    api: str
    version: int
    step: str
    path: str
    kafka: object
    quire: object

    def __str__(self) -> str:
        return (
            f"{self.api} v{self.version} {self.step!r}: {self.path}:"
            f" kafka {self.kafka!r}, quire {self.quire!r}"
        )


CLOSED = "the connection was closed"


class Party:
    """One broker, and a connection to it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.seen = Seen()
        self._client: WireClient | None = None

    async def versions(self) -> dict[int, tuple[int, int]]:
        answer = await self._ask(ApiKey.API_VERSIONS, 3, {
            "client_software_name": "differential", "client_software_version": "1",
        })  # fmt: skip
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    async def ask(self, step: Step, version: int) -> object:
        """Return the answer as plain values."""
        fields = step.fields(self.seen, version)
        for _ in range(100):
            answer = await self._ask(step.key, version, fields)
            if step.settle is None or answer is CLOSED or step.settle(answer):
                break
            await asyncio.sleep(0.1)
        if answer is CLOSED:
            return CLOSED
        if step.note is not None:
            step.note(self.seen, answer)
        return self._plain(answer)

    async def _ask(self, key: ApiKey, version: int, fields: Fields) -> Any:
        if self._client is None:
            self._client = await WireClient.connect(self._port)
        try:
            self._client.send_raw(self._client.frame(key, version, fields))
            return await self._client.receive(20.0)
        except (ConnectionError, asyncio.IncompleteReadError):
            self._client = None
            return CLOSED

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _plain(self, value: Any) -> object:
        if dataclasses.is_dataclass(value):
            return {
                field.name: self._field(field.name, getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.name not in LEFT_OUT
            }
        if isinstance(value, tuple):
            return [self._plain(one) for one in value]
        if isinstance(value, enum.Enum):
            return value.name
        if isinstance(value, UUID):
            return self.seen.name_of(value)
        if isinstance(value, str):
            return self.seen.members.get(value, value)
        return value

    def _field(self, name: str, value: Any) -> object:
        if name in TEXTS:
            return value is not None
        return self._plain(value)


def differences(
    kafka: object, quire: object, path: str = ""
) -> Iterator[tuple[str, object, object]]:
    """Walk two answers; rows of lists are compared by what names them, where something does."""
    if isinstance(kafka, dict) and isinstance(quire, dict):
        for name in kafka:
            yield from differences(kafka[name], quire.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(kafka, list) and isinstance(quire, list):
        ours, theirs = _by_name(quire), _by_name(kafka)
        for name in dict.fromkeys([*theirs, *ours]):
            yield from differences(theirs.get(name), ours.get(name), f"{path}[{name}]")
    elif kafka != quire:
        yield path, kafka, quire


ROW_NAMES = ("name", "topic_name", "topic", "topic_id", "partition_index", "partition_id",
             "partition", "index", "group_id", "group", "resource_name", "api_key", "member_id",
             "key", "transactional_id", "broker_id", "node_id", "entity_type", "user")  # fmt: skip
"""What names a row of a list, the first of these that it has."""


def _by_name(rows: list[object]) -> dict[object, object]:
    found: dict[object, object] = {}
    for at, row in enumerate(rows):
        name: object = at
        if isinstance(row, dict):
            # A null id is a name, too: brokers that leave other rows out have it at another place.
            without = "no id" if "topic_id" in row else at
            name = next((row[one] for one in ROW_NAMES if row.get(one) is not None), without)
            if isinstance(row.get("entity"), list):  # of quotas: all its parts name it
                name = str(sorted(map(str, row["entity"])))
        while name in found:
            name = f"{name}'"
        found[name] = row
    return found


class Explained(NamedTuple):
    """Differences that are meant, and why."""

    where: str
    """Regular expression over `str(Difference)`."""
    reason: str
    depends_on_time: bool = False
    """Whether it may also not be there."""


async def converse(
    steps: Sequence[Step], kafka: Party, quire: Party
) -> tuple[list[Difference], int]:
    """Say all steps in all their versions to both; return what differs, and how many requests."""
    served = [await kafka.versions(), await quire.versions()]
    found: list[Difference] = []
    asked = 0
    for step in steps:
        low = max(schema_versions(step.key)[0], *(one.get(step.key, (0, -1))[0] for one in served))
        high = min(one.get(step.key, (0, -1))[1] for one in served)
        for version in range(low, high + 1):
            if step.versions is not None and version not in step.versions:
                continue
            asked += 1
            theirs = await kafka.ask(step, version)
            ours = await quire.ask(step, version)
            found += (
                Difference(step.key.name.lower(), version, step.name, *row)
                for row in differences(theirs, ours)
            )
    return found, asked


def unexplained(found: Sequence[Difference], table: Sequence[Explained]) -> list[Difference]:
    """Return the differences that no row explains. Fails for rows that explain nothing."""
    used: set[str] = set()
    left = []
    for one in found:
        rows = [row.where for row in table if re.search(row.where, str(one))]
        used.update(rows)
        if not rows:
            left.append(one)
    idle = [row.where for row in table if row.where not in used and not row.depends_on_time]
    assert not idle, f"nothing differs as these rows say: {idle}"
    return left
