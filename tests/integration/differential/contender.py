"""One of two brokers that are asked the same, and what it is asked before each request.

What an answer says is made comparable here: what no two clusters have in common is left out or
gets the name of what it stands for.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from client.wire.kafka.apis import ApiKey, request_type
from tests.integration.differential import bases
from tests.integration.differential.bases import NEVER_TWO_ALIKE
from tests.integration.differential.conversation import CLOSED, TEXTS
from tests.integration.differential.generator import Request
from tests.integration.differential.known import put_in
from tests.integration.differential.plain_wire import (
    Tree,
    complete,
    read_response,
    request_frame,
    strings_of,
)
from tests.integration.differential.steps.transactions import TRANSACTIONAL, transactional

SILENT = "no answer in time"
_TIME_S = 20.0
_NOT_YET = ("coordinator_load_in_progress", "not_coordinator", "coordinator_not_available",
            "concurrent_transactions", "leader_not_available", "not_leader_or_follower",
            "unknown_topic_or_partition", "unknown_topic_id")  # fmt: skip

K = ApiKey


class Contender:
    """A broker, a connection to it, and what it said."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.known: dict[str, Any] = {}
        self._names: dict[str | UUID, str] = {}

    def learn(self, name: str, value: Any) -> None:
        """Note what an answer said, for later requests and answers."""
        self.known[name] = value
        if isinstance(value, str | UUID):
            self._names[value] = f"<{name}>"

    async def versions(self) -> dict[int, tuple[int, int]]:
        """Return the versions that it serves."""
        answer = await self.call(K.API_VERSIONS, 3, {
            "client_software_name": "differential", "client_software_version": "1"})  # fmt: skip
        return {
            row["api_key"]: (row["min_version"], row["max_version"]) for row in answer["api_keys"]
        }

    async def call(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Tree:
        """Ask what must be answered; fields that are missing are empty."""
        entity = request_type(key, version)
        answer = await self._ask(key, version, 0, complete(entity, put_in(fields, self.known)))
        assert not isinstance(answer, str), f"{key.name} {version}: {answer}"
        return answer

    async def settled(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Tree:
        """Ask until what was begun before is there."""
        for _ in range(300):
            answer = await self.call(key, version, fields)
            if not strings_of(answer) & {*_NOT_YET}:
                return answer
            await asyncio.sleep(0.1)
        raise AssertionError(f"{key.name} {version}: still {answer}")

    async def ask(self, request: Request) -> object:
        """Send a request, and return its answer without what differs between any two brokers."""
        for what in request.prepare:
            await self._prepare(what, request.number)
        fields = put_in(request.fields, self.known)
        answer = await self._ask(request.key, request.version, request.number, fields)
        if isinstance(answer, str):
            return answer
        return _Plain(self._names, request.key, strings_of(fields)).tree(answer)

    async def _ask(self, key: ApiKey, version: int, number: int, fields: Tree) -> Tree | str:
        try:
            async with asyncio.timeout(_TIME_S):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port)
                reader, writer = self._streams
                writer.write(request_frame(key, version, number, fields))
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError) as error:
            await self.close()
            return SILENT if isinstance(error, TimeoutError) else CLOSED
        assert struct.unpack_from(">i", frame)[0] == number
        return read_response(key, version, frame)

    async def close(self) -> None:
        """Close the connection; the next request opens one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    # --- what comes before a request ---------------------------------------------------------

    async def _prepare(self, what: str, n: int) -> None:
        if what in ("joined", "member"):
            answer = await self.settled(K.JOIN_GROUP, 3, bases.join_fields(n))
            self._note(answer, f"member {n}", answer["member_id"])
        if what == "member":
            mine = bases.member(n)
            self._note(await self.call(K.SYNC_GROUP, 3, {
                "group_id": f"g-{n}", "generation_id": 1, "member_id": mine,
                "assignments": [{"member_id": mine, "assignment": b"mine"}]}))  # fmt: skip
        elif what == "offsets":
            await self.settled(K.OFFSET_COMMIT, 7, bases.commit_fields(n, 7))
        elif what in ("producer", "transaction"):
            answer = await self.settled(K.INIT_PRODUCER_ID, 4, bases.init_fields(n, 4))
            self._note(answer, f"producer {n}", answer["producer_id"])
            self._note(answer, f"epoch {n}", answer["producer_epoch"])
        elif what == "batch":
            self.known[f"batch {n}"] = transactional(
                producer_id=self.known[f"producer {n}"], producer_epoch=0, base_sequence=0,
                attributes=TRANSACTIONAL,
            )  # fmt: skip
        elif what == "offsets in it":
            self._note(await self.settled(K.ADD_OFFSETS_TO_TXN, 3, {
                "transactional_id": f"x-{n}", "group_id": f"g-{n}",
                **bases.producer(n)}))  # fmt: skip
        if what == "transaction":
            answer = await self.settled(K.ADD_PARTITIONS_TO_TXN, 3, bases.add_fields(n))
            assert strings_of(answer) == {"none", bases.WRITTEN}, answer

    def _note(self, answer: Tree, name: str = "", value: Any = None) -> None:
        assert answer["error_code"] == "none", answer
        if name:
            self.learn(name, value)


class _Plain:
    """Makes an answer to one request comparable."""

    def __init__(self, names: Mapping[str | UUID, str], key: ApiKey, said: set[str]) -> None:
        self._names = names
        self._key = key
        self._said = said

    def tree(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: self._field(name, one)
                for name, one in value.items()
                if name not in NEVER_TWO_ALIKE
            }
        if isinstance(value, list):
            return [self.tree(one) for one in value if not self._is_others(one)]
        if isinstance(value, UUID):
            return self._names.get(value, "some id")
        if isinstance(value, str):
            return self._names.get(value, value)
        return value

    def _field(self, name: str, value: Any) -> Any:
        if name in TEXTS:
            return value is not None
        if name in ("member_id", "leader") and isinstance(value, str) and value:
            return self._names.get(value, value if value in self._said else "a member")
        if name in ("session_id", "producer_id") and value > 0:
            return "one"
        if name == "records":
            return bool(value)
        if name in bases.OFFSETS and self._key in bases.WRITING and value >= 0:
            return "an offset"
        return self.tree(value)

    def _is_others(self, row: Any) -> bool:
        """Say whether a row is of something that another request made or changed."""
        fields = bases.WHOLE_LISTS.get(self._key)
        if fields is None or not isinstance(row, dict):
            return False
        names = {row[name] for name in fields if row.get(name) is not None}
        names |= {part.get("entity_name") for part in row.get("entity") or ()}
        return bool(names - bases.STABLE - self._said - {None})
