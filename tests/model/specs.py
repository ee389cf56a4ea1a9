"""How models are checked: their bounds, what must hold, what each rule is for.

A mutant switches one rule of a model off. TLC must then find one of the named violations, and looks
for no other; a rule without which nothing breaks is either not needed or not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Bounds:
    """One size of a model that TLC goes through completely."""

    name: str
    constants: dict[str, str]
    is_long: bool = False
    """Takes minutes: left out of the form that CI runs."""

    is_symmetric: bool = True
    """Whether the model's symmetry is used; TLC cannot permute a set of one."""


@dataclass(frozen=True)
class Mutant:
    """A rule switched off, the bounds in which that shows, and what is violated: one of these."""

    rule: str
    violates: tuple[str, ...]
    bounds: str = ""


@dataclass(frozen=True)
class Model:
    """A module, the sizes to check it in, its invariants and its mutants."""

    module: str
    rules: tuple[str, ...]
    """Constants that are TRUE in the protocol as we have it."""

    bounds: tuple[Bounds, ...]
    invariants: tuple[str, ...]
    mutants: tuple[Mutant, ...]
    symmetry: str = ""

    def config(self, bounds: Bounds, without: str = "", only: tuple[str, ...] = ()) -> str:
        """Return TLC's configuration file, with rule `without` switched off.

        `only` names the invariants to check instead of all.
        """
        values = bounds.constants | {
            rule: "FALSE" if rule == without else "TRUE" for rule in self.rules
        }
        lines = ["SPECIFICATION Spec", "CONSTANTS"]
        lines += [f"    {name} = {value}" for name, value in values.items()]
        if self.symmetry and bounds.is_symmetric:
            lines.append(f"SYMMETRY {self.symmetry}")
        lines += ["INVARIANTS", *(f"    {name}" for name in only or self.invariants)]
        return "\n".join(lines) + "\n"

    def sized(self, name: str) -> Bounds:
        """Return the bounds of that name; without one, the first."""
        return next(bounds for bounds in self.bounds if name in ("", bounds.name))


def _names(letter: str, count: int) -> str:
    return "{" + ", ".join(f"{letter}{n}" for n in range(1, count + 1)) + "}"


def _ledger(bookies: int, entries: int, recoverers: int, crashes: int) -> dict[str, str]:
    return {
        "Bookies": _names("b", bookies),
        "Recoverers": _names("r", recoverers),
        "WriteQuorum": str(bookies),
        "AckQuorum": "2",
        "EntriesMax": str(entries),
        "CrashesMax": str(crashes),
    }


def _rolling(ledgers: int, entries: int, crashes: int = 1) -> dict[str, str]:
    return {
        "Brokers": "{b1, b2}",
        "LedgersMax": str(ledgers),
        "EntriesMax": str(entries),
        "CrashesMax": str(crashes),
        "TriesMax": "2",
    }


def _pages(ledgers: int, changes: int, page_size: int) -> dict[str, str]:
    return {
        "Brokers": "{b1, b2}",
        "LedgersMax": str(ledgers),
        "ChangesMax": str(changes),
        "PageSize": str(page_size),
        "CrashesMax": "1",
    }


_ROLLING: Final = Model(
    module="LogRolling",
    rules=(
        "LastTwo",
        "CommitFirst",
        "Drain",
        "OneRoll",
        "OwnId",
        "GiveUp",
        "AskAgain",
        "Unlisted",
        "CloseWithCommit",
        "CloseUnchanged",
        "Cas",
        "Fencing",
    ),
    bounds=(
        Bounds("three ledgers", _rolling(3, 2)),
        Bounds("four ledgers", _rolling(4, 1)),
        Bounds("two full", _rolling(2, 1, crashes=2)),
    ),
    invariants=(
        "TypeOK",
        "OnlyTheLastTwoAreOpen",
        "ListedOnce",
        "ListedIsThere",
        "EndsStay",
        "SealedIsClosed",
        "NothingAcknowledgedIsLost",
        "AcknowledgedInOrder",
        "NoHoleInWhatALeaderSent",
        "LeadersDoNotInterleave",
        "OneLeadsAtAVersion",
    ),
    symmetry="Symmetry",
    mutants=(
        Mutant("GiveUp", ("OneLeadsAtAVersion",), "two full"),
        Mutant("LastTwo", ("OnlyTheLastTwoAreOpen", "NothingAcknowledgedIsLost")),
        Mutant("CommitFirst", ("NothingAcknowledgedIsLost",)),
        Mutant(
            "Drain", ("NothingAcknowledgedIsLost", "NoHoleInWhatALeaderSent", "AcknowledgedInOrder")
        ),
        Mutant("OneRoll", ("OnlyTheLastTwoAreOpen",), "four ledgers"),
        Mutant("OwnId", ("NothingAcknowledgedIsLost", "ListedOnce")),
        Mutant("AskAgain", ("ListedIsThere",)),
        Mutant("Unlisted", ("ListedIsThere",)),
        Mutant("CloseWithCommit", ("SealedIsClosed",)),
        Mutant("CloseUnchanged", ("EndsStay",)),
        Mutant("Cas", ("NothingAcknowledgedIsLost", "ListedIsThere")),
        Mutant("Fencing", ("NothingAcknowledgedIsLost",)),
    ),
)

