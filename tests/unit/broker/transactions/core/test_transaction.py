"""Every (state, change under way, request, epoch, version): the code, and what is stored then.

The tables are written out here once more, from the protocol's side, so that a change of a rule
has to be made in two places.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.errors import BrokerError
from broker.faults import code_of
from broker.transactions.core.transaction import (
    ALLOWED_BEFORE,
    PREPARED,
    TransactionMetadata,
    TransactionState,
    TransactionVersion,
    completed,
    fence,
    is_expired,
    is_timed_out,
)
from client.wire.kafka.apis import ApiKey
from tests.unit.broker.transactions.core.stored_transactions import (
    BUSY,
    CLAIMS,
    ELSEWHERE,
    FENCED,
    INVALID_EPOCH,
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
    ID,
    NEW,
    ONGOING,
    P0,
    P1,
    PID,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREVIOUS,
    STATES,
    TIMEOUT_MS,
    TV0,
    TV2,
    Bench,
    producer,
)

# --- InitProducerId ---------------------------------------------------------------------------

SETTLED = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)

INIT_CLAIMS = {
    "none": None,
    "current": producer(PID, 5),
    "last": producer(PID, 4),
    "older": producer(PID, 3),
    "newer": producer(PID, 6),
    "previous id": producer(PREVIOUS, 5),
    "previous id, exhausted": producer(PREVIOUS, LAST),
    "another id": producer(55, 5),
}


def init_cases() -> Iterator[tuple[TransactionState, str, int, int, tuple[int, int]]]:
    """Yield (state, claim, version, code, epoch and last epoch that are stored then)."""
    same = (5, 4)
    for version in range(6):
        fenced = FENCED if version >= 4 else INVALID_EPOCH
        for claim in INIT_CLAIMS if version >= 3 else ("none",):
            ours = claim in ("none", "current", "last", "older", "previous id, exhausted")
            for state in STATES:
                if claim == "newer":
                    yield state, claim, version, ELSEWHERE, same
                elif state in PREPARED:
                    yield state, claim, version, BUSY if ours else fenced, same
                elif state is ONGOING and claim in ("none", "current"):
                    yield state, claim, version, BUSY, (6, -1)  # fenced
                elif state is ONGOING:
                    yield state, claim, version, fenced, same
                elif claim == "none":
                    yield state, claim, version, OK, (6, -1)
                elif claim == "current":
                    yield state, claim, version, OK, (6, 5)
                elif claim == "last":
                    yield state, claim, version, OK, same
                else:
                    yield state, claim, version, fenced, same


@pytest.mark.parametrize(("state", "claim", "version", "expected", "stored"), list(init_cases()))
def test_init_producer_id(
    state: TransactionState, claim: str, version: int, expected: int, stored: tuple[int, int]
) -> None:
    bench = bench_with(value(state, last_epoch=4))
    token = bench.init(INIT_CLAIMS[claim])
    assert code(bench, token, ApiKey.INIT_PRODUCER_ID, version) == expected
    found = bench.stored
    assert (found.epoch, found.last_epoch) == stored
    if expected == OK:
        assert bench.replies[token] == found.producer
        assert found.state is (state if claim == "last" else EMPTY)
    elif state is ONGOING and expected == BUSY:
        assert found.state is PREPARE_ABORT
        assert not bench.markers[-1].is_commit
        assert bench.markers[-1].producer == producer(PID, 6)
    else:
        assert found.state is state
    assert found.previous_producer_id == PREVIOUS


@pytest.mark.parametrize("claim", [None, producer(PID, 5)])
def test_an_id_that_nobody_knows_gets_a_new_producer(claim: object) -> None:
    bench = bench_with(None)
    token = bench.init(claim)  # type: ignore[arg-type]
    assert bench.replies[token] == producer(NEW, 0)
    assert bench.stored == TransactionMetadata(NEW, 0, TIMEOUT_MS, EMPTY, updated_ms=bench.now.ms)


@pytest.mark.parametrize("state", SETTLED)
@pytest.mark.parametrize("epoch", [LAST, LAST + 1])
@pytest.mark.parametrize("given", [False, True])
def test_an_exhausted_producer_id_is_replaced(
    state: TransactionState, epoch: int, given: bool
) -> None:
    if epoch > LAST and state is not COMPLETE_ABORT:
        return  # only an aborted transaction leaves an epoch that nobody holds
    bench = bench_with(value(state, epoch))
    token = bench.init(producer(PID, epoch) if given else None)
    assert bench.replies[token] == producer(NEW, 0)
    found = bench.stored
    assert (found.producer, found.previous_producer_id) == (producer(NEW, 0), PID)
    assert found.last_epoch == (epoch if given else -1)
    # Its answer was lost: the same again.
    if given and epoch == LAST:
        assert bench.replies[bench.init(producer(PID, LAST))] == producer(NEW, 0)
    retry = bench.init(producer(PID, LAST - 1))
    assert code(bench, retry, ApiKey.INIT_PRODUCER_ID, 4) == FENCED


def test_an_exhausted_producer_that_lost_its_answer_gets_it() -> None:
    bench = bench_with(value(EMPTY, LAST, last_epoch=LAST - 1))
    assert bench.replies[bench.init(producer(PID, LAST - 1))] == producer(PID, LAST)


def test_the_exhausted_epoch_of_another_id_is_no_current_one() -> None:
    bench = bench_with(value(EMPTY, LAST))
    token = bench.init(producer(PREVIOUS, LAST))
    assert code(bench, token, ApiKey.INIT_PRODUCER_ID, 4) == FENCED


def test_a_retry_is_one_until_the_epoch_is_used() -> None:
    """KAFKA-20357: the last epoch is stored, so another coordinator knows it too."""
    bench = Bench()
    first = bench.replies[bench.init()]
    assert first == producer(NEW, 0)
    assert bench.replies[bench.init(producer(NEW, 0))] == producer(NEW, 1)
    bench.load()
    assert bench.replies[bench.init(producer(NEW, 0))] == producer(NEW, 1)
    bench.add(producer(NEW, 1))
    bench.load()
    late = bench.init(producer(NEW, 0))
    assert code(bench, late, ApiKey.INIT_PRODUCER_ID, 4) == FENCED
    assert bench.stored.state is ONGOING
    # Nor is it one after the transaction: whoever began it had the answer.
    bench.end(producer(NEW, 1))
    bench.confirm()
    late = bench.init(producer(NEW, 0))
    assert code(bench, late, ApiKey.INIT_PRODUCER_ID, 4) == FENCED
    assert bench.stored.state is COMPLETE_COMMIT


# --- AddPartitions ----------------------------------------------------------------------------


def add_cases() -> Iterator[tuple[TransactionState, str, int, int]]:
    for version in range(6):
        fenced = FENCED if version >= 2 else INVALID_EPOCH
        for state in STATES:
            for claim in CLAIMS:
                if "id" in claim:
                    yield state, claim, version, NO_MAPPING
                elif claim == "newer":
                    yield state, claim, version, ELSEWHERE
                elif claim != "current":
                    yield state, claim, version, fenced
                else:
                    yield state, claim, version, BUSY if state in PREPARED else OK


@pytest.mark.parametrize(("state", "claim", "version", "expected"), list(add_cases()))
def test_add_partitions(state: TransactionState, claim: str, version: int, expected: int) -> None:
    bench = bench_with(value(state))
    client = TV2 if version >= 4 else TV0
    token = bench.add(CLAIMS[claim], P1, version=client)
    if expected == BUSY:
        bench.advance(bench.config.parked_ms_max / 1000)  # until then it is parked
    assert code(bench, token, ApiKey.ADD_PARTITIONS_TO_TXN, version) == expected
    found = bench.stored
    if expected == OK:
        assert found.state is ONGOING
        assert found.partitions == ((P0, P1) if state is ONGOING else (P1,))
        assert (found.number, found.version) == (3 if state is ONGOING else 4, client)
        assert found.start_ms == (10**12 - 5 if state is ONGOING else bench.now.ms)
    else:
        assert found == value(state)


@pytest.mark.parametrize("version", [TV0, TV2])
def test_proven_partitions_that_are_there_already(version: TransactionVersion) -> None:
    """In the classic protocol they may be of the transaction before, at a stale coordinator."""
    bench = bench_with(value(ONGOING))
    count = len(bench.log)
    assert bench.replies[bench.add(producer(PID, 5), P0, version=version)] is None
    assert len(bench.log) == count + (version is TV0)
    assert bench.stored == value(ONGOING)


@pytest.mark.parametrize("version", range(6))
def test_an_id_that_nobody_knows_has_no_transaction(version: int) -> None:
    bench = bench_with(None)
    for token in (bench.add(producer(PID, 0)), bench.end(producer(PID, 0), version=TV2)):
        assert code(bench, token, ApiKey.END_TXN, version) == NO_MAPPING


# --- fences, time -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [TV0, TV2])
def test_a_fence_adds_one_epoch(version: TransactionVersion) -> None:
    """KAFKA-19367: the fence and the abort are one step."""
    fenced = fence(value(ONGOING, version=version), 7)
    assert fenced is not None
    assert (fenced.state, fenced.epoch, fenced.last_epoch) == (PREPARE_ABORT, 6, -1)
    assert (fenced.version, fenced.next_producer_id) == (version, -1)


def test_a_fence_of_the_last_epoch() -> None:
    classic = fence(value(ONGOING, LAST), 7)
    assert classic is not None
    assert (classic.epoch, classic.next_producer_id) == (LAST + 1, -1)
    assert fence(value(ONGOING, LAST, version=TV2), 7) is None
    rotated = fence(value(ONGOING, LAST, version=TV2), 7, NEW)
    assert rotated is not None
    assert (rotated.epoch, rotated.next_producer_id) == (LAST + 1, NEW)


@pytest.mark.parametrize("is_commit", [True, False])
def test_completion(is_commit: bool) -> None:
    before = value(PREPARE_COMMIT if is_commit else PREPARE_ABORT, last_epoch=4)
    after = completed(before, 7)
    assert after == before._replace(
        state=COMPLETE_COMMIT if is_commit else COMPLETE_ABORT, partitions=(), updated_ms=7
    )


def test_time() -> None:
    open_ = value(ONGOING)
    assert not is_timed_out(open_, open_.start_ms + TIMEOUT_MS)
    assert is_timed_out(open_, open_.start_ms + TIMEOUT_MS + 1)
    assert not any(is_timed_out(value(state), 10**15) for state in STATES if state is not ONGOING)
    for state in STATES:
        idle = value(state)
        assert is_expired(idle, idle.updated_ms + 9, 9) is (state in SETTLED)
        assert not is_expired(idle, idle.updated_ms + 8, 9)


def test_the_table_of_states() -> None:
    assert {
        EMPTY: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
        ONGOING: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
        PREPARE_COMMIT: {ONGOING},
        PREPARE_ABORT: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
        COMPLETE_COMMIT: {PREPARE_COMMIT},
        COMPLETE_ABORT: {PREPARE_ABORT},
    } == ALLOWED_BEFORE


# --- a change under way -----------------------------------------------------------------------


def pending(state: TransactionState) -> Bench:
    """A bench whose id is in a state and has a change under way."""
    stored = value(state)
    if state in PREPARED:
        stored = stored._replace(partitions=())  # nothing to mark: Complete* is on its way
    bench = Bench()
    bench.store(stored)
    bench.slow = True
    bench.load()
    if state in PREPARED:
        bench.linger()
    if state is ONGOING:
        bench.end(producer(PID, 5))
    elif state not in PREPARED:
        bench.init()
    assert len(bench.held) == 1
    return bench


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("claim", CLAIMS)
def test_nothing_is_judged_while_a_change_is_under_way(state: TransactionState, claim: str) -> None:
    bench = pending(state)
    who = CLAIMS[claim]
    tokens = [bench.init(), bench.init(who)]
    for version in (TV0, TV2):
        tokens += (bench.end(who, is_commit=flag, version=version) for flag in (True, False))
    if not (state in PREPARED and claim == "current"):  # that one is parked
        tokens += (bench.add(who, P1), bench.add(who, P0, P1, version=TV2))
    assert {code(bench, token, ApiKey.END_TXN, 5) for token in tokens} == {BUSY}
    assert len(bench.held) == 1


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("state", [None, *STATES])
def test_nothing_is_judged_while_a_producer_id_is_allocated(
    state: TransactionState | None, claim: str
) -> None:
    if state in PREPARED:
        return  # nothing but markers is waited for
    bench = bench_with(None if state is None else value(state, LAST, version=TV2))
    bench.short = True
    waiting = bench.init()
    who = CLAIMS[claim]
    tokens = [bench.init(), bench.init(who), bench.add(who), bench.end(who, version=TV2)]
    assert {code(bench, token, ApiKey.END_TXN, 5) for token in tokens} == {BUSY}
    assert waiting not in bench.replies
    bench.allocate()
    assert code(bench, waiting, ApiKey.INIT_PRODUCER_ID, 4) == (BUSY if state is ONGOING else OK)


# --- verification -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("claim", CLAIMS)
def test_verification(state: TransactionState, claim: str) -> None:
    bench = bench_with(value(state))
    verify = bench.shard.requests.verify
    expected = NO_MAPPING if "id" in claim else ELSEWHERE if claim == "newer" else FENCED
    if claim == "current" and state not in PREPARED:
        found = verify(ID, CLAIMS[claim], (P0, P1))
        codes = [OK if error is None else code_of(error) for error in found]
        assert codes == ([OK, 120] if state is ONGOING else [120, 120])
        return
    if claim == "current":
        expected = BUSY
    with pytest.raises(BrokerError) as caught:
        verify(ID, CLAIMS[claim], (P0,))
    assert code_of(caught.value) == expected


def test_verification_sees_what_is_durable_only() -> None:
    bench = bench_with(value(ONGOING))
    bench.slow = True
    bench.add(producer(PID, 5), P1)
    assert bench.shard.requests.verify(ID, producer(PID, 5), (P0, P1))[1] is not None
    bench.finish()
    assert bench.shard.requests.verify(ID, producer(PID, 5), (P0, P1)) == (None, None)
    with pytest.raises(BrokerError, match="not known"):
        bench.shard.requests.verify("nobody", producer(PID, 5), (P0,))
