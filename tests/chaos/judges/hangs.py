"""Tells from a client's log which call of librdkafka hung, and whether by a known defect of it.

The known one, in librdkafka 2.16 (its issues 5456 and 5511): `send_offsets_to_transaction` outlives
its timeout for as long as the connections of its producer stay as they are. `rdkafka_txnmgr.c`
waits for the result without a limit (`rd_kafka_send_offsets_to_transaction`) and leaves the limit
to the request, whose `creq_ts_timeout` nobody reads (`rd_kafka_coord_req` in `rdkafka_coord.c`).
A producer that lost all connections at once drops every broker that it knew (`REBOOTSTRAP` in its
log), but not the one that it remembers as the group's coordinator. `rd_kafka_coord_req_fsm` asks
that one for a connection and waits until a broker comes up or goes down; the one that was dropped
never does either, since its thread is about to end (`Handle is terminating`).

So such a call is known by its log: the coordinator of the transaction had added the offsets,
nothing was sent to the one of the group since, and a broker that was dropped was asked for a
connection. No broker owed it an answer. Any other call that hangs is an anomaly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

DEBUG = "eos,broker,protocol"
"""What librdkafka has to log (`debug`) for its hangs to be told apart."""

_HUNG = re.compile(r"Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!")
"""How `faulthandler` begins what it writes about a call that did not return in time."""
_BEGINS = "|INIT|rdkafka#producer"
_CALLED = re.compile(r"Transactional API called: (\w+)")
_RETURNED = re.compile(r"Transactional API \w+ return")
_ADDED = re.compile(r"AddOffsetsToTxn response from \S+: (\w+)")
_SENT = "Sent TxnOffsetCommitRequest"
_DROPPED = "Handle is terminating in state TRY_CONNECT"


class Hang(NamedTuple):
    """A call that did not return."""

    call: str
    """Its name in librdkafka's log; empty: none that it tells of."""
    is_known: bool
    """Whether it is the known defect."""


class _Log:
    """What is known of the call under way, line by line."""

    def __init__(self) -> None:
        self._begin("")

    def _begin(self, call: str) -> None:
        self._call = call
        self._has_added = self._has_sent = self._was_dropped = False

    def hear(self, line: str) -> Hang | None:
        """Take note of a line; return the hang that it tells of."""
        if _HUNG.search(line):
            hang = Hang(self._call, self._is_known())
            self._begin("")
            return hang
        if _BEGINS in line or _RETURNED.search(line):
            self._begin("")
        elif called := _CALLED.search(line):
            self._begin(called[1])
        elif added := _ADDED.search(line):
            self._has_added = added[1] == "NO_ERROR"
            self._has_sent = self._was_dropped = False
        elif _SENT in line:
            self._has_sent = True
        elif _DROPPED in line:
            self._was_dropped = True
        return None

    def _is_known(self) -> bool:
        waits_for_group = self._has_added and not self._has_sent and self._was_dropped
        return self._call == "send_offsets_to_transaction" and waits_for_group


def hangs(lines: Iterable[str]) -> list[Hang]:
    """Return the calls in a log that did not return."""
    log = _Log()
    return [hang for line in lines if (hang := log.hear(line)) is not None]
