"""Limits what untrusted peers take of a server: connections, and bytes that make no progress.

Sizes and times in, verdicts out: the caller closes whoever is named.

- `ConnectionQuotas`: this many connections in total, from one host, and of strangers.
- `HeldBytes`: bytes that a peer makes us hold, of a request that it does not finish or of answers
  that it does not read. They have a time limit, which begins anew with every MiB: a large request
  on a slow link ends, one byte a minute does not. And all of them together have a size limit:
  beyond it the connection goes that has held longest, of those with at least an average share. What
  an honest peer makes us hold is gone soon, and closing the small ones would free nothing.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

from client.security.networks import network_of

STRANGERS_BYTES_MAX: Final = 16 << 20
"""Of the unfinished requests of peers that have not said who they are, unless a setting says so."""
RESERVED_PARTS: Final = 10
"""One of so many places is for the cluster's own nodes, where they have a listener of their own."""
PROGRESS_BYTES: Final = 1 << 20
"""By this much must change what is held for the time limit to begin anew."""

C = TypeVar("C")


class ConnectionLimits(NamedTuple):
    """Bounds of a server's connections; broker and bookie have settings of the same names."""

    connections_max: int
    connections_per_host_max: int
    connection_idle_s: float
    frame_timeout_s: float
    unfinished_bytes_max: int
    unread_bytes_max: int
    unsent_bytes_max: int
    """Beyond this many bytes that one peer has not taken, it counts as not reading its answers."""
    strangers_bytes_max: int = STRANGERS_BYTES_MAX
    """Of the unfinished requests of peers that have not said who they are."""
    reserved_max: int = 0
    """Connections that are kept free for the cluster's own nodes."""

    def unsent_mark(self, connection_count: int) -> int:
        """Return `unsent_bytes_max` for a server with this many connections: in a crowd it is less.

        What a peer has not taken below the mark is not counted, and twice that much of each is at
        most `unread_bytes_max` of all: of answers written, and of those that wait for their turn.
        """
        mark = self.unsent_bytes_max
        while mark > 1 and 2 * mark * connection_count > self.unread_bytes_max:
            mark //= 2
        return mark


class ConnectionQuotas:
    """How many connections there are, in total and by host.

    A part of the places is reserved for connections of the cluster's own nodes, where these have a
    door of their own, and at a door an address counts by itself: however many clients there are,
    nodes reach each other. Of what is left, strangers have half at most: peers that have to say who
    they are. Addresses of one network of IPv6 are one host (`client/security/networks.py`).
    """

    def __init__(self, total_max: int, per_host_max: int, *, reserved_max: int = 0) -> None:
        """`reserved_max`: places that only the cluster's own nodes take."""
        self._total_max = total_max
        self._per_host_max = per_host_max
        self._reserved_max = reserved_max
        self._per_host: dict[tuple[str, bool], int] = {}
        """By network, and whether they came by the nodes' own door."""
        self.total = 0
        self.strangers = 0

    def limit(self, total_max: int, per_host_max: int) -> None:
        """Change both limits; connections that are counted stay, even if they are too many."""
        self._total_max = total_max
        self._per_host_max = per_host_max

    def add(self, host: str, *, is_own: bool = False, is_stranger: bool = False) -> str | None:
        """Count a connection; or return the reason why there may not be another one.

        `is_own`: whether it came by the door of the cluster's own nodes.
        """
        key = network_of(host), is_own
        count = self._per_host.get(key, 0)
        reserved = 0 if is_own else min(self._reserved_max, self._total_max - 1)
        if self.total >= self._total_max - reserved:
            return "connections_max is reached"
        if is_stranger and not is_own and self.strangers >= -(-(self._total_max - reserved) // 2):
            return "half of connections_max have not logged in"
        if count >= self._per_host_max:
            return "connections_per_host_max is reached"
        self.total += 1
        self.strangers += is_stranger
        self._per_host[key] = count + 1
        return None

    def welcome(self) -> None:
        """A stranger has said who it is."""
        self.strangers -= 1

    def remove(self, host: str, *, is_own: bool = False, is_stranger: bool = False) -> None:
        """A connection that was counted is gone."""
        key = network_of(host), is_own
        self.total -= 1
        self.strangers -= is_stranger
        self._per_host[key] -= 1
        if not self._per_host[key]:
            del self._per_host[key]


class _Holding:
    """What is held for one connection."""

    __slots__ = ("began_s", "mark", "since_s", "size")

    def __init__(self, size: int, reserved: int, now_s: float) -> None:
        self.began_s = self.since_s = now_s
        self.size = size + reserved
        self.mark = size
        """`mark`: the size when the time began anew."""


class HeldBytes(Generic[C]):
    """What is held for all connections."""

    def __init__(self, bytes_max: int, timeout_s: float) -> None:
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._holdings: dict[C, _Holding] = {}
        self.total_bytes = 0

    def note(
        self, connection: C, size: int, now_s: float, *, is_new: bool = False, reserved: int = 0
    ) -> None:
        """Take note of how much is held for a connection now.

        `is_new`: whatever was held before is finished, this is another piece. `reserved`: memory
        that waits for more of it, which counts as held but is no progress.
        """
        holding = self._holdings.get(connection)
        if not size or is_new or holding is None:
            self.forget(connection)
            if size:
                self._holdings[connection] = _Holding(size, reserved, now_s)
                self.total_bytes += size + reserved
            return
        self.total_bytes += size + reserved - holding.size
        holding.size = size + reserved
        if abs(size - holding.mark) >= PROGRESS_BYTES:
            holding.since_s, holding.mark = now_s, size

    @property
    def is_over(self) -> bool:
        """Whether too much is held."""
        return self.total_bytes > self._bytes_max

    def excess(self) -> C | None:
        """Return who must go because too much is held, if it is; ask again when it is gone."""
        if not self.is_over:
            return None
        share = self.total_bytes / len(self._holdings)
        large = (item for item in self._holdings.items() if item[1].size >= share)
        return min(large, key=lambda item: item[1].began_s)[0]

    def overdue(self, now_s: float) -> list[C]:
        """Return the connections that have been holding for too long."""
        since_s = now_s - self._timeout_s
        return [each for each, holding in self._holdings.items() if holding.since_s <= since_s]

    def resume(self, connection: C, now_s: float) -> None:
        """The connection could not move for a while, which was not its fault."""
        holding = self._holdings.get(connection)
        if holding is not None:
            holding.since_s = now_s

    def forget(self, connection: C) -> None:
        """The connection is gone, or holds nothing any more."""
        holding = self._holdings.pop(connection, None)
        if holding is not None:
            self.total_bytes -= holding.size
