"""Settings of HTTP ports, and files of tokens: what contradicts itself is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from client.config import load
from client.errors import ConfigError
from client.security.admin_access import (
    TOKENS_MAX,
    AdminAccess,
    Caller,
    Role,
    Tokens,
    check_admin_access,
    check_reachable,
    may_carry_token,
    roles_of,
)

LONG = "a-token-of-some-length"
PEM = Path("node.pem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(AdminAccess):
    """Settings of a program that has an HTTP port."""

    def __post_init__(self) -> None:
        check_admin_access(self)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"admin_read_token": "r"}, "admin_read_token has no effect without admin_token"),
        ({"admin_tokens_file": Path("t")}, "admin_tokens_file has no effect without admin_token"),
        ({"admin_token": "t", "admin_read_token": "t"}, "must differ"),
        ({"admin_tls_cert": PEM}, "admin_tls_cert and admin_tls_key must be set together"),
        (
            {"admin_tls_client_ca": PEM, "admin_principals": ("a:look",)},
            "admin_tls_client_ca needs admin_tls_cert",
        ),
        (
            {"admin_tls_cert": PEM, "admin_tls_key": PEM, "admin_tls_client_ca": PEM},
            "admin_tls_client_ca and admin_principals must be set together",
        ),
        ({"admin_principals": ("a:look",)}, "must be set together"),
        ({"admin_metrics_open": False}, "admin_metrics_open = false needs admin_token"),
        ({"admin_tls_principal_rules": "RULE:("}, "admin_tls_principal_rules"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Program(**settings)


def test_a_program_inherits_the_settings_and_takes_them_from_the_environment() -> None:
    found = load(
        Program, env_prefix="Q_", environ={"Q_ADMIN_TOKEN": "t", "Q_ADMIN_READ_TOKEN": "r"}
    )
    assert (found.admin_token, found.admin_read_token) == ("t", "r")
    assert "'r'" not in repr(found)


def test_names_of_certificates_have_roles() -> None:
    assert roles_of(("CN=a,O=b:look", "x:administer")) == {
        "CN=a,O=b": Role.LOOK,
        "x": Role.ADMINISTER,
    }
    for wrong in ("x", "x:", ":look", "x:all"):
        with pytest.raises(ConfigError, match="is not NAME:ROLE"):
            roles_of((wrong,))


def test_an_open_port_that_strangers_reach_can_be_refused() -> None:
    check_reachable(Program(), "127.0.0.1", why="x")
    check_reachable(Program(admin_token="t"), "0.0.0.0", why="x")
    for host in ("0.0.0.0", "", "10.0.0.1", "node1.example.org"):
        with pytest.raises(ConfigError, match="x needs admin_token"):
            check_reachable(Program(), host, why="x")


def test_tokens_go_by_tls_or_stay_on_the_machine() -> None:
    assert may_carry_token("https", "node1.example.org")
    assert may_carry_token("http", "127.0.0.1")
    assert not may_carry_token("http", "node1.example.org")


def _file(folder: Path, text: str) -> Program:
    path = folder / "tokens"
    path.write_text(text)
    return Program(admin_token="the first", admin_read_token="r", admin_tokens_file=path)


def test_a_file_names_tokens(tmp_path: Path) -> None:
    text = f"# who is who\n\nanna operate {LONG}\nbert look {LONG}-2\ncarl administer {LONG}-3\n"
    tokens = Tokens(_file(tmp_path, text))
    assert tokens.caller(LONG) == Caller("anna", Role.OPERATE)
    assert tokens.caller(f"{LONG}-2") == Caller("bert", Role.LOOK)
    assert tokens.caller(f"{LONG}-3") == Caller("carl", Role.ADMINISTER)
    assert tokens.caller("the first") == Caller("admin_token", Role.ADMINISTER, is_node=True)
    assert tokens.caller("r") == Caller("admin_read_token", Role.LOOK)
    for wrong in ("", "the firs", LONG[:-1], "\udc80", "#"):
        assert tokens.caller(wrong) is None
    assert Tokens(Program(admin_token="t")).caller("") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"anna all {LONG}", "line 1 is not NAME ROLE TOKEN"),
        (f"anna look {LONG} more", "line 1 is not NAME ROLE TOKEN"),
        ("\nanna look short", "line 2: a token has at least 16 characters"),
        (f"anna look {LONG}\nanna look {LONG}-2", "line 2: anna is there twice"),
        ("\xff", "is not"),
    ],
)
def test_what_is_no_such_file_is_said_without_a_token(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        Tokens(_file(tmp_path, text))
    assert LONG not in str(raised.value)


def test_a_file_is_bounded(tmp_path: Path) -> None:
    lines = "".join(f"n{number} look {LONG}-{number}\n" for number in range(TOKENS_MAX + 1))
    with pytest.raises(ConfigError, match=f"more than {TOKENS_MAX}"):
        Tokens(_file(tmp_path, lines))
    with pytest.raises(ConfigError, match="more than 1048576 bytes"):
        Tokens(_file(tmp_path, "#" * (1 << 21)))
    with pytest.raises(ConfigError, match="No such file"):
        Tokens(Program(admin_token="t", admin_tokens_file=tmp_path / "gone"))


@pytest.mark.parametrize("name", ["admin_token", "admin_read_token", "anybody"])
def test_no_line_has_the_name_of_another_token(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="another token"):
        Tokens(_file(tmp_path, f"{name} operate {LONG}\n"))
