"""The `quire` command against a real cluster: every help text, every example in it, and errors."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from confluent_kafka import KafkaException, Producer

from client.ledger.standalone import connect
from ops.cli.main import COMMANDS, quire
from ops.ports import pick_free
from tests.integration.cluster import LocalCluster, is_alive, wait_until
from tests.integration.shell import Shell

NOT_HERE = {"up", "demo", "demo spark", "restart", "metadata restore", "schemas"}
NOT_HERE |= {"broker run", "bookie run", "zookeeper", "zookeeper run"}
"""Commands that run until Ctrl-C, or start, restart or make a whole cluster; they have tests of
their own."""

FOR_SECURED_CLUSTERS = {"acl", "certificates", "quota", "user"}
"""Commands that a cluster without authorization refuses, or that make files for one with it;
tests/integration/test_up_secure.py and tests/unit/ops/security have clusters for them."""

FOR_DEAD_BOOKIES = {"bookie decommission", "bookie recover", "bookie inspect"}
"""Commands that need a bookie which is gone; tests/unit/ops/cli/test_autorecovery.py has one, and
tests/unit/ops/cli/test_bookie_inspect.py."""

FOR_SHARE_GROUPS = {"group dead-letters"}
"""Commands that need a share group with dead letters;
tests/unit/broker/admin/test_dead_letters.py has one."""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name: "topic", "topic create", ..."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join([*path, name]), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands(quire))


def examples(name: str) -> list[str]:
    """Return the command lines that a command's help shows, continuation lines joined."""
    text = (ALL[name].help or "").replace("\b", "").replace("\\\n", " ")
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line.startswith(("quire ", "echo "))]


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_with_an_example(name: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"COLUMNS": "80"})
    text = shell.quick(f"quire {name} --help")
    assert text.startswith(f"Usage: quire {name} ")
    assert all(len(line) <= 80 for line in text.splitlines())
    if name not in {"up", "demo"}:
        assert examples(name), "the help shows no example"


def test_the_table_of_commands_is_complete(tmp_path: Path) -> None:
    text = Shell(tmp_path, {}).ok("quire --help")
    for name, row in COMMANDS.items():
        assert name in text
        assert row.help in text


NEEDS_YES = ("topic delete", "group delete", "transaction abort")


def test_the_examples_of_all_help_texts_work(shell: Shell, cluster: LocalCluster) -> None:
    (shell.folder / "passwd.txt").write_text("".join(f"user{n}:secret{n}\n" for n in range(12)))
    order = [
        "topic create",
        "produce",
        "consume",
        "topic list",
        "topic describe",
        "topic",
        "topic alter",
        "topic config",
        "topic partitions",
        "topic segments",
        "topic compaction",
        "topic compact",
        "topic offload",
        "topic move-leader",
        "topic roll",
        "record",
        "record publish",
        "record peek",
        "record fetch",
        "record find",
        "topic trim",
        "group reset",
        "group describe",
        "group list",
        "group",
        "group delete",
        "group alter",
        "group config",
        "transaction list",
        "transaction describe",
        "transaction",
        "transaction abort",
        "cluster",
        "cluster describe",
        "cluster audit",
        "broker",
        "broker list",
        "broker describe",
        "broker config",
        "broker unload",
        "broker load",
        "cluster wait",
        "completion",
        "metadata",
        "metadata init",
        "metadata backup",
        "doctor",
        "top",
        "ledger",
        "ledger list",
        "ledger describe",
        "ledger read",
        "ledger recover",
        "ledger delete",
        "topic delete",
        "bookie",
        "bookie list",
        "bookie info",
        "bookie gc",
        "bookie readonly",
        "autorecovery disable",
        "autorecovery enable",
        "autorecovery trigger",
        "autorecovery status",
        "autorecovery",
    ]
    secured = {"metadata protect"}
    secured |= {name for name in ALL if name.split()[0] in FOR_SECURED_CLUSTERS}
    elsewhere = NOT_HERE | FOR_DEAD_BOOKIES | FOR_SHARE_GROUPS | secured
    assert set(ALL) - elsewhere == set(order)
    shell.run("quire topic delete orders --yes")  # the cluster is shared
    shell.ok("quire topic create orders --partitions 3")
    shell.ok("quire topic create settings --partitions 1 --config cleanup.policy=compact")
    shell.ok("quire record publish orders 'two pears' --partition 0")
    payments = _open_transaction(cluster, "payments-1", "orders")
    for name in order:
        for example in examples(name):
            example = example.replace("greetings", "cli-greetings")
            if example.startswith("quire topic create orders"):
                example += " --if-not-exists"
            if "quire consume" in example:
                example += " --timeout 5"
            if any(f"quire {one}" in example for one in NEEDS_YES):
                example += " --yes"
            example = example.replace("| source", "| cat")  # fish's word
            if example == "quire top":
                example += " --once"
            if example.startswith("quire ledger") and " 7" in example:
                # One of a topic may go between two commands: when the topic changes brokers.
                example = example.replace(" 7", f" {_lonely_ledger(cluster)}")
            example = example.replace("127.0.0.1:3181", str(cluster.about["bookies"][0]["id"]))
            shell.quick(example)
    with pytest.raises(KafkaException):
        payments.commit_transaction(30)


