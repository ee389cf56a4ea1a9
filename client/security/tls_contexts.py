"""Creates TLS contexts from files of certificates and keys, and again when a file changes.

Connections that are open keep what they have; the next one gets the new context. Files that do not
fit together (one of two was written so far) are reported, the old context stays in use, and they
are tried again when they change again.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

from client.errors import ConfigError
from client.file_modes import warn_of_readers

log = logging.getLogger(__name__)

TlsVersion = Literal["1.2", "1.3"]

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

Stamps = tuple[tuple[int, int, int] | None, ...]
"""What tells whether files have changed."""

T = TypeVar("T")


def server_context(table: str, cert: Path, key: Path, *, version_min: TlsVersion) -> ssl.SSLContext:
    """Return the context of a server that asks for no certificate. `table`: of the settings, for
    errors; with "_" at its end, how their names begin. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[version_min]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    load_chain(context, table, cert, key)
    return context


def client_context(
    table: str, ca: tuple[str, Path] | None, *, version_min: TlsVersion
) -> ssl.SSLContext:
    """Return the context of a client. `ca`: whom to trust, with the name of the setting; None: whom
    this machine trusts. Raises ConfigError."""
    if ca is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load_authority(context, table, *ca)
    context.minimum_version = _VERSIONS[version_min]
    return context


def load_chain(context: ssl.SSLContext, table: str, cert: Path, key: Path | None) -> None:
    """Give a context its own certificate. Raises ConfigError."""
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{_name(table, 'tls_cert')} {cert} with tls_key {key}: {error}"
        ) from error
    warn_of_readers(cert if key is None else key)


def _no_password() -> str:
    """Instead of asking at the terminal. Raises ValueError."""
    raise ValueError("the key is encrypted")


def load_authority(context: ssl.SSLContext, table: str, name: str, path: Path) -> None:
    """Tell a context whom to trust. Raises ConfigError."""
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise ConfigError(f"{_name(table, name)} {path}: {error}") from error


def _name(table: str, name: str) -> str:
    return table + name if table.endswith("_") else f"{table}.{name}"


def stamps_of(paths: Sequence[Path | None]) -> Stamps:
    """Look at files, which may be missing."""
    return tuple(None if path is None else _stamp(path) for path in paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class FreshContext(Generic[T]):
    """What is made of files, kept for as long as they stay as they are."""

    def __init__(self, paths: Sequence[Path | None], make: Callable[[], T]) -> None:
        """Raises ConfigError: what `make` raises."""
        self._paths = paths
        self._make = make
        self._stamps = stamps_of(paths)
        self._made = make()

    def get(self) -> T:
        """Return it for the next connection: it costs a look at the files."""
        stamps = stamps_of(self._paths)
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._made = self._make()
            except ConfigError as error:
                log.error("tls.not_reloaded reason=%r", str(error))
            else:
                log.info("tls.reloaded file=%s", self._paths[0])
        return self._made
