"""Which hung calls count as librdkafka's own defect: only those whose log shows each part of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.clients import ClientProcesses
from tests.chaos.judges.hangs import Hang, hangs
from tests.chaos.program import unexplained

CALL = "send_offsets_to_transaction"
_OF = "|rdkafka#producer-1| [thrd:main]: "
BEGINS = "%7|1.0|INIT" + _OF + "librdkafka v2.16.0 (0x21000ff) rdkafka#producer-1 initialized"
CALLED = f"%7|2.0|TXNAPI{_OF}Transactional API called: {CALL} (in txn state InTransaction, idemp"
ADDED = "%7|3.0|ADDOFFSETS" + _OF + "AddOffsetsToTxn response from TxnCoordinator/2: NO_ERROR ()"
DROPPED = "%7|4.0|TERMINATE" + _OF + "h:1/3: Handle is terminating in state TRY_CONNECT: 3 refcnts"
HUNG = "Timeout (0:00:40)!"
SENT = "%7|5.0|SEND" + _OF + "h:1/3: Sent TxnOffsetCommitRequest (v3, 74 bytes @ 0, CorrId 7)"
REFUSED = ADDED.replace("NO_ERROR ()", "_TRANSPORT (Refresh,Retry)")
RETURNED = f"%7|6.0|TXNAPI{_OF}Transactional API {CALL} return at rd_kafka_{CALL}:2041: Success"
COMMITS = CALLED.replace(CALL, "commit_transaction")

KNOWN = [BEGINS, CALLED, ADDED, DROPPED, HUNG]


def without(line: str) -> list[str]:
    return [each for each in KNOWN if each != line]


def test_a_call_that_waits_for_a_coordinator_that_was_dropped_is_known() -> None:
    assert hangs(KNOWN) == [Hang(CALL, is_known=True)]


@pytest.mark.parametrize(
    ("lines", "call"),
    [
        (without(DROPPED), CALL),
        (without(ADDED), CALL),
        (without(CALLED), ""),
        ([CALLED, ADDED, SENT, DROPPED, HUNG], CALL),
        ([CALLED, ADDED, DROPPED, SENT, HUNG], CALL),
        ([CALLED, ADDED, DROPPED, REFUSED, HUNG], CALL),
        ([CALLED, REFUSED, DROPPED, HUNG], CALL),
        ([CALLED, DROPPED, ADDED, HUNG], CALL),
        ([CALLED, ADDED, DROPPED, RETURNED, HUNG], ""),
        ([CALLED, ADDED, DROPPED, RETURNED, COMMITS, HUNG], "commit_transaction"),
        ([COMMITS, ADDED, DROPPED, HUNG], "commit_transaction"),
        ([CALLED, ADDED, DROPPED, BEGINS, HUNG], ""),
    ],
)
def test_any_other_is_not(lines: list[str], call: str) -> None:
    assert hangs(lines) == [Hang(call, is_known=False)]


def test_what_returns_does_not_hang() -> None:
    assert hangs([BEGINS, CALLED, ADDED, SENT, RETURNED]) == []


def test_each_life_of_a_client_is_looked_at_by_itself() -> None:
    found = hangs([*KNOWN, *without(DROPPED), *KNOWN, HUNG])
    assert [hang.is_known for hang in found] == [True, False, True, False]


def test_only_the_known_ones_are_no_anomalies(tmp_path: Path) -> None:
    clients = ClientProcesses(tmp_path, random.Random(0), spared=())
    for name in ("copier-0", "copier-1", "copier-2"):
        clients.add("copier", name, ["true"])
    (tmp_path / "copier-0.log").write_text("\n".join(KNOWN))
    (tmp_path / "copier-1.log").write_text("\n".join(without(DROPPED)))
    hung = clients.hung()
    assert [name for name, _ in hung] == ["copier-0", "copier-1"]
    assert [anomaly.text for anomaly in unexplained(hung)] == [f"copier-1: {CALL} did not return"]
