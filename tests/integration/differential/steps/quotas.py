"""Quotas of users, client ids and addresses: set, found by filters, taken away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.conversation import Fields, Seen, Step
from tests.integration.differential.steps.fields import always


def _limit(entity: Sequence[tuple[str, str | None]], *ops: tuple[str, float, bool]) -> Fields:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value, "remove": gone} for key, value, gone in ops],
    }


def _limits(*entries: Fields, validate_only: bool = False) -> Callable[[Seen, int], Fields]:
    return always(entries=list(entries), validate_only=validate_only)


def _asked(*parts: tuple[str, int, str | None], strict: bool = False) -> Any:
    rows = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in parts]
    return always(components=rows, strict=strict)


_RATE = ("producer_byte_rate", 1e9, False)
A, D = ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS
LIMITING: Sequence[Step] = (
    Step("limits that make sense", A, _limits(
        _limit([("user", "anna")], _RATE, ("request_percentage", 50.5, False)),
        _limit([("user", "anna"), ("client-id", None)], ("consumer_byte_rate", 1e9, False)),
        _limit([("client-id", "app")], ("controller_mutation_rate", 1e6, False)),
        _limit([("ip", "10.0.0.1")], ("connection_creation_rate", 1e6, False)))),
    Step("limits only tried", A, _limits(_limit([("user", "bert")], _RATE), validate_only=True)),
    Step("limits that do not exist", A, _limits(
        _limit([("user", "x")], ("no_such", 1.0, False)),
        _limit([("user", "y")], ("connection_creation_rate", 1.0, False)),
        _limit([("ip", "10.0.0.2")], _RATE))),
    Step("limits of nothing or less", A, _limits(
        _limit([("user", "x")], ("producer_byte_rate", 0.0, False)),
        _limit([("user", "y")], ("producer_byte_rate", -1.0, False)),
        _limit([("user", "z")], ("producer_byte_rate", 1.5, False)))),
    Step("entities that make no sense", A, _limits(
        _limit([], _RATE), _limit([("group", "g")], _RATE),
        _limit([("ip", "10.0.0.1"), ("user", "x")], _RATE))),
    Step("a limit that is not there goes", A, _limits(
        _limit([("user", "nobody")], ("producer_byte_rate", 0.0, True)))),
    Step("all limits", D, _asked(), settle=lambda answer: len(answer.entries or ()) == 4),
    Step("limits of a user", D, _asked(("user", 0, "anna"))),
    Step("limits of a user alone", D, _asked(("user", 0, "anna"), strict=True)),
    Step("limits of any user", D, _asked(("user", 2, None))),
    Step("limits of the default client id", D, _asked(("client-id", 1, None))),
    Step("limits of both", D, _asked(("client-id", 2, None), ("user", 2, None), strict=True)),
    Step("limits of addresses", D, _asked(("ip", 2, None))),
    Step("filters that make no sense", D, _asked(("user", 2, None), ("ip", 2, None))),
    Step("a type twice", D, _asked(("user", 2, None), ("user", 2, None))),
    Step("an unknown type", D, _asked(("group", 2, None))),
    Step("an unknown match", D, _asked(("user", 9, None))),
    Step("limits go", A, _limits(
        _limit([("user", "anna")], ("producer_byte_rate", 0.0, True),
               ("request_percentage", 0.0, True)),
        _limit([("user", "anna"), ("client-id", None)], ("consumer_byte_rate", 0.0, True)),
        _limit([("client-id", "app")], ("controller_mutation_rate", 0.0, True)),
        _limit([("ip", "10.0.0.1")], ("connection_creation_rate", 0.0, True))), (1,)),
)  # fmt: skip
