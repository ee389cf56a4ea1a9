"""ProducerState against a model that keeps the whole log and looks everything up by brute force."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import InvalidProducerEpoch, OutOfOrderSequence
from broker.partition.core.producer_state import SEQUENCE_MODULUS, ProducerState
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import BatchHeader, Record, build_batch, parse_header

TEMPLATE = parse_header(build_batch([Record(None, b"x", 1)]))


@dataclasses.dataclass
class Sent:
    pid: int
    epoch: int
    sequences: list[int]
    base: int


class Model:
    """Everything ever accepted, oldest first."""

    def __init__(self) -> None:
        self.log: list[Sent] = []

    def judge(self, pid: int, epoch: int, sequences: list[int]) -> int | str | None:
        """Return the offset of a duplicate, the name of an error, or None."""
        mine = [sent for sent in self.log if sent.pid == pid]
        if not mine:
            return None
        newest = mine[-1].epoch
        if epoch < newest:
            return "epoch"
        if epoch > newest:
            return None if sequences[0] == 0 else "order"
        window = [sent for sent in mine if sent.epoch == epoch][-5:]
        for sent in window:
            if sent.sequences == sequences:
                return sent.base
        follows = (window[-1].sequences[-1] + 1) % SEQUENCE_MODULUS
        return None if sequences[0] == follows else "order"


def header(pid: int, epoch: int, first: int, count: int) -> BatchHeader:
    return TEMPLATE._replace(
        producer_id=ProducerId(pid),
        producer_epoch=epoch,
        base_sequence=first,
        last_offset_delta=count - 1,
        record_count=count,
    )


START = st.sampled_from([0, 1, SEQUENCE_MODULUS - 3, SEQUENCE_MODULUS - 1])
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # producer
        st.sampled_from([0, 0, 0, 0, 1, -1]),  # epoch step
        st.sampled_from(["next", "next", "next", "again", "gap", "zero", "overlap"]),
        st.integers(1, 4),  # records
        st.integers(1, 7),  # how far back "again" goes
        st.booleans(),  # snapshot and restore first
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(st.tuples(START, START, START), STEPS)
def test_same_verdicts(starts: tuple[int, int, int], steps: list[tuple]) -> None:
    state, model = ProducerState(), Model()
    end = 0
    for pid, epoch_step, kind, count, back, restart in steps:
        if restart:
            restored = ProducerState()
            assert not restored.restore(memoryview(state.encode()))
            state = restored
        mine = [sent for sent in model.log if sent.pid == pid]
        epoch = max(0, (mine[-1].epoch if mine else 0) + epoch_step)
        if not mine:
            first = starts[pid]
        elif kind == "again":
            repeated = mine[-min(back, len(mine))]
            first, count, epoch = repeated.sequences[0], len(repeated.sequences), repeated.epoch
        else:
            following = (mine[-1].sequences[-1] + 1) % SEQUENCE_MODULUS
            step = {"next": 0, "gap": back, "overlap": -back}.get(kind, 0)
            first = 0 if kind == "zero" else (following + step) % SEQUENCE_MODULUS
        sequences = [(first + number) % SEQUENCE_MODULUS for number in range(count)]
        batch = header(pid, epoch, first, count)
        verdict: int | str | None
        try:
            known = state.find_duplicate(batch)
            verdict = None if known is None else known.base_offset
            if known is not None:
                assert known.next_offset == known.base_offset + count
        except OutOfOrderSequence:
            verdict = "order"
        except InvalidProducerEpoch:
            verdict = "epoch"
        assert verdict == model.judge(pid, epoch, sequences)
        if verdict is None:
            state.accept(batch, Offset(end), 0)
            model.log.append(Sent(pid, epoch, sequences, end))
            end += count
