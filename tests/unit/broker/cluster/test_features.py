"""The features that a cluster uses, as brokers come and go, and what clients are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker import app
from broker.app import Broker
from broker.cluster.core import features
from broker.cluster.core.features import (
    TRANSACTION_VERSION,
    FeatureUpdate,
    Finalized,
    UpdateType,
)
from broker.cluster.features import Features
from broker.errors import InvalidUpdateVersion
from broker.front.handlers import api_versions
from broker.transactions.config import TransactionSettings
from client.errors import ConfigError
from client.ids import BrokerId
from client.metadata import paths
from client.wire.kafka.apis import ApiKey
from tests.fakes.bad_nodes import NEWER_FORMAT
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient

LEVEL = {TRANSACTION_VERSION: 2}
DISABLED = TransactionSettings(enabled=False)
ENABLED = TransactionSettings(enabled=True)


def know(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    for module in (features, app, api_versions):
        monkeypatch.setattr(module, "KNOWN", {TRANSACTION_VERSION: level})


@pytest.fixture
async def cloud(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeCloud]:
    know(monkeypatch, 2)
    made = FakeCloud()
    yield made
    await made.close()


async def told(broker: Broker, version: int = 4) -> Any:
    client = await WireClient.connect(broker.port)
    answer = await client.call(
        ApiKey.API_VERSIONS, version, client_software_name="t", client_software_version="1"
    )
    await client.close()
    return answer


async def test_a_feature_is_used_once_every_broker_knows_it(cloud: FakeCloud) -> None:
    one = await cloud.start_broker(1, transactions=DISABLED)
    two = await cloud.start_broker(2, transactions=ENABLED)
    answer = await told(one)
    assert answer.finalized_features_epoch == -1
    assert not answer.finalized_features
    assert [(row.name, row.min_version, row.max_version) for row in answer.supported_features] == [
        (TRANSACTION_VERSION, 0, 2)
    ]
    await cloud.brokers.pop(1).close()
    await until(lambda: two.services.features.finalized == Finalized(0, LEVEL))
    for broker in (two, await cloud.start_broker(3, transactions=ENABLED)):
        await until(lambda broker=broker: broker.services.features.finalized.epoch == 0)
        answer = await told(broker)
        (row,) = answer.finalized_features
        assert (row.name, row.min_version_level, row.max_version_level) == (*LEVEL, 2, 2)
        assert answer.finalized_features_epoch == 0
    assert (await told(two, 0)).api_keys


async def test_it_stays_in_use(cloud: FakeCloud) -> None:
    one = await cloud.start_broker(1, transactions=ENABLED)
    await until(lambda: one.services.features.finalized.epoch == 0)
    two = await cloud.start_broker(2, transactions=DISABLED)
    assert two.services.features.finalized == Finalized(0, LEVEL)
    await until(lambda: 2 in one.cluster.brokers)
    assert one.services.features.finalized == Finalized(0, LEVEL)


async def test_a_release_that_does_not_know_it_does_not_start(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await cloud.start_broker(1, transactions=ENABLED)
    await until(lambda: one.services.features.finalized.epoch == 0)
    know(monkeypatch, 1)
    with pytest.raises(ConfigError, match=r"transaction\.version 2"):
        await cloud.start_broker(2)


async def test_a_server_that_lags_lets_no_such_release_start(
    cloud: FakeCloud,
) -> None:
    one = await cloud.start_broker(1, transactions=ENABLED)
    await until(lambda: one.services.features.finalized.epoch == 0)
    store = cloud.tree.session()
    late = Features(store, one.cluster, BrokerId(2))
    await late.load()
    cloud.tree.freeze(store)
    newer = Finalized(8, {TRANSACTION_VERSION: 3})
    await one.store.set(paths.FEATURES, newer.encode())
    with pytest.raises(ConfigError, match="does not support"):
        await late.load()


async def test_what_an_operator_asks_for_is_held_against_what_is_there_now(
    cloud: FakeCloud,
) -> None:
    """A server that lags shows the level that is asked for, which was lowered since."""
    one = await cloud.start_broker(1, transactions=ENABLED)
    await until(lambda: one.services.features.finalized.epoch == 0)
    higher = FeatureUpdate(TRANSACTION_VERSION, 2, UpdateType.UPGRADE)
    await one.services.features.update([higher], validate_only=False)
    store = cloud.tree.session()
    late = Features(store, one.cluster, BrokerId(2))
    await late.load()
    cloud.tree.freeze(store)
    lower = FeatureUpdate(TRANSACTION_VERSION, 0, UpdateType.SAFE_DOWNGRADE)
    await one.services.features.update([lower], validate_only=False)
    await late.update([higher], validate_only=False)
    await until(lambda: one.services.features.finalized == late.finalized)
    assert late.finalized.levels == LEVEL


async def test_the_epoch_of_an_older_reading_changes_nothing(cloud: FakeCloud) -> None:
    one = await cloud.start_broker(1, transactions=ENABLED)
    await until(lambda: one.services.features.finalized.epoch == 0)
    admin = cloud.tree.session()
    await admin.set(paths.FEATURES, Finalized(7, LEVEL).encode())
    await until(lambda: one.services.features.finalized.epoch == 7)
    await admin.set(paths.FEATURES, Finalized(3, {}).encode())
    await admin.set(paths.FEATURES, b"?")
    await admin.set(paths.FEATURES, Finalized(8, LEVEL).encode())
    await until(lambda: one.services.features.finalized.epoch == 8)


async def test_no_feature_is_published_that_does_not_work_yet() -> None:
    """Who raises the level shows first that every part of it does what it says."""
    assert features.KNOWN[TRANSACTION_VERSION] in (0, 2)


async def asked(broker: Broker, version: int, level: int, kind: int, **more: Any) -> Any:
    """Send UpdateFeatures."""
    client = await WireClient.connect(broker.port)
    row = {"feature": TRANSACTION_VERSION, "max_version_level": level}
    row |= {"upgrade_type": kind} if version else {"allow_downgrade": kind != 1}
    answer = await client.call(
        ApiKey.UPDATE_FEATURES, version, timeout=1_000, feature_updates=[row], **more
    )
    await client.close()
    return answer


@pytest.mark.parametrize("version", range(3))
async def test_an_operator_lowers_and_raises_a_feature(cloud: FakeCloud, version: int) -> None:
    one = await cloud.start_broker(1, transactions=ENABLED)
    two = await cloud.start_broker(2, transactions=ENABLED)
    await until(lambda: one.services.features.finalized.epoch == 0)
    if version:
        tried = await asked(one, version, 0, 2, validate_only=True)
        assert tried.error_code is ErrorCode.none
        assert one.services.features.finalized == Finalized(0, LEVEL)
    lowered = await asked(one, version, 0, 2)
    assert lowered.error_code is ErrorCode.none
    assert version == 2 or [row.feature for row in lowered.results] == [TRANSACTION_VERSION]
    for broker in (one, two):
        await until(lambda broker=broker: broker.services.features.finalized.epoch == 1)
        answer = await told(broker)
        assert (answer.finalized_features_epoch, answer.finalized_features) == (1, ())
    assert (await asked(two, version, 2, 1)).error_code is ErrorCode.none
    assert (await told(two)).finalized_features[0].max_version_level == 2
    refused = await asked(two, version, 1, 1)
    assert refused.error_code is ErrorCode.invalid_update_version
    assert "requires a downgrade" in refused.error_message


async def test_two_operators_at_a_time(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was slower decides again by what the faster one has stored."""
    one = await cloud.start_broker(1, transactions=ENABLED)
    features_ = one.services.features
    await until(lambda: features_.finalized.epoch == 0)
    write = features_._write

    async def overtaken(wanted: Finalized, version: int | None) -> None:
        monkeypatch.setattr(features_, "_write", write)
        chosen = frozenset((TRANSACTION_VERSION,))
        await write(Finalized(7, {TRANSACTION_VERSION: 1}, chosen), version)
        await write(wanted, version)

    monkeypatch.setattr(features_, "_write", overtaken)
    await features_.update(
        [FeatureUpdate(TRANSACTION_VERSION, 0, UpdateType.SAFE_DOWNGRADE)], validate_only=False
    )
    assert features_.finalized.epoch == 8
    assert features_.finalized.levels == {TRANSACTION_VERSION: 0}


async def test_nothing_is_raised_beside_a_broker_that_may_not_support_it(cloud: FakeCloud) -> None:
    """Its registration cannot be read: it lives, and nobody knows what it supports."""
    newer = cloud.tree.session()
    path = paths.broker(BrokerId(7))
    await newer.create(path, NEWER_FORMAT, ephemeral=True, make_parents=True)
    one = await cloud.start_broker(1, transactions=ENABLED)
    await until(lambda: one.cluster.unreadable_brokers == [7])
    features = one.services.features
    with pytest.raises(InvalidUpdateVersion, match="broker 7 supports levels 0 to 0"):
        update = FeatureUpdate(TRANSACTION_VERSION, 2, UpdateType.UPGRADE)
        await features.update([update], validate_only=False)
    assert features.finalized.epoch == -1
    await newer.close()
    await until(lambda: features.finalized == Finalized(0, LEVEL))
