"""ListTransactions (66), versions 0-2: the transactional ids that this broker coordinates.

Behaviour: tools ask every broker and put the answers together, so the whole answer is an error
while any coordinator here is still loading. Unknown names of states are returned as such. Versions
1+ filter by age: transactions that are open for longer, and every id that has none. Version 2
filters by a regular expression that the whole id has to match; its time is linear in the id.

Deviations from Kafka: an expression that is very large is refused as an invalid one.

Source: KIP-1152 on the expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError, InvalidRegularExpression, NotCoordinator
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.security.core.linear_pattern import LinearPattern
from broker.security.rights import DESCRIBE_TRANSACTIONAL_ID
from broker.transactions.core.transaction import (
    STATE_NAMES,
    TransactionMetadata,
    TransactionState,
)
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.LIST_TRANSACTIONS
VERSIONS: Final = (0, 2)
NEEDS: Final = (DESCRIBE_TRANSACTIONAL_ID,)

_STATES: Final[Mapping[str, TransactionState]] = {
    name: state for state, name in STATE_NAMES.items()
}


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """List the ids that pass the filters."""
    names = list(dict.fromkeys(request.state_filters))
    states = {_STATES[name] for name in names if name in _STATES}
    producer_ids = set(request.producer_id_filters)
    now_ms = services.clock.now_ms()
    older_ms = field(request, "duration_filter", -1)
    code = int(Code.none)
    try:
        pattern = _pattern(request)
    except InvalidRegularExpression as error:
        return _answer(code_of(error), names, [])
    pace = services.turns.pace()
    found = []
    for coordinator in services.transactions.coordinators():
        try:
            view = coordinator.view()
        except NotCoordinator:
            continue  # whoever coordinates them now lists them
        except BrokerError as error:
            code = code_of(error)
            break
        for transactional_id in view.ids():
            await pace.item()
            if pattern is not None and not pattern.matches(transactional_id):
                continue
            if not services.rights.may(call.peer, DESCRIBE_TRANSACTIONAL_ID, transactional_id):
                continue
            stored = view.describe(transactional_id)
            if stored is None or (names and stored.state not in states):
                continue
            if producer_ids and stored.producer_id not in producer_ids:
                continue
            if _is_older(stored, now_ms, older_ms):
                found.append(
                    {
                        "transactional_id": transactional_id,
                        "producer_id": stored.producer_id,
                        "transaction_state": STATE_NAMES[stored.state],
                    }
                )
    return _answer(code, names, found if code == Code.none else [])


def _answer(code: int, names: list[str], found: list[dict[str, Any]]) -> Mapping[str, Any]:
    return {
        "throttle_time": 0,
        "error_code": code,
        "unknown_state_filters": [name for name in names if name not in _STATES],
        "transaction_states": found,
    }


def _pattern(request: Any) -> LinearPattern | None:
    text = field(request, "transactional_id_pattern", None)
    return LinearPattern(text) if text else None


def _is_older(stored: TransactionMetadata, now_ms: int, than_ms: int) -> bool:
    """Say whether the last transaction began this long ago; none at all: in 1970, as in Kafka."""
    return than_ms < 0 or now_ms - max(0, stored.start_ms) > than_ms
