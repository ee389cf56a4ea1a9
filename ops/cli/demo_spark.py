"""`quire demo spark`: the Spark demonstration on the command line."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

import click

from client.errors import QuireError
from ops.cli.console import EXIT_FAILED, fail, json_option, print_json, run
from ops.demo import sources
from ops.demo.cluster import OwnCluster
from ops.demo.spark_display import SparkDisplay, SparkReport


@click.command()
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Publish the Python files below this folder. [default: the standard library]",
)
@json_option
def spark(source: Path | None, as_json: bool) -> None:
    """Count source lines with Spark while they are published.

    Starts a cluster of its own and a local Spark, publishes every line of every source file of
    Python's standard library, and shows a table of the most used imports and names, as Spark's
    streaming query counts them. At the end every count is compared with that of a plain Python
    loop over the files.

    Needs `pip install pyspark pyarrow numpy` and Java 17. The exit code is 0 only if every count
    is right.

    \b
    Example:
      quire demo spark
    """
    needed = ("pyspark", "pyarrow", "numpy")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        fail(f"Spark needs {' and '.join(missing)}: run `pip install pyspark pyarrow numpy`.")
    from ops.demo.spark_story import SparkStory

    folder = source or sources.standard_library()
    files = sources.read_files(folder)
    if not files:
        fail(f"There are no Python files below {folder}.")
    display = SparkDisplay(sys.stderr if as_json else sys.stdout)
    reports: list[SparkReport] = []

    async def work() -> None:
        scratch = Path(tempfile.mkdtemp(prefix="quire-demo-"))
        display.say("starting a cluster: ZooKeeper, bookies and brokers")
        try:
            async with OwnCluster(scratch) as cluster:
                story = SparkStory(files, display, scratch)
                reports.append(await story.run(cluster.bootstrap_servers))
        except QuireError:
            display.say(f"the logs are kept in {scratch}")
            raise
        display.report(reports[0])
        shutil.rmtree(scratch)
        if as_json:
            print_json({**reports[0]._asdict(), "good": reports[0].good})

    run(work())
    if not reports[0].good:
        sys.exit(EXIT_FAILED)