def _open_transaction(cluster: LocalCluster, name: str, topic: str) -> Producer:
    servers = cluster.bootstrap_servers
    made = Producer({"bootstrap.servers": servers, "transactional.id": name})
    made.init_transactions(30)
    made.begin_transaction()
    made.produce(topic, b"1")
    assert made.flush(30) == 0
    return made


def _some_ledger(shell: Shell, topic: str) -> int:
    ledgers = json.loads(shell.ok(f"quire ledger list --topic {topic} --json"))
    return int(ledgers[0]["ledger"])


def _lonely_ledger(cluster: LocalCluster) -> int:
    """Make a ledger that belongs to no topic."""

    async def make() -> int:
        async with connect(cluster.zookeeper) as ledgers:
            writer = await ledgers.create()
            await writer.append(b"nobody's")
            await writer.append(bytes(100))
            await writer.close()
            return writer.ledger_id

    return asyncio.run(make())


@pytest.mark.smoke
def test_topics_from_birth_to_death(shell: Shell) -> None:
    name = "cli-life"
    assert shell.ok(f"quire topic create {name} --partitions 3") == (
        f"Topic {name} is ready with 3 partitions.\n"
    )
    assert "already exists" in shell.fails(f"quire topic create {name}")
    assert name in shell.ok("quire topic list")
    shell.ok(f"quire produce {name} --partition 1", "one\ntwo\n")
    described = json.loads(shell.ok(f"quire topic describe {name} --json"))
    assert [p["log_end_offset"] for p in described["partitions"]] == [0, 2, 0]
    assert all(p["leader"] in (0, 1) for p in described["partitions"])
    rows = shell.ok(f"quire topic describe {name}").splitlines()
    assert rows[0].split() == ["PARTITION", "LEADER", "START", "END", "RECORDS"]
    assert rows[2].split()[2:] == ["0", "2", "2"]
    assert described["compaction"] == []
    assert not [row for row in rows if "CLEAN BELOW" in row]
    shell.ok(f"quire topic alter {name} --config cleanup.policy=compact")
    wait_until(lambda: "CLEAN BELOW" in shell.ok(f"quire topic describe {name}"), "compaction")
    assert "add --yes" in shell.fails(f"quire topic delete {name}")
    shell.ok(f"quire topic delete {name} --yes")
    assert "there is no topic" in shell.fails(f"quire topic describe {name}").lower()
    assert name not in shell.ok("quire topic list")


