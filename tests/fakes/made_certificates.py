"""Certificates of an authority of our own, made in the test's process."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Any

from ops.security import certificates


def make(folder: Path, *names: str) -> None:
    """Make an authority, and a certificate for 127.0.0.1 by each name."""
    now = datetime.datetime.now(datetime.UTC)
    certificates.make_authority(folder, now)
    for name in names:
        certificates.issue(folder, name, ("127.0.0.1",), now)


def port_settings(folder: Path, name: str) -> dict[str, Any]:
    """Return the settings of an HTTP port with a certificate."""
    return {"admin_tls_cert": folder / f"{name}.pem", "admin_tls_key": folder / f"{name}.key"}


def client(folder: Path, name: str | None = None) -> ssl.SSLContext:
    """Return the context of a client that trusts the authority, and has a certificate or none."""
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if name is not None:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context
