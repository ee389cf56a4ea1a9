"""What the members of a share group (KIP-932) were given and told, and what must be true of that.

    S1   what lies at or behind the group's start is accepted in the end, or was given up for a
         reason: rejected, delivered as often as allowed, trimmed, aborted
    S2   a record is in one member's hands, and who has it may settle it
    S3   what a member was told to be settled stays so, whatever leaders come; the start passes
         nothing that may be unsettled, and does not fall while a leader stays
    S4   counts grow with every delivery, do not fall when leaders change, and end at the limit;
         what somebody has while a leader comes may be delivered once more than that
    S5   what is settled is not delivered again
    S6   a lock holds for its time, and no longer
    S7   what a request names of a partition takes effect together, or not at all
    S8   when all is healed and members ask, everything is settled (`share_clients.py`)
    S9   with read_committed nothing is delivered that was aborted; and never what is no record

Dead letters (S10) are to be compared with `given_up`.

The book knows what members hear, not what brokers think. A member has a record *for sure* from the
answer that gave it until a lock's time after its request had left, while it has sent nothing that
may end that, its session goes on, and no other leader came. That a session went on is known once a
later request of it was answered. A leader that was replaced and has not heard may lend for as long
as a metadata session lasts (Z5), as it may serve reads; whatever it lends is not judged otherwise.

An operator's order (begin elsewhere, forget, delete the group) begins an era: what was known of the
records before counts no more. One without an answer may still take effect for a while (`DOUBT_S`),
in which its partition is not judged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.kafka.consumer_book import Place
from tests.simulation.kafka.share_log import Fate
from tests.simulation.machine.loop import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tests.simulation.kafka.share_log import ShareLog
    from tests.simulation.machine.loop import SimLoop

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
SETTLING = (GAP, ACCEPT, REJECT)
NONE = 0
REFUSED = (42, 121)
"""INVALID_REQUEST, INVALID_RECORD_STATE: nothing was changed."""
DOUBT_S = 30.0
"""How long an order without an answer may still take effect: stopped brokers have it."""
_BEHIND_S = 0.001
"""Steps of simulated processes take time."""


class Terms(NamedTuple):
    """What a group is set to."""

    lock_s: float
    deliveries_max: int
    read_committed: bool


class Session:
    """A share session of one member with one broker, over one connection."""

    def __init__(self, member: str, host: str) -> None:
        self.member = member
        self.host = host
        self.proven_s = -math.inf
        """When the last request left that was answered."""
        self.is_over = False

    def __repr__(self) -> str:
        return f"{self.member} at {self.host}"


class Hold:
    """A record in a member's hands."""

    __slots__ = ("count", "epoch", "gone_s", "heard_s", "late_s", "sent_s", "session", "sure_s")

    def __init__(
        self, session: Session, count: int, epoch: int, sent_s: float, heard_s: float, lock_s: float
    ) -> None:
        self.session = session
        self.count = count
        self.epoch = epoch
        """Of the leader that gave it."""
        self.sent_s = sent_s
        self.heard_s = heard_s
        self.sure_s = sent_s + lock_s
        """Until when the lock lasts at least."""
        self.late_s = heard_s + lock_s
        """Until when it lasts at most."""
        self.gone_s = math.inf
        """When something left that may end it."""


class _Suspicion(NamedTuple):
    """Two members seem to have a record at the same time."""

    place: Place
    offset: int
    first: Hold
    second: Hold
    at_s: float


class _Record:
    """What is known of one record in one era."""

    __slots__ = ("count_min", "holds", "may_settle_s", "settled_epoch", "settled_s")

    def __init__(self) -> None:
        self.holds: list[Hold] = []
        """Every time that somebody was given it."""
        self.count_min = 0
        """Deliveries that are durable: a release was answered."""
        self.may_settle_s = math.inf
        """When something left that may have settled it."""
        self.settled_s = math.inf
        """When somebody was told that it is settled."""
        self.settled_epoch = -1


class Order(NamedTuple):
    """What an operator asks about some partitions."""

    places: tuple[Place, ...]
    start: int | None
    """Where the group is to begin; None: it is to forget all it has."""