@pytest.mark.smoke
def test_lines_go_in_and_come_out_unchanged(shell: Shell) -> None:
    name = "cli-lines"
    shell.ok(f"quire topic create {name} --partitions 1")
    content = b"plain\n\nwith:colons:in\r\n\xff\xfe not UTF-8\nno line feed at the end"
    (shell.folder / "input").write_bytes(content)
    summary = json.loads(shell.ok(f"quire produce {name} input --json"))
    assert summary["records"] == 5
    assert summary["offsets"] == {"0": {"first": 0, "last": 4}}
    shell.ok(f"quire consume {name} --from-beginning --max 5 > output")
    assert (shell.folder / "output").read_bytes() == content + b"\n"
    records = [
        json.loads(line)
        for line in shell.ok(f"quire consume {name} --from-beginning --max 5 --json").splitlines()
    ]
    assert [r["offset"] for r in records] == [0, 1, 2, 3, 4]
    assert records[0]["value"] == "plain"
    assert records[3]["value"] == {"base64": "//4gbm90IFVURi04"}
    part = f"quire consume {name} --partition 0 --offset 3 --timeout 5 --json"
    assert [json.loads(line)["offset"] for line in shell.ok(part).splitlines()] == [3, 4]
    third = shell.ok(f"quire consume {name} --partition 0 --offset 2 --max 1")
    assert third.splitlines() == ["with:colons:in"]
    assert "partitions 0 to 0" in shell.fails(f"quire consume {name} --partition 1")


@pytest.mark.smoke
def test_a_group_goes_on_where_it_stopped(shell: Shell) -> None:
    name = "cli-group"
    shell.ok(f"quire topic create {name} --partitions 2")
    shell.ok(f"quire produce {name} --key-separator :", "".join(f"k{n}:v{n}\n" for n in range(20)))
    read = f"quire consume {name} --group g --from-beginning --key-separator :"
    first = shell.ok(f"{read} --max 8").splitlines()
    rest = shell.ok(f"{read} --timeout 4").splitlines()
    assert len(first) == 8
    assert sorted(first + rest) == sorted(f"k{n}:v{n}" for n in range(20))
    assert shell.fails(f"{read} --max 1 --timeout 1").startswith("quire: Only 0 of 1 records came")


def test_ledgers(shell: Shell) -> None:
    name = "cli-ledgers"
    shell.ok(f"quire topic create {name} --partitions 1")
    shell.ok(f"quire produce {name}", "x\n")
    ledger_id = _some_ledger(shell, name)
    described = json.loads(shell.ok(f"quire ledger describe {ledger_id} --json"))
    assert described["state"] == "OPEN"
    assert described["partition"]["topic"] == name
    assert described["last_entry"] is not None
    assert set(described["bookies"].values()) == {"up"}
    text = shell.ok(f"quire ledger describe {ledger_id}")
    assert f"topic {name}, partition 0, segment 1 of 1" in text
    for command in ("describe", "read", "recover", "delete --yes"):
        sentence = shell.fails(f"quire ledger {command} 999999999")
        assert "there is no ledger 999999999: `quire ledger list" in sentence.lower()
    assert f"a part of topic {name}, partition 0" in shell.fails(
        f"quire ledger delete {ledger_id} --yes"
    )
    # Its writer goes on in another ledger.
    recovered = json.loads(shell.ok(f"quire ledger recover {ledger_id} --json"))
    assert recovered["was_closed"] is False
    assert recovered["last_entry"] >= 1
    assert json.loads(shell.ok(f"quire ledger recover {ledger_id} --json"))["was_closed"] is True
    first = shell.ok(f"quire ledger read {ledger_id}").splitlines()
    assert first[0].split() == ["ENTRY", "CONFIRMED", "BEFORE", "BYTES", "CONTENT"]
    assert "internal, the log ends at offset 0" in first[1]
    assert "offsets 0 to 0, 1 record" in first[2]
    shell.ok(f"quire produce {name}", "y\n")
    assert shell.ok(f"quire consume {name} --from-beginning --max 2").splitlines() == ["x", "y"]


def test_a_ledger_of_nobody_is_listed_read_and_deleted(shell: Shell, cluster: LocalCluster) -> None:
    ledger_id = _lonely_ledger(cluster)
    listed = json.loads(shell.ok("quire ledger list --all --json"))
    assert {"ledger": ledger_id, "topic": None} in listed
    assert ledger_id not in [
        each["ledger"] for each in json.loads(shell.ok("quire ledger list --json"))
    ]
    lines = shell.ok(f"quire ledger read {ledger_id} --json").splitlines()
    entries = [json.loads(line) for line in lines]
    assert [base64.b64decode(each["payload"]) for each in entries] == [b"nobody's", bytes(100)]
    assert "nobody's" in shell.ok(f"quire ledger read {ledger_id} --to 0")
    assert shell.fails(f"quire ledger read {ledger_id} --from 2") == (
        f"quire: Ledger {ledger_id} ends at entry 1."
    )
    done = shell.run(f"quire ledger delete {ledger_id}", "n\n")
    assert done.returncode == 1
    assert json.loads(shell.ok(f"quire ledger delete {ledger_id} --yes --json"))["deleted"]
    assert "there is no ledger" in shell.fails(f"quire ledger describe {ledger_id}").lower()


