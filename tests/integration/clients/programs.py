"""Clients of compiled languages: programs of ours that do one step each, and print JSON."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.integration.clients import installed, traffic
from tests.integration.clients.java_programs import java_program
from tests.integration.clients.traffic import Received

PROGRAMS = {
    "sarama": ("golang/bin", "sarama"),
    "kafka-go": ("golang/bin", "kafkago"),
    "rskafka": ("rust/target/debug", "rust"),
}
"""Where `install.sh` leaves each."""
JAVA = ("java", "java-3.9")
"""Folders of jars of Java's client, new and old."""


def command(client: str) -> list[str]:
    """Return how a client's program is called, without its step and settings."""
    if client in JAVA:
        return java_program(client, "Steps")
    folder, name = PROGRAMS[client]
    return [str(installed.folder(folder) / name)]


def step(client: str, name: str, **settings: Any) -> Any:
    """Do one step and return what it printed; it must end well."""
    done = subprocess.run(
        [*command(client), name, json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=2 * traffic.PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def received(records: list[dict[str, Any]]) -> list[Received]:
    """Return the records that a program printed."""
    return [Received(r["partition"], r["offset"], r["key"], r["value"]) for r in records]
