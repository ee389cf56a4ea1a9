"""Which versions are told of a fence in the word they know."""

from __future__ import annotations

import pytest

from broker.errors import ConcurrentTransactions, InvalidProducerEpoch, ProducerFenced
from broker.front.transaction_codes import for_version
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey


@pytest.mark.parametrize(
    ("api", "first"),
    [
        (ApiKey.INIT_PRODUCER_ID, 4),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 2),
        (ApiKey.ADD_OFFSETS_TO_TXN, 2),
        (ApiKey.END_TXN, 2),
    ],
)
def test_a_fence_has_another_name_in_old_versions(api: ApiKey, first: int) -> None:
    fenced = ProducerFenced("newer")
    busy = ConcurrentTransactions("busy")
    for version in range(6):
        answer = for_version(fenced, api, version, ProducerId(3))
        assert (answer is fenced) is (version >= first)
        assert answer is fenced or isinstance(answer, InvalidProducerEpoch)
        assert "newer" in str(answer)
        assert for_version(busy, api, version, ProducerId(3)) is busy
