"""How long a partition was without a leader, from acknowledgements before and after a kill."""

import pytest

from ops.bench.load.failover import Pauses


def answered(pauses: Pauses, partition: int, sent_s: float, at_s: float) -> None:
    pauses.sent(partition, sent_s)
    pauses.acknowledged(partition, at_s)


def test_an_answer_that_was_on_the_wire_does_not_hide_the_pause() -> None:
    pauses = Pauses(1)
    answered(pauses, 0, 1.9, 1.98)
    pauses.sent(0, 1.99)
    pauses.killed_s, pauses.dead_s = 2.0, 2.01
    pauses.acknowledged(0, 2.001)  # sent by the dead broker before it died
    answered(pauses, 0, 2.1, 2.5)
    answered(pauses, 0, 2.6, 2.7)
    assert pauses.all_served()
    assert pauses.back_s() == [0.5]


def test_what_the_dead_one_still_took_is_no_end() -> None:
    pauses = Pauses(1)
    answered(pauses, 0, 1.9, 1.98)
    pauses.killed_s, pauses.dead_s = 2.0, 2.01
    answered(pauses, 0, 2.001, 2.005)  # the one who kills was held up before he did
    assert not pauses.all_served()
    answered(pauses, 0, 2.1, 2.5)
    assert pauses.back_s() == [0.5]


def test_a_slow_write_of_the_next_leader_is_no_part_of_it() -> None:
    pauses = Pauses(1)
    answered(pauses, 0, 1.9, 1.98)
    pauses.killed_s = 2.0
    answered(pauses, 0, 2.02, 2.15)
    answered(pauses, 0, 2.2, 2.9)
    assert pauses.back_s() == [pytest.approx(0.15)]


def test_a_partition_is_served_when_what_was_sent_after_the_kill_is_acknowledged() -> None:
    pauses = Pauses(2)
    for partition in (0, 1):
        answered(pauses, partition, 0.5, 1.0)
    assert pauses.warm
    pauses.sent(0, 1.5)
    pauses.killed_s, pauses.dead_s = 2.0, 2.01
    pauses.acknowledged(0, 2.25)
    answered(pauses, 1, 2.1, 2.5)
    assert not pauses.all_served()
    answered(pauses, 0, 2.3, 2.4)
    assert pauses.all_served()
    assert pauses.back_s() == [0.25, 0.5]


def test_it_is_warm_when_every_partition_was_acknowledged_once() -> None:
    pauses = Pauses(2)
    answered(pauses, 1, 0.0, 0.1)
    assert not pauses.warm
