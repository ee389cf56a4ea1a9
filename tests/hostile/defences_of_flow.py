"""D1, D4, D8: what is held while bookies are slow; busy is not failed; see `defences.py`."""

from __future__ import annotations

from typing import Final

from tests.hostile.defences import HANDLERS, LEDGER, Change, defence

_LINK: Final = "client/ledger/bookies/bookie_link.py"
_PRODUCE: Final = "broker/front/handlers/produce.py"
_BOOKIES: Final = f"{LEDGER}bookies/test_bookies.py::"
_SHED: Final = f"{LEDGER}core/test_shed_adds.py::"
_PARTITION: Final = "tests/unit/broker/partition/test_writer_room.py::"
_MEMORY: Final = f"{LEDGER}write/test_writer_memory.py::"
_SERVER: Final = "tests/unit/broker/front/test_server.py::TestBackPressure::"

DEFENCES: Final = (
    defence(
        "D1", "ADD-BUSY: a bookie that sheds an add is asked again, and has not failed",
        "the first such answer is a failure",
        Change(
            "client/ledger/core/adds.py",
            "if self._takes_none(index) or self._shed.is_over(bookie, now_s):",
            "if True:",
        ),
        f"{_SHED}test_a_busy_bookie_is_not_a_failed_one",
        f"{_SHED}test_all_bookies_busy_at_once_keep_the_ledger",
        seen="an ensemble change instead of a pause",
    ),
    defence(
        "D1", "LINK-ROOM: an add for which a connection to a bookie has no room waits",
        "it gets TooManyRequests",
        Change(
            _LINK, "self._waiting.push(request.ledger_id, record)",
            'record.complete(TooManyRequests("the connection is full"))',
        ),
        f"{_BOOKIES}test_adds_wait_in_order_for_room_in_bytes",
        f"{_BOOKIES}test_adds_wait_for_room_and_reads_are_refused",
        seen="the adds were answered at once, TooManyRequests",
    ),
    defence(
        "D1", "LINK-CLOCK: what was sent before a request does not count against its bookie",
        "each request's time runs from when it was sent",
        Change(
            "client/ledger/bookies/bookie_link.py",
            " and number <= min(self._answered_before)", "",
        ),
        f"{_BOOKIES}test_the_clock_of_a_request_starts_when_those_before_it_are_answered",
        seen="the request timed out",
    ),
    defence(
        "D1", "relations of limits are checked when settings are read: link, writer",
        "they are not",
        Change(
            "client/ledger/config.py", "if limit < self.writer_in_flight_bytes_max:", "if False:"
        ),
        f"{LEDGER}test_client.py::test_config_checks_relations",
        seen="no ConfigError",
    ),
    defence(
        "D1", "relations of limits are checked when settings are read: writer, partition, broker",
        "they are not",
        Change("broker/config.py", "        if least > most:\n", "        if False:\n"),
        "tests/unit/broker/test_small_parts.py"
        "::test_a_limit_that_would_never_fill_the_one_below_it_is_named",
        seen="no ConfigError",
    ),
    defence(
        "D4", "a batch counts until its last copy is settled, even if its client hangs up",
        "a lost connection gives back what its requests held",
        Change(
            "broker/front/server.py",
            "        super().connection_lost(exc)\n        self._backlog.clear()\n",
            "        in_flight_bytes = self._wire.in_flight_bytes\n"
            "        super().connection_lost(exc)\n"
            "        self._server.memory.size -= in_flight_bytes\n"
            "        self._backlog.clear()\n",
        ),
        f"{_SERVER}test_who_hangs_up_takes_no_batch_out_of_the_count",
        f"{_SERVER}test_a_change_that_waits_is_held_without_its_client",
        seen="201,460 bytes unconfirmed where 40,292 are allowed; 0 counted where 2,000 are held",
    ),
    defence(
        "D4", "an entry counts until the last bookie has answered",
        "it counts until it is confirmed",
        Change(
            "client/ledger/write/writer_room.py",
            "        entry.unanswered -= 1\n"
            "        if not entry.unanswered and not entry.is_pending:",
            "        entry.unanswered = 0\n        if True:",
        ),
        f"{_MEMORY}test_an_entry_is_held_until_the_last_bookie_has_answered",
        f"{_MEMORY}test_the_copies_of_a_writer_that_is_given_up_are_held_until_they_are_settled",
        seen="0 bytes counted, and then a negative number",
    ),
    defence(
        "D8", "a partition gives its writer no more than it has room for",
        "all that is queued goes to the writer at once",
        Change(
            "broker/partition/partition.py", "if not room.is_free:", "if False:"
        ),
        f"{_PARTITION}test_entries_wait_in_the_partition_until_the_writer_has_room",
        f"{_PARTITION}test_what_waits_goes_out_as_answers_come_and_never_beyond_the_room",
        seen="5 entries at the writer where 2 have room; 11,430 bytes where 1,144 have",
    ),
    defence(
        "D8", "a batch for which its partition has no room waits, and all behind it",
        "it is appended anyhow",
        Change(_PRODUCE, "if not admitted and not admission.has_room(size):", "if False:"),
        f"{HANDLERS}test_produce_room.py"
        "::test_what_finds_no_room_waits_with_all_behind_it_and_nothing_overtakes",
        seen="4 batches appended where 2 have room",
    ),
    defence(
        "D8", "a writer waits while a bookie has too much to answer",
        "only what is unconfirmed counts",
        Change(
            "client/ledger/write/writer_room.py",
            "            and adds.pending_bytes < self._unanswered_bytes_max\n", "",
        ),
        f"{LEDGER}write/test_writer.py"
        "::test_append_waits_while_a_bookie_has_too_much_to_answer",
        seen="the second entry was sent while the third bookie held the first",
    ),
)  # fmt: skip
