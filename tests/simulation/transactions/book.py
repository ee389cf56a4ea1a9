"""The judge of transactions: what clients asked for and were told, against what the logs hold.

    X1 a reader of committed data gets every record of a committed transaction, in offset order,
       and none of an aborted or undecided one
    X2 an end that was answered is the end: a commit everywhere, an abort nowhere committed; and
       nothing commits that nobody asked to commit
    X3 no transaction commits in one partition and aborts in another, nor takes parts of the next
       one along
    X4 the last stable offset never falls for a client that knows the epoch, never passes an
       undecided transaction or the high watermark; with silent clients it gets there in time
    X5 the aborted list of an answer filters exactly what markers aborted
    X6 a leader that takes over knows of its log what the one before knew: what is open and since
       when, epochs of producers and of coordinators, and so the last stable offset
    X7 a producer id and epoch are given to one client; after a fence nothing of an older one is
       accepted
    X8 nothing is appended to a transaction behind its marker, and none is open that no coordinator
       will end
    X9 committed offsets are those of the last committed transaction, as one with its data: what a
       chain wrote is what it read, each record once; and whoever reads the log of offsets from
       its beginning, and takes each committed record for news, knows them too
    X10 one marker for each transaction and partition, unless an epoch rose
    X11 the coordinator's log follows the state machine; a decision never changes
    X12 a client that is the newest, and in time, is never told that it is fenced or that its state
       is wrong: retries over any connection are known
    X13 what the facts of sealed segments list as aborted is what was aborted in them
    X14 what is held, parked and open stays within its limits

X6 and X13 are looked at in `judge.py`, X14 in `world.py`; in whole clusters
X6 is that all others hold through takeovers.

Values name their transaction: `tx:client:number:index...`; offsets name it in their metadata. So
each partition's log tells by itself what became of a transaction there.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from broker.transactions.core.transaction_records import TransactionEntry, decode
from client.wire.kafka.batches.records import records
from tests.simulation.transactions.log import Fate, TransactionLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

    from tests.simulation.clusters.oracle import ClusterOracle, PartitionBook
    from tests.simulation.kafka.entries import Batch
    from tests.simulation.kafka.transaction_link import ProducerKey

OFFSETS_TOPIC, STATES_TOPIC = "__consumer_offsets", "__transaction_state"
Place = tuple[str, int]
OffsetKey = tuple[str, str, int]
"""(group, topic, partition)"""

_OFFSET_VALUE_VERSION_MIN, _COMPACT_VERSION, _OFFSET_BYTES = 3, 4, 14
_EMPTY, _ONGOING, _COMMITTING, _ABORTING, _COMMITTED, _ABORTED, _DEAD = range(7)
_NAMES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
)  # fmt: skip
_NEXT = {
    _EMPTY: (_EMPTY, _ONGOING, _ABORTING, _DEAD),
    _ONGOING: (_ONGOING, _COMMITTING, _ABORTING),
    _COMMITTING: (_COMMITTED,),
    _ABORTING: (_ABORTED,),
    _COMMITTED: (_EMPTY, _ONGOING, _ABORTING, _DEAD),
    _ABORTED: (_EMPTY, _ONGOING, _ABORTING, _DEAD),
    _DEAD: (),
}
"""What may follow each state in the coordinator's log; a copy of the log repeats what it has."""


class Transaction:
    """One transaction of one client."""

    def __init__(self, name: str, who: str, number: int) -> None:
        self.name = name
        """The transactional id."""
        self.who = who
        self.number = number
        self.values: dict[Place, list[bytes]] = {}
        """What was sent."""
        self.offsets: dict[OffsetKey, int] = {}
        self.is_commit: bool | None = None
        """What the client asked for; None: nothing yet."""
        self.is_late = False
        """Whether it asked when another client had been given a newer epoch already."""
        self.is_answered = False
        self.fates: dict[Place, Fate] = {}

    def __repr__(self) -> str:
        return f"{self.who}:{self.number}"