def test_bookies(shell: Shell, cluster: LocalCluster) -> None:
    ids = [each["id"] for each in cluster.about["bookies"]]
    listed = json.loads(shell.ok("quire bookie list --json"))
    assert [each["bookie"] for each in listed] == sorted(ids)
    assert {each["state"] for each in listed} == {"up"}
    assert all(0 < each["free_bytes"] < each["total_bytes"] for each in listed)
    text = shell.ok("quire bookie list")
    assert all(name in text for name in ids)
    about = json.loads(shell.ok(f"quire bookie info {ids[1]} --json"))
    assert about["details"]["running"] is True
    assert about["details"]["reasons"] == []
    assert shell.fails("quire bookie info ghost:1") == (
        "quire: There is no bookie ghost:1: `quire bookie list` shows those there are."
    )
    rounds = about["details"]["gc"]["minorCompactionCounter"]
    shell.ok(f"quire bookie gc {ids[1]} --minor")

    def has_collected() -> bool:
        told = json.loads(shell.ok(f"quire bookie info {ids[1]} --json"))["details"]["gc"]
        return bool(told["minorCompactionCounter"] > rounds)

    wait_until(has_collected, "a round of garbage collection")
    running = cluster.data / "bookie-0"
    assert "is in use by a running bookie: stop it first" in shell.fails(
        f"quire bookie inspect {running}"
    )


def test_a_bookie_is_made_read_only_and_takes_entries_again(start_cluster, tmp_path: Path) -> None:
    alone = start_cluster(bookies=1, brokers=1)
    shell = Shell(tmp_path, {"QUIRE_ZOOKEEPER": alone.zookeeper})
    bookie = alone.about["bookies"][0]["id"]
    answer = json.loads(shell.ok(f"quire bookie readonly {bookie} --json"))
    assert answer == {
        "bookie": bookie,
        "readOnly": True,
        "reasons": ["an operator made it so"],
    }

    def state() -> str:
        return str(json.loads(shell.ok("quire bookie list --json"))[0]["state"])

    wait_until(lambda: state() == "read-only", "the registration to move")
    assert "read-only because  an operator made it so" in shell.ok(f"quire bookie info {bookie}")
    shell.ok(f"quire bookie readonly {bookie} --off")
    wait_until(lambda: state() == "up", "the registration to move back")
    alone.stop()
    assert bookie in shell.ok(f"quire bookie inspect {alone.data / 'bookie-0'}")


@pytest.mark.smoke
def test_one_kafka_address_is_enough_for_every_command(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "named").mkdir()
    alone = Shell(tmp_path, {})
    servers = cluster.bootstrap_servers
    brokers = [str(node["id"]) for node in cluster.about["brokers"]]
    listed = json.loads(alone.ok(f"quire broker list --json -b {servers}"))
    assert sorted(str(row["broker_id"]) for row in listed) == sorted(brokers)
    bookies = [node["id"] for node in cluster.about["bookies"]]
    listed = json.loads(alone.ok(f"quire bookie list --json -b {servers}"))
    assert sorted(row["bookie"] for row in listed) == sorted(bookies)
    file = tmp_path / "clusters.toml"
    file.write_text(f'[here]\nbootstrap_server = "{servers}"\n')
    named = Shell(
        tmp_path / "named", {"QUIRE_CLUSTERS_FILE": str(file), "QUIRE_BOOTSTRAP": "127.0.0.1:1"}
    )
    for line in ("topic list", "group list", "ledger list", "autorecovery status"):
        named.ok(f"quire --cluster here {line} --json")
    assert named.fails("quire --cluster there topic list") == (
        f"quire: There is no cluster 'there' in {file}; it has here. A table [there] with"
        ' bootstrap_server = "HOST:PORT" makes one.'
    )


