"""Keeps late messages from taking effect: of connections that were replaced, and of old sessions.

A client that does not get an answer in time connects again and repeats its request. The bytes of
the first one may still lie in a socket. In the classic protocol all transactions of a producer have
one epoch, so a late EndTxn of transaction n would end n + 1, and late offsets of a TxnOffsetCommit,
which have no sequence, would replace what n + 1 has committed. The rules, by the names that tests
use:

    OLD-CONNECTION  Per transactional id, the newest connection counts that carried a request of
                    the current incarnation or an InitProducerId. Requests over older ones are
                    refused. Requests of fenced epochs count for nothing, so that a fenced producer
                    cannot shut out its successor. Of offsets, the same per producer id and epoch.
    FRESH-LEADER    What was accepted before this broker took the coordinator's partition over is
                    refused: another coordinator may have served a newer connection since.
    CHANNEL         Each message with markers names the coordinator's partition, its leader
                    epoch and the number of the session. From the first message of a session on,
                    everything of a lower (epoch, session) is dropped.

Source: https://jepsen.io/analyses/bufstream-0.1.0 on late EndTxn requests.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.errors import OldConnection
from client.ids import ConnectionId, LeaderEpoch, ProducerId


class ConnectionOrder:
    """Which connections may still speak for the transactional ids of one coordinator partition."""

    def __init__(self, accepted_before: ConnectionId) -> None:
        """`accepted_before`: the last connection that was accepted before the takeover."""
        self._accepted_before = accepted_before
        self._newest: dict[str, ConnectionId] = {}

    def admit(self, transactional_id: str, connection: ConnectionId, *, counts: bool) -> None:
        """Let a request pass. Raises OldConnection: close it, answer nothing.

        `counts`: the request is an InitProducerId, or one of the current incarnation.
        """
        if connection <= self._accepted_before:
            raise OldConnection(f"connection {connection} is older than this coordinator")
        if not counts:
            return
        if not self.is_newest(transactional_id, connection):
            raise OldConnection(f"{transactional_id!r} has a newer connection than {connection}")
        self._newest[transactional_id] = connection

    def is_newest(self, transactional_id: str, connection: ConnectionId) -> bool:
        """Say whether no newer connection has spoken for the id."""
        return connection >= self._newest.get(transactional_id, connection)

    def forget(self, transactional_id: str) -> None:
        """The id is gone."""
        self._newest.pop(transactional_id, None)


class Session(NamedTuple):
    """Markers that are sent one request after the other; later sessions of a partition are greater.

    It ends when an answer does not come.
    """

    leader_epoch: LeaderEpoch
    """Of the coordinator's partition: who sends."""
    number: int
    """Grows with each session that this sender begins."""


class ChannelOrder:
    """Which sessions a broker takes markers from: of each coordinator partition, the newest."""

    def __init__(self) -> None:
        self._newest: dict[int, Session] = {}

    def hear(self, partition: int, session: Session) -> bool:
        """Take notice of a message. False: a newer session has spoken, so drop it."""
        if session < self._newest.get(partition, session):
            return False
        self._newest[partition] = session
        return True


PRODUCERS_MAX: Final = 20_000
"""How many producers are remembered, those that committed last; about 0.2 KB each."""


class CommitOrder:
    """Which connections may still commit offsets in transactions, in one partition of groups."""

    def __init__(
        self, accepted_before: ConnectionId, *, producers_max: int = PRODUCERS_MAX
    ) -> None:
        """`accepted_before`: the last connection that was accepted before the takeover."""
        self._accepted_before = accepted_before
        self._producers_max = producers_max
        self._newest: dict[ProducerId, tuple[int, ConnectionId]] = {}
        """Producer id -> its epoch and newest connection; who committed last is the last."""

    def admit(self, producer_id: ProducerId, epoch: int, connection: ConnectionId) -> None:
        """Let a commit pass; one of an older epoch passes and counts for nothing, its epoch is
        looked at later.

        Raises OldConnection: close it, answer nothing.
        """
        if connection <= self._accepted_before:
            raise OldConnection(f"connection {connection} is older than this coordinator")
        newest = self._newest.get(producer_id, (epoch, connection))
        if epoch < newest[0]:
            return
        if epoch == newest[0] and connection < newest[1]:
            raise OldConnection(f"producer {producer_id} has a newer connection than {connection}")
        self._newest.pop(producer_id, None)
        self._newest[producer_id] = (epoch, connection)
        if len(self._newest) > self._producers_max:
            del self._newest[next(iter(self._newest))]
