"""Keeps late messages from taking effect: of connections that were replaced, and of old sessions.

A client that does not get an answer in time connects again and repeats its request. The bytes of
the first one may still lie in a socket. In the classic protocol all transactions of a producer have
one epoch, so a late EndTxn of transaction n would end n + 1. The rules, by the names that tests
use:

    OLD-CONNECTION  Per transactional id, the newest connection counts that carried a request of
                    the current incarnation or an InitProducerId. Requests over older ones are
                    refused. Requests of fenced epochs count for nothing, so that a fenced producer
                    cannot shut out its successor.
    FRESH-LEADER    What was accepted before this broker took the coordinator's partition over is
                    refused: another coordinator may have served a newer connection meanwhile.
    CHANNEL         Markers of one coordinator partition reach a broker over one connection. Its
                    first message names the partition's leader epoch and the number of the session;
                    from then on everything of a lower (epoch, session) is dropped.

Source: https://jepsen.io/analyses/bufstream-0.1.0 on late EndTxn requests.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.errors import OldConnection
from client.ids import ConnectionId, LeaderEpoch


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
    """A connection that carries markers; later ones of a partition are greater."""

    leader_epoch: LeaderEpoch
    """Of the coordinator's partition: who sends."""
    number: int
    """Grows with each connection that this sender makes."""


class ChannelOrder:
    """Which sessions a broker takes markers from: of each coordinator partition, the newest."""

    def __init__(self) -> None:
        self._newest: dict[int, Session] = {}

    def open(self, partition: int, session: Session) -> bool:
        """A session says hello. False: a newer one has already, close it."""
        if session <= self._newest.get(partition, Session(LeaderEpoch(-1), -1)):
            return False
        self._newest[partition] = session
        return True

    def admits(self, partition: int, session: Session) -> bool:
        """Say whether markers of a session are to be written, or dropped unanswered."""
        return self._newest.get(partition) == session
