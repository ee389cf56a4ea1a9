"""The members of a group: static instances, leader, and the vote on a protocol.

It knows nothing of states, timers or requests (those are in `group`); it keeps the counts that make
each question cheap:

- `static` maps an instance id to the member id that holds it at present; a member with an
  instance id is always in it.
- `_support[name]` counts members that can speak protocol `name`; a candidate is a protocol that
  all of them speak, and each member votes for the first candidate in its own list.
- iteration is in joining order, so that the same inputs always elect the same leader.

Source: Kafka's ClassicGroup and ClassicGroupMember; KIP-345 for static members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from broker.coordinator.core.coordinator_types import Token
from broker.groups.core.consumer_protocol import subscribed_topics
from broker.groups.core.group_types import Join, JoinedMember, MemberMetadata


class Member:
    """One member, live. `expires_s` None: no session deadline runs (it is parked)."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "expires_s",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(self, member_id: str, request: Join) -> None:
        self.member_id = member_id
        self.instance_id = request.instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms
        self.protocols = request.protocols
        self.assignment = b""
        self.is_new = True
        self.join_token: Token | None = None
        self.sync_token: Token | None = None
        self.expires_s: float | None = None

    @classmethod
    def restored(cls, stored: MemberMetadata, protocol_type: str, protocol: str) -> Member:
        """Build a member out of its stored form; only the chosen protocol survives storage."""
        request = Join(
            group_id="",
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=((protocol, stored.subscription),),
            requires_member_id=False,
            can_skip_assignment=False,
        )
        member = cls(stored.member_id, request)
        member.assignment = stored.assignment
        member.is_new = False
        return member

    @property
    def parked(self) -> bool:
        """Whether we owe this member an answer; it cannot heartbeat meanwhile."""
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's blob for a protocol, empty if it does not speak it."""
        return next((blob for name, blob in self.protocols if name == protocol), b"")

    @property
    def kept_bytes(self) -> int:
        """Bytes of what the member gave along, and of its assignment."""
        return sum(len(name) + len(blob) for name, blob in self.protocols) + len(self.assignment)

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """Return the form in which the log keeps this member."""
        return MemberMetadata(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


class MemberBytes:
    """What the members of many groups have given us to keep: subscriptions and assignments."""

    def __init__(self) -> None:
        self.held = 0

    def assign(self, member: Member, assignment: bytes) -> None:
        """Keep what the leader gave a member."""
        self.held += len(assignment) - len(member.assignment)
        member.assignment = assignment


class Membership:
    """The members of one group. `leader` is None only while there are no members."""

    def __init__(self, member_bytes: MemberBytes) -> None:
        """`member_bytes` counts what is kept here, too."""
        self.bytes = member_bytes
        self._members: dict[str, Member] = {}
        self._support: dict[str, int] = {}
        self.static: dict[str, str] = {}
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        """Return the member, or None."""
        return self._members.get(member_id)

    def add(self, member: Member) -> None:
        """Add a new member; the first one leads."""
        assert member.member_id not in self._members
        self._members[member.member_id] = member
        self._count(member, 1)
        self.bytes.held += member.kept_bytes
        if member.instance_id is not None:
            assert member.instance_id not in self.static
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member, handing leadership to the oldest one left; None if there is none."""
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        self.bytes.held -= member.kept_bytes
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def rename(self, old_id: str, new_id: str) -> Member:
        """Give a static member's place to a new member id; leadership goes along."""
        member = self._members[old_id]
        assert member.instance_id is not None
        # Rebuilt rather than popped: the place in the joining order must not change.
        self._members = {
            (new_id if member_id == old_id else member_id): one
            for member_id, one in self._members.items()
        }
        member.member_id = new_id
        self.static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def update(self, member: Member, request: Join) -> None:
        """Take over protocols and timeouts of a member that joins again."""
        self._count(member, -1)
        self.bytes.held -= member.kept_bytes
        member.protocols = request.protocols
        self.bytes.held += member.kept_bytes
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        self._count(member, 1)

    def elect_joined_leader(self) -> bool:
        """Make sure that a member which waits for its join answer leads; False if none does."""
        leader = self.get(self.leader) if self.leader is not None else None
        if leader is not None and leader.join_token is not None:
            return True
        for member in self:
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    def speaks(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether all present members know at least one of these protocols."""
        return any(self._support.get(name, 0) == len(self._members) for name, _ in protocols)

    def elect_protocol(self) -> str:
        """Return the candidate with most votes; ties go to the one voted for first."""
        size = len(self._members)
        votes: dict[str, int] = {}
        for member in self:
            choice = next(name for name, _ in member.protocols if self._support[name] == size)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def rebalance_timeout_ms(self) -> int:
        """Return how long a rebalance waits: the longest that any member asked for."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def subscribed_topics(self, protocol: str | None) -> frozenset[str] | None:
        """Return the topics in the members' subscriptions; None if one is not understood."""
        topics: set[str] = set()
        for member in self:
            names = subscribed_topics(member.metadata(protocol))
            if names is None:
                return None
            topics.update(names)
        return frozenset(topics)

    def all_joined(self) -> bool:
        """Whether every member waits for its join answer."""
        return all(member.join_token is not None for member in self)

    def check(self) -> None:
        """Assert the invariants named in the module docstring."""
        assert (self.leader is None) == (not self._members)
        assert self.leader is None or self.leader in self._members
        for instance_id, member_id in self.static.items():
            assert self._members[member_id].instance_id == instance_id
        support: dict[str, int] = {}
        for member_id, member in self._members.items():
            assert member.member_id == member_id
            assert member.instance_id is None or self.static[member.instance_id] == member_id
            for name in dict(member.protocols):
                support[name] = support.get(name, 0) + 1
        assert support == {name: count for name, count in self._support.items() if count}

    def _count(self, member: Member, step: int) -> None:
        for name in dict(member.protocols):  # a name listed twice counts once
            self._support[name] = self._support.get(name, 0) + step
            if not self._support[name]:
                del self._support[name]


class PromisedIds:
    """Member ids that were handed out to clients which have not joined with them yet (KIP-394)."""

    __slots__ = ("_expires_s", "_make")

    def __init__(self, make: Callable[[str], str]) -> None:
        """`make` returns a unique id that begins with what it is given."""
        self._make = make
        self._expires_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._expires_s)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._expires_s

    def make(self, prefix: str) -> str:
        """Return a new id."""
        return self._make(prefix)

    def promise(self, member_id: str, expires_s: float) -> None:
        """The id may be used for joining until then."""
        self._expires_s[member_id] = expires_s

    def drop(self, member_id: str) -> bool:
        """Forget an id; return whether it was promised."""
        return self._expires_s.pop(member_id, None) is not None

    def clear(self) -> None:
        """Forget all."""
        self._expires_s.clear()

    def expire(self, now_s: float) -> list[str]:
        """Forget those whose time is over, and return them."""
        lost = [member_id for member_id, at_s in self._expires_s.items() if at_s <= now_s]
        for member_id in lost:
            del self._expires_s[member_id]
        return lost

    def deadlines(self) -> Iterable[float]:
        """Return when each one expires."""
        return self._expires_s.values()


def joined_members(members: Iterable[Member], protocol: str | None) -> tuple[JoinedMember, ...]:
    """Return members as the leader gets to see them."""
    return tuple(
        JoinedMember(one.member_id, one.instance_id, one.metadata(protocol)) for one in members
    )


def stored_members(
    members: Iterable[Member], protocol: str | None, assignments: Mapping[str, bytes]
) -> tuple[MemberMetadata, ...]:
    """Return members as the log keeps them; a member without an assignment gets b""."""
    return tuple(one.stored(protocol, assignments.get(one.member_id, b"")) for one in members)
