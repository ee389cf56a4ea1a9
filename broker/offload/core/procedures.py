"""The ways of a segment to the object store and out of it, each from top to bottom.

A procedure is a generator: it yields what it needs done (an act), and is sent what came of it. It
may be cut off between any two lines, by a crash or a takeover: what it has listed by then tells the
next leader where to go on, and what it has not listed is either listed by name or not there.

Rules, by the names that tests/model/Offload.tla and the tests use:

    INTENT      an object's name is listed before a byte of it is sent.
    OWN-NAME    no name is used twice: an attempt that failed is buried, and another one begins.
    READ-BACK   what a put was answered decides nothing: the footer that is read back does.
    VERIFY      a ledger goes only after its object was read back as a whole and proven.
    LIST-FIRST  the list says that a ledger is gone before it goes, and lets go of an object before
                that is deleted.
    GRAVES      an object stays listed as buried until it is certain that it is not there.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from client.errors import QuireError
from client.ids import Offset
from client.log.offload_state import Marked
from client.log.offloaded import Abandon, Commit, Drop, Intend, Reject, Step, Unbury, name_of
from client.log.segment import Segment, StoredObject
from client.log.segment_object import Footer, ObjectName


class List(NamedTuple):
    """Have the leader list a step. Sent: None."""

    step: Step


class Upload(NamedTuple):
    """Send an object. Sent: None, or the error after which it may be there all the same."""

    name: ObjectName
    segment: Segment


class Look(NamedTuple):
    """Read an object's footer back. Sent: it, or None if there is no whole object."""

    name: ObjectName


class Prove(NamedTuple):
    """Read a listed object back as a whole. Sent: None, or what is wrong with it."""

    name: ObjectName
    stored: StoredObject


class Delete(NamedTuple):
    """Delete an object. Sent: whether it is certainly gone."""

    name: ObjectName


class TrimTo(NamedTuple):
    """Move the log start. Sent: None."""

    offset: Offset


Act = List | Upload | Look | Prove | Delete | TrimTo
Procedure = Generator[Act, Any, None]


class Failed(NamedTuple):
    """How a segment's copying ended that has not come about."""

    error: QuireError | None


def copy(
    segment: Segment, fresh: ObjectName, intent: Marked | None, now_ms: int
) -> Generator[Act, Any, Failed | None]:
    """Make an object of a segment. `fresh`: a new name; `intent`: what the list has of one that was
    begun before, by whomever."""
    end = segment.end_offset
    assert end is not None
    before = None if intent is None else intent.name
    if before is not None and before.ledger_id == segment.ledger_id:
        found = yield Look(before)
        if is_of(found, before, segment):
            yield List(Commit(before, end, _stored(found, before, now_ms)))
            return None
    yield List(Intend(fresh, end, before))
    error = yield Upload(fresh, segment)
    found = yield Look(fresh)
    if not is_of(found, fresh, segment):
        return Failed(error)
    yield List(Commit(fresh, end, _stored(found, fresh, now_ms)))
    return None


def drop(segment: Segment) -> Generator[Act, Any, Failed | None]:
    """Give a ledger up, or the object if it is no good."""
    name, end = name_of(segment), segment.end_offset
    assert name is not None
    assert end is not None
    assert segment.stored is not None
    wrong = yield Prove(name, segment.stored)
    if wrong is not None:
        yield List(Reject(name, end))
        return Failed(wrong)
    yield List(Drop(name, end))
    return None


def bury(graves: Sequence[Marked]) -> Procedure:
    """Delete what nobody needs any more."""
    gone: list[ObjectName] = []
    for grave in graves:
        if (yield Delete(grave.name)):
            gone.append(grave.name)
    if gone:
        yield List(Unbury(tuple(gone)))


def withdraw(segments: Sequence[Segment], intent: Marked | None, local_from: Offset) -> Procedure:
    """Have nothing in the store any more: what has no ledger is trimmed, the rest is local only."""
    if local_from:
        yield TrimTo(local_from)
    if intent is not None:
        yield List(Abandon(intent.name))
    for segment in segments:
        name, end = name_of(segment), segment.end_offset
        if name is not None and end is not None and not segment.is_ledger_gone:
            yield List(Reject(name, end))


def is_of(found: Footer | None, name: ObjectName, segment: Segment) -> bool:
    """Whether an object is the one of our attempt, and of the segment as it is listed."""
    if found is None:
        return False
    said = found.description
    return said.attempt == name.attempt and (
        said.segment.ledger_id,
        said.segment.base_offset,
        said.segment.end_offset,
    ) == (segment.ledger_id, segment.base_offset, segment.end_offset)


def _stored(found: Footer, name: ObjectName, now_ms: int) -> StoredObject:
    return StoredObject(name.attempt, found.object_bytes, found.size, found.crc, now_ms)
