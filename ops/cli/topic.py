"""`quire topic`: create, list, describe and delete topics, on `client.pubsub.TopicAdmin`.

What needs the admin API is in `topic_actions.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from client.errors import QuireError
from client.pubsub.broker_settings import ADMIN_URLS, broker_settings
from client.pubsub.brokers import Brokers
from client.pubsub.errors import TopicExists
from client.pubsub.topics import CLUSTER_DEFAULT, TopicAdmin, TopicDescription
from ops.admin_api import Access, AdminApi
from ops.amounts import count
from ops.cli import topic_actions
from ops.cli.addresses import Found, bootstrap_option
from ops.cli.admin import key_options
from ops.cli.console import fail, json_option, print_json, print_table, run, say
from ops.cli.options import setting_of
from ops.cli.topic_actions import Row, compaction_of, print_compaction


@click.group()
def topic() -> None:
    """Create, list, describe, change and delete topics.

    A topic is a named log of records. It is split into partitions: each keeps its records in
    order and is served by one broker, so more partitions let more publishers and subscribers
    work at the same time.

    \b
    Example:
      quire topic create orders --partitions 3
      quire topic list
    """


@topic.command()
@click.argument("name")
@click.option(
    "--partitions",
    "partition_count",
    type=click.IntRange(min=1),
    metavar="N",
    default=None,
    help="How many partitions. [default: the brokers' setting]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    default=None,
    help="How many bookies store each record. [default: the brokers' setting]",
)
@click.option(
    "--config",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A topic setting under its Kafka name, like retention.ms=3600000. Repeat as needed.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change if the topic exists.")
@json_option
@bootstrap_option
def create(
    name: str,
    partition_count: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    as_json: bool,
    bootstrap_servers: Brokers,
) -> None:
    """Create the topic NAME.

    \b
    Example: records of an hour, in six partitions, two copies of each
      quire topic create clicks --partitions 6 --replication-factor 2 \\
            --config retention.ms=3600000
    """
    configs = dict(setting_of(text) for text in settings)

    async def work() -> None:
        async with TopicAdmin(bootstrap_servers) as topics:
            try:
                await topics.create(
                    name,
                    partition_count=partition_count or CLUSTER_DEFAULT,
                    replication_factor=replication_factor or CLUSTER_DEFAULT,
                    configs=configs,
                )
            except TopicExists:
                if not if_not_exists:
                    raise
            description = await topics.describe(name)
        if as_json:
            print_json(_as_json(description))
        else:
            partitions = count(len(description.partitions), "partition")
            print(f"Topic {name} is ready with {partitions}.")

    run(work())


@topic.command(name="list")
@click.option("--all", "with_internal", is_flag=True, help="Show the cluster's own topics too.")
@json_option
@bootstrap_option
def list_topics(with_internal: bool, as_json: bool, bootstrap_servers: Brokers) -> None:
    """List the topics of the cluster.

    \b
    Example:
      quire topic list
    """

    async def work() -> None:
        async with TopicAdmin(bootstrap_servers) as topics:
            listings = [t for t in await topics.listings() if with_internal or not t.internal]
        if as_json:
            print_json(
                [
                    {"name": t.name, "partitions": t.partition_count, "internal": t.internal}
                    for t in listings
                ]
            )
        elif listings:
            print_table(["TOPIC", "PARTITIONS"], [[t.name, t.partition_count] for t in listings])
        else:
            say("There are no topics yet. Create one with `quire topic create NAME`.")

    run(work())


@topic.command()
@click.argument("name")
@json_option
@key_options
@bootstrap_option
def describe(
    name: str,
    as_json: bool,
    bootstrap_servers: Brokers,
    admin_token: str,
    admin_ca: Path | None,
) -> None:
    """Show the partitions of the topic NAME: leaders, offsets and settings.

    START is the offset of the oldest record that is kept, END the offset that the next record
    will get. For a compacted topic it also shows how clean it is, as `quire topic compaction` does.

    \b
    Example:
      quire topic describe orders
    """

    async def work() -> None:
        async with TopicAdmin(bootstrap_servers) as topics:
            description = await topics.describe(name)
        rows: list[Row] = []
        unknown = ""
        if not description.internal and "compact" in description.configs.get("cleanup.policy", ""):
            try:
                told = await broker_settings(bootstrap_servers, (ADMIN_URLS,))
                urls = tuple(url.strip() for url in told.get(ADMIN_URLS, "").split(",") if url)
                teller = Found("", bootstrap_servers).teller
                access = Access(urls, admin_token, admin_ca, teller=teller)
                async with AdminApi(access) as api:
                    rows = await compaction_of(api, name, len(description.partitions))
            except QuireError as error:
                unknown = str(error)
        if as_json:
            print_json({**_as_json(description), "compaction": rows})
            return
        print_table(
            ["PARTITION", "LEADER", "START", "END", "RECORDS"],
            [
                [p.partition, p.leader, p.log_start_offset, p.log_end_offset, p.record_count]
                for p in description.partitions
            ],
        )
        if description.configs:
            print()
            print_table(["SETTING", "VALUE"], sorted(description.configs.items()))
        if rows:
            print()
            print_compaction(name, rows)
        if unknown:
            say(f"How far it is compacted is unknown: {unknown}")

    run(work())


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
def delete(names: tuple[str, ...], yes: bool, bootstrap_servers: Brokers) -> None:
    """Delete topics with all their records, for good.

    \b
    Example:
      quire topic delete orders
    """
    if not yes:
        if not sys.stdin.isatty():
            fail("Deleting needs a confirmation: add --yes.")
        click.confirm(
            f"Delete {', '.join(names)} with all records?", abort=True, err=True, default=False
        )

    async def work() -> None:
        async with TopicAdmin(bootstrap_servers) as topics:
            for name in names:
                await topics.delete(name)
                print(f"Topic {name} is deleted.")

    run(work())


for _command in topic_actions.COMMANDS:
    topic.add_command(_command)


def _as_json(description: TopicDescription) -> dict[str, object]:
    return {
        "name": description.name,
        "internal": description.internal,
        "partitions": [
            {
                "partition": p.partition,
                "leader": p.leader,
                "replicas": list(p.replicas),
                "log_start_offset": p.log_start_offset,
                "log_end_offset": p.log_end_offset,
            }
            for p in description.partitions
        ],
        "configs": dict(description.configs),
    }
