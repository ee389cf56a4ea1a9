"""D2, D3, D9, D10: requests that cost others time, answers or leaders; see `defences.py`."""

from __future__ import annotations

from typing import Final

from tests.hostile.defences import HANDLERS, LEDGER, Change, Defence, defence

_LARGE: Final = f"{HANDLERS}test_large_requests.py::"
_EARLY: Final = f"{HANDLERS}test_requests_before_the_leader.py::"
_ROOM: Final = f"{HANDLERS}test_produce_room.py::"
_SCAN: Final = "client/wire/kafka/batches/record_scan.py"
_PRODUCE: Final = "broker/front/handlers/produce.py"
_AWAITED: Final = "broker/leadership/awaited_partitions.py"
_NEXT_STEP: Final = """
        work += 1
        if work >= STEP_RECORDS:
            work = 0
            yield None
"""

DEFENCES: Final = (
    defence(
        "D2", "the error text in an answer is cut to what the oldest version can hold",
        "the client's own words are returned in full",
        Change(
            "broker/faults.py",
            'return text if len(text) <= _MESSAGE_MAX else f"{text[:_MESSAGE_MAX]}..."',
            "return text",
        ),
        f"{_ROOM}test_a_refusal_that_repeats_a_long_name_can_be_encoded",
        seen="the connection was closed",
    ),
    Defence(
        "D2", "an answer that cannot be encoded costs its own connection only",
        "the error is passed on to whoever completed the append",
        (
            Change(
                _PRODUCE,
                "                self._channel.answer(slot, buffers)\n"
                "        except Exception:  # the outermost loop of a request\n"
                "            self._break()\n",
                "                self._channel.answer(slot, buffers)\n"
                "        except ZeroDivisionError:\n"
                "            self._break()\n",
            ),
            Change(
                _PRODUCE,
                "            return\n"
                "        except Exception:  # the outermost loop of a request\n"
                "            self._break()\n",
                "            return\n"
                "        except ZeroDivisionError:\n"
                "            self._break()\n",
            ),
        ),
        (f"{_ROOM}test_an_answer_that_cannot_be_encoded_costs_its_own_connection_only",),
        "nobody was answered",
    ),
    defence(
        "D2", "LINK-OTHERS: what one request's callback raises costs no other request its answer",
        "it ends the work on the bytes that arrived",
        Change(
            "client/ledger/bookies/bookie_link.py",
            "        except callbacks.RAISED as error:\n"
            "            callbacks.failed(callbacks.Kind.REQUEST, error)\n\n"
            "    def connection_lost",
            "        except ZeroDivisionError:\n            raise\n\n    def connection_lost",
        ),
        f"{LEDGER}bookies/test_completion.py"
        "::test_the_others_in_the_same_bytes_are_answered_and_the_connection_stays",
        seen="the others failed with `connection lost`",
    ),
    defence(
        "D2", "an error that an add's callback raises fails its writer, after all others were told",
        "no further one is told",
        Change(
            "client/ledger/write/writer.py",
            "except callbacks.RAISED as raised:", "except ZeroDivisionError as raised:",
        ),
        f"{LEDGER}write/test_completion.py"
        "::test_a_raising_on_done_fails_its_writer_after_all_that_is_due_was_told",
        seen="entry 2 was never told of",
    ),
    defence(
        "D3", "records are scanned in steps of 2,000, between which others take turns",
        "a batch is one step",
        Change(_SCAN, f"        at = end{_NEXT_STEP}", "        at = end\n"),
        f"{_LARGE}test_a_search_goes_through_many_records_in_many_turns",
        seen="0 turns where 20 are wanted",
    ),
    defence(
        "D3", "at most `opened_records_max` compressed records of one request are read",
        "as many as it brings",
        Change(
            "broker/front/handlers/produce.py",
            "self._left -= checked.header.record_count", "pass",
        ),
        f"{_LARGE}test_one_request_has_so_many_records_opened_and_no_more",
        seen="all four batches were stored",
    ),
    defence(
        "D3", "a search by time opens no more than that, and ends at a batch",
        "it opens everything on its way",
        Change(
            "broker/partition/log_reader.py",
            "if header.has_log_append_time or not opened.take(header.record_count):",
            "if header.has_log_append_time:",
        ),
        f"{_LARGE}test_a_search_that_would_open_too_much_ends_at_a_batch",
        seen="the search went through all of it",
    ),
    defence(
        "D3", "a few bytes that claim very many records are not read",
        "any count is believed",
        Change(
            "broker/partition/core/batch_checks.py",
            "if header.record_count > count_max:", "if False:",
        ),
        f"{_LARGE}test_a_few_bytes_that_claim_many_records_are_not_opened",
        seen="the batch was opened: INVALID_RECORD",
    ),
    defence(
        "D3", "nor are they opened anywhere else", "any count is believed",
        Change(_SCAN, "if count > cautious_records_max(size):", "if False:"),
        "tests/unit/client/wire/kafka/batches/test_record_scan.py"
        "::test_a_few_bytes_cannot_claim_many_records",
        seen="it was opened: damaged",
    ),
    defence(
        "D3", "a Fetch answers a partition once, however often it is named",
        "once for each name",
        Change(
            "broker/front/handlers/fetch.py",
            "found[topic.topic, fetch.partition] = Asked(topic.topic, fetch)",
            "found[topic.topic, len(found)] = Asked(topic.topic, fetch)",
        ),
        f"{_LARGE}test_a_fetch_answers_a_partition_once_as_the_last_of_its_names_asks",
        seen="the partition was answered many times",
    ),
    defence(
        "D3", "a request has at most `request_items_max` items",
        "as many as its bytes hold",
        Change("client/wire/steps.py", "if self._announced > self._count_max:", "if False:"),
        f"{_LARGE}test_a_fetch_of_too_many_partitions_is_refused",
        f"{_LARGE}test_other_requests_of_too_many_items_are_refused",
        seen="no answer within the time; another error, since all of the items had been handled",
    ),
    defence(
        "D3", "large requests are decoded, begun and answered in steps of 500 items",
        "in one",
        Change("client/wire/steps.py", "if self._in_step < STEP_ITEMS:", "if True:"),
        f"{_LARGE}test_a_large_request_is_decoded_and_answered_in_many_turns",
        seen="0 turns where 18 are wanted",
    ),
    defence(
        "D9", "a Produce for a partition that is being opened waits until it is led",
        "it is refused",
        Change(
            _PRODUCE, "if isinstance(batch.rows[batch.at][2], NotLeader):", "if False:"
        ),
        f"{_EARLY}test_a_produce_waits_until_the_partition_is_led",
        f"{_EARLY}test_nothing_sent_with_acks_0_is_lost_although_the_client_hangs_up",
        f"{_EARLY}test_many_with_acks_0_keep_their_order",
        seen="nothing waits; the records with acks=0 are lost; the connection is closed",
    ),
    defence(
        "D9", "the wait goes on when a takeover fails once",
        "it ends with the first failure",
        Change(
            "broker/leadership/ownership.py",
            "                failures += 1\n",
            "                failures += 1\n"
            "                self._ownership._partitions.awaited.end(self.key)\n",
        ),
        f"{_EARLY}test_a_takeover_that_fails_once_loses_nothing",
        seen="NOT_LEADER_OR_FOLLOWER",
    ),
    defence(
        "D9", "what waits for leaders holds at most `partition_hold_bytes_max`",
        "any amount",
        Change(_AWAITED, "if self.held_bytes + size > self._bytes_max:", "if False:"),
        f"{_EARLY}test_too_many_bytes_do_not_wait",
        seen="it waited, and no answer came",
    ),
    defence(
        "D9", "nobody waits for longer than `partition_hold_max_ms` since the takeover began",
        "for as long as it takes",
        Change(
            _AWAITED,
            "return max(0.0, since_s + self.hold_s - now_s)",
            "return 3600.0",
        ),
        f"{_EARLY}test_a_produce_waits_no_longer_than_allowed_and_then_is_not_stored",
        seen="it waited, and no answer came",
    ),
    defence(
        "D10", "a topic remembers how many partitions it had, and those stay where they are",
        "all are distributed again",
        Change(
            "broker/cluster/core/assignment.py",
            "(*grown_from, partition_count), live", "(partition_count,), live",
        ),
        "tests/unit/broker/cluster/core/test_assignment.py"
        "::test_partitions_that_are_added_move_none_and_share_what_is_left",
        seen="leaders of the first partitions changed",
    ),
    defence(
        "D10", "CreatePartitions stores that number",
        "it does not",
        Change(
            "broker/topics/topic_changes.py",
            "                grown_from=(*topic.grown_from, topic.partition_count),\n", "",
        ),
        "tests/unit/broker/topics/test_topics.py"
        "::test_growing",
        seen="`grown_from` stayed empty",
    ),
    defence(
        "D10", "what a client causes at will is logged 50 times in ten seconds at most",
        "as often as it comes",
        Change(
            "client/node/logs.py", 'if getattr(record, "at_will", False):', "if False:"
        ),
        "tests/unit/client/node/test_logs.py"
        "::test_what_a_client_causes_at_will_is_left_out_whatever_it_says_and_counted",
        seen="2,000 lines instead of 50",
    ),
    defence(
        "D10", "an invalid topic name is logged in such a line",
        "an ordinary one",
        Change(
            "broker/front/handlers/metadata.py",
            'log.info("topic.not_created topic=%r error=%s", name, error, extra=AT_WILL)',
            'log.info("topic.not_created topic=%r error=%s", name, error)',
        ),
        f"{HANDLERS}test_metadata.py::test_a_client_that_asks_for_wrong_names_fills_no_log",
        seen="200 lines instead of 50",
    ),
)  # fmt: skip
