"""The work of a round: entries in, entries of new segments out, with what is aborted in them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.compaction.core.key_map import SECRET_BYTES
from broker.compaction.core.round_messages import (
    BeginGroup,
    BeginRound,
    Begun,
    CleanRun,
    Ended,
    EndGroup,
    EnterKeys,
    Request,
    Run,
    Source,
    WorkDone,
    Written,
)
from broker.compaction.core.round_work import RoundWork
from broker.compaction.core.segment_output import OWN_LEDGER
from broker.errors import CompactionFailed
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.aborted_transactions import (
    ABORTED_TYPE,
    AbortedBlock,
    AbortedTransaction,
    LedgerAborted,
    open_block,
)
from client.log.entry_format import is_internal, next_offset, open_internal
from client.log.segment import SegmentFacts
from client.log.snapshot import NO_TRANSACTIONS, open_snapshot
from client.wire.kafka.batches.records import parse_header
from client.wire.steps import finish
from tests.fakes.keyed import keyed
from tests.property.test_compaction import STEP, committed, last_values, written
from tests.unit.broker.compaction.core.test_cleaning import (
    NOW_MS,
    RETAIN_MS,
    aborted_in,
    in_transaction,
    log,
    marker,
)


class Made:
    """A new segment, read back."""

    def __init__(self, base: Offset) -> None:
        self.base = base
        self.entries: list[bytes] = []
        self.facts: SegmentFacts | None = None

    @property
    def batches(self) -> list[bytes]:
        """Return its batches, one each."""
        found: list[bytes] = []
        for entry in self.entries:
            at = 0
            while not is_internal(entry) and at < len(entry):
                size = parse_header(memoryview(entry)[at:]).size
                found.append(entry[at : at + size])
                at += size
        return found

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """Return what its facts lead a reader to."""
        assert self.facts is not None
        known = self.facts.transactions
        if known is None or known.aborted_at is None:
            return []
        assert known.aborted_at.ledger_id == OWN_LEDGER
        snapshot = open_snapshot(self.entries[known.aborted_at.entry_id])
        index: LedgerAborted = (snapshot.transactions or NO_TRANSACTIONS).aborted
        assert len(index) == known.aborted_count
        blocks: dict[EntryId, AbortedBlock] = {
            EntryId(at): open_block(entry)
            for at, entry in enumerate(self.entries)
            if is_internal(entry) and open_internal(entry).type == ABORTED_TYPE
        }
        assert [ref.entry_id for ref in index.refs] == [*blocks]
        return index.within(Offset(0), Offset(1 << 60), blocks)


class Bench:
    """A round over segments that are given whole."""

    def __init__(
        self,
        batches: Sequence[bytes],
        end: int,
        *,
        slots: int = 100,
        first_dirty: int = 0,
        segment_bytes: int = 1 << 20,
        block_entries: int = 1000,
    ) -> None:
        self.batches = batches
        self.aborted = aborted_in(batches)
        self.work = RoundWork(
            BeginRound(
                slots, bytes(SECRET_BYTES), Offset(first_dirty), Offset(end), NOW_MS, RETAIN_MS,
                segment_bytes, block_entries,
            )
        )  # fmt: skip

    def ask(self, request: Request) -> WorkDone:
        return finish(self.work.do(request))

    def run_of(self, base: int, end: int, *, cleaned: bool = False) -> Run:
        payloads = [
            batch for batch in self.batches if base <= parse_header(batch).base_offset < end
        ]
        within = [one for one in self.aborted if one.last_offset >= base and one.first_offset < end]
        source = Source(LedgerId(1), Offset(base), Offset(end), cleaned)
        return Run(source, True, True, payloads, within)

    def clean(self, base: int, end: int, stable: int, *, cleaned: bool = False) -> list[Made]:
        """Rewrite one segment as a group of its own."""
        outputs = [
            *self.ask(
                BeginGroup(Offset(base), Offset(end), LeaderEpoch(0), Offset(stable))
            ).outputs,
            *self.ask(CleanRun(self.run_of(base, end, cleaned=cleaned))).outputs,
            *self.ask(EndGroup()).outputs,
        ]
        made: list[Made] = []
        for one in outputs:
            match one:
                case Begun(begin):
                    made.append(Made(begin))
                case Written(payload):
                    made[-1].entries.append(b"".join(map(bytes, payload)))
                case Ended(facts):
                    made[-1].facts = facts
        return made


def void(number: int, *keys: str) -> list[bytes]:
    """An aborted transaction."""
    data = in_transaction(number, *((key, "void") for key in keys))
    return [data, marker(number, commit=False)]


def test_index_a_segment_lists_what_is_aborted_and_has_data_left() -> None:
    batches = log(*void(1, "a"), *void(2, "b", "c"), *void(3, "d"), keyed(("e", "1")))
    bench = Bench(batches, 3)  # [0 1] [2 3 | 4] [5 6] 7: the round ends in the middle of the second
    bench.ask(EnterKeys(bench.run_of(0, 8)))
    (made,) = bench.clean(0, 8, 8)
    assert [one.first_offset for one in made.aborted] == [2, 5]
    assert [one.last_offset for one in made.aborted] == [4, 6]
    offsets = [parse_header(batch).base_offset for batch in made.batches]
    assert offsets == [1, 4, 5, 6, 7], "aborted batches go whole"
    assert made.facts is not None
    assert made.facts.transactions is not None
    assert made.facts.transactions.is_transactional
    assert made.facts.stable_offset == 8


def test_an_index_goes_into_blocks_once_it_is_long() -> None:
    batches = log(*(batch for number in range(5) for batch in void(number, "a")), keyed(("e", "1")))
    bench = Bench(batches, 2, block_entries=2)
    bench.ask(EnterKeys(bench.run_of(0, 11)))
    (made,) = bench.clean(0, 11, 11)
    assert [one.last_offset for one in made.aborted] == [3, 5, 7, 9]
    internal = [open_internal(entry).type for entry in made.entries if is_internal(entry)]
    assert internal.count(ABORTED_TYPE) == 2


def test_what_is_open_where_a_segment_is_divided_is_not_decided_there() -> None:
    batches = log(
        in_transaction(1, ("a", "1")), keyed(("b", "1")), keyed(("c", "1")),
        marker(1, commit=False), keyed(("d", "1")),
    )  # fmt: skip
    bench = Bench(batches, 0, segment_bytes=1)
    bench.ask(EnterKeys(bench.run_of(0, 5)))
    made = bench.clean(0, 5, 5)
    assert [one.base for one in made] == [0, 1, 2, 3, 4]
    stable = [one.facts.stable_offset for one in made if one.facts is not None]
    assert stable == [0, 0, 0, 4, 5]
    assert [len(one.aborted) for one in made] == [0, 0, 0, 1, 0]


def test_a_segment_without_transactions_left_says_so() -> None:
    batches = log(*void(1, "a"), keyed(("b", "1")))
    bench = Bench(batches, 3)
    (made,) = bench.clean(2, 3, 3)
    assert made.facts is not None
    assert made.facts.transactions is None
    assert open_snapshot(made.entries[-1]).transactions is None


def test_what_is_not_all_there_fails() -> None:
    batches = log(keyed(("a", "1")), keyed(("b", "1")), keyed(("c", "1")))
    for missing in range(3):
        rest = [batch for at, batch in enumerate(batches) if at != missing]
        bench = Bench(rest, 3)
        with pytest.raises(CompactionFailed, match="ledger 1"):
            bench.ask(EnterKeys(bench.run_of(0, 3)))
        bench.ask(EnterKeys(bench.run_of(0, 3, cleaned=True)))
    damaged = Bench([batches[0][:-3]], 1)
    with pytest.raises(CompactionFailed):
        damaged.ask(EnterKeys(Run(damaged.run_of(0, 1).source, True, True, [batches[0][:-3]], ())))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(STEP, min_size=1, max_size=40), st.integers(2, 12), st.integers(0, 100),
    st.integers(1, 4), st.integers(1, 3),
)  # fmt: skip
def test_readers_of_committed_data_get_the_same_by_the_lists_of_new_segments(
    steps: list[tuple[object, ...]], slots: int, share: int, size: int, block_entries: int
) -> None:
    batches, stable = written(steps)
    stable_batches = [batch for batch in batches if parse_header(batch).base_offset < stable]
    if not stable_batches:
        return
    # What is cleaned ends where a batch does, and everything in it is decided.
    end = next_offset(stable_batches[(len(stable_batches) - 1) * share // 100])
    bench = Bench(batches, end, slots=slots, segment_bytes=200 * size, block_entries=block_entries)
    done = bench.ask(EnterKeys(bench.run_of(0, end)))
    made = bench.clean(0, end, min(end, _open_at(batches, end)))
    left = [batch for one in made for batch in one.batches]
    lists = [one for segment in made for one in segment.aborted]
    later = [one for one in bench.aborted if one.last_offset >= end]
    for batch in left:
        header = parse_header(batch)
        if not header.is_transactional or header.is_control:
            continue
        truth = _is_in(bench.aborted, header.producer_id, header.base_offset)
        assert _is_in([*lists, *later], header.producer_id, header.base_offset) == truth
        assert header.base_offset >= done.end or not truth
    rest = [batch for batch in batches if parse_header(batch).base_offset >= end]
    assert last_values(committed([*left, *rest], stable)) == last_values(committed(batches, stable))
    for before, after in zip(made, [*made[1:], None], strict=True):
        assert before.facts is not None
        assert before.facts.last_offset + 1 == (end if after is None else after.base)
        known = _open_at(batches, before.facts.last_offset + 1)
        assert before.facts.stable_offset <= known or after is not None
        # Whatever is aborted below its stable offset is listed in it, or before it.
        wanted = [one for one in bench.aborted if one.first_offset < before.facts.stable_offset]
        assert all(one.last_offset <= before.facts.last_offset for one in wanted)


def _open_at(batches: Sequence[bytes], end: int) -> int:
    open_: dict[int, int] = {}
    for batch in batches:
        header = parse_header(batch)
        if header.base_offset >= end:
            break
        if header.is_control:
            open_.pop(header.producer_id, None)
        elif header.is_transactional:
            open_.setdefault(header.producer_id, header.base_offset)
    return min(open_.values(), default=end)


def _is_in(listed: Sequence[AbortedTransaction], producer_id: int, offset: int) -> bool:
    return any(
        one.producer_id == producer_id and one.first_offset <= offset < one.last_offset
        for one in listed
    )
