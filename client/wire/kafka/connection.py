"""One Kafka connection seen from the server, without I/O.

Covers the order of answers. Bytes go in and frames come out; each request opens a slot, and its
answer leaves when every earlier slot is answered, because Kafka clients match responses to
requests by position. A request without an answer (Produce with acks 0) gives its slot back empty.
The shell decides how many slots may be open by not feeding more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from client.wire.intake import FrameIntake, make_window
from client.wire.kafka.codec import Buffer


class Slot:
    """The place of one answer in the order of answers, and when its request got how far."""

    __slots__ = (
        "answer", "answered_s", "api_key", "arrived_s", "done", "opened_s", "request_size",
        "split_s",
    )  # fmt: skip

    def __init__(self, request_size: int, api_key: int, arrived_s: float, opened_s: float) -> None:
        self.request_size = request_size
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


class ServerConnection:
    """Frames of requests in, answers out in request order."""

    __slots__ = ("_slots", "in_flight_bytes", "intake")

    def __init__(self, frame_bytes_max: int, window: memoryview | None = None) -> None:
        """`window`: where its bytes are received, shared with others."""
        self.intake = FrameIntake(frame_bytes_max, make_window() if window is None else window)
        """Where bytes go, and frames come from."""
        self._slots: deque[Slot] = deque()
        self.in_flight_bytes = 0
        """Request bytes whose answer has not been taken yet."""

    @property
    def open_slots(self) -> int:
        """Number of requests whose answer has not been taken yet."""
        return len(self._slots)

    def open(self, request_size: int, api_key: int, arrived_s: float, opened_s: float) -> Slot:
        """Reserve the next place in the order of answers."""
        slot = Slot(request_size, api_key, arrived_s, opened_s)
        self._slots.append(slot)
        self.in_flight_bytes += request_size
        return slot

    def answer(self, slot: Slot, buffers: Sequence[Buffer], now_s: float) -> bool:
        """Fill a slot, with () for no answer; say whether `take` has something to do now."""
        assert not slot.done, "a request is answered once"
        slot.answer = buffers
        slot.answered_s = now_s
        slot.done = True
        return self._slots[0].done

    def take(self) -> list[Slot]:
        """Return the slots whose answers may be sent now: those before the first open one."""
        slots = self._slots
        out: list[Slot] = []
        while slots and slots[0].done:
            slot = slots.popleft()
            self.in_flight_bytes -= slot.request_size
            out.append(slot)
        return out
