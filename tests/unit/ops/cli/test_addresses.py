"""Which address a command uses: its own option, the named cluster, the environment, the default."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from client.pubsub.brokers import Brokers
from ops.admin_api import ADMIN_URL, Access
from ops.cli import addresses
from ops.cli.addresses import bootstrap_option, cluster_option, use
from ops.cli.admin import admin_options
from ops.cli.store import zookeeper_option

FILE = """
[prod]
bootstrap_server = "prod:9092"
admin_token = "s3cret"
admin_ca = "/etc/prod.pem"

[odd]
bootstrap_server = "odd:9092"
admin = "http://odd:1"

[zk]
zookeeper = "only:2181"
"""


OPTIONS: dict[str, Path | None] = {}


@click.group()
@cluster_option
@click.pass_context
def root(ctx: click.Context, cluster_name: str | None) -> None:
    use(ctx, cluster_name, OPTIONS.get("client_config"))


@root.command()
@bootstrap_option
def kafka(bootstrap_servers: Brokers) -> None:
    print(bootstrap_servers.bootstrap_servers)


@root.command()
@admin_options
def admin(access: Access) -> None:
    print(",".join(access.urls), access.token, access.authority)


@root.command()
@zookeeper_option
def zookeeper(hosts: str) -> None:
    print(hosts)


@root.command()
@zookeeper_option
@admin_options
def both(hosts: str, access: Access) -> None:
    print(hosts, ",".join(access.urls))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Brokers that answer; the addresses at which they were asked."""
    found: list[str] = []

    async def answer(brokers: Brokers, names: Sequence[str] | None = None) -> Mapping[str, str]:
        servers = brokers.bootstrap_servers
        found.append(servers)
        host = servers.partition(":")[0]
        if host == "kafka":
            return {"zookeeper.connect": ""}
        return {"quire.admin.urls": f"http://{host}:1", "zookeeper.connect": f"{host}:2"}

    monkeypatch.setattr(addresses, "broker_settings", answer)
    addresses._ask.cache_clear()
    return found


def run(tmp_path: Path, line: str, **environ: str) -> Result:
    file = tmp_path / "clusters.toml"
    file.write_text(FILE)
    return CliRunner(env={"QUIRE_CLUSTERS_FILE": str(file), **environ}).invoke(root, line.split())


@pytest.mark.parametrize(
    ("line", "environ", "printed"),
    [
        ("kafka", {}, "localhost:9092"),
        ("kafka", {"QUIRE_BOOTSTRAP": "env:9092"}, "env:9092"),
        ("--cluster prod kafka", {"QUIRE_BOOTSTRAP": "env:9092"}, "prod:9092"),
        ("kafka", {"QUIRE_CLUSTER": "prod"}, "prod:9092"),
        ("--cluster prod kafka -b typed:9092", {}, "typed:9092"),
        ("admin", {}, f"{ADMIN_URL}  None"),
        ("admin", {"QUIRE_BOOTSTRAP": "env:9092"}, "http://env:1  None"),
        ("admin", {"QUIRE_BOOTSTRAP": "env:9092", "QUIRE_ADMIN": "http://e"}, "http://e  None"),
        ("admin -b typed:9092", {"QUIRE_ADMIN": "http://e"}, "http://typed:1  None"),
        ("admin -b typed:9092 --admin http://t", {}, "http://t  None"),
        ("--cluster prod admin", {"QUIRE_ADMIN": "http://e"}, "http://prod:1 s3cret /etc/prod.pem"),
        ("--cluster prod admin --admin-token mine", {}, "http://prod:1 mine /etc/prod.pem"),
        ("--cluster odd admin", {}, "http://odd:1  None"),
        ("zookeeper", {}, "localhost:2181"),
        ("zookeeper", {"QUIRE_ZOOKEEPER": "env:2181"}, "env:2181"),
        ("zookeeper -b typed:9092", {"QUIRE_ZOOKEEPER": "env:2181"}, "typed:2"),
        ("--cluster prod zookeeper", {"QUIRE_ZOOKEEPER": "env:2181"}, "prod:2"),
        ("--cluster zk zookeeper", {}, "only:2181"),
        ("both -b typed:9092", {}, "typed:2 http://typed:1"),
    ],
)
def test_where_an_address_comes_from(
    tmp_path: Path, asked: list[str], line: str, environ: dict[str, str], printed: str
) -> None:
    done = run(tmp_path, line, **environ)
    assert (done.exit_code, done.stdout.strip()) == (0, printed)
    assert len(asked) <= 1, "brokers are asked once for all"


def test_a_token_that_others_can_read_is_warned_of(tmp_path: Path, asked: list[str]) -> None:
    typed = run(tmp_path, "--cluster prod admin --admin-token mine")
    assert "set QUIRE_ADMIN_TOKEN" in typed.stderr and "mine" not in typed.stderr
    assert run(tmp_path, "--cluster prod admin", QUIRE_ADMIN_TOKEN="mine").stderr == ""


def test_brokers_that_cannot_tell_are_no_dead_end(tmp_path: Path, asked: list[str]) -> None:
    done = run(tmp_path, "admin -b kafka:9092")
    assert str(done.exception) == (
        "the brokers at kafka:9092 know of no admin API: give it with --admin URL"
    )
    done = run(tmp_path, "zookeeper -b kafka:9092")
    assert "give it with --zookeeper HOST:PORT" in str(done.exception)
    done = run(tmp_path, "--cluster zk admin")
    assert "neither admin nor bootstrap_server" in str(done.exception)


def test_reading_a_command_line_asks_nobody(asked: list[str]) -> None:
    admin.make_context("admin", ["-b", "typed:9092"])
    assert asked == []


TLS = "security.protocol=SSL\n"
ANY_NAME = "security.protocol=SSL\nssl.endpoint.identification.algorithm=none\n"


@pytest.mark.parametrize(
    ("line", "properties", "printed"),
    [
        ("admin -b typed:9092,[::1]:1", "", "typed,::1 False"),
        ("admin -b typed:9092", TLS, "typed True"),
        ("admin -b typed:9092", ANY_NAME, "typed False"),
        ("--cluster prod admin", "", "prod False"),
        ("--cluster odd admin", "", ""),
        ("admin --admin http://typed", "", ""),
        ("admin", "", ""),
    ],
)
def test_it_is_known_who_told_an_address(
    tmp_path: Path,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    properties: str,
    printed: str,
) -> None:
    found: list[Access] = []
    monkeypatch.setattr(admin, "callback", admin_options(lambda access: found.append(access)))
    use_properties = tmp_path / "client.properties"
    use_properties.write_text(properties)
    monkeypatch.setitem(OPTIONS, "client_config", use_properties if properties else None)
    done = run(tmp_path, line)
    assert done.exit_code == 0, done.output
    (access,) = found
    teller = access.teller
    shown = (
        ""
        if teller is None
        else f"{','.join(sorted(teller.hosts, reverse=True))} {teller.is_proven}"
    )
    assert shown == printed


def test_no_password_goes_to_a_zookeeper_that_anybody_may_have_told(
    tmp_path: Path, asked: list[str]
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('[cluster_security]\nzookeeper_user = "q"\nzookeeper_password = "p"\n')
    done = run(tmp_path, f"zookeeper -b typed:9092 --cluster-config {file}")
    assert "name it with --zookeeper HOST:PORT" in str(done.exception)
    done = run(tmp_path, f"zookeeper --zookeeper typed:2 --cluster-config {file}")
    assert done.stdout.strip() == "typed:2"
