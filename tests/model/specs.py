"""How models are checked: their bounds, what must hold, what each rule is for.

A mutant switches one rule of a model off. TLC must then find one of the named violations; a rule
without which nothing breaks is either not needed or not modelled.
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


@dataclass(frozen=True)
class Mutant:
    """A rule switched off, the bounds in which that shows, and what is violated."""

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

    def config(self, bounds: Bounds, without: str = "") -> str:
        """Return TLC's configuration file, with rule `without` switched off."""
        values = bounds.constants | {
            rule: "FALSE" if rule == without else "TRUE" for rule in self.rules
        }
        lines = ["SPECIFICATION Spec", "CONSTANTS"]
        lines += [f"    {name} = {value}" for name, value in values.items()]
        if self.symmetry:
            lines.append(f"SYMMETRY {self.symmetry}")
        lines += ["INVARIANTS", *(f"    {name}" for name in self.invariants)]
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


def _rolling(ledgers: int, entries: int) -> dict[str, str]:
    return {
        "Brokers": "{b1, b2}",
        "LedgersMax": str(ledgers),
        "EntriesMax": str(entries),
        "CrashesMax": "1",
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
        "AskAgain",
        "Unlisted",
        "Cas",
        "Fencing",
    ),
    bounds=(
        Bounds("three ledgers", _rolling(3, 2)),
        Bounds("four ledgers", _rolling(4, 1)),
    ),
    invariants=(
        "TypeOK",
        "OnlyTheLastTwoAreOpen",
        "ListedOnce",
        "ListedIsThere",
        "NothingAcknowledgedIsLost",
        "AcknowledgedInOrder",
        "NoHoleInWhatALeaderSent",
        "LeadersDoNotInterleave",
    ),
    symmetry="Symmetry",
    mutants=(
        Mutant("LastTwo", ("OnlyTheLastTwoAreOpen", "NothingAcknowledgedIsLost")),
        Mutant("CommitFirst", ("NothingAcknowledgedIsLost",)),
        Mutant(
            "Drain", ("NothingAcknowledgedIsLost", "NoHoleInWhatALeaderSent", "AcknowledgedInOrder")
        ),
        Mutant("OneRoll", ("OnlyTheLastTwoAreOpen",), "four ledgers"),
        Mutant("OwnId", ("NothingAcknowledgedIsLost", "ListedOnce")),
        Mutant("AskAgain", ("ListedIsThere",)),
        Mutant("Unlisted", ("ListedIsThere",)),
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

MODELS: Final = (_ROLLING, _LEDGER, _TAKEOVER, _PAGES)
