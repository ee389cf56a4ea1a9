"""The append of a held batch: it follows what the batch becomes."""

from __future__ import annotations

from broker.errors import BrokerError, NotEnoughReplicas, OutOfOrderSequence, Overloaded
from broker.partition.core.append_queue import Append
from broker.partition.core.transactions.held_appends import HeldAppend, settle
from broker.partition.core.transactions.held_batches import HeldBatches, Released
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import parse_header
from tests.fakes.transactions import CLASSIC, transactional

WRONG = OutOfOrderSequence(ProducerId(1), "wrong", first=1, expected=0)


def held(sequence: int = 0, count: int = 1) -> HeldAppend:
    batch = transactional(*["x"] * count, sequence=sequence)
    return HeldAppend(batch, parse_header(batch), CLASSIC, from_client=True)


def accepted(offset: int, count: int = 1) -> Append:
    return Append(Offset(offset), Offset(offset + count), (b"x",), 1, log_append_time_ms=77)


def test_it_has_no_offsets_but_a_count() -> None:
    append = held(count=3)
    assert (append.base_offset, append.end_offset - append.base_offset) == (-1, 3)
    assert (append.completed, append.buffers) == (False, ())
    assert append.size == len(append.batch)


def test_it_follows_what_it_has_become() -> None:
    append, real = held(count=2), accepted(5, 2)
    heard: list[str] = []
    append.on_accepted(lambda one: heard.append(f"accepted {one.base_offset}"))
    append.on_done(lambda one: heard.append(f"done {one.error}"))
    append.follow(real)
    assert (append.base_offset, append.end_offset, append.log_append_time_ms) == (5, 7, 77)
    assert heard == ["accepted 5"]
    append.on_accepted(lambda _: heard.append("again"))
    real.complete(WRONG)
    assert heard == ["accepted 5", "again", f"done {WRONG}"]


def test_it_may_repeat_what_is_stored() -> None:
    append, real = held(), accepted(5)
    real.complete()
    append.follow(real)
    assert append.completed
    assert append.error is None


def settled(count: int, *outcomes: Append | BrokerError) -> list[HeldAppend]:
    """Settle held batches, the first of which are accepted as told."""
    batches = [held(at) for at in range(count)]
    rest = list(outcomes)

    def accept(_: HeldAppend) -> Append:
        outcome = rest.pop(0)
        if isinstance(outcome, BrokerError):
            raise outcome
        return outcome

    queue: HeldBatches[HeldAppend] = HeldBatches("t-0", size_bytes_max=1 << 20)
    settle(Released(tuple(batches)), queue, accept)
    assert not rest
    return batches


def test_all_are_accepted_in_order() -> None:
    first, second = accepted(5), accepted(6)
    assert [one.base_offset for one in settled(2, first, second)] == [5, 6]


def test_none_is_taken_behind_one_that_comes_again() -> None:
    error = Overloaded("full")
    batches = settled(3, accepted(5), error)
    assert [one.error for one in batches] == [None, error, error]


def test_an_error_for_good_is_only_its_own() -> None:
    batches = settled(2, WRONG, accepted(5))
    assert [one.error for one in batches] == [WRONG, None]
    assert [one.base_offset for one in batches] == [-1, 5]


def test_refused_ones_are_not_even_tried() -> None:
    batches, error = (held(0), held(1)), NotEnoughReplicas("x")
    queue: HeldBatches[HeldAppend] = HeldBatches("t-0", size_bytes_max=1 << 20)
    settle(Released(batches, error), queue, lambda _: accepted(1))
    assert [one.error for one in batches] == [error, error]
