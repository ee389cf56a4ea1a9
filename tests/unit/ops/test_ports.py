"""Ports are found free or taken, and the taker gets a name."""

import os
import socket
from pathlib import Path

import pytest

from ops import ports


def test_a_listener_takes_a_port_and_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
        assert str(ports.listener(port)).endswith(f"(pid {os.getpid()})")
    assert ports.is_free(port)
    assert ports.listener(port) is None


def test_an_old_connection_does_not_take_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            accepted.close()  # this side closes first and stays in TIME_WAIT
    assert ports.is_free(port)


def test_picked_ports_are_different_and_free() -> None:
    picked = ports.pick_free(20)
    assert len(set(picked)) == 20
    assert all(ports.is_free(port) for port in picked)


def test_a_run_of_ports_is_free_from_end_to_end() -> None:
    (first,) = ports.pick_free_runs(5)
    assert all(ports.is_free(first + i) for i in range(5))


def test_runs_have_no_port_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    picked = iter([100, 102, 97, 95, 98, 103])
    monkeypatch.setattr(ports, "pick_free", lambda _count: [next(picked)])
    monkeypatch.setattr(ports, "is_free", lambda _port: True)
    assert ports.pick_free_runs(3, 4, 2) == [100, 95, 103]


def test_without_proc_and_lsof_the_taker_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_PROC", tmp_path / "absent")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ports.listener(9092) is None
