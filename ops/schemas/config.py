"""Settings of a schema registry."""

from __future__ import annotations

from dataclasses import dataclass

from client.config import check_ranges, setting
from client.errors import ConfigError
from client.security.admin_access import AdminAccess, check_admin_access
from ops.schemas.core.registry import HELD_BYTES_MAX
from ops.schemas.core.schema import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasConfig(AdminAccess):
    """Settings of a registry."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(
        8081, "Port of the REST API; 0 takes a free one.", at_least=0, at_most=65535
    )
    topic: str = setting("_schemas", "Compacted topic with one partition that holds all schemas.")
    replication_factor: int = setting(
        -1, "Of the topic if it has to be created; -1 is the brokers' default.", at_least=-1
    )
    compatibility: str = setting(
        "BACKWARD", "Level of subjects for which none is set, until one is set for all."
    )
    schema_bytes_max: int = setting(
        1 << 20, "Largest schema that is accepted.", at_least=1 << 10, at_most=8 << 20
    )
    held_bytes_max: int = setting(
        HELD_BYTES_MAX,
        "Memory that all schemas of the topic may take, deleted ones too, in this process: beyond"
        " that, no more are accepted. What the topic already holds is always read.",
        at_least=1 << 20,
    )
    refresh_ms: int = setting(
        500, "How long it takes until lists show what other registries wrote.", at_least=50
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.compatibility not in Level.__members__:
            known = ", ".join(Level.__members__)
            raise ConfigError(f"compatibility is one of {known}, not {self.compatibility!r}")
        check_admin_access(self)

    @property
    def level(self) -> Level:
        """The level of subjects for which none is set."""
        return Level(self.compatibility)
