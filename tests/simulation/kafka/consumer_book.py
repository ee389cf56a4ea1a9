"""What the members of a consumer group (KIP-848) were told, and what must be true of that.

    H1   a partition is in one member's hands: from when a member is told that it has it until it
         says that it does not, or may have been removed for its silence
    H2   epochs never fall
    H3   members that stay come to have every partition, each once, at one epoch
    H4   offsets only grow: a former owner changes nothing once the next one has begun, and a member
         may commit what it has had since the epoch that it names
    H7   a member that is heard in time is not removed, whatever answers were lost; a static member
         that is away keeps what it had for a session

A member may take what it was told while its next heartbeat, which does not name that yet, has no
answer: the broker may count that as given back. Kafka has this hole, too, and closes it with the
heartbeat after, which names what is not the member's any more: it is fenced. So such a member (it
strays) may be, and nothing else is asked of it.

A join that its client gave up and repeated may still arrive, behind the answer to the repeated one:
the broker takes it for a member that begins again and has nothing. Kafka has this hole, too. What
such a member reads may be given to another until it is fenced.

The broker can remove a member no earlier than a session after the last of its heartbeats that was
answered had left; nor, if it has to give something up, than a rebalance timeout after the first one
left that may have told it so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.machine.loop import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from tests.simulation.machine.loop import SimLoop

NOTHING = -1
"""The committed offset of a partition of which none was committed."""
_LOST_ANSWERS_MAX = 1
"""How many answers in a row may be lost without harm: the broker remembers one epoch before."""


class Place(NamedTuple):
    """A partition."""

    topic_id: UUID
    index: int


class Tenure:
    """A member of the group from one start of its process on: what it has been told, and what it
    has said."""

    def __init__(self, name: str, member_id: str, session_s: float, rebalance_s: float) -> None:
        self.name = name
        self.member_id = member_id
        self.session_s = session_s
        self.rebalance_s = rebalance_s
        self.epoch = 0
        self.told: frozenset[Place] = frozenset()
        """What it was told last that it has."""
        self.held: set[Place] = set()
        """What it may read: also what it has to give up and has not yet."""
        self.owned: frozenset[Place] = frozenset()
        """What it reads."""
        self.taken_back: set[Place] = set()
        """What it was told and is not any more, until it says what it has."""
        self.heard_s = -math.inf
        """When the last heartbeat left that was answered."""
        self.unheard_s: float | None = None
        """When the first one left since then; None: none did."""
        self.lost = 0
        """How many answers it has missed since."""
        self.strays = False
        """Whether it reads what the broker may have given to another."""
        self.joins = False
        """Whether a join has left that has no answer yet."""
        self.may_join_late = False
        """Whether a join that was given up may still arrive."""
        self.revoke_s: float | None = None
        """When the heartbeat left, at the earliest, that told it to give up what it has to."""

    def __repr__(self) -> str:
        return f"{self.name} ({self.member_id[:8]})"

    def may_be_out_from(self) -> float:
        """Return when the broker may have removed it, at the earliest."""
        start_s = self.revoke_s if self.revoke_s is not None else self.unheard_s
        revoked_s = math.inf if start_s is None else start_s + self.rebalance_s
        return min(self.heard_s + self.session_s, revoked_s)


class _Offsets:
    """What is known of a partition's committed offset."""

    def __init__(self) -> None:
        self.owner: Tenure | None = None
        """Who began to read last; None: nobody, or one of two."""
        self.start = NOTHING
        """Where it began."""
        self.acknowledged = NOTHING
        self.unanswered: dict[int, int] = {}
        """Offsets that the owner sent and knows nothing of, with how often: they may take effect
        behind later ones."""


class Floors(NamedTuple):
    """What may be committed in each partition, when a question leaves."""

    acknowledged: dict[Place, int]
    unanswered: dict[Place, frozenset[int]]


