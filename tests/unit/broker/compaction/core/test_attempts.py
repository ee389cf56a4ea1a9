"""After a failure a partition waits, longer each time, and never for ever."""

from __future__ import annotations

from broker.compaction.core.attempts import FIRST_PAUSE_S, PAUSE_MAX_S, Attempts


def test_the_pause_doubles_up_to_a_limit_and_success_ends_it() -> None:
    attempts = Attempts()
    assert attempts.may_try(0.0)
    now_s, pauses = 0.0, []
    for number in range(12):
        attempts.on_failed(f"failure {number}", now_s)
        pause_s = FIRST_PAUSE_S
        while not attempts.may_try(now_s + pause_s):
            pause_s *= 2
        pauses.append(pause_s)
        now_s += pause_s
    assert pauses[:4] == [15.0, 30.0, 60.0, 120.0]
    assert max(pauses) <= 2 * PAUSE_MAX_S
    assert (attempts.reason, attempts.failure_count) == ("failure 11", 12)
    attempts.on_done()
    assert (attempts.reason, attempts.failure_count) == ("", 0)
    assert attempts.may_try(now_s)
