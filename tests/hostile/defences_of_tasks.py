"""D5, D6, D7: long polls, tasks that must not end, segment lists; see `defences.py`."""

from __future__ import annotations

from typing import Final

from tests.hostile.defences import Change, defence

_BOOKIE: Final = "tests/unit/bookie/server/test_server.py::"
_ORPHANS: Final = "tests/unit/broker/leadership/test_orphan_ledgers.py::"
_SCALE: Final = "tests/unit/client/segments/test_scale.py::"
_BACKGROUND: Final = "tests/unit/client/node/test_background.py::"

DEFENCES: Final = (
    defence(
        "D5", "a bookie's long polls end with their connection",
        "they go on until their time is up",
        Change("bookie/server/server.py", "ended = self._polls.close()", "ended = 0"),
        f"{_BOOKIE}test_long_polls_end_with_their_connection",
        seen="4 polls wait where 1 should",
    ),
    defence(
        "D5", "they are counted, and refused beyond a limit",
        "any number is taken",
        Change(
            "bookie/server/server.py",
            "if self.polls >= limits.polls_max or of_connection >="
            " limits.polls_per_connection_max:",
            "if False:",
        ),
        f"{_BOOKIE}test_long_polls_beyond_a_limit_are_refused",
        seen="none was refused",
    ),
    defence(
        "D5", "a waiting poll keeps only what is small of its request",
        "it keeps the key that its client chose",
        Change("bookie/server/server.py", "._replace(master_key=None)", "._replace()"),
        f"{_BOOKIE}test_a_parked_poll_keeps_only_what_is_small",
        seen="the key was kept",
    ),
    defence(
        "D6", "the sweep leaves a ledger alone whose labels are not ours",
        "any topic id is believed",
        Change(
            "broker/leadership/orphan_ledgers.py",
            "        if str(UUID(topic_id)) != topic_id:\n            return None\n", "",
        ),
        f"{_ORPHANS}test_labels_that_we_never_write_name_no_purpose",
        f"{_ORPHANS}test_mislabelled_ledgers_are_left_alone_and_do_not_end_the_sweep",
        seen="`..` was taken for a topic id; the sweep ended with `not a node path`",
    ),
    defence(
        "D6", "a task that fails is logged and counted, and begins again after a pause",
        "it is over",
        Change(
            "client/node/background.py",
            "        except Exception as error:  # the outermost loop of a task: nothing may end it"
            "\n            cause = error\n",
            "        except Exception:\n            return\n",
        ),
        f"{_BACKGROUND}test_a_task_that_fails_is_told_of_counted_and_begins_again",
        f"{_ORPHANS}test_a_sweep_that_fails_as_nobody_expected_comes_again",
        seen="it did not begin again",
    ),
    defence(
        "D6", "a task whose work was cancelled by somebody else begins again, too",
        "it counts as cancelled",
        Change(
            "client/node/background.py",
            "            if task is None or task.cancelling():\n                raise\n",
            "            raise\n",
        ),
        f"{_BACKGROUND}test_only_who_cancels_the_task_itself_ends_it",
        seen="it did not begin again",
    ),
    defence(
        "D7", "sealed segments leave the head of their list for pages",
        "they stay in the one node",
        Change(
            "client/log/segments.py",
            "for _ in range(_movable(listed.segments) // page_entries):", "for _ in range(0):",
        ),
        f"{_SCALE}test_rolls_write_one_page_for_as_many_segments_as_it_has",
        seen="the head grew with each roll",
    ),
    defence(
        "D7", "references to pages leave it for pages of their own",
        "they stay in the head",
        Change("client/log/segments.py", "while end - start >= page_entries:", "while False:"),
        f"{_SCALE}test_the_head_is_small_and_a_takeover_reads_nothing_else",
        f"{_SCALE}test_a_trim_opens_the_oldest_page_and_the_head_stays_small",
        seen="a head of 3,772,737 bytes where less than 100,000 is wanted; one level of pages",
    ),
)  # fmt: skip
