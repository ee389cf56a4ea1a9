"""Where the C library has no such settings, memory is left alone."""

import ctypes

import pytest

from client.node.process import keep_freed_memory


def test_a_c_library_without_the_settings_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    assert not keep_freed_memory()
