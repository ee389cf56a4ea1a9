"""The limit of open files is raised as far as needed and allowed, and connections give way."""

from __future__ import annotations

import resource

import pytest

from client.node.process import connections_that_fit, fit

UNLIMITED = resource.RLIM_INFINITY


class Kernel:
    """The limits of a process, and the number beyond which the kernel refuses whatever it says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int) -> None:
        self.soft = soft
        self._hard, self._most = hard, most
        monkeypatch.setattr(resource, "getrlimit", lambda _kind: (self.soft, self._hard))
        monkeypatch.setattr(resource, "setrlimit", self._set)

    def _set(self, _kind: int, limits: tuple[int, int]) -> None:
        if limits[0] > self._most:
            raise ValueError("current limit exceeds maximum limit")
        self.soft = limits[0]


@pytest.mark.parametrize("hard", [100_000, UNLIMITED])
def test_the_limit_is_raised_to_what_is_needed(monkeypatch: pytest.MonkeyPatch, hard: int) -> None:
    kernel = Kernel(monkeypatch, soft=1_024, hard=hard, most=1 << 30)
    assert connections_that_fit(10_000, reserved=1_000) == 10_000
    assert kernel.soft == 11_000


def test_a_hard_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, soft=1_024, hard=4_096, most=1 << 30)
    assert connections_that_fit(10_000, reserved=1_000) == 3_096
    assert kernel.soft == 4_096


def test_macos_grants_less_than_unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, soft=256, hard=UNLIMITED, most=10_240)
    assert connections_that_fit(20_000, reserved=1_000) == 9_240
    assert kernel.soft == 10_240


def test_a_kernel_that_grants_nothing_more_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, soft=256, hard=UNLIMITED, most=256)
    assert connections_that_fit(20_000, reserved=1_000) == 192
    assert kernel.soft == 256


def test_of_few_files_a_quarter_is_the_servers() -> None:
    assert fit(100, 200, 80) == 60
    assert fit(100, 200, None) == 100