class _Share:
    """What is known of one partition."""

    def __init__(self, base: int | None) -> None:
        self.records: dict[int, _Record] = {}
        self.base = base
        """From where on records are to be settled; None: not known yet."""
        self.base_s = -math.inf
        """When the era began."""
        self.looks: list[tuple[int, float]] = []
        """(start, when it was told)"""
        self.last_look: tuple[int, int, float] = (-1, -1, 0.0)
        """(leader epoch, start, when it was told)"""
        self.unheard: list[float] = []
        """When requests for records left that have no answer: each may have lent anything."""
        self.orders = 0
        """Orders that are under way."""
        self.doubt_s = -math.inf
        """Until when nothing is sure."""
        self.epochs: list[tuple[float, int]] = []
        """When each leader epoch began, in order."""
        self.trim_to = 0

    def record(self, offset: int) -> _Record:
        found = self.records.get(offset)
        if found is None:
            found = self.records[offset] = _Record()
        return found

    def begins(self, start: int | None, now_s: float) -> None:
        """What was known of the records counts no more."""
        self.records = {}
        self.base, self.base_s = start, now_s
        self.looks.clear()
        self.last_look = (-1, -1, now_s)
        self.unheard.clear()

    def changed_leader(self, since_s: float) -> bool:
        """Whether a leader epoch has begun since."""
        return bool(self.epochs) and self.epochs[-1][0] >= since_s

    def failovers(self) -> int:
        """How many leader epochs have begun in this era."""
        return sum(at_s >= self.base_s for at_s, _ in self.epochs)

    def replaced_s(self, epoch: int) -> float | None:
        """Return when the next leader epoch began; None: there is none."""
        return next((at_s for at_s, one in self.epochs if one > epoch), None)


class Acks:
    """Acknowledgements of one partition that are under way: a type for each record."""

    def __init__(self, session: Session, place: Place, types: Mapping[int, int]) -> None:
        self.session = session
        self.place = place
        self.types = types
        self.sent_s = 0.0
        self.holds: dict[int, Hold] = {}
        self._gone_s: dict[int, float] = {}

    @property
    def strange(self) -> list[int]:
        """The records that their member was never given in this session."""
        return [offset for offset in self.types if offset not in self.holds]

    def leave(self) -> None:
        """What they settle or release may end the holds from now on."""
        for offset, hold in self.holds.items():
            self._gone_s[offset] = hold.gone_s
            if self.types[offset] != RENEW:
                hold.gone_s = min(hold.gone_s, self.sent_s)

    def undo(self) -> None:
        """They have ended nothing."""
        for offset, hold in self.holds.items():
            hold.gone_s = self._gone_s[offset]


