"""Ask the coordinator of a transactional id or a group, until it says yes or no.

Who coordinates is looked up when first needed and after each answer that says "not me". A request
whose answer is lost is asked again: all requests of transactions may be repeated. Connections are
not those that records travel on, where an answer could stand behind a slow one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from client.pubsub.core.verdicts import Judge, Refused, Verdict, in_words, worst
from client.pubsub.kafka_requests import Answer, KafkaRequest, Versions
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.error_codes import ErrorCode as Code

PAUSE_S: Final = 0.1
MARKERS_PAUSE_S: Final = 0.02
"""The transaction before is still being ended, which takes a few milliseconds."""

TRANSACTION: Final = CoordinationType.TRANSACTION
GROUP: Final = CoordinationType.GROUP

_FEATURES_FROM: Final = Versions(3, 3)
_FEATURE: Final = "transaction.version"
_SECOND_GENERATION: Final = 2
Codes = Callable[[Any], Iterable[int]]
"""Returns the error codes of an answer."""


class NoAnswer(Exception):
    """Nobody said yes or no in time; the text says what stood in the way."""


class Coordinators:
    """The coordinators that one publisher has to do with."""

    def __init__(self, client: AIOKafkaClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._nodes: dict[tuple[CoordinationType, str], int] = {}

    async def ask(
        self,
        who: tuple[CoordinationType, str],
        api: ApiKey,
        fields: dict[str, Any],
        versions: Versions,
        codes: Codes,
        judge: Judge,
    ) -> Answer:
        """Return the answer once all its codes say yes. Raises Refused, NoAnswer."""
        request = KafkaRequest(api, fields, versions)
        trouble = "no coordinator is known"
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s
        while True:
            pause_s = PAUSE_S
            try:
                answer = await self._send(who, request)
                code, verdict = worst(codes(answer.fields), judge)
                if verdict is Verdict.DONE:
                    return answer
                trouble = in_words(code)
                if verdict in (Verdict.ABORT, Verdict.FENCED, Verdict.FATAL):
                    raise Refused(verdict, code, trouble)
                if verdict is Verdict.LOOK_UP:
                    self._nodes.pop(who, None)
                if code == Code.concurrent_transactions:
                    pause_s = MARKERS_PAUSE_S
            except IncompatibleBrokerVersion as error:
                raise Refused(Verdict.FATAL, Code.unsupported_version, str(error)) from error
            except (KafkaError, TimeoutError) as error:
                self._nodes.pop(who, None)
                if (final := getattr(error, "errno", None)) in _FINAL:
                    raise Refused(judge(final), final, in_words(final)) from error
                trouble = str(error) or type(error).__name__
            if loop.time() + pause_s > deadline_s:
                raise NoAnswer(trouble)
            await asyncio.sleep(pause_s)

    async def has_second_generation(self, transactional_id: str) -> bool:
        """Say whether the finalized features of the coordinator have TV2. Raises NoAnswer."""
        try:
            answer = await self.ask(
                (TRANSACTION, transactional_id),
                ApiKey.API_VERSIONS,
                {"client_software_name": "quire", "client_software_version": "1"},
                _FEATURES_FROM,
                lambda fields: [fields.error_code],
                lambda code: Verdict.DONE if code == Code.none else Verdict.FATAL,
            )
        except Refused:
            return False  # a broker without features
        return any(
            feature.name == _FEATURE and feature.max_version_level >= _SECOND_GENERATION
            for feature in answer.fields.finalized_features
        )

    async def _send(self, who: tuple[CoordinationType, str], request: KafkaRequest) -> Answer:
        node = self._nodes.get(who)
        if node is None:
            node = await self._client.coordinator_lookup(*who)
            self._nodes[who] = node
        answer: Answer = await self._client.send(node, request, group=ConnectionGroup.COORDINATION)
        return answer


_FINAL: Final = (
    Code.transactional_id_authorization_failed,
    Code.group_authorization_failed,
    Code.invalid_request,
)
"""Codes of FindCoordinator that no other broker would answer otherwise."""
