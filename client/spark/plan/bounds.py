"""Find the partitions that a query reads, and where it begins and ends in each.

`subscribe`, `subscribePattern` and `assign` select the partitions; words, offsets and timestamps
become numbers. The rules are those of Spark's Kafka source: a timestamp for all partitions wins
over timestamps for each, which win over offsets; an option that names partitions must name exactly
those that are read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping

from client.errors import ConfigError
from client.spark.brokers.kafka_cluster import EARLIEST, LATEST, NO_OFFSET, KafkaCluster, TopicFacts
from client.spark.errors import TopicMissing
from client.spark.option_values import Bounds
from client.spark.options import Options
from client.spark.splits import TopicPartition

Times = int | Mapping[str, Mapping[int, int]]
Topics = Mapping[str, TopicFacts]


def select_topics(cluster: KafkaCluster, options: Options) -> dict[str, TopicFacts]:
    """Return the topics that are asked for and exist, sorted; for `assign`, only its partitions.

    A topic that was just created may not be known everywhere: one that is missing is asked for
    again as often as `fetchOffset.numRetries` says.
    """
    if options.subscribe_pattern:
        pattern = re.compile(options.subscribe_pattern)
        found = cluster.topics(None)
        return {
            name: found[name]
            for name in sorted(found)
            if pattern.fullmatch(name) and not found[name].internal
        }
    names = sorted(options.assign or options.subscribe)
    found = cluster.topics(names)
    for _ in range(options.retries):
        if len(found) == len(names):
            break
        time.sleep(options.retry_ms / 1000)
        found = cluster.topics(names)
    if options.assign:
        found = {name: _assigned(found[name], options.assign[name]) for name in found}
    return {name: found[name] for name in sorted(found)}


def require_topics(topics: Topics, options: Options) -> None:
    """Raise TopicMissing unless everything that options name exists."""
    for name in sorted(options.assign or options.subscribe):
        option = "assign" if options.assign else "subscribe"
        if name not in topics:
            raise TopicMissing(f"there is no topic {name}: create it, or correct option {option}")
        for partition in options.assign.get(name, ()):
            if partition not in topics[name].leaders:
                raise TopicMissing(f"topic {name} has no partition {partition}: see option assign")
    if options.subscribe_pattern and not topics:
        raise TopicMissing(f"no topic matches subscribePattern {options.subscribe_pattern!r}")


def partitions_of(topics: Topics) -> list[TopicPartition]:
    """Return all partitions, sorted."""
    return [
        TopicPartition(name, index) for name in sorted(topics) for index in topics[name].leaders
    ]


def ids_of(topics: Topics) -> dict[str, str]:
    """Return topic ids by name; brokers that know none leave them out."""
    return {name: facts.topic_id for name, facts in topics.items() if facts.topic_id}


def starting(
    cluster: KafkaCluster, options: Options, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where reading begins. Raises ConfigError naming the option that does not fit."""
    asked = list(partitions)
    times = options.starting_time
    if times is None:
        return _numbers(cluster, options, "startingOffsets", options.starting, asked)
    found = _since(cluster, options, "starting", times, asked)
    late = [at for at in asked if found.get(at) == NO_OFFSET]
    if late and not options.latest_if_no_time:
        name = "startingTimestamp" if isinstance(times, int) else "startingOffsetsByTimestamp"
        time_ms = times if isinstance(times, int) else times[late[0].topic][late[0].partition]
        raise ConfigError(
            f"option {name}: {late[0]} has no record at or after {time_ms}; with"
            " startingOffsetsByTimestampStrategy=latest reading begins at its end"
        )
    return {**found, **_all(cluster, options, late, LATEST)}


def ending(
    cluster: KafkaCluster, options: Options, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where a batch ends, exclusive. Raises ConfigError."""
    asked = list(partitions)
    times = options.ending_time
    if times is None:
        return _numbers(cluster, options, "endingOffsets", options.ending, asked)
    found = _since(cluster, options, "ending", times, asked)
    late = [at for at in asked if found.get(at) == NO_OFFSET]
    return {**found, **_all(cluster, options, late, LATEST)}


def _assigned(facts: TopicFacts, partitions: Iterable[int]) -> TopicFacts:
    return facts._replace(
        leaders={p: facts.leaders[p] for p in sorted(partitions) if p in facts.leaders}
    )


def _all(
    cluster: KafkaCluster, options: Options, partitions: Iterable[TopicPartition], which: int
) -> dict[TopicPartition, int]:
    asked = dict.fromkeys(partitions, which)
    return cluster.offsets(asked, read_committed=options.read_committed)


def _numbers(
    cluster: KafkaCluster,
    options: Options,
    name: str,
    bounds: Bounds,
    asked: list[TopicPartition],
) -> dict[TopicPartition, int]:
    if isinstance(bounds, str):
        return _all(cluster, options, asked, EARLIEST if bounds == "earliest" else LATEST)
    given = _by_partition(name, bounds, asked)
    words = {at: number for at, number in given.items() if number < 0}
    found = cluster.offsets(words, read_committed=options.read_committed)
    return {at: found.get(at, number) for at, number in given.items()}


def _since(
    cluster: KafkaCluster, options: Options, which: str, times: Times, asked: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offset that is not older, or NO_OFFSET, for a time or one for each."""
    if isinstance(times, int):
        wanted = dict.fromkeys(asked, times)
    else:
        wanted = _by_partition(f"{which}OffsetsByTimestamp", times, asked)
    return cluster.offsets(wanted, read_committed=options.read_committed)


def _by_partition(
    name: str, tree: Mapping[str, Mapping[int, int]], asked: list[TopicPartition]
) -> dict[TopicPartition, int]:
    given = {TopicPartition(t, p): number for t, row in tree.items() for p, number in row.items()}
    missing = sorted(set(asked) - set(given))
    unknown = sorted(set(given) - set(asked))
    if missing or unknown:
        wrong = [f"it lacks {', '.join(map(str, missing))}"] if missing else []
        wrong += [f"there is no {', '.join(map(str, unknown))}"] if unknown else []
        raise ConfigError(
            f"option {name} must name exactly the partitions that are read: {'; '.join(wrong)}"
            ' (write -2 for "earliest", -1 for "latest")'
        )
    return given
