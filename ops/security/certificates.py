"""Makes and renews certificates of a cluster: an authority of its own, and what it signs.

In one folder: `ca.pem` and `ca.key`, and `<name>.pem` and `<name>.key` for each node. Keys are
readable by their owner only. A renewed certificate keeps its key and its names, and takes the place
of the old one in one step: brokers, which look at the file, use it for the next connections.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from client.errors import ConfigError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as missing:  # an extra: nodes do not need it
    raise ConfigError(
        "making certificates needs the package cryptography: pip install cryptography"
    ) from missing

AUTHORITY: Final = "ca"
DAYS: Final = 365
AUTHORITY_DAYS: Final = 3_650
RENEW_BEFORE_DAYS: Final = 30
_BACKDATED: Final = datetime.timedelta(minutes=5)
"""Clocks of other machines may be behind."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Certificate(NamedTuple):
    """One in the folder."""

    name: str
    hosts: tuple[str, ...]
    expires: datetime.datetime


def make_authority(folder: Path, now: datetime.datetime) -> bool:
    """Make the authority, unless it is there; say whether it was made. Raises ConfigError."""
    if _file(folder, AUTHORITY, "pem").exists():
        return False
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject("Quire authority")
    made = (
        _builder(name, name, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_key(folder, AUTHORITY, key)
    _write(_file(folder, AUTHORITY, "pem"), made.public_bytes(serialization.Encoding.PEM))
    return True


def issue(
    folder: Path, name: str, hosts: Sequence[str], now: datetime.datetime, days: int = DAYS
) -> None:
    """Make a key and a certificate good for hosts (names or addresses), to serve and to connect.

    Raises ConfigError: there is one of that name, the authority is missing, a name makes no sense.
    """
    if not _NAME.fullmatch(name) or name == AUTHORITY:
        raise ConfigError(f"{name!r} is not a valid name for a certificate")
    if not hosts:
        raise ConfigError("name the hosts that the certificate is good for")
    if _file(folder, name, "pem").exists():
        raise ConfigError(f"there is a certificate {name} in {folder}: renew it")
    key = ec.generate_private_key(ec.SECP256R1())
    made = _sign(folder, name, hosts, key.public_key(), now, days)
    _write_key(folder, name, key)
    _write(_file(folder, name, "pem"), made)


def renew(folder: Path, name: str, now: datetime.datetime, days: int = DAYS) -> None:
    """Make a certificate anew for the same key and hosts. Raises ConfigError."""
    old = _read(_file(folder, name, "pem"))
    public = old.public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise ConfigError(f"certificate {name} was not made here: its key is of another kind")
    _write(_file(folder, name, "pem"), _sign(folder, name, _hosts(old), public, now, days))


def listed(folder: Path) -> list[Certificate]:
    """Return the certificates in the folder, the authority's first. Raises ConfigError."""
    found = []
    for path in sorted(folder.glob("*.pem"), key=lambda one: (one.stem != AUTHORITY, one.stem)):
        one = _read(path)
        found.append(Certificate(path.stem, _hosts(one), one.not_valid_after_utc))
    return found


def _sign(
    folder: Path,
    name: str,
    hosts: Sequence[str],
    public: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
) -> bytes:
    authority = _read(_file(folder, AUTHORITY, "pem"))
    key = _read_key(folder, AUTHORITY)
    if now + datetime.timedelta(days=days) > authority.not_valid_after_utc:
        raise ConfigError("the authority expires before that: make another one")
    usage = x509.ExtendedKeyUsage(
        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    )
    made = (
        _builder(_subject(name), authority.subject, public, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(usage, critical=False)
        # Clients that check strictly, as Python does since 3.13, want to be told whose key signed.
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(map(_general_name, hosts)), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "quire"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigError(f"{host!r} is neither a host name nor an address") from error


def _hosts(one: x509.Certificate) -> tuple[str, ...]:
    try:
        names = one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))


def _file(folder: Path, name: str, kind: str) -> Path:
    return folder / f"{name}.{kind}"


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a certificate: {error}") from error


def _read_key(folder: Path, name: str) -> ec.EllipticCurvePrivateKey:
    path = _file(folder, name, "key")
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path} is not a key without a password: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} was not made here: it is a key of another kind")
    return key


def _write_key(folder: Path, name: str, key: ec.EllipticCurvePrivateKey) -> None:
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(_file(folder, name, "key"), text, mode=0o600)


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Put a file in place at once; a key is never readable by others, not for a moment."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    scratch.replace(path)
