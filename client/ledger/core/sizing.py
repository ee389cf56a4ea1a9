"""How large a new ledger's ensemble is when there are fewer bookies than it should have.

Covers shrinking, which is always the caller's wish:

- SHRINK-STRIPE  opportunistic striping: the ensemble may shrink to the write quorum. Every entry
                 still has all its copies, they are only striped over fewer bookies.
- SHRINK-COPIES  the write quorum, too, may shrink, but never below what the caller names, and so
                 never below the ack quorum: what was promised of an acknowledgement holds, the
                 spare copies are missing. For a cluster that has lost bookies and must go on.

Source: SHRINK-STRIPE is `ClientConfiguration.opportunisticStriping`; SHRINK-COPIES is beyond Java.
"""

from __future__ import annotations

from client.errors import IncorrectParameter
from client.ledger.core.schedule import Schedule, schedule_of


def fitting(
    wanted: Schedule, bookie_count: int, *, striping: bool, write_quorum_min: int | None = None
) -> Schedule:
    """Return the largest schedule up to `wanted` that the rules allow and the bookies fill.

    If even the smallest one needs more bookies than there are, that one is returned: choosing its
    ensemble fails. Raises IncorrectParameter for a `write_quorum_min` outside Qa..Qw.
    """
    least = wanted.ensemble_size
    if write_quorum_min is not None:
        if not wanted.ack_quorum <= write_quorum_min <= wanted.write_quorum:
            raise IncorrectParameter(
                f"the write quorum may shrink to {wanted.ack_quorum}..{wanted.write_quorum}, not"
                f" to {write_quorum_min}"
            )
        least = write_quorum_min
    elif striping:
        least = wanted.write_quorum
    ensemble_size = max(least, min(wanted.ensemble_size, bookie_count))
    write_quorum = min(wanted.write_quorum, ensemble_size)
    return schedule_of(ensemble_size, write_quorum, wanted.ack_quorum)
