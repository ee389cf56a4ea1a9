"""Settings of topics and brokers: described, replaced, changed one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.conversation import Fields, Seen, Step
from tests.integration.differential.steps.fields import always

DC, AC, IC = ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS
TOPIC, BROKER, CLIENT_METRICS, GROUP_RESOURCE = 2, 4, 16, 32

_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def described(
    kind: int, name: str, keys: list[str] | None = None, *, synonyms: bool = False
) -> Callable[[Seen, int], Fields]:
    return always(
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        include_synonyms=synonyms, include_documentation=True,
    )  # fmt: skip


def altered(
    kind: int, name: str, *rows: tuple[str, str | None, int], validate_only: bool = False
) -> Callable[[Seen, int], Fields]:
    configs = [{"name": key, "value": value, "config_operation": how} for key, value, how in rows]
    return always(
        resources=[{"resource_type": kind, "resource_name": name, "configs": configs}],
        validate_only=validate_only,
    )


SETTINGS: Sequence[Step] = (
    Step("a topic", DC, described(TOPIC, "one")),
    Step("some of it", DC, described(TOPIC, "compacted", ["cleanup.policy", "no.such"])),
    Step("an unknown topic", DC, described(TOPIC, "unknown")),
    Step("a bad name", DC, described(TOPIC, "a b")),
    Step("another broker", DC, described(BROKER, "77")),
    Step("no number", DC, described(BROKER, "x")),
    Step("an unknown kind", DC, described(99, "x")),
    Step("set", IC, altered(TOPIC, "one", ("retention.ms", "77", 0))),
    Step("set what is unknown", IC, altered(TOPIC, "one", ("no.such", "77", 0))),
    Step("set badly", IC, altered(TOPIC, "one", ("retention.ms", "soon", 0))),
    Step("set nothing", IC, altered(TOPIC, "one", ("retention.ms", None, 0))),
    Step("twice", IC, altered(TOPIC, "one", ("retention.ms", "1", 0), ("retention.ms", "2", 0))),
    Step("no list", IC, altered(TOPIC, "one", ("retention.ms", "1", 2))),
    Step("no operation", IC, altered(TOPIC, "one", ("retention.ms", "1", 9))),
    Step("of an unknown topic", IC, altered(TOPIC, "unknown", ("retention.ms", "1", 0))),
    Step("of an unknown kind", IC, altered(99, "one", ("retention.ms", "1", 0))),
    Step("a list", IC, altered(TOPIC, "t", ("cleanup.policy", "compact", 2))),
    Step("a list again", IC, altered(TOPIC, "t", ("cleanup.policy", "compact", 3))),
    Step("reset", IC, altered(TOPIC, "one", ("retention.ms", None, 1))),
    Step("only tried", IC, altered(TOPIC, "one", ("retention.ms", "5", 0), validate_only=True)),
    Step("what it is then", DC, described(TOPIC, "one", ["retention.ms"])),
    Step("replace", AC, altered(TOPIC, "one", ("segment.bytes", "2000000", 0))),
    Step("replace badly", AC, altered(TOPIC, "one", ("segment.bytes", "x", 0))),
    Step("of an unknown topic", AC, altered(TOPIC, "unknown", ("segment.bytes", "2000000", 0))),
    Step("what it is after that", DC, described(TOPIC, "one", ["segment.bytes"])),
    Step("a codec", IC, altered(TOPIC, "one", ("compression.type", "zstd", 0))),
    Step("no codec", IC, altered(TOPIC, "one", ("compression.type", "none", 0))),
    Step("a level", IC, altered(TOPIC, "one", ("compression.gzip.level", "9", 0))),
    Step("no level", IC, altered(TOPIC, "one", ("compression.gzip.level", "0", 0))),
    Step(
        "what they are then",
        DC,
        described(TOPIC, "one", ["compression.type", "compression.gzip.level"]),
    ),
    Step(
        "back",
        IC,
        altered(TOPIC, "one", ("compression.type", None, 1), ("compression.gzip.level", None, 1)),
    ),
    Step("a group", DC, described(GROUP_RESOURCE, "settings", [_SESSION, _HEARTBEAT])),
    Step("no group", DC, described(GROUP_RESOURCE, "")),
    Step("a session", IC, altered(GROUP_RESOURCE, "settings", (_SESSION, "60000", 0))),
    Step("too long", IC, altered(GROUP_RESOURCE, "settings", (_SESSION, "60001", 0))),
    Step("too short", IC, altered(GROUP_RESOURCE, "settings", (_HEARTBEAT, "4999", 0))),
    Step("unknown", IC, altered(GROUP_RESOURCE, "settings", ("no.such", "1", 0))),
    Step("of no group", IC, altered(GROUP_RESOURCE, "", (_SESSION, "60000", 0))),
    Step(
        "one of share groups",
        IC,
        altered(GROUP_RESOURCE, "settings", ("share.isolation.level", "read_committed", 0)),
    ),
    Step(
        "what it is",
        DC,
        described(GROUP_RESOURCE, "settings", [_SESSION, _HEARTBEAT, "share.isolation.level"]),
    ),
    Step("others instead", AC, altered(GROUP_RESOURCE, "settings", (_HEARTBEAT, "6000", 0))),
    Step("what it is at last", DC, described(GROUP_RESOURCE, "settings", [_SESSION, _HEARTBEAT])),
    Step("none", AC, altered(GROUP_RESOURCE, "settings")),
)
