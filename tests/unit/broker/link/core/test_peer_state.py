"""When requests to a broker are sent, refused, or given up as unanswered."""

from __future__ import annotations

import random

import pytest

from broker.link.core.peer_state import (
    Break,
    Connect,
    Effects,
    Greet,
    LinkConfig,
    PeerPhase,
    PeerState,
    Refused,
    Send,
    Unanswered,
)
from client.errors import ConfigError

CONFIG = LinkConfig(
    requests_max=2, waiting_max=3, answer_ms_max=1_000, pause_ms_min=100, pause_ms_max=300
)


def up() -> PeerState:
    state = PeerState(CONFIG)
    assert state.ask(1, 0.0) == (Connect(),)
    assert state.on_connected() == (Greet(),)
    assert state.on_welcome(0.0) == [Send(1)]
    return state


def test_the_first_request_connects_and_waits_for_the_welcome() -> None:
    state = PeerState(CONFIG)
    assert state.ask(1, 0.0) == (Connect(),)
    assert state.ask(2, 0.0) == []
    assert state.on_connected() == (Greet(),)
    assert state.ask(3, 0.0) == []
    assert state.on_welcome(0.0) == [Send(1), Send(2)]
    assert state.on_answer(1, 0.1) == [Send(3)]
    state.check()


def test_what_is_too_much_is_refused() -> None:
    state = up()
    assert state.ask(2, 0.0) == [Send(2)]
    for number in (3, 4, 5):
        assert state.ask(number, 0.0) == []
    assert [type(one) for one in state.ask(6, 0.0)] == [Refused]
    state.check()


def test_a_lost_connection_leaves_what_was_sent_unknown_and_the_rest_unsent() -> None:
    state = up()
    for number in (2, 3):
        state.ask(number, 0.0)
    assert state.on_lost("gone", 0.0) == [
        Unanswered(1, "gone"), Unanswered(2, "gone"), Refused(3, "gone"),
    ]  # fmt: skip
    assert state.phase is PeerPhase.IDLE


def test_an_answer_that_is_late_ends_the_connection_with_all_that_is_on_it() -> None:
    state = up()
    state.ask(2, 0.5)
    assert state.next_deadline() == 1.0
    assert state.on_deadline(0.9) == ()
    effects = state.on_deadline(1.0)
    assert [type(one) for one in effects] == [Break, Unanswered, Unanswered]
    assert state.next_deadline() is None


def test_so_does_a_hello_that_nobody_takes() -> None:
    state = PeerState(CONFIG)
    state.ask(1, 0.0)
    state.on_connected()
    assert state.next_deadline() == 1.0
    assert [type(one) for one in state.on_deadline(1.0)] == [Break, Refused]


def test_pauses_grow_with_failures_and_begin_anew_with_an_answer() -> None:
    state = PeerState(CONFIG)
    now_s = 0.0
    for pause_s in (0.1, 0.2, 0.3, 0.3):
        assert state.ask(1, now_s) == (Connect(),)
        assert [type(one) for one in state.on_lost("refused", now_s)] == [Refused]
        assert [type(one) for one in state.ask(2, now_s + pause_s - 0.01)] == [Refused]
        now_s += pause_s
    assert state.ask(1, now_s) == (Connect(),)
    state.on_connected()
    state.on_welcome(now_s)
    state.on_answer(1, now_s)
    state.ask(2, now_s)
    state.on_lost("gone", now_s)
    assert state.ask(3, now_s + 0.1) == (Connect(),)


def test_a_silent_connection_that_ends_costs_no_pause() -> None:
    state = up()
    state.on_answer(1, 0.0)
    assert state.on_lost("idle", 5.0) == []
    assert state.ask(2, 5.0) == (Connect(),)


def test_a_peer_that_answers_what_was_not_asked() -> None:
    state = up()
    assert [type(one) for one in state.on_answer(9, 0.0)] == [Break, Unanswered]
    state = up()
    assert [type(one) for one in state.on_welcome(0.0)] == [Break, Unanswered]
    assert state.on_broken("late", 0.0) == ()


def test_the_end() -> None:
    state = up()
    state.ask(2, 0.0)
    state.ask(3, 0.0)
    effects = state.close()
    assert [type(one) for one in effects] == [Break, Unanswered, Unanswered, Refused]
    assert [type(one) for one in state.ask(4, 0.0)] == [Refused]
    assert state.close() == ()
    assert [type(one) for one in state.on_connected()] == [Break]


@pytest.mark.parametrize(
    "wrong",
    [{"requests_max": 0}, {"waiting_max": 1, "requests_max": 2}, {"pause_ms_max": 1}],
)
def test_limits_make_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        LinkConfig(**wrong)


@pytest.mark.parametrize("seed", range(200))
def test_every_request_has_exactly_one_end(seed: int) -> None:
    rng = random.Random(seed)
    state = PeerState(CONFIG)
    now_s, asked = 0.0, 0
    sent: list[int] = []
    ended: list[int] = []

    def take(effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Send(request_id):
                    sent.append(request_id)
                case Refused(request_id, _):
                    assert request_id not in sent
                    ended.append(request_id)
                case Unanswered(request_id, _):
                    assert request_id in sent
                    ended.append(request_id)
        state.check()

    for _ in range(200):
        now_s += rng.choice((0, 0.01, 0.3))
        match rng.randrange(7):
            case 0 | 1 | 2:
                asked += 1
                take(state.ask(asked, now_s))
            case 3 if state.phase is PeerPhase.CONNECTING:
                take(state.on_connected())
            case 4 if state.phase is PeerPhase.GREETING:
                take(state.on_welcome(now_s))
            case 5 if open_ := [one for one in sent if one not in ended]:
                ended.append(open_[0])
                take(state.on_answer(open_[0], now_s))
            case 6:
                late = rng.random() < 0.5
                take(state.on_lost("x", now_s) if late else state.on_deadline(now_s))
    take(state.close())
    assert sorted(ended) == list(range(1, asked + 1))