_LEDGER: Final = Model(
    module="LedgerCrash",
    rules=(
        "SyncBeforeAck",
        "SyncBeforeFenced",
        "ReadsFence",
        "FrozenLac",
        "EnoughNo",
        "WriteBack",
        "CloseByCas",
    ),
    bounds=(
        Bounds("two recoverers", _ledger(3, entries=1, recoverers=2, crashes=1)),
        Bounds("two entries", _ledger(2, entries=2, recoverers=1, crashes=1)),
        Bounds("two of both", _ledger(2, entries=2, recoverers=2, crashes=0)),
        Bounds("long", _ledger(3, entries=2, recoverers=1, crashes=1), is_long=True),
    ),
    invariants=(
        "TypeOK",
        "NothingConfirmedIsCutOff",
        "ClosedOnce",
        "ConfirmedIsReadable",
        "ClosedIsStored",
        "WhatWasReadStays",
        "ConfirmedIsDurable",
    ),
    symmetry="Symmetry",
    mutants=(
        Mutant("SyncBeforeAck", ("ConfirmedIsDurable",)),
        Mutant("SyncBeforeFenced", ("NothingConfirmedIsCutOff",)),
        Mutant("ReadsFence", ("NothingConfirmedIsCutOff",)),
        Mutant("FrozenLac", ("WhatWasReadStays",), "two of both"),
        Mutant("EnoughNo", ("NothingConfirmedIsCutOff",)),
        Mutant("WriteBack", ("ClosedIsStored",)),
        Mutant("CloseByCas", ("ClosedOnce",)),
    ),
)


def _compaction(
    values: str, tombstones: str, records: int, ledgers: int, changes: int
) -> dict[str, str]:
    return {
        "Brokers": "{b1, b2}",
        "RecordsMax": str(records),
        "Values": values,
        "Tombstones": tombstones,
        "LedgersMax": str(ledgers),
        "ChangesMax": str(changes),
    }


_COMPACTION: Final = Model(
    module="Compaction",
    rules=(
        "CompactCas",
        "Version",
        "KeepTail",
        "Grace",
        "Retire",
        "SwapFirst",
        "Horizon",
        "Judged",
        "NextSegment",
    ),
    bounds=(
        Bounds("a tombstone", _compaction("{1}", "{2}", 3, 5, 8)),
        Bounds("two values", _compaction("{1, 2}", "{}", 3, 5, 8)),
        Bounds("long", _compaction("{1, 3}", "{2}", 4, 7, 10), is_long=True),
    ),
    invariants=(
        "TypeOK",
        "ListedIsThere",
        "ListIsWhole",
        "NewestIsThere",
        "ReaderKnows",
        "ReaderGoesOn",
        "EndIsThere",
    ),
    symmetry="Symmetry",
    mutants=(
        Mutant("CompactCas", ("ListIsWhole", "ListedIsThere")),
        Mutant("Version", ("ListIsWhole", "NewestIsThere", "ListedIsThere", "EndIsThere")),
        Mutant("KeepTail", ("EndIsThere",), "a tombstone"),
        Mutant("Grace", ("ReaderGoesOn",)),
        Mutant("Retire", ("ReaderGoesOn",)),
        Mutant("SwapFirst", ("ListedIsThere",)),
        Mutant("Horizon", ("ReaderKnows",)),
        Mutant("Judged", ("ReaderKnows",)),
        Mutant("NextSegment", ("ReaderGoesOn",)),
    ),
)


def _offload(segments: int, attempts: int, changes: int, crashes: int = 1) -> dict[str, str]:
    return {
        "Brokers": "{b1, b2}",
        "SegmentsMax": str(segments),
        "AttemptsMax": str(attempts),
        "ChangesMax": str(changes),
        "CrashesMax": str(crashes),
        "DamagesMax": "1",
    }


