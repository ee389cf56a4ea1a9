"""The commands of an operator on a real cluster: brokers, groups, leaders, single records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from confluent_kafka import KafkaException, Producer

from ops.cli.main import quire
from ops.ports import pick_free
from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.shell import Shell


def read(shell: Shell, line: str) -> Any:
    return json.loads(shell.quick(f"{line} --json"))


def test_a_broker_is_unloaded_and_loaded(shell: Shell) -> None:
    shell.quick("quire topic create op-unload --partitions 4")
    shell.quick("quire broker unload 1")
    leaders = {row["leader"] for row in read(shell, "quire topic partitions op-unload")}
    assert leaders == {0}
    states = {row["broker_id"]: row["is_unloaded"] for row in read(shell, "quire broker list")}
    assert states == {0: False, 1: True}
    rows = shell.quick("quire broker list").splitlines()
    assert rows[0].split()[:4] == ["BROKER", "ADDRESS", "RACK", "STATE"]
    assert "unloaded" in rows[2]
    sentence = shell.fails("quire cluster wait --timeout 0")
    assert "broker 1 is unloaded" in sentence
    shell.quick("quire broker load 1")
    shell.quick("quire cluster wait --timeout 60")

    def is_ready() -> bool:
        """It takes its partitions back in steps, and is not ready while one of them opens."""
        return bool(read(shell, "quire broker describe 1")["live"]["is_ready"])

    wait_until(is_ready, "broker 1 to lead its share again")
    assert "state" in shell.quick("quire broker describe 1")


def test_settings_of_a_broker_with_their_sources(shell: Shell) -> None:
    every = read(shell, "quire broker config 0")
    changed = read(shell, "quire broker config 0 --changed")
    assert len(every) > len(changed) > 0
    assert all(row["source"] != "default" for row in changed)
    assert {"node_id", "zookeeper"} <= {row["name"] for row in changed}


def test_a_group_is_seen_reset_and_deleted(shell: Shell) -> None:
    shell.quick("quire topic create op-group --partitions 2")
    shell.ok("quire produce op-group --partition 0", "a\nb\nc\n")
    shell.ok("quire consume op-group --group op-readers --from-beginning --max 3")
    described = read(shell, "quire group describe op-readers")
    first = described["offsets"][0]
    assert (first["partition"], first["lag_records"]) == (0, 0)
    assert "op-readers" in shell.quick("quire group list --topic op-group")

    reset = "quire group reset op-readers --topic op-group --partition 0 --to"
    dry = read(shell, f"{reset} earliest --dry-run")
    assert dry == {
        "is_done": False,
        "offsets": [{"topic": "op-group", "partition": 0, "before": 3, "after": 0}],
    }
    assert read(shell, f"{reset} 1")["offsets"][0]["after"] == 1
    assert read(shell, f"{reset} 2020-01-01T00:00:00Z")["offsets"][0]["after"] == 0
    assert shell.run(f"{reset} yesterday").returncode == 2
    assert "end" in shell.quick("quire group describe op-readers").lower()
    assert "add --yes" in shell.fails("quire group delete op-readers")
    shell.quick("quire group delete op-readers --yes")
    assert "`quire group list`" in shell.fails("quire group delete op-readers --yes")
    shell.quick("quire group delete op-readers --yes --if-exists")


def test_a_transaction_is_seen_and_aborted(shell: Shell, cluster: LocalCluster) -> None:
    shell.quick("quire topic create op-transaction --partitions 1")
    servers = cluster.bootstrap_servers
    made = Producer({"bootstrap.servers": servers, "transactional.id": "op-pay", "client.id": "op"})
    made.init_transactions(30)
    made.begin_transaction()
    made.produce("op-transaction", b"1")
    assert made.flush(30) == 0
    assert "op-pay" in shell.quick("quire transaction list --state Ongoing")
    assert "op-pay" not in shell.quick("quire transaction list --open 3600")
    about = read(shell, "quire transaction describe op-pay")
    assert (about["state"], about["client_id"]) == ("Ongoing", "op")
    assert about["partitions"] == [{"topic": "op-transaction", "partition": 0}]
    assert "op at 127.0.0.1" in shell.run("quire transaction describe op-pay").stderr
    assert "add --yes" in shell.fails("quire transaction abort op-pay")
    shell.quick("quire transaction abort op-pay --yes")
    with pytest.raises(KafkaException):
        made.commit_transaction(30)
    assert "no open transaction" in shell.fails("quire transaction abort op-pay --yes")
    assert "GET /admin/v1/transactions" in shell.fails("quire transaction describe nobody")


def test_leaders_move_and_ledgers_roll_and_go(shell: Shell) -> None:
    shell.quick("quire topic create op-move --partitions 1")
    shell.ok("quire produce op-move", "a\nb\nc\n")
    (partition,) = read(shell, "quire topic partitions op-move")
    other = 1 - partition["leader"]
    shell.quick(f"quire topic move-leader op-move 0 --to {other}")

    def moved() -> bool:
        (now,) = read(shell, "quire topic partitions op-move")
        return now["state"] == "led" and now["leader"] == other

    wait_until(moved, "the partition to move")
    shell.quick("quire topic move-leader op-move 0 --anywhere")
    assert read(shell, "quire topic partitions op-move")[0]["pinned_to"] is None
    shell.quick("quire cluster wait")
    count = len(read(shell, "quire topic segments op-move 0"))
    shell.quick("quire topic roll op-move")
    assert len(read(shell, "quire topic segments op-move 0")) == count + 1
    shell.quick("quire topic trim op-move 0 --before 2")
    assert read(shell, "quire topic partitions op-move")[0]["log_start_offset"] == 2
    assert "first and last offsets" in shell.fails("quire topic trim op-move 0 --before 99")
    assert shell.run("quire topic move-leader op-move 0").returncode == 2


def test_settings_of_a_group_change_and_go_back(shell: Shell) -> None:
    shell.quick("quire group alter op-own --set consumer.session.timeout.ms=60000")
    (changed,) = read(shell, "quire group config op-own --changed")
    assert (changed["name"], changed["value"]) == ("consumer.session.timeout.ms", "60000")
    assert "45000" in shell.fails("quire group alter op-own --set consumer.session.timeout.ms=1")
    shell.quick("quire group alter op-own --unset consumer.session.timeout.ms")
    assert read(shell, "quire group config op-own --changed") == []
    assert shell.run("quire group alter op-own").returncode == 2


def test_settings_of_a_topic_change_and_go_back(shell: Shell) -> None:
    shell.quick("quire topic create op-alter --partitions 1")
    shell.quick("quire topic alter op-alter --partitions 2 --set retention.ms=5000")
    (changed,) = read(shell, "quire topic config op-alter --changed")
    assert (changed["name"], changed["value"]) == ("retention.ms", "5000")
    shell.quick("quire topic alter op-alter --unset retention.ms")
    assert read(shell, "quire topic config op-alter --changed") == []
    assert "is not known" in shell.fails("quire topic alter op-alter --set nonsense=1")
    assert "can only grow" in shell.fails("quire topic alter op-alter --partitions 1")
    assert shell.run("quire topic alter op-alter").returncode == 2


def test_single_records_go_in_and_come_out(shell: Shell) -> None:
    shell.quick("quire topic create op-record --partitions 1")
    stored = read(shell, "quire record publish op-record 'three pears' --key anna --header a=b")
    assert stored == {"partition": 0, "offset": 0}
    (found,) = read(shell, "quire record peek op-record 0")["records"]
    assert (found["key"], found["value"]) == ("anna", "three pears")
    assert found["headers"] == [{"name": "a", "value": "b", "encoding": "text"}]
    assert shell.quick("quire record fetch op-record 0 0") == "three pears"
    assert shell.quick("quire record find op-record 0 --at latest") == "1\n"
    assert read(shell, "quire record find op-record 0 --at 2020-01-01T00:00:00Z")["offset"] == 0
    rows = shell.quick("quire record peek op-record 0 --last 1").splitlines()
    assert rows[0].split() == ["OFFSET", "TIME", "KEY", "VALUE"]
    assert rows[1].endswith("anna  three pears")


def test_the_admin_api_that_is_not_there_is_named(shell: Shell) -> None:
    url = f"http://127.0.0.1:{pick_free(1)[0]}"
    for line in ("cluster describe", "broker list", "group list", "record peek t 0"):
        sentence = shell.fails(f"quire {line} --admin {url}")
        assert sentence.startswith(f"quire: No broker's admin API answers at {url} (Connection re")
        assert "--admin" in sentence
    assert "is not the address of an admin API" in shell.fails(
        "quire broker list --admin nowhere://x"
    )


def test_the_doctor_finds_a_healthy_cluster_and_a_missing_one(
    shell: Shell, cluster: LocalCluster
) -> None:
    settings = f"--broker-config {cluster.data}/broker-0.toml"
    settings += f" --bookie-config {cluster.data}/bookie-0.toml"
    found = read(shell, f"quire doctor {settings}")
    checks = {one["check"] for one in found}
    assert checks >= {
        *("ports", "advertised", "java", "files", "sessions"),
        *("disk-space", "file-system", "disk-sync", "zookeeper", "metadata", "cookie"),
        *("brokers", "reachable", "bookies", "versions", "clocks"),
    }
    machine = {"disk-space", "file-system", "disk-sync", "clocks"}
    assert not [one for one in found if one["level"] == "trouble" and one["check"] not in machine]
    port = pick_free(1)[0]
    lost = shell.run(f"quire doctor --zookeeper 127.0.0.1:{port} --admin http://127.0.0.1:{port}")
    assert lost.returncode == 1
    assert f"TROUBLE  zookeeper: ZooKeeper 127.0.0.1:{port} does not answer" in lost.stdout
    assert "Start it, or correct the address" in lost.stdout
    assert "to fix." in lost.stderr


def test_metadata_is_backed_up_and_restored(shell: Shell, cluster: LocalCluster) -> None:
    shell.quick("quire topic create op-backup --partitions 1")
    shell.quick("quire metadata backup all.backup")
    elsewhere = f"{cluster.zookeeper}/restored"
    assert "no such" in shell.fails(f"quire metadata backup no/dir --zookeeper {elsewhere}").lower()
    shell.quick(f"quire metadata restore all.backup --zookeeper {cluster.zookeeper}/restored")
    shell.quick(f"quire metadata backup again.backup --zookeeper {elsewhere}")
    was, now = (
        {row["path"]: row.get("data") for row in map(json.loads, lines) if "path" in row}
        for lines in (
            (shell.folder / name).read_text().splitlines()
            for name in ("all.backup", "again.backup")
        )
    )
    assert "/quire/topics/op-backup" in was
    # Ids are given once, and the epoch of features never falls: both go on behind the backup.
    moved = {path for path in was if was[path] != now.get(path)}
    assert moved <= {"/quire/producer_ids", "/quire/features"}
    assert "stop all brokers" in shell.fails("quire metadata restore all.backup")


def test_a_shell_completes_commands_and_names(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.quick("quire topic create op-complete --partitions 1")
    typed = "quire topic roll op-comp"
    through_bash = shell.ok(
        f'eval "$(quire completion bash)"; COMP_WORDS=({typed}); COMP_CWORD=3;'
        ' _quire_completion quire; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert through_bash.split() == ["op-complete"]
    for kind, word in (("zsh", "3"), ("fish", "op-comp")):
        assert "quire" in shell.quick(f"quire completion {kind}")
        line = f'_QUIRE_COMPLETE={kind}_complete COMP_CWORD={word} COMP_WORDS="{typed}" quire'
        assert "op-complete" in shell.ok(line).replace(",", "\n").split()

    def complete(*words: str) -> list[str]:
        asked = ShellComplete(quire, {}, "quire", "_QUIRE_COMPLETE")
        return [item.value for item in asked.get_completions(list(words[:-1]), words[-1])]

    monkeypatch.setenv("QUIRE_ADMIN", shell.environ["QUIRE_ADMIN"])
    assert complete("clu") == ["cluster"]
    assert complete("broker", "un") == ["unload"]
    assert complete("broker", "unload", "") == ["0", "1"]
    assert complete("topic", "move-leader", "op-complete", "0", "--to", "1") == ["1"]
    assert "op-complete" in complete("group", "reset", "x", "--topic", "op-")
    monkeypatch.setenv("QUIRE_ADMIN", f"http://127.0.0.1:{pick_free(1)[0]}")
    assert complete("topic", "roll", "op") == [], "and no sentence either"
