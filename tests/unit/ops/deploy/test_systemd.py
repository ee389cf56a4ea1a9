"""The systemd units hold what we promise, in directives that systemd reads."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from client.node.process import STOP_S_MAX
from tests.unit.ops.deploy.files import DEPLOY, PROGRAMS

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))

KNOWN = {
    "Description",
    "After",
    "Wants",
    "StartLimitIntervalSec",
    "Type",
    "User",
    "Group",
    "EnvironmentFile",
    "ExecStart",
    "Restart",
    "RestartSec",
    "KillSignal",
    "TimeoutStopSec",
    "LimitNOFILE",
    "LimitCORE",
    "OOMScoreAdjust",
    "StateDirectory",
    "StateDirectoryMode",
    "NoNewPrivileges",
    "CapabilityBoundingSet",
    "AmbientCapabilities",
    "ProtectSystem",
    "ProtectHome",
    "PrivateTmp",
    "PrivateDevices",
    "ProtectProc",
    "ProtectClock",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectControlGroups",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "RestrictAddressFamilies",
    "LockPersonality",
    "SystemCallArchitectures",
    "SystemCallFilter",
    "SystemCallErrorNumber",
    "UMask",
    "ReadWritePaths",
    "WantedBy",
}
"""Directives that `systemd-analyze verify` of systemd 252 takes."""


def directives(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_every_program_has_a_unit() -> None:
    started = {shlex.split(directives(path)["ExecStart"][0])[3] for path in UNITS}
    assert started == set(PROGRAMS)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_start_what_exists_and_are_fenced_in(path: Path) -> None:
    found = directives(path)
    _, safe, dash_m, program, config, file = shlex.split(found["ExecStart"][0])
    assert (safe, dash_m, config) == ("-P", "-m", "--config")
    assert program in PROGRAMS
    assert file.startswith("/etc/quire/")
    assert found["Restart"] == ["always"]
    assert int(found["LimitNOFILE"][0]) >= 65_536
    assert int(found["TimeoutStopSec"][0]) > STOP_S_MAX
    for name, value in {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "PrivateDevices": "yes",
        "CapabilityBoundingSet": "",
        "SystemCallFilter": "@system-service",
        "User": "quire",
    }.items():
        assert found[name] == [value]
    if program == "bookie":
        assert found["ReadWritePaths"] == ["/var/lib/quire"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_has_read_every_directive_before(path: Path) -> None:
    """Where systemd is installed, `tests/integration/test_foreign_tools.py` asks it itself."""
    assert directives(path).keys() <= KNOWN
