"""Where the settings of clients of a secured local cluster are."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class ClientFiles(Protocol):
    """Names of files; nobody else can read those with passwords."""

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        ...

    @property
    def client_config(self) -> Path:
        """User admin's properties, by librdkafka's names."""
        ...

    @property
    def java_config(self) -> Path:
        """The same, by the names of Java's client."""
        ...

    @property
    def cluster_config(self) -> Path:
        """How commands reach bookies and ZooKeeper."""
        ...

    @property
    def admin_token_file(self) -> Path:
        """The token of administrators; beside it, with suffix .tokens, those of other roles."""
        ...
