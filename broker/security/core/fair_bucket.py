"""A limit that several share: how long each of them has to wait after what it has used.

What is allowed per second comes into a bucket, up to what comes in a window; use takes it out, at
once and whole, so the bucket may be in debt. While it is not, nobody waits. While it is, each
connection waits for what it used itself, at its share of the rate: the rate divided by the number
of connections that use it. So one that asks for much waits longer than one that asks for little,
and nobody waits for others' use. As shares are estimates, waits are longer the deeper the debt is.

In the long run nothing exceeds the rate; beyond it go a window's worth and one request of each
connection. Kafka measures rates in windows and lets everybody wait for the whole excess; the totals
are the same.
"""

from __future__ import annotations

from typing import Final

from client.ids import ConnectionId

_PRUNE_INTERVAL_S: Final = 1.0


class _Member:
    """One connection."""

    __slots__ = ("owed", "until_s")

    def __init__(self, now_s: float) -> None:
        self.owed = 0.0
        """Used, and not waited for yet."""
        self.until_s = now_s
        """When it may go on."""


class FairBucket:
    """Amounts are of whatever is limited, times in seconds."""

    def __init__(self, rate: float, window_s: float, now_s: float) -> None:
        self.rate = rate
        self._window_s = window_s
        self._balance = rate * window_s
        self._at_s = now_s
        self._members: dict[ConnectionId, _Member] = {}
        self._prune_s = now_s + _PRUNE_INTERVAL_S

    def set_rate(self, rate: float, now_s: float) -> None:
        """The limit is another one from now on."""
        self._refill(now_s)
        self.rate = rate
        self._balance = min(self._balance, rate * self._window_s)

    def is_in_debt(self, now_s: float) -> bool:
        """Say whether more was used than has come in."""
        self._refill(now_s)
        return self._balance < 0

    def is_untouched(self, now_s: float) -> bool:
        """Say whether it is as a new one would be."""
        self._refill(now_s)
        self._prune(now_s)
        return not self._members and self._balance >= self.rate * self._window_s

    def use(self, connection: ConnectionId, amount: float, now_s: float) -> None:
        """Take out what a connection has used."""
        self._refill(now_s)
        self._balance -= amount
        self._member(connection, now_s).owed += amount

    def take(self, amount: float, now_s: float) -> bool:
        """Take an amount out if it is there; say whether it was."""
        self._refill(now_s)
        if self._balance < amount:
            return False
        self._balance -= amount
        return True

    def wait_s(self, connection: ConnectionId, now_s: float) -> float:
        """Return how long a connection has to wait from now on, for all that it has used."""
        self._refill(now_s)
        if now_s >= self._prune_s:
            self._prune(now_s)
        member = self._member(connection, now_s)
        owed, member.owed = member.owed, 0.0
        debt = -self._balance
        if debt > 0:
            fair_s = owed * len(self._members) / self.rate
            deeper_s = fair_s * (1 + debt / (self.rate * self._window_s))
            own_s = min(deeper_s, max(fair_s, debt / self.rate))
            member.until_s = max(member.until_s, now_s) + own_s
        return max(0.0, member.until_s - now_s)

    def _member(self, connection: ConnectionId, now_s: float) -> _Member:
        member = self._members.get(connection)
        if member is None:
            member = self._members[connection] = _Member(now_s)
        return member

    def _refill(self, now_s: float) -> None:
        if now_s > self._at_s:
            came = (now_s - self._at_s) * self.rate
            self._balance = min(self._balance + came, self.rate * self._window_s)
            self._at_s = now_s

    def _prune(self, now_s: float) -> None:
        """Forget connections that have used nothing for a window."""
        self._prune_s = now_s + _PRUNE_INTERVAL_S
        gone = [
            connection
            for connection, member in self._members.items()
            if member.until_s + self._window_s < now_s and not member.owed
        ]
        for connection in gone:
            del self._members[connection]