class ShareBook:
    """The judge of one group."""

    def __init__(
        self,
        loop: SimLoop,
        group_id: str,
        terms: Terms,
        count: Callable[[str], None],
        note: Callable[[str], None],
        *,
        session_s: float,
        is_earliest: bool = True,
        is_compacted: bool = False,
    ) -> None:
        """`session_s`: for how long a replaced leader may serve; `is_earliest`: whether the group
        begins with the first record that there is; `is_compacted`: whether records may go."""
        self._loop = loop
        self.group_id = group_id
        self.terms = terms
        self.count = count
        self._note = note
        self._session_s = session_s
        self._base = 0 if is_earliest else None
        self._is_compacted = is_compacted
        self._shares: dict[Place, _Share] = {}
        self._suspicions: list[_Suspicion] = []
        self._delivered: dict[Place, dict[int, bytes]] = {}
        """Whatever was given to anybody."""
        self.members: dict[str, str] = {}
        """Members that are there, with what they do."""

    def note(self, text: str) -> None:
        """Write a line of the schedule's log."""
        self._note(f"{self.group_id}: {text}")

    def fail(self, rule: str, place: Place, text: str) -> None:
        """Something is not true."""
        self._loop.fail(
            Violation(f"{rule}: group {self.group_id}, partition {place.index}: {text}")
        )

    def _of(self, place: Place) -> _Share:
        found = self._shares.get(place)
        if found is None:
            found = self._shares[place] = _Share(self._base)
        return found

    def _is_doubtful(self, share: _Share) -> bool:
        now_s = self._loop.time()
        return share.orders > 0 or now_s < share.doubt_s

    @property
    def doubt_s(self) -> float:
        """Until when some partition is not judged."""
        return max((share.doubt_s for share in self._shares.values()), default=-math.inf)

    # --- leaders, trims -------------------------------------------------------------------------

    def led(self, place: Place, epoch: int) -> None:
        """A leader epoch begins."""
        share = self._of(place)
        if not share.epochs or epoch > share.epochs[-1][1]:
            share.epochs.append((self._loop.time(), epoch))

    def trims(self, place: Place, offset: int) -> None:
        """Somebody asks to delete what lies before an offset."""
        share = self._of(place)
        share.trim_to = max(share.trim_to, offset)
        now_s = self._loop.time()
        for at, record in share.records.items():
            if at < offset:
                record.may_settle_s = min(record.may_settle_s, now_s)

    # --- sessions -------------------------------------------------------------------------------

    def hears(self, session: Session, sent_s: float) -> None:
        """A request of a session was answered that had left at `sent_s`."""
        session.proven_s = max(session.proven_s, sent_s)
        left = []
        for one in self._suspicions:
            if one.first.session.is_over or one.second.session.is_over:
                continue
            if min(one.first.session.proven_s, one.second.session.proven_s) < one.at_s:
                left.append(one)
                continue
            self.fail(
                "S2",
                one.place,
                f"{one.offset} was given to {one.second.session} ({one.second.count}), and"
                f" {one.first.session} ({one.first.count}) had it at {one.at_s - 1000:.3f}",
            )
        self._suspicions = left

    def ends(self, session: Session) -> None:
        """A session is over, or will not be gone on with."""
        session.is_over = True

    def fetches(self, places: Iterable[Place], sent_s: float) -> None:
        """A request for records leaves."""
        for place in places:
            self._of(place).unheard.append(sent_s)

    def fetched(self, places: Iterable[Place], sent_s: float) -> None:
        """It was answered."""
        for place in places:
            unheard = self._of(place).unheard
            if sent_s in unheard:
                unheard.remove(sent_s)

    # --- deliveries -----------------------------------------------------------------------------

    def lends(
        self,
        session: Session,
        place: Place,
        values: Mapping[int, bytes],
        count: int,
        epoch: int,
        sent_s: float,
    ) -> None:
        """A member was given records. `epoch`: that of the leader, -1: nobody knows; `sent_s`: when
        it asked."""
        share, now_s = self._of(place), self._loop.time()
        self.note(f"{session} has {place.index}: {_span(values)} for the {count}. time")
        self.count("deliveries")
        self._delivered.setdefault(place, {}).update(values)
        if count > self.terms.deliveries_max + share.failovers():
            self.fail("S4", place, f"{_span(values)} is delivered for the {count}. time")
        if self._is_doubtful(share):
            return
        replaced_s = share.replaced_s(epoch)
        is_late = replaced_s is not None or epoch < 0
        if replaced_s is not None and epoch >= 0 and sent_s > replaced_s + self._session_s:
            self.fail("Z5", place, f"{session} is lent {_span(values)} by epoch {epoch}")
        for offset in values:
            hold = Hold(session, count, epoch, sent_s, now_s, self.terms.lock_s)
            if is_late:
                self.count("deliveries by replaced leaders")
                hold.gone_s = now_s
            else:
                self._judge_delivery(share, place, offset, hold)
            share.record(offset).holds.append(hold)

    def _judge_delivery(self, share: _Share, place: Place, offset: int, hold: Hold) -> None:
        record = share.record(offset)
        if hold.sent_s >= record.settled_s:
            self.fail(
                "S5",
                place,
                f"{offset} is delivered to {hold.session}, and was settled at"
                f" {record.settled_s - 1000:.3f} by epoch {record.settled_epoch}",
            )
        if hold.count <= record.count_min and record.holds:
            self.fail("S4", place, f"{offset}: {hold.count}, and {record.count_min} were released")
        for other in record.holds:
            if other.heard_s > hold.sent_s or other.epoch > hold.epoch:
                continue
            least = other.count + (other.epoch == hold.epoch)
            if hold.count < least:
                self.fail("S4", place, f"{offset}: {hold.count} follows {other.count}")
        heard = 1 + sum(one.epoch <= hold.epoch for one in record.holds)
        if heard > self.terms.deliveries_max + share.failovers():
            self.fail("S4", place, f"{offset} is delivered {heard} times")
        for other in record.holds:
            is_sure = self._is_sure(share, other) and hold.heard_s < hold.sure_s
            if is_sure and other.epoch == hold.epoch:
                self._suspicions.append(_Suspicion(place, offset, other, hold, hold.heard_s))
        if hold.count >= self.terms.deliveries_max:
            record.may_settle_s = min(record.may_settle_s, hold.sent_s)

    def _is_sure(self, share: _Share, hold: Hold) -> bool:
        """Whether a member has a record now, if its session goes on."""
        now_s = self._loop.time()
        return (
            now_s < min(hold.sure_s - _BEHIND_S, hold.gone_s)
            and not hold.session.is_over
            and not share.changed_leader(hold.sent_s)
        )

    # --- acknowledgements -----------------------------------------------------------------------

    def asks(self, acks: Acks) -> None:
        """Acknowledgements leave."""
        share, now_s = self._of(acks.place), self._loop.time()
        acks.sent_s = now_s
        self.note(f"{acks.session} acknowledges {acks.place.index}: {dict(acks.types)}")
        for offset, kind in acks.types.items():
            record = share.record(offset)
            hold = self._hold(record, acks.session)
            if hold is not None:
                acks.holds[offset] = hold
            is_last = hold is not None and hold.count >= self.terms.deliveries_max
            if kind in SETTLING or (kind == RELEASE and is_last):
                record.may_settle_s = min(record.may_settle_s, now_s)
        acks.leave()

    @staticmethod
    def _hold(record: _Record, session: Session) -> Hold | None:
        return next((one for one in reversed(record.holds) if one.session is session), None)

    def lost(self, acks: Acks) -> None:
        """There is no answer, or one that does not say what has happened."""
        self.note(f"{acks.session} hears nothing of {acks.place.index}")
        self.count("acknowledgements without an outcome")

    def answered(self, acks: Acks, code: int, epoch: int) -> None:
        """Acknowledgements were answered. `epoch`: that of the leader."""
        self.note(f"{acks.session} hears of {acks.place.index}: {code}")
        share = self._of(acks.place)
        if self._is_doubtful(share):
            return
        if code in REFUSED:
            self._judge_refusal(share, acks, code)
        elif code:
            self.lost(acks)
        else:
            self._take(share, acks, epoch)

    def _judge_refusal(self, share: _Share, acks: Acks, code: int) -> None:
        self.count("acknowledgements refused")
        acks.undo()
        if acks.strange:
            self.count("requests for too much refused")
        elif all(self._is_sure(share, one) for one in acks.holds.values()):
            self.fail(
                "S7" if len(acks.types) > 1 else "S2",
                acks.place,
                f"{acks.session} has {sorted(acks.types)} and is told {code}",
            )

    def _take(self, share: _Share, acks: Acks, epoch: int) -> None:
        """They were taken."""
        now_s, place = self._loop.time(), acks.place
        acks.undo()
        if self._is_too_much(share, acks):
            self.fail("S7", place, f"{acks.session} has no {acks.strange}, and no error")
        for offset, kind in acks.types.items():
            record, hold = share.record(offset), acks.holds.get(offset)
            if hold is None:
                continue
            if acks.sent_s > hold.late_s + _BEHIND_S and not self._may_be_past(share, record, acks):
                self.fail(
                    "S6",
                    place,
                    f"{offset}: the lock of {acks.session} ended at {hold.late_s - 1000:.3f} at the"
                    f" latest, and {kind} of {acks.sent_s - 1000:.3f} was taken",
                )
            if kind == RENEW:
                self.count("renewals")
                hold.sure_s = max(hold.sure_s, acks.sent_s + self.terms.lock_s)
                hold.late_s = now_s + self.terms.lock_s
                continue
            hold.gone_s = min(hold.gone_s, acks.sent_s)
            is_last = hold.count >= self.terms.deliveries_max
            if kind in SETTLING or is_last:
                self.count("records settled")
                record.settled_s = min(record.settled_s, now_s)
                record.settled_epoch = max(record.settled_epoch, epoch)
            elif acks.sent_s < hold.sure_s:
                self.count("records released")
                record.count_min = max(record.count_min, hold.count)

    def _is_too_much(self, share: _Share, acks: Acks) -> bool:
        """Whether acknowledgements name something for sure that their member does not have, behind
        something that it has."""
        now_s, lock_s = self._loop.time(), self.terms.lock_s
        if any(now_s - sent_s < 2 * lock_s + 5.0 for sent_s in share.unheard if sent_s < now_s):
            return False  # it may have been given that, too
        strange = [one for one in acks.strange if one >= share.trim_to]  # others are past for all
        holds = [one for offset in strange for one in share.record(offset).holds]
        return bool(strange) and not (
            any(one.session.member == acks.session.member and one.late_s > now_s for one in holds)
            or not all(self._is_sure(share, one) for one in acks.holds.values())
        )

    def _may_be_past(self, share: _Share, record: _Record, acks: Acks) -> bool:
        """Whether something else may have settled a record: what lies before the start may be
        acknowledged by anybody."""
        most = max((one.count for one in record.holds), default=0) + len(share.unheard)
        is_past = record.may_settle_s < acks.sent_s or most >= self.terms.deliveries_max
        return is_past or share.trim_to > 0 or self._is_compacted

    # --- operators ------------------------------------------------------------------------------

    def orders(self, order: Order) -> None:
        """An operator's order leaves."""
        self.note(f"order {order}")
        for place in order.places:
            self._of(place).orders += 1

    def obeyed(self, order: Order, place: Place, code: int, *, is_sure: bool) -> None:
        """An order was answered for a partition, or not at all: then nothing is sure."""
        share, now_s = self._of(place), self._loop.time()
        share.orders -= 1
        if is_sure and code == NONE:
            self.count("orders obeyed")
            self.note(f"{place.index} begins at {order.start}")
            share.begins(order.start, now_s)
        elif not is_sure:
            self.count("orders in doubt")
            share.doubt_s = now_s + DOUBT_S
            self._suspicions = [one for one in self._suspicions if one.place != place]
            share.begins(None, share.doubt_s)

    def looked(self, place: Place, start: int, epoch: int, sent_s: float) -> None:
        """A tool was told where the group begins in a partition; `epoch`: of its leader."""
        share, now_s = self._of(place), self._loop.time()
        if self._is_doubtful(share) or start < 0 or sent_s < share.base_s:
            return
        self.note(f"{place.index} begins at {start}, says epoch {epoch}")
        self.count("starts looked at")
        known_epoch, known, known_s = share.last_look
        if epoch == known_epoch and sent_s >= known_s and start < known:
            self.fail("S3", place, f"the start fell from {known} to {start} in epoch {epoch}")
        share.last_look = epoch, start, now_s
        if share.base is None:
            share.base = start
        share.looks.append((start, now_s))

    # --- the end --------------------------------------------------------------------------------

    def given_up(self, place: Place) -> list[int]:
        """Return the records that nobody was told to have settled: what dead letters are about."""
        records = self._of(place).records
        return [at for at, one in sorted(records.items()) if one.settled_s == math.inf]

    def judge(self, place: Place, log: ShareLog) -> None:
        """All is quiet and the group has settled everything: hold what is known against the log."""
        share = self._of(place)
        self._judge_delivered(place, log)
        if self._is_doubtful(share) or share.base is None:
            return
        self.count("partitions judged")
        ends = dict(self._ends(share, log))
        for offset, from_s in sorted(ends.items()):
            if from_s == math.inf:
                self.fail("S1", place, f"{offset} is passed, and nobody has settled it")
                return
        for start, told_s in share.looks:
            early = [at for at, from_s in ends.items() if at < start and from_s > told_s]
            if early:
                self.fail(
                    "S3", place, f"the start was {start} at {told_s - 1000:.3f}, before {early[0]}"
                )
                return

    def _judge_delivered(self, place: Place, log: ShareLog) -> None:
        for offset, value in sorted(self._delivered.get(place, {}).items()):
            if offset < log.start:
                continue
            fate = log.fates.get(offset)
            if fate is None and self._is_compacted:
                continue
            if fate is None or fate is Fate.MARKER:
                self.fail("S9", place, f"{offset} was delivered, and is no record")
            elif fate is not Fate.KEPT and self.terms.read_committed:
                self.fail("S9", place, f"{offset} was delivered, and is {fate.value}")
            elif log.values[offset] != value:
                self.fail("S9", place, f"{offset} was delivered as {value!r}")

    def _ends(self, share: _Share, log: ShareLog) -> Iterator[tuple[int, float]]:
        """Return from when on each record may have been settled, of those that are to be."""
        assert share.base is not None
        for offset, fate in log.fates.items():
            if offset < max(share.base, log.start, share.trim_to) or fate is Fate.MARKER:
                continue
            if fate is Fate.ABORTED and self.terms.read_committed:
                continue
            yield offset, self._end_of(share, share.records.get(offset) or _Record())

    def _end_of(self, share: _Share, record: _Record) -> float:
        from_s = record.may_settle_s
        most = max((one.count for one in record.holds), default=0)
        missing = max(1, self.terms.deliveries_max - most)
        if from_s == math.inf and missing <= len(share.unheard):
            self.count("records that may have been lent in vain")
            from_s = min(from_s, sorted(share.unheard)[missing - 1])
        return from_s


def _span(values: Iterable[int]) -> str:
    found: Sequence[int] = sorted(values)
    return f"{found[0]} to {found[-1]}" if len(found) > 1 else f"{found[0]}"
