"""The errors of Quire as a tree, with what is known after each of them.

    QuireError
    ├── ConfigError                  a setting is wrong: refuse to start
    ├── WireError
    │   ├── LocalProtocolError       we were asked to do something the protocol forbids
    │   └── RemoteProtocolError      the peer sent bytes the protocol forbids
    │       ├── InflatesTooMuch      compressed data holds more than we take
    │       ├── InflatesTooMuch      compressed data holds more than we take
    │       └── TooManyItems         its lists are longer than we take
    ├── MetadataError
    │   ├── NoNode                   the path does not exist
    │   ├── NodeExists               the path exists already
    │   ├── NotEmpty                 delete of a node that has children
    │   ├── VersionConflict          compare-and-set lost
    │   ├── AuthFailed               it does not let us in, or only who logs in
    │   ├── SessionExpired           our ephemerals are gone
    │   └── ConnectionLoss           outcome unknown: the operation may have happened
    ├── LogCorrupt                   what is stored of a partition contradicts itself
    ├── ObjectStoreError             the object store did not do what it was asked for
    │   ├── NoObject                 there is no object of that name
    │   ├── ObjectExists             there is one already, maybe our own
    │   ├── StoreRefuses             no such bucket, or credentials that are not good for it
    │   └── StoreUnavailable         outcome unknown: no answer, or that it cannot now
    └── LedgerError                  see `BKException` codes in `code`
        ├── LedgerFenced             somebody recovers this ledger; outcome of pending adds unknown
        ├── LedgerClosed
        ├── LedgerExists
        ├── NoSuchLedger
        ├── NoSuchEntry
        ├── DataUnknown              the bookie cannot say whether it has the entry
        ├── NotEnoughBookies
        ├── BookieUnavailable        no connection, or it broke before the answer
        ├── BookieTimeout
        ├── BookieReadOnly
        ├── TooManyRequests          the bookie shed the request
        ├── ReadFailed
        ├── WriteFailed
        ├── QuorumTimeout
        ├── DigestMismatch
        ├── DuplicateEntryId
        ├── IncorrectParameter
        ├── RecoveryInconclusive
        ├── UnauthorizedAccess
        ├── MetadataConflict
        └── MetadataCorrupt

`bookie.errors` and `broker.errors` add StorageError and BrokerError below `QuireError`.

Every class carries two facts. `retriable`: the same call may succeed later without anybody
changing anything. `outcome`: NOT_APPLIED means the operation certainly did not take effect,
UNKNOWN means it may have. BookKeeper says a fenced add must be treated like a timeout
(protocol text, "Closing a ledger as a reader"); the type says so once, for everybody.
"""

from __future__ import annotations

import enum
from typing import ClassVar


class Outcome(enum.Enum):
    """What is known about a failed operation's effect."""

    NOT_APPLIED = "not applied"
    UNKNOWN = "unknown"


class QuireError(Exception):
    """Root of every error Quire raises on purpose."""

    retriable: ClassVar[bool] = False
    outcome: ClassVar[Outcome] = Outcome.NOT_APPLIED


class ConfigError(QuireError):
    """A setting is missing, unknown, out of range or contradicts another one."""


class WireError(QuireError):
    """Bytes on a connection broke the protocol; the connection is closed."""


class LocalProtocolError(WireError):
    """Our side tried something the protocol forbids: a bug here, not at the peer."""


class RemoteProtocolError(WireError):
    """The peer sent bytes the protocol forbids (length, version, truncated field)."""


class InflatesTooMuch(RemoteProtocolError):
    """Compressed data holds more bytes than the limit that the message names; it may be sound."""


class TooManyItems(RemoteProtocolError):
    """The lists of a request have more items than the limit that the message names."""


class MetadataError(QuireError):
    """The metadata store refused or could not answer."""


class NoNode(MetadataError):
    """The path does not exist."""


class NodeExists(MetadataError):
    """The path exists already."""


class NotEmpty(MetadataError):
    """The node still has children."""


class VersionConflict(MetadataError):
    """Compare-and-set lost: the node's version is not the expected one."""


class AuthFailed(MetadataError):
    """The metadata store refuses our login, or wants one; the message says what to set."""


