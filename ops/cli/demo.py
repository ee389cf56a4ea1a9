"""`quire demo`: the demonstration on the command line."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import click

from client.errors import QuireError
from ops.cli.console import EXIT_FAILED, json_option, print_json, run
from ops.cli.demo_spark import spark
from ops.demo import sources
from ops.demo.cluster import BOOKIE_COUNT, BROKER_COUNT, OwnCluster
from ops.demo.display import Display
from ops.demo.report import Report
from ops.demo.story import DemoError, Story


@click.group(invoke_without_command=True)
@click.pass_context
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Publish the Python files below this folder. [default: the standard library]",
)
@json_option
def demo(context: click.Context, source: Path | None, as_json: bool) -> None:
    """Show that nothing is lost, in about a minute.

    Starts a cluster of its own with three bookies and two brokers, publishes every line of every
    source file of Python's standard library, and lets two subscribers of one group read them. In
    the middle it kills one bookie and the broker that leads most partitions, with kill -9. Then
    it counts: what was lost, duplicated or out of order, how long service was interrupted, and
    whether the files can be put together again from the topic, byte for byte.

    The exit code is 0 only if nothing was lost, duplicated, reordered or changed.

    \b
    Example:
      quire demo
    """
    if context.invoked_subcommand is not None:
        if source is not None or as_json:
            raise click.UsageError(f"options come after `{context.invoked_subcommand}`")
        return
    folder = source or sources.standard_library()
    display = Display(sys.stderr if as_json else sys.stdout)
    reports: list[Report] = []

    async def work() -> None:
        scratch = Path(tempfile.mkdtemp(prefix="quire-demo-"))
        try:
            reports.append(await _tell(folder, display, scratch))
        except QuireError:
            display.say(f"the logs are kept in {scratch}")
            raise
        display.report(reports[0])
        if reports[0].verdict.good:
            shutil.rmtree(scratch)
        else:
            display.say(f"the logs and all data are kept in {scratch}")
        if as_json:
            print_json(reports[0].as_json())

    run(work())
    if not reports[0].verdict.good:
        sys.exit(EXIT_FAILED)


demo.add_command(spark)


async def _tell(folder: Path, display: Display, scratch: Path) -> Report:
    started_s = asyncio.get_running_loop().time()
    files = sources.read_files(folder)
    if not files:
        raise DemoError(f"there are no Python files below {folder}")
    display.say(f"starting a cluster: ZooKeeper, {BOOKIE_COUNT} bookies, {BROKER_COUNT} brokers")
    async with OwnCluster(scratch) as cluster:
        display.say(f"the cluster serves at {cluster.bootstrap_servers}")
        story = Story(files, f"{folder}", display, folder=scratch, started_s=started_s)
        report = await story.run(cluster)
        display.say("stopping the cluster")
    return report