@pytest.mark.smoke
def test_errors_are_one_sentence_that_says_what_to_do(shell: Shell) -> None:
    port = pick_free(1)[0]
    nobody = f"--bootstrap-server localhost:{port}"
    for line in (
        f"quire topic list {nobody}",
        f"quire produce t {nobody}",
        f"quire consume t {nobody}",
    ):
        assert shell.fails(line) == (
            f"quire: Nothing listens at localhost:{port}. Start a cluster with `quire up`, "
            "or give its address with --bootstrap-server HOST:PORT."
        )
    assert shell.fails(f"quire ledger list --zookeeper localhost:{port}") == (
        f"quire: No ZooKeeper server answers at localhost:{port} (waited 5 s). Start a cluster "
        "with `quire up`, or give an address with --bootstrap-server HOST:PORT or --zookeeper "
        "HOST:PORT."
    )
    assert "`quire topic create`" in shell.fails("quire consume cli-no-such-topic")
    (shell.folder / "large").write_bytes(bytes(1_048_000))
    assert shell.fails("quire produce cli-errors large") == (
        "quire: A record of 1,048,000 bytes is larger than the limit of 1,047,552 bytes."
    )
    assert "host:port" in shell.fails("quire topic list --bootstrap-server localhost:x")
    sentence = shell.fails("quire produce cli-errors --key-separator :", "a:1\nb2\n")
    assert "line 2" in sentence
    assert "stored before it: 1 record" in sentence
    assert shell.run("quire produce").returncode == 2
    assert shell.run("quire produce t /no/such/file").returncode == 2


def test_a_broken_pipe_and_ctrl_c_are_quiet(shell: Shell) -> None:
    name = "cli-quiet"
    shell.ok(f"quire topic create {name} --partitions 1")
    shell.ok(f"seq 40000 | quire produce {name}")  # more than a pipe holds
    done = shell.run(f"quire consume {name} --from-beginning | head -n 1")
    assert (done.returncode, done.stdout, done.stderr) == (141, "1\n", "")

    with shell.start(f"quire consume {name} --from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "1\n"
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(20) == 130
        assert process.stderr.read() == ""


def test_typed_lines_are_published_at_once(shell: Shell, cluster: LocalCluster) -> None:
    name = "cli-typed"
    shell.ok(f"quire topic create {name} --partitions 1")
    with shell.start(f"quire produce {name}") as process:
        assert process.stdin is not None
        process.stdin.write("early\n")
        process.stdin.flush()
        assert shell.ok(f"quire consume {name} --from-beginning --max 1") == "early\n"
        process.stdin.close()
        assert process.wait(20) == 0


@pytest.mark.timeout(300)
def test_the_demonstration_loses_nothing(tmp_path: Path) -> None:
    """The same run as `quire demo`, on a part of the standard library."""
    source = Path(os.__file__).parent / "asyncio"
    shell = Shell(tmp_path, {"TMPDIR": str(tmp_path)})
    with shell.start(f"quire demo --json --source {source}") as process:
        out, shown = process.communicate(timeout=240)
    assert process.returncode == 0, shown
    report = json.loads(out)
    assert report["good"] is True
    verdict = report["verdict"]
    assert verdict["published"] == verdict["acknowledged"] == verdict["received"] > 10_000
    assert verdict["files_identical"] == verdict["files"] > 20
    assert report["led_by_killed"]
    assert "kill -9 bookie" in shown
    assert not list(tmp_path.glob("quire-demo*")), "the scratch folder is not removed"


@pytest.mark.timeout(120)
def test_a_killed_demonstration_takes_its_cluster_along(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"TMPDIR": str(tmp_path)})
    with shell.start(f"quire demo --json --source {Path(os.__file__).parent / 'asyncio'}") as demo:
        while not (found := list(tmp_path.glob("quire-demo*/cluster/cluster.json"))):
            assert demo.poll() is None
            time.sleep(0.05)
        about = json.loads(found[0].read_text())
        demo.kill()
    pids = {about["pid"], about["zookeeper_pid"]}
    pids |= {node["pid"] for node in (*about["brokers"], *about["bookies"])}
    while any(map(is_alive, pids)):
        time.sleep(0.05)
