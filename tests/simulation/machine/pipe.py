"""One direction of a simulated TCP connection: segments on the wire, held, late, or given up.

Everything here runs on the kernel's side: no process needs to be alive for it. Order is kept;
delays are drawn per segment. A cut holds what is in flight, as retransmission does, until the
link heals or the sender gives up.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.machine.transport import SimTransport

Buffer = bytes | bytearray | memoryview


class Segment:
    """Bytes on the wire; `flag` is "" for data, "fin" or "rst"."""

    __slots__ = ("arrive_s", "chunks", "flag", "sent_s", "size")

    def __init__(self, sent_s: float, arrive_s: float, chunk: Buffer | None, flag: str) -> None:
        self.sent_s = sent_s
        self.arrive_s = arrive_s
        self.chunks: list[Buffer] = [] if chunk is None else [chunk]
        self.size = 0 if chunk is None else len(chunk)
        self.flag = flag


class Pipe:
    """What is on its way from `end` to its peer."""

    __slots__ = (
        "_armed",
        "_end",
        "_give_up_armed",
        "_in_flight",
        "_last_arrive_s",
        "_net",
        "delay_base_s",
        "finished",
        "held_since",
    )

    def __init__(self, end: SimTransport) -> None:
        self._end = end
        self._net = end.net
        self.delay_base_s = end.net.connection_delay()
        self.finished = False
        """Nothing more will be sent: fin or rst is on its way, or the host lost power."""
        self.held_since: float | None = None
        """When the wire began to hold what is in flight; None while it does not."""
        self._in_flight: deque[Segment] = deque()
        self._last_arrive_s = 0.0
        self._armed = False
        self._give_up_armed = False

    def send(self, data: Buffer) -> None:
        """Put bytes on the wire, possibly split in two, possibly joined with earlier ones."""
        net = self._net
        if len(data) > 1 and net.options.split_p and net.random() < net.options.split_p:
            view = memoryview(data)
            at = 1 + int(net.random() * (len(data) - 1))
            self._put(view[:at])
            self._put(view[at:])
        else:
            self._put(data)

    def send_flag(self, flag: str) -> None:
        """Send fin or rst behind everything else; only the first one counts."""
        if not self.finished:
            self.finished = True
            now = self._net.loop.time()
            self._launch(Segment(now, self._arrival(now, 0), None, flag))

    def lose_some(self) -> None:
        """The machine went dark: a random part of what it sent is still on its way."""
        self.finished = True
        keep = int(self._net.random() * (len(self._in_flight) + 1))
        while len(self._in_flight) > keep:
            self._in_flight.pop()

    def clear(self) -> None:
        """Drop everything."""
        self.finished = True
        self._in_flight.clear()
        self._net.held.pop(self, None)
        self.held_since = None

    def _put(self, data: Buffer) -> None:
        now = self._net.loop.time()
        flight = self._in_flight
        if flight and not flight[-1].flag and now - flight[-1].sent_s <= self._net.coalesce_s:
            flight[-1].chunks.append(data)
            flight[-1].size += len(data)
            return
        self._launch(Segment(now, self._arrival(now, len(data)), data, ""))

    def _arrival(self, now: float, size: int) -> float:
        arrive = now + self.delay_base_s + self._net.jitter()
        slow = self._net.slowness(self._end.host, self._end.peer.host)
        if slow is not None:
            arrive = max(arrive + slow.delay_s, self._last_arrive_s) + size / slow.bytes_per_s
        if arrive < self._last_arrive_s:
            arrive = self._last_arrive_s
        self._last_arrive_s = arrive
        return arrive

    def _launch(self, segment: Segment) -> None:
        self._in_flight.append(segment)
        if not self._armed and self.held_since is None:
            self._armed = True
            self._net.loop.kernel_at(segment.arrive_s, self._arrived)

    def _arrived(self) -> None:
        """The oldest segment reaches the other machine, unless a cut holds it."""
        self._armed = False
        flight, net, end = self._in_flight, self._net, self._end
        if not flight:
            return
        peer = end.peer
        if net.is_cut(end.host, peer.host):
            self._hold()
            return
        segment = flight.popleft()
        net.note_segment(end, segment)
        if flight:
            self._armed = True
            net.loop.kernel_at(max(flight[0].arrive_s, net.loop.time()), self._arrived)
        peer.take(segment)
        if net.is_cut(peer.host, end.host):
            self._arm_give_up()

    def _hold(self) -> None:
        if self.held_since is None:
            self.held_since = self._net.loop.time()
            self._net.held[self] = None
            self._arm_give_up()

    @property
    def is_cut(self) -> bool:
        """Whether nothing gets through now."""
        return self._net.is_cut(self._end.host, self._end.peer.host)

    def release(self, arrive_s: float) -> None:
        """The link healed; retransmission gets through at `arrive_s`."""
        self.held_since = None
        if self._in_flight and not self._armed:
            self._armed = True
            self._last_arrive_s = max(self._last_arrive_s, arrive_s)
            self._net.loop.kernel_at(arrive_s, self._arrived)

    def _arm_give_up(self) -> None:
        if not self._give_up_armed and not self._end.dead:
            self._give_up_armed = True
            loop = self._net.loop
            loop.kernel_at(loop.time() + self._net.give_up_s(), self._give_up)

    def _give_up(self) -> None:
        self._give_up_armed = False
        end = self._end
        if self.held_since is not None or self._net.is_cut(end.peer.host, end.host):
            end.lose(TimeoutError("retransmission timed out"))
