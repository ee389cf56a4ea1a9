"""Planted defects of leaders that have no ledger, because bookies are full; see `table.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.partition.core.leader import PartitionLeader
from broker.partition.core.takeover import Takeover
from broker.partition.partition import Partition
from client.ids import NO_LEDGER
from client.log.segments import Paged

if TYPE_CHECKING:
    from collections.abc import Callable

WORLD = "cluster"
KIND = "full"


def stay_read_only(patch: Any) -> None:
    """A leader without a ledger never looks for one."""

    async def seek(self: Partition) -> None:
        return None

    patch(Partition, "seek_ledger", seek)


def list_the_place(patch: Any) -> None:
    """A takeover without a ledger lists what it recovered, with places in a ledger that there is
    not."""

    def on_no_ledger(self: Takeover) -> Any:
        self._unlisted = self._recover_facts(NO_LEDGER)
        self._committed = Paged(self._list.with_facts(self._unlisted).led(), ())
        return self._commit()

    patch(Takeover, "on_no_ledger", on_no_ledger)


def accept_without_a_ledger(patch: Any) -> None:
    """A leader without a ledger accepts batches."""
    patch(PartitionLeader, "check_writable", PartitionLeader.check_open)


def leave_the_last_ledger_open(patch: Any) -> None:
    """A takeover without a ledger commits nothing: it leads at the version that it read."""

    def on_no_ledger(self: Takeover) -> Any:
        self._unlisted = self._recover_facts(NO_LEDGER)
        self._committed = Paged(self._list, ())
        return self._serve(self._version)

    patch(Takeover, "on_no_ledger", on_no_ledger)


PLANTS: dict[str, Callable[[Any], None]] = {
    "accept-without-a-ledger": accept_without_a_ledger,
    "lead-without-a-commit": leave_the_last_ledger_open,
    "list-the-place": list_the_place,
    "stay-read-only": stay_read_only,
}