class ConsumerBook:
    """The judge of one group."""

    def __init__(self, loop: SimLoop, count: Callable[[str], None]) -> None:
        self._loop = loop
        self.count = count
        self.tenures: dict[str, Tenure] = {}
        """Members that live, by name."""
        self._away: dict[str, tuple[frozenset[Place], float]] = {}
        """What static members have that are away, and until when, by name."""
        self.log: list[str] = []
        self._offsets: dict[Place, _Offsets] = {}
        self._epoch = 0
        """The highest that anybody was told."""
        self._epochs: dict[str, int] = {}
        """The same by member id."""

    def note(self, text: str) -> None:
        """Write a line of the schedule's log."""
        self.log.append(f"{self._loop.time() - 1000:.4f} {text}")

    def _fail(self, rule: str, text: str) -> None:
        self._loop.fail(Violation(f"{rule}: {text}"))

    # --- members ------------------------------------------------------------------------------

    def begins(self, tenure: Tenure) -> None:
        """A process has started."""
        self.tenures[tenure.name] = tenure
        self.note(f"{tenure} starts")

    def ends(self, name: str) -> None:
        """A process has died, or its member has left: it reads nothing any more."""
        if self.tenures.pop(name, None) is not None:
            self.note(f"{name} ends")

    def goes_away(self, tenure: Tenure) -> None:
        """A static member was told that it will be waited for: until its session ends. What it has
        is known if no answer was lost."""
        if tenure.unheard_s is None:
            self._away[tenure.name] = (tenure.told, tenure.heard_s + tenure.session_s)

    def asks_to_join(self, tenure: Tenure) -> int:
        """A heartbeat of epoch 0 leaves; return the epoch that its answer must reach."""
        self._away.pop(tenure.name, None)
        tenure.may_join_late |= tenure.joins
        tenure.joins = True
        tenure.held.clear()
        tenure.taken_back.clear()
        tenure.told = tenure.owned = frozenset()
        tenure.heard_s, tenure.unheard_s, tenure.revoke_s = -math.inf, None, None
        return max(self._epoch, self._epochs.get(tenure.member_id, 0))

    def says(self, tenure: Tenure, owned: Iterable[Place] | None) -> None:
        """A heartbeat leaves."""
        if tenure.unheard_s is None:
            tenure.unheard_s = self._loop.time()
        else:
            tenure.lost += 1
        if owned is not None:
            tenure.held &= set(owned)
            tenure.taken_back.clear()
        self.note(f"{tenure} is at {tenure.epoch}, owns {_short(owned)}")

    def hears(
        self,
        tenure: Tenure,
        sent_s: float,
        epoch: int,
        assigned: Iterable[Place] | None,
        *,
        epoch_min: int,
    ) -> None:
        """A heartbeat was answered. `epoch_min`: what the epoch must be at least."""
        self.note(f"{tenure} hears {epoch}, {_short(assigned)}")
        first_s = tenure.unheard_s if tenure.unheard_s is not None else sent_s
        tenure.heard_s, tenure.unheard_s, tenure.lost = sent_s, None, 0
        tenure.joins = False
        if epoch < epoch_min:
            self._fail("H2", f"{tenure} is at {epoch}, and {epoch_min} was there before")
        tenure.epoch = epoch
        self._epoch = max(self._epoch, epoch)
        self._epochs[tenure.member_id] = max(self._epochs.get(tenure.member_id, 0), epoch)
        before = (tenure.held | tenure.owned | tenure.taken_back) - tenure.told
        if assigned is not None:
            tenure.strays = False
            tenure.taken_back |= tenure.told
            tenure.told = frozenset(assigned)
            for place in sorted(tenure.told):
                self._claim(tenure, place)
        revoking = (tenure.held | tenure.owned | tenure.taken_back) - tenure.told
        if not revoking:
            tenure.revoke_s = None
        elif tenure.revoke_s is None or revoking != before:
            tenure.revoke_s = first_s

    def _claim(self, tenure: Tenure, place: Place) -> None:
        now_s = self._loop.time()
        for other in self.tenures.values():
            if other is tenure or place not in other.held:
                continue
            if now_s < other.may_be_out_from() and not other.may_join_late:
                self._fail(
                    "H1",
                    f"{tenure} was given {place.index}, which {other} has, who may be removed"
                    f" from {other.may_be_out_from():.3f} on, and it is {now_s:.3f}",
                )
            self.count("partitions taken from the silent")
        for name, (kept, until_s) in self._away.items():
            if place in kept and now_s < until_s:
                self._fail("H7", f"{tenure} was given {place.index}, which is kept for {name}")
        tenure.held.add(place)

    def owns(self, tenure: Tenure, owned: Iterable[Place]) -> None:
        """A member reads these partitions from now on."""
        tenure.owned = frozenset(owned)

    def fenced(self, tenure: Tenure, error: str) -> None:
        """A member was told that it is none."""
        now_s, from_s = self._loop.time(), tenure.may_be_out_from()
        self.note(f"{tenure} hears {error}")
        is_told = tenure.strays or tenure.may_join_late
        if now_s < from_s and tenure.lost <= _LOST_ANSWERS_MAX and not is_told:
            self._fail(
                "H7", f"{tenure} got {error}, and was to stay until {from_s:.3f} at {now_s:.3f}"
            )
        tenure.held.clear()
        tenure.taken_back.clear()
        tenure.told = tenure.owned = frozenset()
        tenure.strays = False
        self.count("members fenced")

    def together(self, wanted: Iterable[Place], members: int) -> str:
        """Return what is missing to H3; empty if nothing is."""
        if len(self.tenures) < members:
            return f"{len(self.tenures)} of {members} members are there"
        epochs = {tenure.epoch for tenure in self.tenures.values()}
        if len(epochs) != 1 or 0 in epochs:
            return f"members are at the epochs {sorted(epochs)}"
        found = sorted(place for tenure in self.tenures.values() for place in tenure.owned)
        if found != sorted(wanted):
            return f"{len(found)} partitions are read"
        return ""

    # --- offsets ------------------------------------------------------------------------------

    def _of(self, place: Place) -> _Offsets:
        return self._offsets.setdefault(place, _Offsets())

    def floors(self, places: Iterable[Place]) -> Floors:
        """A question for committed offsets leaves."""
        known = {place: self._of(place) for place in places}
        return Floors(
            {place: one.acknowledged for place, one in known.items()},
            {place: frozenset(one.unanswered) for place, one in known.items()},
        )

    def fetched(self, floors: Floors, place: Place, offset: int) -> None:
        """A question was answered: nothing that was acknowledged before it left is undone."""
        floor, one = floors.acknowledged[place], self._of(place)
        if offset >= floor or offset in one.unanswered or offset in floors.unanswered[place]:
            return
        self._fail("H4", f"{offset} is committed in {place.index}, acknowledged was {floor}")

    def begins_at(self, tenure: Tenure, floors: Floors, place: Place, offset: int) -> None:
        """A member begins to read where the group was: what others have sent came before that, or
        never will."""
        self.fetched(floors, place, offset)
        if place not in tenure.held:
            tenure.strays = True
            self.count("partitions taken without leave")
            now_s = self._loop.time()
            others = [other for other in self.tenures.values() if place in other.held]
            if any(now_s < other.may_be_out_from() for other in others):
                return
            if others:  # one of them is out, and only the broker knows who
                self._of(place).owner = None
                return
        one = self._of(place)
        if one.owner is not tenure:
            one.unanswered.clear()
        one.owner, one.start, one.acknowledged = tenure, offset, offset
        self.count("partitions taken over")

    def commits(self, tenure: Tenure, place: Place, offset: int) -> None:
        """A commit leaves."""
        one = self._of(place)
        if one.owner is tenure:
            one.unanswered[offset] = one.unanswered.get(offset, 0) + 1

    def committed(self, tenure: Tenure, place: Place, offset: int, *, stored: bool) -> None:
        """A commit was answered. A member commits in order, each offset until it is stored."""
        one = self._of(place)
        if one.owner is not tenure:
            if stored and one.owner is not None and offset > one.start:
                self._fail(
                    "H4",
                    f"{tenure} committed {offset} in {place.index}, where {one.owner} began at"
                    f" {one.start}",
                )
            return
        left = one.unanswered.get(offset, 1) - 1
        one.unanswered[offset] = left
        if not left:
            del one.unanswered[offset]
        if stored:
            self.count("commits")
            one.acknowledged = max(one.acknowledged, offset)

    def refused(self, tenure: Tenure, places: Iterable[Place], error: str) -> None:
        """A commit was refused that named the epoch that the member was told last. It is refused as
        a whole, if the member may not commit one of its partitions."""
        asked = list(places)
        mine = [place.index for place in asked if place in tenure.told & tenure.held]
        is_mine = bool(mine) and len(mine) == len(asked)
        if error == "stale_member_epoch" and is_mine and not tenure.may_join_late:
            self._fail("H4", f"{tenure} may not commit {mine} at its epoch {tenure.epoch}")
        self.count(f"commits refused: {error}")


def _short(places: Iterable[Place] | None) -> str:
    """Name partitions in a line of the log."""
    if places is None:
        return "the same"
    return "{" + " ".join(f"{one.topic_id.hex[-3:]}/{one.index}" for one in sorted(places)) + "}"
