"""One Kafka connection seen from the server, without I/O.

Covers the order of answers. Bytes go in and frames come out; each request opens a slot, and its
answer leaves when every earlier slot is answered, because Kafka clients match responses to
requests by position. A request without an answer (Produce with acks 0) gives its slot back empty.
The shell decides how many slots may be open by not feeding more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from client.held_memory import HeldMemory
from client.wire.intake import FrameIntake, make_window
from client.wire.kafka.codec import Buffer


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
