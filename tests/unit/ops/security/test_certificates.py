"""Certificates that are made here work in TLS, and are renewed in place."""

from __future__ import annotations

import datetime
import ssl
import stat
from pathlib import Path

import pytest

from client.errors import ConfigError
from ops.security import certificates

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
HOSTS = ("broker1.example.org", "127.0.0.1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "certificates"
    assert certificates.make_authority(made, NOW)
    certificates.issue(made, "broker1", HOSTS, NOW, days=90)
    return made


def handshake(folder: Path, name: str, host: str) -> None:
    """Shake hands in memory, both sides with certificates. Raises ssl.SSLError."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    server.load_verify_locations(folder / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of later Pythons
    client.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    for end in ends:
        end.do_handshake()


@pytest.mark.parametrize("host", HOSTS)
def test_they_are_good_for_their_hosts(folder: Path, host: str) -> None:
    handshake(folder, "broker1", host)


def test_and_for_no_other(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(folder, "broker1", "broker2.example.org")


def test_keys_are_the_owners(folder: Path) -> None:
    for name in ("ca.key", "broker1.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert b"PRIVATE" not in (folder / "ca.pem").read_bytes()


def test_an_authority_is_made_once(folder: Path) -> None:
    before = (folder / "ca.pem").read_bytes()
    assert not certificates.make_authority(folder, NOW)
    assert (folder / "ca.pem").read_bytes() == before


def test_a_renewed_one_has_the_same_key_and_hosts(folder: Path) -> None:
    key = (folder / "broker1.key").read_bytes()
    authority, before = certificates.listed(folder)
    assert (authority.name, before.name, before.hosts) == ("ca", "broker1", HOSTS)
    assert before.expires == NOW + datetime.timedelta(days=90)
    certificates.renew(folder, "broker1", NOW, days=200)
    after = certificates.listed(folder)[1]
    assert (after.hosts, after.expires) == (HOSTS, NOW + datetime.timedelta(days=200))
    assert (folder / "broker1.key").read_bytes() == key
    handshake(folder, "broker1", "127.0.0.1")


def test_what_makes_no_sense_is_refused(folder: Path, tmp_path: Path) -> None:
    for name in ("broker1", "ca", "a/b", "", "-x"):
        with pytest.raises(ConfigError):
            certificates.issue(folder, name, HOSTS, NOW)
    with pytest.raises(ConfigError, match="name the hosts"):
        certificates.issue(folder, "b", (), NOW)
    with pytest.raises(ConfigError, match="expires before"):
        certificates.issue(folder, "b", HOSTS, NOW, days=9_999)
    with pytest.raises(ConfigError, match="is not a certificate"):
        certificates.issue(tmp_path, "b", HOSTS, NOW)
    (folder / "bad.pem").write_text("no")
    with pytest.raises(ConfigError, match="is not a certificate"):
        certificates.renew(folder, "bad", NOW)
