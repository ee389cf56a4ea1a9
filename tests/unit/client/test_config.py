"""Settings come from file, environment and flags, typed, with sources, and mistakes are named."""

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NewType

import pytest

from client.config import (
    Resolved,
    build_parser,
    check_ranges,
    effective,
    load,
    load_program,
    reference,
    required,
    resolve,
    setting,
    settings_of,
)
from client.errors import ConfigError

NodeId = NewType("NodeId", int)


class Digest(enum.Enum):
    CRC32C = "crc32c"
    HMAC = "hmac"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """Settings of the ledger client."""

    add_timeout_s: float = setting(5.0, "Seconds until an add fails.", at_least=0.1)
    write_quorum: int = setting(3, "Copies of each entry.", at_least=1)
    ack_quorum: int = setting(2, "Copies that must be durable.", at_least=1)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.ack_quorum > self.write_quorum:
            raise ConfigError(f"ack_quorum ({self.ack_quorum}) exceeds write_quorum")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Settings of one node.

    More text that help does not show.
    """

    data_dir: Path = required("Where data lives.")
    node_id: NodeId = setting(NodeId(0), "Number of this node.")
    port: int = setting(9092, "TCP port; 100% yours.", at_least=0, at_most=65535)
    sync: bool = setting(True, "Whether adds wait for the disk.")
    rack: str | None = setting(None, "Failure domain.")
    zookeeper: tuple[str, ...] = setting(("127.0.0.1:2181",), "Servers.")
    digest: Digest = setting(Digest.CRC32C, "Digest of new ledgers.")
    level: Literal["info", "debug"] = setting("info", "How much to log.")
    password: str = setting("", "Secret of the cluster.", secret=True)
    ledger: LedgerSettings = LedgerSettings()


def get(
    tmp_path: Path, toml: str = "", flags: dict[str, object] | None = None, **environ: str
) -> NodeConfig:
    path = tmp_path / "node.toml"
    path.write_text(toml)
    flags = {"data_dir": "/d"} | (flags or {})
    return load(NodeConfig, toml_path=path, env_prefix="QUIRE_NODE_", flags=flags, environ=environ)


def test_defaults_fill_what_nobody_set(tmp_path: Path) -> None:
    assert get(tmp_path) == NodeConfig(data_dir=Path("/d"))


def test_file_then_environment_then_flags(tmp_path: Path) -> None:
    toml = 'port = 1\nrack = "file"\nnode_id = 7'
    config = get(tmp_path, toml, {"port": "3"}, QUIRE_NODE_PORT="2", QUIRE_NODE_RACK="env")
    assert (config.port, config.rack, config.node_id) == (3, "env", 7)


def test_every_type_from_toml(tmp_path: Path) -> None:
    config = get(
        tmp_path,
        """
        data_dir = "/x"
        sync = false
        zookeeper = ["a:1", "b:2"]
        digest = "hmac"
        level = "debug"
        [ledger]
        add_timeout_s = 3
        """,
        {"data_dir": None},
    )
    assert config == NodeConfig(
        data_dir=Path("/x"),
        sync=False,
        zookeeper=("a:1", "b:2"),
        digest=Digest.HMAC,
        level="debug",
        ledger=LedgerSettings(add_timeout_s=3.0),
    )
    assert isinstance(config.ledger.add_timeout_s, float)


def test_every_type_from_the_environment(tmp_path: Path) -> None:
    config = get(
        tmp_path,
        QUIRE_NODE_SYNC="off",
        QUIRE_NODE_ZOOKEEPER="a:1, b:2",
        QUIRE_NODE_DIGEST="hmac",
        QUIRE_NODE_RACK="none",
        QUIRE_NODE_LEDGER_ADD_TIMEOUT_S="0.5",
        QUIRE_OTHER="ignored",
    )
    assert config == NodeConfig(
        data_dir=Path("/d"),
        sync=False,
        zookeeper=("a:1", "b:2"),
        digest=Digest.HMAC,
        ledger=LedgerSettings(add_timeout_s=0.5),
    )


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("prot = 1", r"unknown setting prot in .*node\.toml; did you mean port\?"),
        ("[ledger]\nack_qourum = 1", r"unknown setting ledger\.ack_qourum .* ledger\.ack_quorum"),
        ("zzz = 1", r"unknown setting zzz in .*node\.toml$"),
        ("[port]\nx = 1", r"^port in .*node\.toml must be a whole number"),
        ('port = "9092x"', r"^port in .*node\.toml must be a whole number, not '9092x'$"),
        ("port = 1.5", r"^port in .*node\.toml must be a whole number"),
        ("port = true", r"^port in .*node\.toml must be a whole number"),
        ("port = 70000", r"^port in .*node\.toml must be at most 65535, not 70000$"),
        ("port = -1", r"must be at least 0"),
        ("sync = 1", r"^sync in .*node\.toml must be true or false"),
        ("rack = 1", r"^rack in .*node\.toml must be text"),
        ('data_dir = ""', r"^data_dir in .*node\.toml must be a path"),
        ("zookeeper = [1]", r"^zookeeper in .*node\.toml must be a list, each text"),
        ("zookeeper = 1", r"^zookeeper in .*node\.toml must be a list"),
        ('digest = "md5"', r"^digest in .*node\.toml must be one of crc32c, hmac"),
        ('level = "loud"', r"^level in .*node\.toml must be one of info, debug"),
        (
            "[ledger]\nadd_timeout_s = nan",
            r"^ledger\.add_timeout_s in .* must be a number, not nan$",
        ),
        ("[ledger]\nack_quorum = 9", r"ack_quorum \(9\) exceeds write_quorum"),
        ("port = \n", r"node\.toml is not valid TOML: .*line 1"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get(tmp_path, toml)


def test_mistakes_elsewhere_name_their_source(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown setting QUIRE_NODE_PROT in the environment;"):
        get(tmp_path, QUIRE_NODE_PROT="1")
    with pytest.raises(ConfigError, match=r"^QUIRE_NODE_PORT must be a whole number, not 'x'$"):
        get(tmp_path, QUIRE_NODE_PORT="x")
    with pytest.raises(ConfigError, match=r"^--port must be a whole number, not 'x'$"):
        get(tmp_path, flags={"port": "x"})
    with pytest.raises(ConfigError, match=r"unknown setting prot among the flags; .* port\?"):
        get(tmp_path, flags={"prot": "1"})
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.toml: No such file"):
        load(NodeConfig, toml_path=tmp_path / "absent.toml", env_prefix="Q_", environ={})


def test_a_missing_required_setting_says_how_to_give_it() -> None:
    with pytest.raises(ConfigError, match="data_dir is not set: give --data-dir, QUIRE_X_DATA_DIR"):
        load(NodeConfig, env_prefix="QUIRE_X_", environ={})


def test_ranges_hold_for_direct_construction_too() -> None:
    with pytest.raises(ConfigError, match=r"add_timeout_s must be at least 0\.1, not 0"):
        LedgerSettings(add_timeout_s=0)


def resolved(*argv: str, **environ: str) -> Resolved[NodeConfig]:
    return load_program(
        NodeConfig, prog="node", env_prefix="QUIRE_NODE_", argv=argv, environ=environ
    )


def test_a_program_reads_its_flags_and_remembers_sources(tmp_path: Path) -> None:
    (tmp_path / "n.toml").write_text("node_id = 4")
    found = resolved(
        "--config",
        str(tmp_path / "n.toml"),
        "--data-dir=/d",
        "--sync",
        "--ledger-write-quorum",
        "5",
        QUIRE_NODE_PORT="1",
    )
    assert found.config == NodeConfig(
        data_dir=Path("/d"),
        node_id=NodeId(4),
        port=1,
        sync=True,
        ledger=LedgerSettings(write_quorum=5),
    )
    assert found.sources["node_id"] == str(tmp_path / "n.toml")
    assert found.sources["port"] == "QUIRE_NODE_PORT"
    assert found.sources["ledger.write_quorum"] == "--ledger-write-quorum"
    assert found.sources["rack"] == "default"


def test_a_program_names_unknown_flags() -> None:
    with pytest.raises(ConfigError, match=r"unknown flag --prot=1; did you mean --port"):
        resolved("--data-dir=/d", "--prot=1")
    with pytest.raises(ConfigError, match="--port: expected one argument"):
        resolved("--data-dir=/d", "--port")
    with pytest.raises(ConfigError, match="unknown flag --po"):
        resolved("--data-dir=/d", "--po", "1")


def test_help_shows_every_setting() -> None:
    text = build_parser(NodeConfig, prog="node", env_prefix="QUIRE_NODE_").format_help()
    for entry in settings_of(NodeConfig):
        assert entry.flag in text
    assert "Settings of one node." in text
    assert "More text" not in text
    assert "TCP port; 100% yours. (default 9092)" in " ".join(text.split())
    assert "Where data lives. (required)" in " ".join(text.split())


def test_the_reference_has_a_row_per_setting() -> None:
    text = reference(NodeConfig, env_prefix="QUIRE_NODE_")
    assert len(text.splitlines()) == 2 + len(settings_of(NodeConfig))
    assert "| `zookeeper` | TEXT,... | 127.0.0.1:2181 | `QUIRE_NODE_ZOOKEEPER` | Servers. |" in text
    assert (
        "| `digest` | crc32c\\|hmac | crc32c | `QUIRE_NODE_DIGEST` | Digest of new ledgers. |"
        in text
    )
    assert "| `data_dir` | PATH | required |" in text
    assert "| `sync` | BOOL | true |" in text
    assert "| `rack` | TEXT | none |" in text


def test_effective_settings_hide_secrets() -> None:
    shown = {
        str(row["name"]): row
        for row in effective(resolved("--data-dir=/d", QUIRE_NODE_PASSWORD="x"))
    }
    assert shown["password"]["value"] == "(hidden)"
    assert shown["password"]["source"] == "QUIRE_NODE_PASSWORD"
    assert shown["zookeeper"]["value"] == ["127.0.0.1:2181"]
    assert shown["digest"]["value"] == "crc32c"
    assert shown["data_dir"]["value"] == "/d"
    assert shown["ledger.ack_quorum"] == {
        "name": "ledger.ack_quorum",
        "value": 2,
        "source": "default",
        "doc": "Copies that must be durable.",
    }


def test_secrets_do_not_leak_into_errors() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Safe:
        """Secrets."""

        pin: int = setting(0, "Number.", secret=True)

    with pytest.raises(ConfigError) as caught:
        load(Safe, env_prefix="S_", environ={"S_PIN": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_secrets_are_no_flags() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Safe:
        """Secrets."""

        pin: str = setting("", "Number.", secret=True)

    with pytest.raises(ConfigError, match="everybody on this machine") as caught:
        load_program(Safe, prog="safe", env_prefix="S_", argv=["--pin=hunter2"], environ={})
    assert "hunter2" not in str(caught.value) and "S_PIN" in str(caught.value)
    found = load_program(Safe, prog="safe", env_prefix="S_", argv=[], environ={"S_PIN": "1"})
    assert found.config.pin == "1"


def test_an_undeclared_field_is_a_mistake_of_ours() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Bare:
        port: int = 1

    with pytest.raises(TypeError, match=r"Bare\.port is not declared"):
        resolve(Bare, env_prefix="B_", environ={})


def test_help_exits_cleanly(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Tiny:
        """Tiny program."""

        port: int = setting(1, "A port.")

    with pytest.raises(SystemExit) as exited:
        load_program(Tiny, prog="tiny", env_prefix="T_", argv=["--help"])
    said = capsys.readouterr()
    assert (exited.value.code, said.err) == (0, "")
    assert "--port INT" in said.out
