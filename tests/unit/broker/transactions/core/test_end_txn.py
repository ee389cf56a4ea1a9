"""EndTxn: every (state, claim, version), the code, and what is stored then.

The tables are written out here once more, from the protocol's side, so that a change of a rule
has to be made in two places.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.transactions.core.transaction import (
    TransactionMetadata,
    TransactionState,
    TransactionVersion,
)
from client.wire.kafka.apis import ApiKey
from tests.unit.broker.transactions.core.stored_transactions import (
    BUSY,
    CLAIMS,
    ELSEWHERE,
    FENCED,
    INVALID_EPOCH,
    INVALID_STATE,
    LAST,
    NO_MAPPING,
    OK,
    bench_with,
    code,
    value,
)
from tests.unit.broker.transactions.core.transaction_driver import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    NEW,
    ONGOING,
    PID,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES,
    TV0,
    TV1,
    TV2,
    producer,
)

# --- EndTxn, classic --------------------------------------------------------------------------

# (commit, abort), for the stored epoch
CLASSIC = {
    EMPTY: (INVALID_STATE, INVALID_STATE),
    ONGOING: (OK, OK),
    PREPARE_COMMIT: (BUSY, INVALID_STATE),
    PREPARE_ABORT: (INVALID_STATE, BUSY),
    COMPLETE_COMMIT: (OK, INVALID_STATE),
    COMPLETE_ABORT: (INVALID_STATE, OK),
}


def classic_cases() -> Iterator[tuple[TransactionState, str, bool, int, int]]:
    for version in range(5):
        fenced = FENCED if version >= 2 else INVALID_EPOCH
        for state in STATES:
            for claim in CLAIMS:
                for is_commit in (True, False):
                    expected = CLASSIC[state][0 if is_commit else 1]
                    if "id" in claim:
                        expected = NO_MAPPING
                    elif claim == "newer":
                        expected = ELSEWHERE
                    elif claim != "current":
                        expected = fenced
                    yield state, claim, is_commit, version, expected


@pytest.mark.parametrize(
    ("state", "claim", "is_commit", "version", "expected"), list(classic_cases())
)
@pytest.mark.parametrize("client", [TV0, TV1])
def test_end_txn_of_classic_clients(
    state: TransactionState,
    claim: str,
    is_commit: bool,
    version: int,
    expected: int,
    client: TransactionVersion,
) -> None:
    bench = bench_with(value(state))
    token = bench.end(CLAIMS[claim], is_commit=is_commit, version=client)
    assert code(bench, token, ApiKey.END_TXN, version) == expected
    if expected == OK:
        assert bench.replies[token] == producer(PID, 5)
    if expected == OK and state is ONGOING:
        found = bench.stored
        assert found.state is (PREPARE_COMMIT if is_commit else PREPARE_ABORT)
        assert (found.producer, found.last_epoch) == (producer(PID, 5), -1)
        assert bench.markers[-1].is_commit is is_commit
        assert bench.markers[-1].producer == producer(PID, 5)
    else:
        assert bench.stored == value(state)


# --- EndTxn with an epoch per transaction -----------------------------------------------------

# (commit current, commit retry, abort current, abort retry)
TABLE_TV2 = {
    ONGOING: (OK, FENCED, OK, FENCED),
    EMPTY: (INVALID_STATE, FENCED, OK, FENCED),
    PREPARE_COMMIT: (BUSY, BUSY, BUSY, INVALID_STATE),
    PREPARE_ABORT: (BUSY, INVALID_STATE, BUSY, BUSY),
    COMPLETE_COMMIT: (INVALID_STATE, OK, OK, INVALID_STATE),
    COMPLETE_ABORT: (INVALID_STATE, INVALID_STATE, OK, OK),
}


def ended_by(state: TransactionState, epoch: int, *, client: bool) -> TransactionMetadata:
    """A value that a TV2 transaction has left."""
    last_epoch = epoch - 1 if client and state not in (EMPTY, ONGOING) else -1
    return value(state, epoch, version=TV2, last_epoch=last_epoch)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("claim", ["current", "older", "oldest", "newer", "another id"])
def test_end_txn_with_an_epoch_per_transaction(
    state: TransactionState, is_commit: bool, claim: str
) -> None:
    bench = bench_with(ended_by(state, 5, client=True))
    claims = {**CLAIMS, "oldest": producer(PID, 3)}
    token = bench.end(claims[claim], is_commit=is_commit, version=TV2)
    if claim in ("current", "older"):
        column = (0 if is_commit else 2) + (claim == "older")
        expected = TABLE_TV2[state][column]
    else:
        expected = {"another id": NO_MAPPING, "newer": ELSEWHERE}.get(claim, FENCED)
    assert code(bench, token, ApiKey.END_TXN, 5) == expected
    found = bench.stored
    if expected == OK and claim == "current":
        # Without partitions there is nothing to mark, so that it is complete at once.
        ended = {
            (ONGOING, True): PREPARE_COMMIT,
            (ONGOING, False): PREPARE_ABORT,
        }.get((state, is_commit), COMPLETE_ABORT)
        assert (found.state, found.producer, found.last_epoch) == (ended, producer(PID, 6), 5)
        assert bench.replies[token] == producer(PID, 6)
        assert (found.number, found.version) == (3, TV2)
        assert found.start_ms == (10**12 - 5 if state is ONGOING else bench.now.ms)
        if state is ONGOING:
            assert bench.markers[-1].producer == producer(PID, 6)
            assert bench.markers[-1].version is TV2
    else:
        assert found == ended_by(state, 5, client=True)
        if expected == OK:
            assert bench.replies[token] == producer(PID, 5)


@pytest.mark.parametrize(
    ("state", "is_commit", "expected"),
    [
        (PREPARE_ABORT, True, FENCED),
        (PREPARE_ABORT, False, BUSY),
        (COMPLETE_ABORT, True, FENCED),
        (COMPLETE_ABORT, False, OK),
    ],
)
def test_after_the_coordinators_own_abort(
    state: TransactionState, is_commit: bool, expected: int
) -> None:
    """KAFKA-20785: who commits is fenced, not in a wrong state; who aborts has what it wants."""
    bench = bench_with(ended_by(state, 5, client=False))
    token = bench.end(producer(PID, 4), is_commit=is_commit, version=TV2)
    assert code(bench, token, ApiKey.END_TXN, 5) == expected
    if expected == OK:
        assert bench.replies[token] == producer(PID, 5)


@pytest.mark.parametrize("state", [COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_classic_end_has_no_retry_with_an_older_epoch(state: TransactionState) -> None:
    bench = bench_with(value(state))
    for is_commit in (True, False):
        token = bench.end(producer(PID, 4), is_commit=is_commit, version=TV2)
        assert code(bench, token, ApiKey.END_TXN, 5) == FENCED


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_last_epoch_ends_with_the_next_producer_id(is_commit: bool) -> None:
    bench = bench_with(value(ONGOING, LAST, version=TV2))
    answer = bench.replies[bench.end(producer(PID, LAST), is_commit=is_commit, version=TV2)]
    assert answer == producer(NEW, 0)
    found = bench.stored
    assert (found.producer, found.next_producer_id) == (producer(PID, LAST + 1), NEW)
    assert bench.markers[-1].producer == producer(PID, LAST + 1)
    # A lost answer, before and after the markers.
    token = bench.end(producer(PID, LAST), is_commit=is_commit, version=TV2)
    assert code(bench, token, ApiKey.END_TXN, 5) == BUSY
    # The next transaction may begin with the next id, which waits for the markers of this one.
    early = bench.add(producer(NEW, 0), version=TV2)
    assert early not in bench.replies
    assert code(bench, bench.init(producer(NEW, 0)), ApiKey.INIT_PRODUCER_ID, 4) == BUSY
    bench.confirm()
    assert bench.replies[early] is None
    assert bench.stored.producer == producer(NEW, 0)
    assert bench.stored.previous_producer_id == PID


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_lost_answer_with_the_next_producer_id(is_commit: bool) -> None:
    bench = bench_with(value(ONGOING, LAST, version=TV2))
    bench.end(producer(PID, LAST), is_commit=is_commit, version=TV2)
    bench.confirm()
    assert bench.stored.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
    bench.linger()
    bench.load()
    token = bench.end(producer(PID, LAST), is_commit=is_commit, version=TV2)
    assert bench.replies[token] == producer(NEW, 0)
    other = bench.end(producer(PID, LAST), is_commit=not is_commit, version=TV2)
    assert code(bench, other, ApiKey.END_TXN, 5) == INVALID_STATE
    assert bench.replies[bench.init(producer(PID, LAST))] == producer(NEW, 0)
    bench.add(producer(NEW, 0), version=TV2)
    late = bench.end(producer(PID, LAST), is_commit=is_commit, version=TV2)
    assert code(bench, late, ApiKey.END_TXN, 5) == FENCED


def test_an_epoch_that_only_fences_is_nobodys() -> None:
    """A classic transaction of the last epoch, fenced: 32767 was given to nobody."""
    bench = bench_with(value(ONGOING, LAST))
    bench.init()
    bench.confirm()
    assert (bench.stored.state, bench.stored.epoch) == (COMPLETE_ABORT, LAST + 1)
    guess = producer(PID, LAST + 1)
    for token in (
        bench.add(guess),
        bench.end(guess, is_commit=False),
        bench.end(guess, is_commit=False, version=TV2),
    ):
        assert code(bench, token, ApiKey.END_TXN, 5) == FENCED
    assert bench.replies[bench.init()] == producer(NEW, 0)
