"""Planted defects of the ledger client; see `table.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from client.errors import (
    ConnectionLoss,
    LedgerError,
    NoSuchEntry,
    SessionExpired,
    VersionConflict,
)
from client.ids import EntryId
from client.ledger import recoveries
from client.ledger.core import ensemble_change, metadata_codec, recovery
from client.ledger.core.adds import Adds, AddsState, Confirmed
from client.ledger.core.ledger_metadata import LedgerState, Schedule, VersionedMetadata
from client.ledger.core.reads import LacQuorum
from client.ledger.core.recovery import Recovery
from client.ledger.ledger_nodes import LedgerNodes
from client.ledger.read import tail
from client.ledger.recoveries import RecoveryRun
from client.ledger.write import ensemble_changes, writer
from client.ledger.write.ensemble_changes import EnsembleChanges
from client.ledger.write.writer import AddPipeline
from client.metadata import paths
from client.wire.bookkeeper.messages import LAST_ENTRY, AddRequest, ReadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.ledger.core.adds import AddEntry


def ack_after_one(patch: Any) -> None:
    """An add is confirmed after one bookie instead of Qa."""
    patch(Adds, "_has_quorum", lambda self, add: add.acked.bit_count() >= 1)


def ack_out_of_order(patch: Any) -> None:
    """An add is confirmed as soon as it has its quorum, whatever came before it."""
    original = Adds.on_stored

    def on_stored(self: Adds, entry_id: EntryId, index: int, bookie: Any) -> Any:
        add = self._pending.get(entry_id)
        effects = original(self, entry_id, index, bookie)
        if not effects and add is not None and entry_id > self.lac + 1 and self._has_quorum(add):
            first = self.lac + 1
            self.lac = entry_id
            return (Confirmed(EntryId(first), entry_id),)
        return effects

    patch(Adds, "on_stored", on_stored)


def confirm_during_change(patch: Any) -> None:
    """Adds are confirmed while an ensemble change runs (4651)."""
    original = Adds.on_stored

    def on_stored(self: Adds, entry_id: EntryId, index: int, bookie: Any) -> Any:
        effects = original(self, entry_id, index, bookie)
        if not effects and self.state is AddsState.CHANGING:
            return self._drain()
        return effects

    patch(Adds, "on_stored", on_stored)


def replaced_acks_count(patch: Any) -> None:
    """Acks of replaced bookies are not struck from unconfirmed adds (3005)."""

    def strike(self: Adds, replaced: Any) -> None:
        """Strike nothing."""

    patch(Adds, "_strike_replaced", strike)


def stale_answers_count(patch: Any) -> None:
    """A late answer of a replaced bookie counts for the new one."""
    original = Adds.on_stored
    patch(
        Adds,
        "on_stored",
        lambda self, entry_id, index, bookie: original(
            self, entry_id, index, self.members.ensemble[index]
        ),
    )


def use_before_cas(patch: Any) -> None:
    """Replacement bookies are used before the metadata names them (1591)."""

    async def change(self: EnsembleChanges, change: Any) -> None:
        first_entry = EntryId(self._adds.lac + 1)
        ensemble = list(self._adds.members.ensemble)
        failed, choice = change.failed, self._context.choice
        write_quorum = self.current.metadata.write_quorum
        chosen = choice.replacements(ensemble, sorted(failed), write_quorum, failed.values())
        for index, bookie in chosen.items():
            ensemble[index] = bookie
        self._on_changed(ensemble)
        self.current = await self._context.nodes.update(
            self._ledger_id,
            self.current,
            lambda metadata: ensemble_change.change_ensemble(
                metadata, failed, first_entry, lambda *_: chosen
            ),
        )

    def surface(self: AddPipeline, task: Any) -> None:
        if not task.cancelled():
            task.exception()

    patch(EnsembleChanges, "_change", change)
    patch(AddPipeline, "_on_change_done", surface)


def fragment_after_pushed(patch: Any) -> None:
    """A new fragment starts behind the last add pushed instead of the last confirmed."""
    original = ensemble_change.change_ensemble
    plain = EnsembleChanges._change

    async def change(self: EnsembleChanges, change: Any) -> None:
        def shifted(metadata: Any, gone: Any, first_entry: Any, choose: Any) -> Any:
            del first_entry
            return original(metadata, gone, EntryId(self._adds.last_add_pushed + 1), choose)

        ensemble_changes.change_ensemble = shifted
        try:
            await plain(self, change)
        finally:
            ensemble_changes.change_ensemble = original

    patch(EnsembleChanges, "_change", change)


def change_while_fenced(patch: Any) -> None:
    """A writer changes the ensemble of a ledger that is being recovered (584)."""
    original = ensemble_change.change_ensemble

    def change(metadata: Any, failed: Any, first_entry: Any, choose: Any) -> Any:
        if metadata.state is LedgerState.IN_RECOVERY:
            ensemble = list(metadata.last_fragment.ensemble)
            standing = [i for i, bookie in sorted(failed.items()) if ensemble[i] == bookie]
            for index, bookie in (choose(ensemble, standing) if standing else {}).items():
                ensemble[index] = bookie
            return metadata.with_ensemble(first_entry, ensemble) if standing else None
        return original(metadata, failed, first_entry, choose)

    patch(ensemble_changes, "change_ensemble", change)


def lac_is_pushed(patch: Any) -> None:
    """Entries carry the last entry pushed as their LAC instead of the last confirmed."""
    original = AddPipeline._sealed

    def sealed(self: AddPipeline, entry: AddEntry) -> Any:
        entry.lac = EntryId(entry.entry_id - 1)
        return original(self, entry)

    patch(AddPipeline, "_sealed", sealed)


def certain_failure(patch: Any) -> None:
    """Adds that were sent fail as certainly not applied."""
    patch(writer, "unknown_once_sent", lambda error: error)


def fenced_is_certain(patch: Any) -> None:
    """A fenced add is reported as certainly not applied."""
    patch(writer, "unknown_once_sent", lambda error: NoSuchEntry(str(error)))


def cas_any_version(patch: Any) -> None:
    """Ledger metadata is written without comparing versions (112, 150)."""
    original = LedgerNodes.update

    async def update(self: LedgerNodes, ledger_id: Any, current: Any, transform: Any) -> Any:
        return await original(self, ledger_id, VersionedMetadata(current.metadata, -1), transform)

    patch(LedgerNodes, "update", update)


def lost_cas_is_fine(patch: Any) -> None:
    """An update whose answer was lost is taken as done."""

    async def update(self: LedgerNodes, ledger_id: Any, current: Any, transform: Any) -> Any:
        path = paths.ledger(ledger_id, self._root)
        while (wanted := transform(current.metadata)) is not None:
            data = metadata_codec.encode(wanted)
            try:
                version = await self._store.set(path, data, current.version)
            except (ConnectionLoss, SessionExpired):
                version = current.version + 1
            except VersionConflict:
                current = await self.read(ledger_id)
                continue
            return VersionedMetadata(wanted, version)
        return current

    patch(LedgerNodes, "update", update)


def fence_one(patch: Any) -> None:
    """Fencing is over after one answer instead of a covering set."""
    patch(LacQuorum, "covered", property(lambda self: self._known != 0))


def reads_do_not_fence(patch: Any) -> None:
    """Recovery reads do not fence (2614: BookKeeper up to 4.13)."""
    original = RecoveryRun._read

    def read(self: RecoveryRun, bookie: Any, entry_id: EntryId, on_answer: Any) -> None:
        if entry_id == LAST_ENTRY:
            original(self, bookie, entry_id, on_answer)
            return
        request = ReadRequest(self._codec.ledger_id, entry_id, high_priority=True)
        self._bookies.bookie(bookie).request(request, on_answer)

    patch(RecoveryRun, "_read", read)


def start_at_lac(patch: Any) -> None:
    """Recovery starts behind the LAC, also below the last fragment (2615)."""

    def begin(self: Recovery, now_s: float) -> Any:
        self.state = recovery.RecoveryState.READING
        self._start = self._quorum.lac
        self._next_read = EntryId(self._start + 1)
        self._adds = self._new_adds()
        return self._advance(now_s)

    patch(Recovery, "_begin_reading", begin)


def one_negative(patch: Any) -> None:
    """One bookie that has not got an entry ends recovery."""
    patch(Schedule, "negatives_needed", property(lambda self: 1))


def errors_are_negative(patch: Any) -> None:
    """Timeouts and I/O errors count as "never stored" in recovery."""
    original = Recovery.on_read_answer

    def on_read_answer(self: Recovery, entry_id: EntryId, answer: Any, now_s: float) -> Any:
        if isinstance(answer, LedgerError):
            answer = NoSuchEntry(str(answer))
        return original(self, entry_id, answer, now_s)

    patch(Recovery, "on_read_answer", on_read_answer)


def lac_not_frozen(patch: Any) -> None:
    """Recovery writes carry the LAC of the moment instead of the one it started from."""

    def new_adds(self: Recovery) -> Adds:
        return Adds(self.snapshot.last_fragment.ensemble, self._schedule, lac=self._start)

    patch(Recovery, "_new_adds", new_adds)


def no_write_back(patch: Any) -> None:
    """Recovery closes without writing the entries back that it found."""
    original = Recovery._carry

    def carry(self: Recovery, effects: Any) -> Any:
        carried = list(original(self, effects))
        adds = self._adds
        if adds.last_add_pushed > adds.lac:
            adds.lac = adds.last_add_pushed
            adds.confirmed_length = adds.length
            adds._pending.clear()
            adds.pending_bytes = 0
            carried += [*self._read_ahead(), *self._finish_if_done()]
        return [e for e in carried if not isinstance(e, recovery.SendAdd)]

    patch(Recovery, "_carry", carry)


def write_back_one(patch: Any) -> None:
    """Recovery is content with one copy of what it writes back."""
    original = Adds._has_quorum

    def has_quorum(self: Adds, add: Any) -> bool:
        return add.acked != 0 if self._frozen_lac is not None else original(self, add)

    patch(Adds, "_has_quorum", has_quorum)


def reads_new_ensemble(patch: Any) -> None:
    """Recovery reads go to the bookies that it put in place itself (R6)."""

    def read(self: Recovery, entry_id: EntryId) -> Any:
        self._verdicts[entry_id] = recovery._Verdict()
        indices = self._schedule.write_set(entry_id)
        return [recovery.RecoveryRead(entry_id, i, self.ensemble[i]) for i in indices]

    patch(Recovery, "_read", read)


def close_over_closed(patch: Any) -> None:
    """A recoverer that lost the race closes the ledger again at its own end (1712)."""

    def close(metadata: Any, snapshot: Any, end: Any) -> Any:
        if metadata.state is LedgerState.CLOSED:
            if metadata.last_entry == end.last_entry:
                return None
            metadata = snapshot
        return metadata.with_fragments(end.fragments).closed(end.last_entry, end.length)

    patch(recoveries, "close_recovered", close)


def read_to_last_entry(patch: Any) -> None:
    """A reader of an open ledger trusts the last entry it finds, not the LAC in it."""

    def lac_in(answer: Any, codec: Any) -> EntryId:
        try:
            return codec.open(answer.last_entry, None).entry_id
        except (LedgerError, TypeError):
            return EntryId(-1)

    patch(tail, "_lac_in", lac_in)


def recovery_add_is_plain(patch: Any) -> None:
    """Recovery writes are not marked as such, so fenced bookies refuse them (3783)."""
    original = RecoveryRun._seal

    def seal(self: RecoveryRun, *arguments: Any) -> AddRequest:
        return original(self, *arguments)._replace(recovery=False)

    patch(RecoveryRun, "_seal", seal)


def forget_queue_after_change(patch: Any) -> None:
    """After an ensemble change nothing is confirmed that needs no second sending (1857)."""

    def on_ensemble(self: Adds, ensemble: Any, now_s: float) -> Any:
        drain, self._drain = self._drain, lambda: ()  # type: ignore[method-assign]
        try:
            return original(self, ensemble, now_s)
        finally:
            self._drain = drain  # type: ignore[method-assign]

    original = patch(Adds, "on_ensemble", on_ensemble)


WORLD = "ledger"
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
