"""kill -9 of all processes at once under load: every acknowledged record is there, in order, at
its offset, once.

Producers are processes of two independent code bases, idempotent, and note each acknowledgement in
a file. Some die together with the cluster, the others live through the crash, retry, and go on; the
cluster is killed twice, so that what one recovery made is recovered again. The log is read
back by librdkafka at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from client.pubsub import TopicAdmin
from tests.integration.cluster import LocalCluster
from tests.integration.numbered import ProducerProcess, check, read_log

pytestmark = pytest.mark.smoke

TOPIC = "crash"
PARTITION_COUNT = 4
ROUND_RECORDS = 1_500
"""How many acknowledgements each producer gets between two crashes, at least."""


@pytest.mark.timeout(300)
async def test_acknowledged_records_survive_kill_9_of_everything(
    start_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    cluster = start_cluster()
    async with TopicAdmin(cluster.bootstrap_servers) as topics:
        await topics.create(TOPIC, partition_count=PARTITION_COUNT)

    def producer(kind: str, number: int) -> ProducerProcess:
        name = f"{kind}-{number}"
        return ProducerProcess(kind, name, cluster.bootstrap_servers, TOPIC, tmp_path)

    lasting = [producer("librdkafka", 0), producer("quire", 0)]
    everybody = list(lasting)
    try:
        for crash in (1, 2):
            doomed = [producer("librdkafka", crash), producer("quire", crash)]
            everybody += doomed
            for each in [*lasting, *doomed]:
                each.wait_for_more(ROUND_RECORDS)
            for each in doomed:
                each.process.kill()
            cluster.kill_all()
            cluster.start()
        for each in lasting:
            each.wait_for_more(ROUND_RECORDS)
            each.finish()
        check(everybody, read_log(cluster.bootstrap_servers, TOPIC, PARTITION_COUNT))
    finally:
        for each in everybody:
            each.process.kill()
            each.process.wait()