_OFFLOAD: Final = Model(
    module="Offload",
    rules=(
        "Cas",
        "Intent",
        "OwnName",
        "ReadBack",
        "Verify",
        "ListFirst",
        "KeepTail",
        "Graves",
        "Certain",
        "SweepAfter",
    ),
    bounds=(
        Bounds("two segments", _offload(2, 2, 8)),
        Bounds("a third try", _offload(2, 3, 8), is_long=True),
        Bounds("three segments", _offload(3, 3, 9), is_long=True),
    ),
    invariants=(
        "TypeOK",
        "Readable",
        "ListedIsThere",
        "TailIsThere",
        "StoredIsThere",
        "OrphansHaveNames",
    ),
    symmetry="Symmetry",
    mutants=(
        Mutant("Cas", ("Readable", "ListedIsThere", "OrphansHaveNames")),
        Mutant("Intent", ("OrphansHaveNames",)),
        Mutant("OwnName", ("Readable", "StoredIsThere")),
        Mutant("ReadBack", ("StoredIsThere",)),
        Mutant("Verify", ("Readable",)),
        Mutant("ListFirst", ("ListedIsThere",)),
        Mutant("KeepTail", ("TailIsThere",)),
        Mutant("Graves", ("OrphansHaveNames",)),
        Mutant("Certain", ("OrphansHaveNames",)),
        Mutant("SweepAfter", ("Readable", "StoredIsThere")),
    ),
)

_TAKEOVER: Final = Model(
    module="Takeover",
    rules=("Fold", "FoldUnconfirmed", "AcceptedOrder", "Parked", "SequenceCheck", "Unknown"),
    bounds=(
        Bounds(
            "three batches",
            {"BatchesMax": "3", "WindowMax": "2", "TakeoversMax": "2", "RetriesMax": "1"},
        ),
    ),
    invariants=(
        "TypeOK",
        "AcknowledgedIsInTheLog",
        "NoDuplicate",
        "InOrder",
        "FailedIsNotInTheLog",
    ),
    mutants=(
        Mutant("Fold", ("NoDuplicate", "InOrder")),
        Mutant("FoldUnconfirmed", ("NoDuplicate", "InOrder")),
        Mutant("AcceptedOrder", ("NoDuplicate", "InOrder")),
        Mutant("Parked", ("AcknowledgedIsInTheLog",)),
        Mutant("SequenceCheck", ("InOrder",)),
        Mutant("Unknown", ("FailedIsNotInTheLog",)),
    ),
)


def _transactions(
    name: str,
    *,
    tv2: bool = False,
    partitions: int = 1,
    transactions: int = 2,
    epochs: int = 0,
    connections: int = 1,
    breaks_from: int = 1,
    coordinators: int = 1,
    moves: int = 0,
    sessions: int = 1,
    zombies: bool = False,
    lag: bool = False,
    is_long: bool = False,
) -> Bounds:
    constants = {
        "Nothing": "Nothing",
        "Partitions": _names("p", partitions),
        "Tv2": str(tv2).upper(),
        "TxnsMax": str(transactions),
        "EpochsMax": str(epochs),
        "ConnectionsMax": str(connections),
        "BreaksFrom": str(breaks_from),
        "CoordinatorsMax": str(coordinators),
        "MovesMax": str(moves),
        "SessionsMax": str(sessions),
        "Zombies": str(zombies).upper(),
        "Lag": str(lag).upper(),
    }
    return Bounds(name, constants, is_long, is_symmetric=partitions > 1)


