"""Plan in ledger mode on the real cluster, or leave it to the brokers where that is allowed.

When the metadata store does not answer, or a segment list makes no sense, `readMode=ledger` fails
and `readMode=auto` reads through the brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from client.errors import ConfigError, LogCorrupt, MetadataError, WireError
from client.spark.ledgers.ledger_access import LedgerAccess
from client.spark.options import Options
from client.spark.plan.ledger_splits import LedgerSplitter, SplitLimits
from client.spark.plan.metadata_address import access as _access
from client.spark.plan.metadata_address import metadata_service_uri
from client.spark.splits import BrokerSplit, OffsetRange, Position, Split, TopicPartition

log = logging.getLogger(__name__)


def plan(ranges: Sequence[OffsetRange], options: Options) -> list[Split]:
    """Return splits that hold every offset of the ranges once, in order.

    Raises ConfigError where ledgers must not be read, MetadataError in mode `ledger`.
    """
    check_allowed(ranges, options)
    splitter = _splitter(_access(options), options)
    try:
        return _access(options).call(splitter.split(ranges), options.fetch_timeout_ms / 1000)
    except (LogCorrupt, MetadataError, WireError, TimeoutError) as error:
        if options.read_mode == "ledger":
            raise MetadataError(
                f"planning with readMode=ledger failed: {str(error) or 'no answer in time'};"
                f" metadataServiceUri is {metadata_service_uri(options)}"
            ) from error
        log.warning("spark.plan_without_ledgers error=%r", error)
    return [
        BrokerSplit(one.topic_id, one.topic, one.partition, -1, one.start, one.end)
        for one in ranges
        if len(one)
    ]


def locate(ends: Sequence[OffsetRange], options: Options) -> dict[TopicPartition, Position]:
    """Return the entry with the last record below each `end`, where a ledger says.

    It is the same one for one offset at any time, for as long as the ledger is there. Only a
    hint: what cannot be found out is left out, without an error.
    """
    access = _access(options)
    splitter = _splitter(access, options)

    async def find() -> list[Position | None]:
        return await asyncio.gather(*(splitter.locate(one) for one in ends))

    try:
        found = access.call(find(), options.fetch_timeout_ms / 1000)
    except (LogCorrupt, MetadataError, WireError, TimeoutError) as error:
        log.warning("spark.no_positions error=%r", error)
        return {}
    return {
        end.at: position for end, position in zip(ends, found, strict=True) if position is not None
    }


def check_allowed(ranges: Sequence[OffsetRange], options: Options) -> None:
    """Raise ConfigError if brokers that are not Quire's were asked to be read around.

    Bookies know no topics: what a broker's ACLs would forbid they cannot refuse. That is why the
    mode is off by default; protocols under which brokers have ACLs are refused by `options.py`.
    """
    nameless = [one.topic for one in ranges if not one.topic_id]
    if nameless:
        raise ConfigError(
            f"readMode={options.read_mode}: the brokers of topic {nameless[0]} report no topic id,"
            " so they are not Quire's; use readMode=broker"
        )


def _splitter(access: LedgerAccess, options: Options) -> LedgerSplitter:
    limits = SplitLimits(
        options.partition_bytes_max, options.partition_records_max, options.partition_count_min
    )
    return LedgerSplitter(access, limits, read_committed=options.read_committed)