class _State(NamedTuple):
    """What the coordinator's log says of a transactional id."""

    producer_id: int
    epoch: int
    state: int


class OffsetRow(NamedTuple):
    """A committed offset as its record has it."""

    key: OffsetKey
    offset: int
    metadata: str


class Asking(NamedTuple):
    """What there was of a group's offset when a client asked for it."""

    count: int
    """How many values it had had."""
    pending: frozenset[str]
    """Transactions that might change it."""


class TransactionBook:
    """All transactions of one schedule."""

    def __init__(self, oracle: ClusterOracle) -> None:
        self._oracle = oracle
        self._logs: dict[str, TransactionLog] = {}
        self._transactions: dict[str, Transaction] = {}
        self._given: dict[ProducerKey, str] = {}
        """Who was given a producer id and epoch."""
        self._newest: dict[str, ProducerKey] = {}
        """By transactional id."""
        self._starting: dict[str, set[str]] = {}
        """By transactional id: clients that asked for an epoch and have none, or no other yet."""
        self._states: dict[str, _State] = {}
        self._positions: dict[OffsetKey, int] = {}
        """Where the record of each visible offset lies."""
        self._overtaken: set[tuple[OffsetKey, int]] = set()
        """Offsets that were committed when a later one was visible already."""
        self._added: dict[int, set[tuple[UUID | None, int]]] = {}
        """Producer id -> every partition that its transactions have had."""
        self.offsets: dict[OffsetKey, list[int]] = {}
        """Every value that each offset has had, in the order of the log."""
        self._rows: dict[OffsetRow, list[int]] = {}
        """Every row that was committed, and where it lies, copies not counted."""

    def log(self, topic: str, index: int) -> TransactionLog:
        """Return the log of a partition, with all that is confirmed."""
        book = self._oracle.partition(topic, index)
        found = self._logs.get(book.name)
        if found is None:
            found = self._logs[book.name] = TransactionLog(self._oracle, book, self)
        found.advance()
        return found

    def advance(self) -> None:
        """Look at what was confirmed in the coordinators' logs meanwhile."""
        for topic in (OFFSETS_TOPIC, STATES_TOPIC):
            for index in range(self._oracle.partition_count(topic)):
                self.log(topic, index)

    def _fail(self, rule: str, text: str) -> None:
        self._oracle.fail(rule, text)

    def _place(self, book: PartitionBook) -> Place:
        return self._oracle.topic_of(book), int(book.name.rpartition("/")[2])

    # ---------------------------------------------------------------- what clients do

    def starting(self, name: str, who: str) -> None:
        """A client asks for an epoch of its own, which fences the others of that name."""
        self._starting.setdefault(name, set()).add(who)

    def given(self, name: str, who: str, key: ProducerKey) -> None:
        """A client was given a producer id and epoch."""
        self._starting[name].discard(who)
        owner = self._given.setdefault(key, who)
        if owner != who:
            self._fail("X7", f"{who} is given {key}, which {owner} has")
        newest = self._newest.get(name)
        if newest is None or key.producer_id != newest.producer_id or key > newest:
            self._newest[name] = key

    def begin(self, name: str, who: str, number: int) -> Transaction:
        """A client begins a transaction."""
        self._oracle.count("transactions")
        transaction = Transaction(name, who, number)
        self._transactions[repr(transaction)] = transaction
        return transaction

    def asked(self, transaction: Transaction, key: ProducerKey, *, is_commit: bool) -> None:
        """A client asks for the end of its transaction."""
        transaction.is_commit = is_commit
        newest = self._newest.get(transaction.name, key)
        transaction.is_late = newest.producer_id != key.producer_id or newest.epoch > key.epoch

    def answered(self, transaction: Transaction) -> None:
        """A client was told that its transaction has ended as it wished."""
        transaction.is_answered = True
        self._oracle.count("commits" if transaction.is_commit else "aborts")
        for place, fate in transaction.fates.items():
            self._check_end(transaction, place, fate)

    def refused(self, name: str, who: str, code: int, *, is_excused: bool) -> None:
        """A client was told something that ends it; `is_excused`: it was late, or may have been."""
        self._oracle.count("clients fenced")
        has_rivals = bool(self._starting[name] - {who})
        newest = self._newest.get(name)
        is_newest = newest is not None and self._given[newest] == who
        if is_newest and not has_rivals and not is_excused:
            self._fail("X12", f"{who} is the newest and in time, and is told {code}")

    # ---------------------------------------------------------------- what logs hold

    def opened(self, book: PartitionBook, batch: Batch) -> None:
        """A batch of a transaction was found in a log."""
        place = self._place(book)
        for transaction in self._found_in(place, [batch]):
            if place in transaction.fates and place[0] != OFFSETS_TOPIC:
                fate = transaction.fates[place].value
                self._fail(
                    "X8", f"{transaction} was {fate} in {place}, {batch.base_offset} follows"
                )

    def decided(self, book: PartitionBook, batches: list[Batch], *, is_commit: bool) -> None:
        """A marker was found in a log, and what it decides."""
        place = self._place(book)
        found = self._found_in(place, batches)
        if len(found) > 1:
            self._fail("X3", f"in {place} one marker ends {found}")
        fate = Fate.COMMITTED if is_commit else Fate.ABORTED
        for transaction in found:
            transaction.fates[place] = fate
            self._check_end(transaction, place, fate)
            others = {other: known for other, known in transaction.fates.items() if known != fate}
            if others:
                self._fail("X3", f"{transaction} is {fate.value} in {place}, but {others}")
        if is_commit and place[0] == OFFSETS_TOPIC:
            rows = [(row, one.base_offset) for one in batches for row in offset_rows(one)]
            for row, position in rows:
                self._rows.setdefault(row, []).append(position)
            for row, position in {row.key: (row, position) for row, position in rows}.values():
                self._commit_offset(row, position)
        elif is_commit:
            self._check_values(place, batches, found)

    def plain(self, book: PartitionBook, batch: Batch) -> None:
        """A batch without a transaction was found in a log."""
        topic, _ = self._place(book)
        if topic == OFFSETS_TOPIC:
            for row in offset_rows(batch):
                if row not in self._rows:  # else it is a copy
                    self._rows[row] = [batch.base_offset]
                    self._commit_offset(row, batch.base_offset)
        elif topic == STATES_TOPIC:
            for record in records(batch.data):
                self._state(record.key or b"", record.value)

    def _found_in(self, place: Place, batches: list[Batch]) -> list[Transaction]:
        names: dict[str, None] = {}
        for batch in batches:
            if place[0] == OFFSETS_TOPIC:
                names.update(dict.fromkeys(row.metadata for row in offset_rows(batch)))
            else:
                names.update(dict.fromkeys(name_of(value) for _, value in batch.values()))
        return [self._transactions[name] for name in names]

    def _check_end(self, transaction: Transaction, place: Place, fate: Fate) -> None:
        if fate is Fate.COMMITTED:
            if not transaction.is_commit:
                self._fail("X2", f"{transaction} commits in {place}, nobody asked for that")
            if transaction.is_late:
                self._fail("X7", f"{transaction} commits in {place}, its client was fenced before")
        elif transaction.is_commit and transaction.is_answered:
            self._fail("X2", f"{transaction} aborts in {place}, its commit was answered")

    def _check_values(self, place: Place, batches: list[Batch], found: list[Transaction]) -> None:
        values = [value for batch in batches for _, value in batch.values()]
        for transaction in found:
            if values != transaction.values.get(place):
                sent = transaction.values.get(place)
                self._fail("X1", f"{transaction} commits in {place} {values}, it has sent {sent}")

    def _commit_offset(self, row: OffsetRow, position: int) -> None:
        """An offset becomes visible, unless a later one in the log is so already."""
        if position < self._positions.get(row.key, 0):
            self._overtaken.add((row.key, row.offset))
            return
        self._positions[row.key] = position
        history = self.offsets.setdefault(row.key, [-1])
        if row.offset != history[-1]:
            history.append(row.offset)

    def _state(self, key: bytes, value: bytes | None) -> None:
        """X11: one record of the coordinator's log."""
        name = key[4:].decode()
        if value is None:
            self._states.pop(name, None)
            return
        _, producer_id, epoch, _, state = struct.unpack_from(">hqhib", value)
        found = decode(key, value)
        assert isinstance(found, TransactionEntry) and found.metadata is not None
        self._added.setdefault(producer_id, set()).update(
            (one.topic_id, one.partition) for one in found.metadata.partitions
        )
        new, old = _State(producer_id, epoch, state), self._states.get(name)
        self._states[name] = new
        self._oracle.count("states of transactions")
        if old is None or new == old:
            return
        if state not in _NEXT[old.state]:
            self._fail("X11", f"{name}: {old} becomes {new}")
        self._oracle.count(f"{_NAMES[old.state]} to {_NAMES[state]}")
        if producer_id != old.producer_id:
            self._oracle.count("producer ids used up")
        elif not old.epoch <= epoch <= old.epoch + 1:
            self._fail("X11", f"{name}: {old} becomes {new}, epochs rise by one")

    # ---------------------------------------------------------------- what readers are told

    def stable(self, log: TransactionLog, by: str, stable: int, high: int) -> None:
        """X4: a reader of committed data was told a last stable offset."""
        if stable > high:
            self._fail("X4", f"{by} is told {stable} is stable, the high watermark is {high}")
        first = log.first_open
        if first is not None and stable > max(first, log.trim_to):
            self._fail("X4", f"{by} is told {stable} is stable, {log.open_transactions()} is open")

    def read(self, log: TransactionLog, by: str, batch: Batch, *, is_shown: bool) -> None:
        """X1, X5: a reader of committed data was given a batch, and the list told it to show it."""
        fate = log.fates.get(batch.base_offset)
        wanted = (Fate.PLAIN, Fate.COMMITTED) if is_shown else (Fate.ABORTED,)
        if fate not in wanted:
            rule = "X1" if fate is not Fate.COMMITTED and is_shown else "X5"
            verb = "shows" if is_shown else "hides"
            self._fail(rule, f"{by} {verb} {batch.base_offset}, which is {fate}")
        self._oracle.count("batches read committed" if is_shown else "batches hidden")

    def asking(self, key: OffsetKey) -> Asking:
        """A client asks for a group's stable offset."""
        self.advance()
        count = len(self.offsets.setdefault(key, [-1]))
        return Asking(count, frozenset(self._pending(key)))

    def _pending(self, key: OffsetKey) -> Iterator[str]:
        """Walk the transactions that may change a group's offset."""
        position = self._positions.get(key, -1)
        for index in range(self._oracle.partition_count(OFFSETS_TOPIC)):
            for batch in self.log(OFFSETS_TOPIC, index).open_batches():
                if batch.base_offset > position:
                    yield from (row.metadata for row in offset_rows(batch) if row.key == key)

    def offset(self, key: OffsetKey) -> int:
        """Return a group's offset as the log has it."""
        self.advance()
        return self.offsets.get(key, [-1])[-1]

    def fetched_offset(
        self, key: OffsetKey, asking: Asking, offset: int, *, is_of_leader: bool = False
    ) -> None:
        """X9: a client was told a stable offset.

        With `is_of_leader` by whoever leads the group's log for sure: he knows what is confirmed.
        """
        self.log(OFFSETS_TOPIC, 0)
        history = self.offsets[key]
        if offset not in history[asking.count - 1 :]:
            self._fail("X9", f"{key} is told to be {offset}, it was {history[asking.count - 1 :]}")
        undecided = asking.pending.intersection(self._pending(key))
        if is_of_leader and undecided:
            self._fail("X9", f"{key} is told to be {offset}, {sorted(undecided)} may change it")

    def told_by_the_log(self, told: Mapping[OffsetKey, int], end: int) -> None:
        """X9: a reader of all committed records before `end` has learned these offsets."""
        self.advance()
        newest: dict[OffsetKey, tuple[int, int]] = {}
        for row, positions in self._rows.items():
            for position in positions:
                if position < end:
                    newest[row.key] = max(newest.get(row.key, (-1, -1)), (position, row.offset))
        wanted = {key: offset for key, (_, offset) in newest.items()}
        if told != wanted:
            self._fail("X9", f"the log before {end} tells {told}, committed is {wanted}")

    # ---------------------------------------------------------------- at the end

    def undecided(self) -> list[str]:
        """Return what is not over: ids between two states, offsets without a marker."""
        self.advance()
        over = (_EMPTY, _COMMITTED, _ABORTED)
        found = [name for name, known in self._states.items() if known.state not in over]
        for index in range(self._oracle.partition_count(OFFSETS_TOPIC)):
            text = self.log(OFFSETS_TOPIC, index).open_transactions()
            found += [text] if text else []
        return found

    def judge(self) -> None:
        """See that every transaction is whole: all of it in every place, or nothing."""
        self.advance()
        for transaction in self._transactions.values():
            fates = set(transaction.fates.values())
            if Fate.COMMITTED in fates or (transaction.is_commit and transaction.is_answered):
                self._check_whole(transaction)

    def check_markers(self, place: Place, topic_id: UUID) -> None:
        """X10: a partition has the markers of transactions that it was in, and no others."""
        for offset, producer_id in self.log(*place).markers:
            if (topic_id, place[1]) not in self._added.get(producer_id, ()):
                self._fail(
                    "X10", f"{place} {offset}: a marker of {producer_id}, which was never there"
                )

    def _check_whole(self, transaction: Transaction) -> None:
        places = [*transaction.values]
        if transaction.offsets:
            places.append((OFFSETS_TOPIC, 0))
        for place in places:
            if transaction.fates.get(place) is not Fate.COMMITTED:
                self._fail("X3", f"{transaction} is committed, in {place} nothing of it is")
        for key, offset in transaction.offsets.items():
            if offset not in self.offsets.get(key, ()) and (key, offset) not in self._overtaken:
                self._fail("X9", f"{transaction} is committed, {key} has never been {offset}")


def name_of(value: bytes) -> str:
    """Return the transaction that a value names."""
    _, who, number, *_ = value.split(b":")
    return f"{who.decode()}:{int(number)}"


def offset_rows(batch: Batch) -> list[OffsetRow]:
    """Return the committed offsets in a batch of the offsets' log."""
    rows = []
    for record in records(batch.data):
        key, value = record.key or b"", record.value
        if int.from_bytes(key[:2], "big") > 1 or value is None:
            continue  # no offset
        group, rest = _string(key[2:])
        topic, rest = _string(rest)
        index = int.from_bytes(rest[:4], "big")
        version, offset = struct.unpack_from(">hq", value)
        assert version >= _OFFSET_VALUE_VERSION_MIN
        rest = value[_OFFSET_BYTES:]
        metadata = rest[1 : rest[0]].decode() if version >= _COMPACT_VERSION else _string(rest)[0]
        rows.append(OffsetRow((group, topic, index), offset, metadata))
    return rows


def _string(data: bytes) -> tuple[str, bytes]:
    size = int.from_bytes(data[:2], "big")
    return data[2 : 2 + size].decode(), data[2 + size :]
