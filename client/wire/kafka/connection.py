"""One Kafka connection seen from the server, without I/O.

Covers headers, and the order of answers. Bytes go in and frames come out; each request opens a
slot, and its answer leaves when every earlier slot is answered, because Kafka clients match
responses to requests by position. A request without an answer (Produce with acks 0) gives its slot
back empty. The shell decides how many slots may be open by not feeding more.

Headers: a request header v2 has tagged fields and is used exactly by flexible versions; its
client id stays a classic string. A response header v1 has tagged fields, except that ApiVersions
is always answered with header v0, so that a client which guessed a version can read the answer.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from client.errors import RemoteProtocolError
from client.held_memory import HeldMemory
from client.wire.buffer import Reader
from client.wire.frames import FrameIntake, make_window
from client.wire.kafka.apis import API_VERSIONS_KEY, is_flexible

Buffer = bytes | bytearray | memoryview

_PEEK: Final = struct.Struct(">hhi")
_ID_BYTES: Final = struct.Struct(">h")
_ID_AT: Final = _PEEK.size + _ID_BYTES.size
"""Where the characters of a client id begin."""
_LENGTH_AND_ID: Final = struct.Struct(">ii")
_NO_TAGS: Final = b"\x00"


class Slot:
    """The place of one answer in the order of answers, and when its request got how far."""

    __slots__ = (
        "_held_bytes", "_memory", "answer", "answered_s", "api_key", "arrived_s", "done",
        "on_gone", "opened_s", "request_size", "split_s", "throttle_ms",
    )  # fmt: skip

    def __init__(
        self,
        request_size: int,
        api_key: int,
        arrived_s: float,
        opened_s: float,
        memory: HeldMemory,
    ) -> None:
        self.request_size = request_size
        self.throttle_ms = 0
        """How long the connection begins nothing once it is answered."""
        self._held_bytes = request_size
        """Bytes of the request that nobody else has taken over."""
        self._memory = memory
        memory.size += request_size  # `take`, without a call for every request
        self.api_key = api_key
        self.arrived_s = arrived_s
        """When the last of its bytes came."""
        self.opened_s = opened_s
        """When its handler began."""
        self.split_s = 0.0
        """Where the handler's work has two parts, when the second began; 0: it has one."""
        self.answered_s = 0.0
        self.done = False
        self.answer: Sequence[Buffer] = ()
        self.on_gone: Callable[[], None] | None = None
        """Called once the answer is written or dropped."""

    def pass_on(self, size: int) -> None:
        """So many bytes of the request are held by somebody else from now on."""
        self._held_bytes -= size
        self._memory.size -= size  # no `give`: no room was made

    def hand_over(self) -> int:
        """Everything that is held for the request is held by somebody else; return its bytes."""
        size, self._held_bytes = self._held_bytes, 0
        self._memory.give(size)
        return size

    def release(self) -> None:
        """The answer was written, or there will be none: release the memory of the request."""
        if self.on_gone is not None:
            call, self.on_gone = self.on_gone, None
            call()
        size, self._held_bytes = self._held_bytes, 0
        if size:
            self._memory.give(size)


class ServerConnection:
    """Frames of requests in, answers out in request order."""

    __slots__ = ("_memory", "in_flight_bytes", "intake", "newest", "slots")

    def __init__(
        self,
        frame_bytes_max: int,
        window: memoryview | None = None,
        memory: HeldMemory | None = None,
    ) -> None:
        """`window`: where its bytes are received, and `memory`: where those of requests are counted
        until they are answered; both shared with others."""
        self._memory = HeldMemory() if memory is None else memory
        self.intake = FrameIntake(frame_bytes_max, make_window() if window is None else window)
        """Where bytes go, and frames come from."""
        self.slots: deque[Slot] = deque()
        """Of requests whose answer has not been taken yet, in their order."""
        self.in_flight_bytes = 0
        """Request bytes whose answer has not been taken yet."""
        self.newest: Slot | None = None
        """The slot that was opened last; whoever starts a request sets it to None before."""

    @property
    def open_slots(self) -> int:
        """Number of requests whose answer has not been taken yet."""
        return len(self.slots)

    def open(self, request_size: int, api_key: int, arrived_s: float, opened_s: float) -> Slot:
        """Reserve the next place in the order of answers."""
        slot = Slot(request_size, api_key, arrived_s, opened_s, self._memory)
        self.slots.append(slot)
        self.newest = slot
        self.in_flight_bytes += request_size
        return slot

    def count_in(self, memory: HeldMemory) -> None:
        """Count further requests elsewhere; those that are open stay where they are counted."""
        self._memory = memory

    def answer(self, slot: Slot, buffers: Sequence[Buffer], now_s: float) -> bool:
        """Fill a slot, with () for no answer; say whether `take` has something to do now."""
        assert not slot.done, "a request is answered once"
        slot.answer = buffers
        slot.answered_s = now_s
        slot.done = True
        return self.slots[0].done

    def close(self) -> list[Slot]:
        """Forget all slots, and return those that were answered and not taken."""
        answered = [slot for slot in self.slots if slot.done]
        self.slots.clear()
        self.in_flight_bytes = 0
        return answered

    def take(self) -> list[Slot]:
        """Return the slots whose answers may be sent now: those before the first open one."""
        slots = self.slots
        out: list[Slot] = []
        while slots and slots[0].done:
            slot = slots.popleft()
            self.in_flight_bytes -= slot.request_size
            out.append(slot)
        return out


class RequestHeader(NamedTuple):
    """What precedes every request, and the bytes that follow it."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


def peek_header(frame: memoryview) -> tuple[int, int, int]:
    """Return (api key, version, correlation id): the part all header versions share."""
    if len(frame) < _PEEK.size:
        raise RemoteProtocolError(f"request of {len(frame)} bytes has no header")
    key, version, correlation_id = _PEEK.unpack_from(frame)
    return key, version, correlation_id


def read_header(frame: memoryview) -> RequestHeader:
    """Split a request into header and body. Its API and version must be known ones."""
    key, version, correlation_id = peek_header(frame)
    return RequestHeader(key, version, correlation_id, *split_header(frame, key, version))


def split_header(frame: memoryview, key: int, version: int) -> tuple[str | None, memoryview]:
    """Return (client id, body) of a request whose header begins as `peek_header` says."""
    is_compact = is_flexible(key, version)
    try:
        # A client id, and no tags: as nearly every request begins. The rest is for the reader.
        (size,) = _ID_BYTES.unpack_from(frame, _PEEK.size)
        at = _ID_AT + size
        if size >= 0 and at <= len(frame) and not (is_compact and frame[at]):
            return str(frame[_ID_AT:at], "utf-8"), frame[at + is_compact :]
    except (struct.error, IndexError, UnicodeDecodeError):
        pass  # the reader says what is wrong
    reader = Reader(frame, _PEEK.size)
    client_id = reader.nullable_string(compact=False)
    if is_compact:
        reader.skip_tags()
    return client_id, frame[reader.position :]


def response_head(api_key: int, version: int, correlation_id: int, body_size: int) -> bytes:
    """Return frame length and response header for a body of `body_size` bytes."""
    if api_key != API_VERSIONS_KEY and is_flexible(api_key, version):
        return _LENGTH_AND_ID.pack(5 + body_size, correlation_id) + _NO_TAGS
    return _LENGTH_AND_ID.pack(4 + body_size, correlation_id)
