"""The state of a transactional publisher: which calls are allowed, epochs, sequence numbers.

Covers both generations of transactions. In the first (TV1) a producer keeps its epoch from one
transaction to the next and tells the coordinator of each partition before it writes there. In the
second (TV2, KIP-890) the partition tells the coordinator, and each end brings a new epoch, in
which sequence numbers begin anew.

    READY -begin-> OPEN -end-> ENDING -ended-> READY
                    |            |
                  fail -> SPOILED +-> (an abort may follow a commit that failed)
    any -fence, refuse-> DEAD

An end whose answer is lost stays ENDING, with its outcome decided by the coordinator: the same
end may be asked for again, never the other one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple

SEQUENCES: Final = 1 << 31
"""Sequence numbers wrap to 0 after the largest int32."""
NO_PRODUCER: Final = -1


class State(enum.Enum):
    """Where a publisher stands."""

    NEW = "has no producer id yet"
    READY = "is between transactions"
    OPEN = "is in a transaction"
    SPOILED = "is in a transaction that can only be aborted"
    ENDING = "waits for a transaction to end"
    DEAD = "cannot go on"


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


class Identity(NamedTuple):
    """What a partition and the coordinator know a producer by."""

    producer_id: int
    epoch: int


class WrongState(Exception):
    """A call that the state does not allow: a mistake of the program."""


class Enrolled:
    """The partitions and groups of a transaction of which the coordinator knows."""

    def __init__(self) -> None:
        self._partitions: set[TopicPartition] = set()
        self.groups: set[str] = set()

    def missing(self, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those that the coordinator must hear of before anything is written there."""
        return [at for at in wanted if at not in self._partitions]

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator knows of these."""
        self._partitions.update(partitions)


class TransactionState:
    """One publisher's transactions, one after the other."""

    def __init__(self) -> None:
        self.state = State.NEW
        self.identity = Identity(NO_PRODUCER, -1)
        self.second_generation = False
        """Whether the brokers take transactions of TV2; fixed with each producer id or epoch."""
        self.wants_epoch = False
        """Sequence numbers have a hole: after the abort a new epoch is needed (TV1)."""
        self.committing: bool | None = None
        """The outcome that is being asked for; None: no end is under way."""
        self._sequences: dict[TopicPartition, int] = {}
        self.enrolled = Enrolled()
        """What the coordinator has been told of (TV1)."""
        self._reached_brokers = False

    def initialised(self, identity: Identity, *, second_generation: bool) -> None:
        """The coordinator gave a producer id, or a new epoch of it."""
        self._adopt(identity)
        self.second_generation = second_generation
        self.wants_epoch = False
        self.state = State.READY

    def begin(self) -> None:
        """Raises WrongState."""
        self._must_be(State.READY)
        self.state = State.OPEN
        self.enrolled = Enrolled()
        self._reached_brokers = False

    @property
    def must_be_aborted(self) -> bool:
        """Whether there is a transaction, and nothing left but to abort it."""
        is_ending = self.state is State.ENDING and self.committing is False
        return is_ending or self.state is State.SPOILED

    def must_be_open(self) -> None:
        """Raises WrongState."""
        self._must_be(State.OPEN)

    def reaches_brokers(self) -> None:
        """A request is about to leave that makes the coordinator know of the transaction."""
        self._reached_brokers = True

    def take_sequence(self, at: TopicPartition, record_count: int) -> int:
        """Return the sequence number of a partition's next batch."""
        sequence = self._sequences.get(at, 0)
        self._sequences[at] = (sequence + record_count) % SEQUENCES
        return sequence

    def spoil(self) -> None:
        """Something of the transaction failed: all of it can only be aborted.

        What was numbered may never arrive, so numbers are not to be trusted after it.
        """
        if self.state in (State.OPEN, State.SPOILED, State.ENDING):
            self.state = State.SPOILED
            self.wants_epoch = True

    def die(self) -> None:
        """Nothing works under this producer id any more."""
        self.state = State.DEAD

    def end(self, *, commit: bool) -> bool:
        """An end is asked for, maybe again; return whether the coordinator has to be asked.

        Raises WrongState, also for the other outcome of an end that is under way.
        """
        if self.state is State.ENDING and self.committing is commit:
            return True
        if commit:
            self._must_be(State.OPEN)
        else:
            self._must_be(State.OPEN, State.SPOILED)
        self.state = State.ENDING
        self.committing = commit
        return self._reached_brokers

    def ended(self, identity: Identity | None = None) -> None:
        """The transaction has ended; `identity`: of the next one, where the answer said so."""
        if identity is not None:
            self._adopt(identity)
            self.wants_epoch = False
        self.committing = None
        self.state = State.READY

    def _adopt(self, identity: Identity) -> None:
        if identity != self.identity:
            self._sequences.clear()
        self.identity = identity

    def _must_be(self, *states: State) -> None:
        if self.state not in states:
            wanted = " or ".join(f"one that {state.value}" for state in states)
            raise WrongState(f"the publisher {self.state.value}; this takes {wanted}")
