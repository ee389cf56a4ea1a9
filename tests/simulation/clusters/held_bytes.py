"""Holds what nodes hold against their limits, after every few steps of an overloaded schedule.

Each account is compared twice: with its limit, and with what it stands for, counted piece by piece.
A credit that is given back while somebody still holds the bytes breaks one of the two.

    B1 a broker: bytes of requests, until their last copy is answered, whoever has gone meanwhile;
       requests and unsent answers of each connection
    B2 a partition: bytes of appends that are not confirmed
    B3 a writer of a ledger: bytes not confirmed, and bytes that some bookie has not answered
    B4 a connection to a bookie: bytes of adds under way

A limit lets one piece pass that is larger than itself, alone; and what is counted only when it is
there may exceed its limit by one piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from client.ledger.core.adds import AddsState
from client.wire.bookkeeper.messages import AddRequest

if TYPE_CHECKING:
    from broker.app import Broker
    from broker.front.server import Connection
    from broker.partition.partition import Partition
    from client.ledger.bookies.bookie_link import Link
    from client.ledger.client import LedgerClient
    from tests.simulation.clusters.world import ClusterWorld
    from tests.simulation.machine.hosts import Process

_EVERY_STEPS = 5
REQUEST_BYTES_MAX = 1_000
"""More than any request of these schedules has."""
_COUNTED_BYTES_MAX = 6_000
"""More than one counts for, whose connection may be gone: decoded it takes a multiple of that."""
_ANSWER_BYTES_MAX = 300
"""More than any answer has, but for its records."""
_INTERNAL_BYTES_MAX = 600
"""More than a partition's snapshots have, which nobody asks for room."""


class HeldBytes:
    """Looks at the nodes of one schedule."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._steps = 0
        self._where = ""

    def look(self, process: Process) -> None:
        """A process has made a step."""
        self._steps += 1
        if self._steps % _EVERY_STEPS or process.host is None:
            return
        self._where = process.name
        node = self._world.node(process)
        if node is not None:
            self._look_at_broker(*node)

    def _fail(self, name: str, text: str) -> None:
        self._world.oracle.fail(name, f"{self._where}: {text}")

    # ---------------------------------------------------------------- brokers

    def _look_at_broker(self, broker: Broker, client: LedgerClient) -> None:
        server, limit = broker.server, broker.config.in_flight_bytes_max
        counted, held, largest = server.in_flight_bytes, 0, _COUNTED_BYTES_MAX
        for connection in server._connections:
            slots = connection._wire.slots
            held += sum(slot._held_bytes for slot in slots)
            largest = max(largest, self._look_at_connection(connection))
        if server.room.starved:
            self._world.oracle.count("looks at full brokers")
        partitions = [*broker.partitions]
        held += sum(map(self._look_at_partition, partitions))
        # Partitions that are led no longer, and ledgers that were rolled, may hold more than that.
        if held > counted:
            self._fail("B1", f"counts {counted} bytes of requests, holds {held}")
        if counted >= limit + largest + len(partitions) * _INTERNAL_BYTES_MAX:
            self._fail("B1", f"{counted} bytes of requests, the limit is {limit}")
        bookies: Any = client._bookies
        for bookie in bookies._bookies.values():
            for connection in (bookie._plain, bookie._exact):
                if connection.link is not None:
                    self._look_at_link(connection.link)

    def _look_at_connection(self, connection: Connection) -> int:
        """Return what its largest request counts for."""
        config, wire = connection._server.config, connection._wire
        bytes_max, requests_max = (
            config.connection_in_flight_bytes_max,
            config.connection_requests_max,
        )
        largest = max((slot.request_size for slot in wire.slots), default=0)
        if wire.in_flight_bytes >= bytes_max + largest > largest:
            self._fail("B1", f"{wire.in_flight_bytes} bytes of a connection, not {bytes_max}")
        if wire.open_slots > requests_max:
            self._fail("B1", f"{wire.open_slots} requests of a connection, not {requests_max}")
        transport = connection._transport
        unsent = connection._unsent_bytes
        if transport is not None:
            unsent += transport.get_write_buffer_size()
        # As much may be with the transport as waits for it, and with each one answer on top.
        most = 2 * config.send_buffer_bytes_max + config.fetch_bytes_max + REQUEST_BYTES_MAX
        if unsent > most + requests_max * _ANSWER_BYTES_MAX:
            self._fail("B1", f"{unsent} unsent bytes of a connection, not {most}")
        return largest

    def _look_at_partition(self, partition: Partition) -> int:
        """Return what it and its ledger's writer hold of its clients."""
        log = partition._leader.log
        queue, limit = log.queue, log.limits.in_flight_bytes_max
        sizes = [append.size for append in (*queue.appends(), *log._accumulator)]
        entries = [*(queue._entries or ())]
        others = sum(entry.size for entry in entries if not entry.appends)
        held = sum(sizes)
        if len(partition.admission._waits):
            self._world.oracle.count("looks at full partitions")
        if held + others != log.in_flight_bytes:
            self._fail("B2", f"counts {log.in_flight_bytes} bytes, holds {held + others}")
        if held > limit and len(sizes) > 1:
            self._fail("B2", f"{partition.name} holds {held} bytes, the limit is {limit}")
        waiting = sum(a.size for e in entries[queue.sent_count :] for a in e.appends)
        return waiting + log._accumulator.size_bytes + self._look_at_writer(partition)

    def _look_at_writer(self, partition: Partition) -> int:
        """Return what the writer of the present ledger holds."""
        writer: Any = partition._sender.steps.writer
        if writer is None:
            return 0  # it is led for reads only
        adds = writer._writer._pipeline.adds
        config = writer._writer._context.config
        pending = adds._pending
        if pending:
            sizes = [add.size for add in pending.values()]
            unanswered, limit = sum(sizes) - sizes[-1], config.writer_unanswered_bytes_max
            if unanswered >= limit:
                self._fail("B3", f"{unanswered} unanswered bytes, the limit is {limit}")
            waiting = [add.size for entry_id, add in pending.items() if entry_id > adds.lac]
            unconfirmed, limit = sum(waiting[:-1]), config.writer_in_flight_bytes_max
            if unconfirmed >= limit:
                self._fail("B3", f"{unconfirmed} unconfirmed bytes, the limit is {limit}")
        if self._world.calm.is_only_slow and (
            adds.members.suspended or adds.state is AddsState.CHANGING
        ):
            self._fail(
                "T18", f"a bookie of ledger {writer.ledger_id} was slow and counts as failed"
            )

        return sum(add.size for add in pending.values())

    def _look_at_link(self, link: Link) -> None:
        held = sum(record.size for record in link._records)
        if link._waiting.count:
            self._world.oracle.count("looks at full links")
        if held != link.in_flight_bytes:
            self._fail("B4", f"counts {link.in_flight_bytes} bytes under way, has {held}")
        limit = link._bytes_max
        if held > limit:
            sizes = [r.size for r in link._records if type(r.request) is AddRequest]
            if len(sizes) > 1 and sum(sizes) > limit:
                self._fail("B4", f"{sum(sizes)} bytes of adds, the limit is {limit}")