_TRANSACTIONS: Final = Model(
    module="Transactions",
    rules=(
        "Verify",
        "Guard",
        "GuardOwn",
        "Channel",
        "MarkerAddress",
        "OldConnection",
        "FreshLeader",
        "MarkerOnce",
        "DecideFirst",
        "CompleteLast",
        "CoordinatorFenced",
        "CoordinatorKept",
        "CoordinatorAsked",
        "ProvenDone",
        "ProvenRetry",
        "ProvenAdd",
        "ProvenRefusal",
        "FenceFirst",
        "Stable",
    ),
    bounds=(
        _transactions("connections", connections=2, coordinators=3),
        _transactions("markers", moves=2, sessions=2),
        _transactions("restarts", epochs=1, connections=2),
        _transactions("partitions", partitions=2, transactions=1, epochs=1),
        _transactions("unconfirmed", transactions=1, epochs=1, moves=1, sessions=2, lag=True),
        _transactions("TV2", tv2=True, epochs=2, connections=2, moves=1),
        _transactions("TV2 partitions", tv2=True, partitions=2, epochs=2, sessions=2),
        _transactions("late answers", connections=3, breaks_from=2, coordinators=2, zombies=True),
        _transactions(
            "late markers", connections=2, breaks_from=2, coordinators=2, moves=1, zombies=True
        ),
        _transactions(
            "zombies", connections=2, coordinators=2, moves=1, zombies=True, is_long=True
        ),
        _transactions("answers", connections=3, coordinators=2, zombies=True, is_long=True),
        _transactions("two of two", partitions=2, epochs=1, sessions=2, is_long=True),
        _transactions("two move", partitions=2, moves=1, sessions=2, is_long=True),
        _transactions(
            "TV2 zombies",
            tv2=True,
            epochs=2,
            connections=2,
            coordinators=2,
            moves=1,
            zombies=True,
            is_long=True,
        ),
    ),
    invariants=(
        "TypeOK",
        "AllOrNothing",
        "AnsweredCommitStays",
        "AnsweredAbortStays",
        "NothingOfAFencedEpoch",
        "FencedIsOver",
        "NothingHangs",
        "MarkersOnce",
        "StableOffsetWaits",
    ),
    symmetry="Symmetry",
    mutants=(
        Mutant("Verify", ("NothingHangs",), "restarts"),
        Mutant("Guard", ("NothingHangs",), "restarts"),
        Mutant("GuardOwn", ("NothingHangs",), "restarts"),
        Mutant("Channel", ("AnsweredCommitStays",), "markers"),
        Mutant("MarkerAddress", ("AnsweredCommitStays",), "markers"),
        Mutant("OldConnection", ("AllOrNothing",), "connections"),
        Mutant("FreshLeader", ("AllOrNothing",), "connections"),
        Mutant("MarkerOnce", ("MarkersOnce",), "markers"),
        Mutant("DecideFirst", ("AnsweredCommitStays",), "connections"),
        Mutant("CompleteLast", ("NothingHangs",), "restarts"),
        Mutant("CoordinatorFenced", ("AnsweredCommitStays",), "late markers"),
        Mutant("CoordinatorKept", ("NothingHangs",), "late markers"),
        Mutant("CoordinatorAsked", ("NothingHangs",), "late markers"),
        Mutant("ProvenDone", ("NothingHangs",), "markers"),
        Mutant("ProvenRetry", ("AnsweredCommitStays",), "late answers"),
        Mutant("ProvenAdd", ("AllOrNothing",), "late answers"),
        Mutant("ProvenRefusal", ("FencedIsOver",), "late answers"),
        Mutant("FenceFirst", ("AnsweredCommitStays",), "partitions"),
        Mutant("Stable", ("StableOffsetWaits",), "unconfirmed"),
    ),
)

_PAGES: Final = Model(
    module="SegmentPages",
    rules=("PageFirst", "PageName", "PageDelete", "PageSweep", "PageLook"),
    bounds=(
        Bounds("pages of two", _pages(ledgers=5, changes=6, page_size=2)),
        Bounds("pages of one", _pages(ledgers=5, changes=5, page_size=1)),
    ),
    invariants=("TypeOK", "NamedPagesAreThere", "NoSegmentIsLost", "ListedIsThere"),
    symmetry="Symmetry",
    mutants=(
        Mutant("PageFirst", ("NamedPagesAreThere",)),
        Mutant("PageName", ("NoSegmentIsLost",), "pages of one"),
        Mutant("PageDelete", ("NamedPagesAreThere",)),
        Mutant("PageSweep", ("NamedPagesAreThere",)),
        Mutant("PageLook", ("ListedIsThere",)),
    ),
)

_COPIES: Final = Model(
    module="OffsetCopies",
    rules=("CopyLater", "CopyAtLast", "TrimStable", "KeepPending", "LeaveOut"),
    bounds=(
        Bounds("five records", {"Producers": "{1, 2}", "RecordsMax": "5"}),
        Bounds("six records", {"Producers": "{1, 2}", "RecordsMax": "6"}, is_long=True),
    ),
    invariants=("TypeOK", "CommittedStays", "PendingStays", "StrangersAgree"),
    mutants=(
        Mutant("CopyLater", ("CommittedStays", "PendingStays", "StrangersAgree")),
        Mutant("CopyAtLast", ("CommittedStays", "StrangersAgree")),
        Mutant("TrimStable", ("StrangersAgree",)),
        Mutant("KeepPending", ("PendingStays", "CommittedStays", "StrangersAgree")),
        Mutant("LeaveOut", ("CommittedStays", "StrangersAgree")),
    ),
)


def _groups(
    name: str,
    members: int = 3,
    partitions: int = 3,
    *,
    targets: int = 2,
    losses: int = 0,
    failovers: int = 0,
    removals: int = 0,
    is_long: bool = False,
) -> Bounds:
    constants = {
        "Nothing": "Nothing",
        "Members": _names("m", members),
        "Partitions": _names("p", partitions),
        "TargetsMax": str(targets),
        "LossesMax": str(losses),
        "FailoversMax": str(failovers),
        "RemovalsMax": str(removals),
    }
    return Bounds(name, constants, is_long)


