"""Held batches against a list of what arrived: nothing behind a marker, nothing twice, in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import BrokerError, InvalidTransactionState, NotEnoughReplicas, Overloaded
from broker.partition.core.held_batches import Guard, HeldBatches, Released
from client.ids import ProducerId
from client.wire.kafka.batches.records import Record, build_batch, parse_header

TEMPLATE = parse_header(build_batch([Record(None, b"x", 1)], transactional=True))
EPOCH = 1

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.just("verified"), st.integers(0, 9), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("refused"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("marker"), st.integers(0, 2), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("drain")),
    ),
    max_size=60,
)


class Model:
    """Questions with all that arrived while they were open; a list, and nothing clever."""

    def __init__(self) -> None:
        self.questions: list[tuple[Guard, int, list[str]]] = []
        """Every question there ever was: guard, producer, what waits for it."""
        self.is_open: list[bool] = []

    def find(self, pid: int) -> int | None:
        numbers = [at for at, (_, mine, _) in enumerate(self.questions) if mine == pid]
        return numbers[-1] if numbers and self.is_open[numbers[-1]] else None

    def close(self, number: int) -> list[str]:
        was_open, self.is_open[number] = self.is_open[number], False
        return self.questions[number][2] if was_open else []


@settings(max_examples=200)
@given(STEPS, st.integers(1, 5))
def test_same_batches(steps: list[tuple], batches_max: int) -> None:
    held = HeldBatches[str]("t-0", size_bytes_max=batches_max * TEMPLATE.size, overhead_bytes=0)
    model = Model()
    for arrival, step in enumerate(steps):
        released: Released[str] = Released(())
        expected: list[str] = []
        match step:
            case ("batch", pid, sequence):
                take(held, model, f"{arrival}", pid, sequence)
            case ("verified", number, coordinator, known) if model.questions:
                number %= len(model.questions)
                expected = model.close(number)
                released = held.on_verified(model.questions[number][0], coordinator, known)
                assert (released.error is None) or coordinator < known
                assert released.error is not None or coordinator >= known or not expected
            case ("refused", number, is_final) if model.questions:
                number %= len(model.questions)
                error: BrokerError = NotEnoughReplicas("ask again")
                if is_final:
                    error = InvalidTransactionState(ProducerId(0), "not open")
                expected = model.close(number)
                released = held.on_refused(model.questions[number][0], error)
                assert released.error is error
            case ("marker", pid, epoch, is_tv2):
                found = model.find(pid)
                may_end = epoch > EPOCH or (epoch == EPOCH and not is_tv2)
                expected = model.close(found) if found is not None and may_end else []
                released = held.on_marker(ProducerId(pid), epoch, is_tv2=is_tv2)
                assert released.error is not None
                assert released.error.retriable
            case ("drain",):
                waiting = [at for at, is_open in enumerate(model.is_open) if is_open]
                everything = [batch for at in waiting for batch in model.close(at)]
                assert list(held.drain()) == everything
        assert list(released.batches) == expected
        waiting_now = sum(
            len(batches)
            for (_, _, batches), is_open in zip(model.questions, model.is_open, strict=True)
            if is_open
        )
        assert len(held) == waiting_now <= batches_max
        assert held.size_bytes == waiting_now * TEMPLATE.size


def take(held: HeldBatches[str], model: Model, batch: str, pid: int, sequence: int) -> None:
    """Hold a batch in both, unless it is refused: then it changes nothing that waits."""
    header = TEMPLATE._replace(
        producer_id=ProducerId(pid), producer_epoch=EPOCH, base_sequence=sequence
    )
    try:
        guard = held.hold(header, batch)
    except (NotEnoughReplicas, Overloaded):
        return
    found = model.find(pid)
    assert (guard is not None) == (found is None), "one question per producer"
    if found is not None:
        model.questions[found][2].append(batch)
    elif guard is not None:
        model.questions.append((guard, pid, [batch]))
        model.is_open.append(True)
