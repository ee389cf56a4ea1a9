"""Drives the leader of a partition by hand: effects are noted, entries pulled as a shell would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from broker.cluster.core.topic_config import TopicConfig
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.core.append_queue import Append, LogEntry
from broker.partition.core.leader import PartitionLeader
from broker.partition.core.leader_effects import (
    BeginSegment,
    Change,
    Effect,
    Effects,
    Now,
    PlanSend,
    SendEntries,
    StepOutcome,
    SwitchLedger,
)
from broker.partition.core.log_fold import LogFold
from broker.partition.core.log_limits import LogLimits
from broker.partition.core.log_state import LogOffsets, LogState
from broker.partition.core.producer_state import SequenceGaps
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segments import SegmentList
from tests.fakes.brokers import batch

E = TypeVar("E", bound=Effect)

FIRST = LedgerId(1)
NOW_MS = 1_700_000_000_000


def new_log(settled_s: float = 0.0, **limits: int) -> LogState:
    """Return an empty log whose first ledger is `FIRST`."""
    log_limits = LogLimits(**limits)
    fold = LogFold(log_limits)
    log = LogState(
        "t-0",
        LeaderEpoch(0),
        log_limits,
        LogOffsets(Offset(0), Offset(0), fold.transactions),
        fold,
        ActiveSegment(FIRST, Offset(0), NOW_MS, log_limits),
        SequenceGaps(settled_s),
    )
    return log


class Lead:
    """A leader, and what became of its effects."""

    def __init__(self, config: dict[str, str] | None = None, **limits: int) -> None:
        opened = SegmentList().opened(FIRST, base_offset=Offset(0), created_ms=NOW_MS, recovered={})
        self.leader = PartitionLeader("t-0", new_log(**limits), opened, 1)
        self.leader.configure(TopicConfig.parse(config or {}))
        self.now = Now(NOW_MS, 100.0)
        self.ledger_id = FIRST
        self.sent: dict[LedgerId, list[LogEntry]] = {FIRST: []}
        """What a shell would have added to each ledger."""
        self.under_way: list[LogEntry] = []
        self.do(self.leader.start())

    def do(self, effects: Effects) -> list[Effect]:
        """Carry out what needs no I/O; return the effects without those of the append path."""
        rest: list[Effect] = []
        for effect in effects:
            match effect:
                case SendEntries():
                    while self.leader.log.queue.waiting:
                        entry = self.leader.log.queue.take()
                        assert entry.entry_id == len(self.sent[self.ledger_id])
                        self.sent[self.ledger_id].append(entry)
                        self.under_way.append(entry)
                case PlanSend():
                    rest += self.do(self.leader.log.on_turn_over())
                case SwitchLedger(ledger_id):
                    self.ledger_id = ledger_id
                    self.sent[ledger_id] = []
                    rest.append(effect)
                case LogEntry() as entry:
                    for append in entry.appends:
                        append.complete()
                case BeginSegment(active):
                    assert active is self.leader.log.active
                case _:
                    rest.append(effect)
        self.leader.check()
        return rest

    def append(self, value: str = "x", **options: int) -> Append:
        """Append a batch of one record; nothing but that may come of it."""
        append, effects = self.leader.append(batch(value, **options), self.now.ms, self.now.s)
        assert self.do(effects) == []
        return append

    def confirm(self, count: int | None = None) -> list[Effect]:
        """Let the ledger confirm its oldest entries."""
        effects: list[Effect] = []
        for _ in range(len(self.under_way) if count is None else count):
            entry = self.under_way.pop(0)
            told = self.leader.on_confirmed()
            assert told[0] is entry
            effects += self.do(told)
        return effects

    def settle(self) -> list[Effect]:
        """Confirm until nothing is under way."""
        effects: list[Effect] = []
        while self.under_way:
            effects += self.confirm()
        return effects

    def ask(self, change: Change) -> list[Effect]:
        return self.do(self.leader.ask(change, self.now))

    def hear(self, outcome: StepOutcome) -> list[Effect]:
        return self.do(self.leader.on_outcome(outcome, self.now))


def one(effects: Sequence[Effect], kind: type[E]) -> E:
    """Return the one effect of a kind."""
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found


def kinds(effects: Sequence[Effect]) -> list[str]:
    """Return the names of the effects, in order."""
    return [type(effect).__name__ for effect in effects]