class SessionExpired(MetadataError):
    """The session ended; its ephemerals and watches are gone."""

    outcome = Outcome.UNKNOWN


class ConnectionLoss(MetadataError):
    """The connection broke before the answer came: the operation may have happened."""

    retriable = True
    outcome = Outcome.UNKNOWN


class LogCorrupt(QuireError):
    """Stored bytes or segments contradict each other. Nothing is guessed, somebody must look."""


class ObjectStoreError(QuireError):
    """The object store refused, or could not answer."""


class NoObject(ObjectStoreError):
    """There is no object of that name."""


class ObjectExists(ObjectStoreError):
    """There is an object of that name already. It may be our own, of a try whose answer was lost:
    only what is in it tells."""

    outcome = Outcome.UNKNOWN


class StoreRefuses(ObjectStoreError):
    """The store does not let us: no such bucket, wrong credentials, an option that it does not
    know; the message says which."""


class StoreUnavailable(ObjectStoreError):
    """The store did not answer, or that it cannot now. What was asked may have happened."""

    retriable = True
    outcome = Outcome.UNKNOWN


class LedgerError(QuireError):
    """A ledger operation failed. `code` is BookKeeper's BKException number."""

    code: ClassVar[int] = -999


class ReadFailed(LedgerError):
    """No replica could serve the read (BKException -1)."""

    code = -1
    retriable = True


class DigestMismatch(LedgerError):
    """A replica returned bytes whose digest or ids are wrong (-5)."""

    code = -5


class NotEnoughBookies(LedgerError):
    """Fewer writable bookies than the ensemble needs (-6)."""

    code = -6
    retriable = True


class NoSuchLedger(LedgerError):
    """The metadata store has no such ledger (-7 / -25)."""

    code = -7


class BookieUnavailable(LedgerError):
    """No connection to the bookie, or it broke before the answer (-8)."""

    code = -8
    retriable = True
    outcome = Outcome.UNKNOWN


class RecoveryInconclusive(LedgerError):
    """Too few bookies could say whether an entry exists; try again later (-10)."""

    code = -10
    retriable = True


class LedgerClosed(LedgerError):
    """The ledger is closed (-11). For an add in flight the outcome is unknown."""

    code = -11
    outcome = Outcome.UNKNOWN


class WriteFailed(LedgerError):
    """An add could not reach its ack quorum (-12)."""

    code = -12
    outcome = Outcome.UNKNOWN


class NoSuchEntry(LedgerError):
    """Every replica that could know says the entry does not exist (-13)."""

    code = -13


class IncorrectParameter(LedgerError):
    """An argument is out of range (-14)."""

    code = -14


class MetadataConflict(LedgerError):
    """The ledger was closed by somebody else with a different end (-17)."""

    code = -17
    outcome = Outcome.UNKNOWN


class LedgerExists(LedgerError):
    """A ledger with that id exists already (-20)."""

    code = -20


class QuorumTimeout(LedgerError):
    """An add stayed short of its ack quorum for too long (-21)."""

    code = -21
    outcome = Outcome.UNKNOWN


class DuplicateEntryId(LedgerError):
    """The caller chose an entry id that is taken already (-22)."""

    code = -22


class BookieTimeout(LedgerError):
    """One bookie did not answer in time (-23)."""

    code = -23
    retriable = True
    outcome = Outcome.UNKNOWN


class LedgerFenced(LedgerError):
    """Another client recovers this ledger (-101). Like a timeout: pending adds may survive."""

    code = -101
    outcome = Outcome.UNKNOWN


class UnauthorizedAccess(LedgerError):
    """The password or master key does not match (-102)."""

    code = -102


class BookieReadOnly(LedgerError):
    """The bookie takes no new entries (-104)."""

    code = -104
    retriable = True


class TooManyRequests(LedgerError):
    """The bookie shed the request (-105)."""

    code = -105
    retriable = True


class MetadataCorrupt(LedgerError):
    """Ledger metadata could not be understood; refuse to guess (-107)."""

    code = -107


class DataUnknown(LedgerError):
    """The bookie cannot say whether it has the entry (-108)."""

    code = -108
    retriable = True
