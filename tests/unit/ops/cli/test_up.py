"""`quire up` turns settings into options and tells people how to go on."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from client.config import settings_of
from ops.cli import up as up_module
from ops.cli.main import quire
from ops.local.cluster import LocalCluster, LocalConfig, Programs


class Silent:
    def begin(self, what: str) -> None: ...
    def done(self, what: str) -> None: ...
    def warn(self, text: str, lines: object = ()) -> None: ...


def welcome(config: LocalConfig) -> str:
    return up_module._welcome(config, LocalCluster(config, Silent(), Programs()))


def test_every_setting_is_an_option_with_its_default() -> None:
    shown = " ".join(CliRunner().invoke(quire, ["up", "--help"]).output.split())
    for entry in settings_of(LocalConfig):
        assert entry.flag in shown
        assert entry.doc in shown
    assert "--kafka-port INT Kafka port of the first broker; broker i takes this plus i." in shown
    assert "[default: 9092]" in shown
    assert "--no-restart Report" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bookies", "0"], "quire: --bookies must be at least 1, not 0.\n"),
        (["--kafka-port", "x"], "quire: --kafka-port must be a whole number, not 'x'.\n"),
    ],
)
def test_wrong_values_are_one_sentence(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from ops.cli.main import main

    monkeypatch.setattr("sys.argv", ["quire", "up", *arguments])
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 1
    assert capsys.readouterr().err.startswith(message)


def test_the_welcome_has_lines_to_copy() -> None:
    text = welcome(LocalConfig(data=Path("data"), brokers=1))
    assert "Kafka clients connect to 127.0.0.1:9092" in text
    assert " produce greetings\n" in text
    assert " consume greetings --from-beginning\n" in text
    assert "kcat -P -b 127.0.0.1:9092 -t greetings" in text
    assert "http://127.0.0.1:9640" in text


def test_other_ports_stand_in_the_lines_to_copy() -> None:
    text = welcome(LocalConfig(kafka_port=19092, brokers=2, zookeeper="zk:2181"))
    assert " produce greetings --bootstrap-server 127.0.0.1:19092,127.0.0.1:19093\n" in text
    assert "ZooKeeper    zk:2181" in text


def test_progress_is_plain_lines_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    progress = up_module._Progress()
    progress.begin("starting ZooKeeper")
    progress.done("ZooKeeper answers")
    progress.warn("bookie-1 died: SIGKILL", ["last", "words [red]"])
    progress.end()
    assert capsys.readouterr().err.splitlines() == [
        "starting ZooKeeper ...",
        "ZooKeeper answers",
        "WARNING: bookie-1 died: SIGKILL",
        "    last",
        "    words [red]",
    ]
