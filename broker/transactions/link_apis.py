"""The kinds of requests about transactions that travel between brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.link.link_api import LinkApi
from broker.partition.core.transactions.verification import VerificationRequest
from broker.transactions.core import link_messages as messages
from broker.transactions.core.link_messages import MarkersAnswer, MarkersRequest, Verdict

MARKERS: Final[LinkApi[MarkersRequest, MarkersAnswer]] = LinkApi(
    kind=1,
    name="markers",
    encode_request=messages.encode_markers,
    decode_request=messages.decode_markers,
    encode_answer=messages.encode_outcomes,
    decode_answer=messages.decode_outcomes,
)

QUESTIONS: Final[LinkApi[Sequence[VerificationRequest], Sequence[Verdict]]] = LinkApi(
    kind=2,
    name="questions",
    encode_request=messages.encode_questions,
    decode_request=messages.decode_questions,
    encode_answer=messages.encode_verdicts,
    decode_answer=messages.decode_verdicts,
)
