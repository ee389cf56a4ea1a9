"""An object store in memory, for tests and simulations: it delays, loses answers and refuses.

What a real store may do to us is here on purpose: a put that fails although it has stored the
object, the same put told that it exists, ranges that come back short, bits that flip, an hour of
nothing but 503. Chance is the caller's: `faults` is asked once per call.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import NamedTuple

from client.errors import NoObject, ObjectExists, ObjectStoreError, StoreUnavailable
from client.ids import Clock
from client.objects.store import KINDS, ObjectInfo, Tail


class Fault(NamedTuple):
    """What happens to one call."""

    delay_s: float = 0.0
    refuses: ObjectStoreError | None = None
    """Raised; nothing happens."""
    loses_answer: bool = False
    """It happens, and the caller does not learn of it."""
    says_exists: bool = False
    """A put: it happens, and the caller hears that it existed already."""
    cuts: bool = False
    """A put: half of the object is stored, as if the rest had never come. A read: half of it comes
    back."""
    flips: bool = False
    """A put or a read: a bit is another one."""


NO_FAULT = Fault()


class MemoryObjectStore:
    """All objects in one dict."""

    def __init__(
        self, clock: Clock, faults: Callable[[str, str], Fault] = lambda call, name: NO_FAULT
    ) -> None:
        """`faults` is asked with the name of the method and of the object."""
        self.place = "memory://"
        self.requests: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self.objects: dict[str, bytes] = {}
        self.modified_ms: dict[str, int] = {}
        self.calls: list[tuple[str, str]] = []
        """(method, name) of every call, in order."""
        self.faults = faults
        self._clock = clock

    async def put(self, name: str, parts: AsyncIterable[bytes]) -> None:
        """See `ObjectStore`."""
        data = bytearray()
        async for part in parts:
            data += part
        fault = await self._begin("put", name)
        if name in self.objects:
            raise ObjectExists(name)
        self.objects[name] = _spoiled(bytes(data), fault)
        self.modified_ms[name] = self._clock.now_ms()
        if fault.says_exists:
            raise ObjectExists(name)
        _end(fault)

    async def read(self, name: str, start: int, end: int) -> bytes:
        """See `ObjectStore`."""
        fault = await self._begin("read", name)
        data = self._object(name)[start:end]
        _end(fault)
        return _spoiled(data, fault)

    async def tail(self, name: str, size: int) -> Tail:
        """See `ObjectStore`."""
        fault = await self._begin("tail", name)
        data = self._object(name)
        _end(fault)
        return Tail(_spoiled(data[-size:], fault), len(data))

    async def head(self, name: str) -> ObjectInfo:
        """See `ObjectStore`."""
        fault = await self._begin("head", name)
        found = self._info(name, self._object(name))
        _end(fault)
        return found

    async def delete(self, name: str) -> None:
        """See `ObjectStore`."""
        fault = await self._begin("delete", name)
        self.objects.pop(name, None)
        _end(fault)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore`."""
        fault = await self._begin("list", prefix)
        _end(fault)
        for name in sorted(self.objects):
            if name.startswith(f"{prefix}/") and name in self.objects:
                yield self._info(name, self.objects[name])

    async def close(self) -> None:
        """See `ObjectStore`."""

    async def _begin(self, call: str, name: str) -> Fault:
        self.calls.append((call, name))
        self.requests["read" if call == "tail" else call] += 1
        fault = self.faults(call, name)
        await asyncio.sleep(fault.delay_s)
        if fault.refuses is not None:
            raise fault.refuses
        return fault

    def _object(self, name: str) -> bytes:
        found = self.objects.get(name)
        if found is None:
            raise NoObject(name)
        return found

    def _info(self, name: str, data: bytes) -> ObjectInfo:
        return ObjectInfo(name, len(data), self.modified_ms[name])


def _spoiled(data: bytes, fault: Fault) -> bytes:
    if fault.cuts:
        data = data[: len(data) // 2]
    if fault.flips and data:
        at = len(data) // 2
        data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
    return data


def _end(fault: Fault) -> None:
    if fault.loses_answer:
        raise StoreUnavailable("the answer was lost")