_RECONCILIATION: Final = Model(
    module="Reconciliation",
    rules=("ReleaseFirst", "LostAnswer", "AnswerLate", "OneBatch", "SaysWhat", "TimeRunsOut"),
    bounds=(
        _groups("two members", 2, 2, targets=3, losses=1, failovers=1),
        _groups("removal", 2, 2, targets=3, losses=1, removals=1),
        _groups("three of three", is_long=True),
        _groups("three lose", partitions=2, targets=2, losses=1, failovers=1, is_long=True),
        _groups("all faults", 2, 2, targets=3, losses=1, failovers=1, removals=1, is_long=True),
    ),
    invariants=("TypeOK", "OneReader", "OneOwner", "NothingWrong"),
    symmetry="Symmetry",
    mutants=(
        Mutant("ReleaseFirst", ("OneReader", "OneOwner"), "two members"),
        Mutant("LostAnswer", ("NothingWrong",), "two members"),
        Mutant("AnswerLate", ("OneReader", "NothingWrong"), "two members"),
        Mutant("OneBatch", ("OneReader", "OneOwner"), "two members"),
        Mutant("SaysWhat", ("OneReader",), "two members"),
        Mutant("TimeRunsOut", ("NothingWrong", "OneReader"), "removal"),
    ),
)


def _shares(
    name: str,
    records: int,
    *,
    limit: int = 2,
    failovers: int = 1,
    letters: bool = False,
    keys: int = 0,
    is_long: bool = False,
) -> Bounds:
    constants = {
        "Nobody": "Nobody",
        "Letters": str(letters).upper(),
        "KeysMax": str(keys),
        "Members": "{m1, m2}",
        "RecordsMax": str(records),
        "Limit": str(limit),
        "UnwrittenMax": "2",
        "FailoversMax": str(failovers),
        "SnapshotsMax": "1",
    }
    return Bounds(name, constants, is_long)


_SHARES: Final = Model(
    module="ShareState",
    rules=(
        "AnswerLate",
        "ReleaseLate",
        "OwnOnly",
        "FreeOnly",
        "LockEnds",
        "LimitAlways",
        "CountKept",
        "StartWaits",
        "SnapshotWhole",
        "ArchivingFirst",
        "LetterNumbered",
        "LetterFirst",
        "ArchivingStays",
        "OneOfKey",
        "KeyLate",
    ),
    bounds=(
        _shares("two records", 2),
        _shares("dead letters", 2, letters=True),
        _shares("one key", 2, keys=1),
        _shares("two failovers", 2, limit=3, failovers=2),
        _shares("three records", 3, is_long=True),
        _shares("two keys", 3, letters=True, keys=2, is_long=True),
    ),
    invariants=(
        "TypeOK",
        "NothingWrong",
        "AnsweredStays",
        "StartIsRight",
        "LettersAreThere",
        "LettersAreOnce",
        "CountBounded",
    ),
    symmetry="Symmetry",
    mutants=(
        Mutant("AnswerLate", ("AnsweredStays", "NothingWrong")),
        Mutant("ReleaseLate", ("CountBounded",)),
        Mutant("OwnOnly", ("NothingWrong",)),
        Mutant("FreeOnly", ("NothingWrong",)),
        Mutant("LockEnds", ("AnsweredStays", "NothingWrong", "StartIsRight")),
        Mutant("LimitAlways", ("CountBounded",)),
        Mutant("CountKept", ("CountBounded",)),
        Mutant("StartWaits", ("StartIsRight",)),
        Mutant("SnapshotWhole", ("AnsweredStays", "NothingWrong", "StartIsRight")),
        Mutant("ArchivingFirst", ("NothingWrong",), "dead letters"),
        Mutant("LetterNumbered", ("LettersAreOnce",), "dead letters"),
        Mutant("LetterFirst", ("LettersAreThere",), "dead letters"),
        Mutant("ArchivingStays", ("LettersAreThere",), "dead letters"),
        Mutant("OneOfKey", ("NothingWrong",), "one key"),
        Mutant("KeyLate", ("NothingWrong",), "one key"),
    ),
)

MODELS: Final = (
    _ROLLING,
    _LEDGER,
    _TAKEOVER,
    _TRANSACTIONS,
    _COPIES,
    _OFFLOAD,
    _PAGES,
    _COMPACTION,
    _RECONCILIATION,
    _SHARES,
)
