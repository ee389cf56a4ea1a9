"""The reference pages of the handbook, made from the code.

    python -m ops.docs.reference

writes `ops/handbook/reference`; a test compares the pages with what this makes, so no setting,
command, operation or error lacks its row, and no row names what is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from bookie.config import BookieConfig
from broker.admin import table as admin_table
from broker.admin.request import PREFIX
from broker.cluster.core.topic_config import TOPIC_KEYS, TopicKey
from broker.config import BrokerConfig
from broker.faults import CODES
from broker.front.config_listing import AS_CONFIGURED
from broker.front.handlers.registry import needs_by_api
from broker.settings.core.dynamic_settings import DEFAULTS_OF_TOPICS, FIELDS
from client.config import Setting, default_text, settings_of
from client.wire.kafka.apis import ApiKey
from ops.autorecovery import AutoRecoveryProgram
from ops.cli.main import COMMANDS, quire
from ops.docs.error_advice import ADVICE
from ops.docs.port_table import ports
from ops.schemas.config import SchemasConfig
from ops.security.roles import ROLES, Role, entries_of

FOLDER: Final = Path(__file__).resolve().parent.parent / "handbook" / "reference"
MADE: Final = "<!-- Made by `python -m ops.docs.reference`: change the code, then run it. -->"

PROGRAMS: Final[Mapping[str, tuple[type, str]]] = {
    "Brokers": (BrokerConfig, "QUIRE_BROKER_"),
    "Bookies": (BookieConfig, "QUIRE_BOOKIE_"),
    "Auto recovery": (AutoRecoveryProgram, "QUIRE_AUTORECOVERY_"),
    "Schema registries": (SchemasConfig, "QUIRE_SCHEMAS_"),
}
"""Title -> settings, and how their variables begin."""


def pages() -> dict[str, str]:
    """Return name of a file -> its text."""
    made = {
        "SETTINGS.md": _settings(),
        "TOPIC_SETTINGS.md": _topic_settings(),
        "COMMANDS.md": _commands(),
        "HTTP_API.md": _http_api(),
        "PORTS.md": _ports(),
        "ACLS.md": _acls(),
        "ERRORS.md": _errors(),
    }
    return {name: "\n".join([*lines, ""]) for name, lines in made.items()}


def rows(head: Sequence[str], cells: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in cells:
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _page(title: str, *text: str) -> list[str]:
    return [f"# {title}", "", MADE, "", *(line for one in text for line in (one, ""))]


# --- settings


def _settings() -> list[str]:
    lines = _page(
        "Settings",
        "Every setting of every program. A later place takes precedence: the default, the file"
        " (`--config FILE`, TOML; a name with a dot stands in a table of that name), the"
        " variable, the flag (`--` and the name, with dashes). Secrets are never flags. A setting"
        " that is *dynamic* can be changed while brokers run, by Kafka's name with"
        " `kafka-configs` (entity type `brokers`); all others count from the next start. Units"
        " are the last part of a name.",
    )
    for title, (cls, prefix) in PROGRAMS.items():
        is_broker = cls is BrokerConfig
        head = ["name", "variable", "default", "range or choices", "meaning"]
        if is_broker:
            head[1:1] = ["Kafka's name"]
            head[-1:-1] = ["dynamic"]
        cells = (_setting(one, prefix, is_broker=is_broker) for one in settings_of(cls))
        lines += [f"## {title}", "", *rows(head, cells), ""]
    return lines[:-1]


def _setting(one: Setting, prefix: str, *, is_broker: bool) -> list[str]:
    dynamic = [f"`{name}`" for name, key in FIELDS.items() if key.field == one.key]
    known = [f"`{name}`" for name, (key, _) in AS_CONFIGURED.items() if key == one.key]
    default = default_text(one).removeprefix("default ")
    cells = [f"`{one.key}`", f"`{one.variable(prefix)}`", default, _range(one), one.doc]
    if is_broker:
        cells[1:1] = [", ".join([*dynamic, *known])]
        cells[-1:-1] = ["yes" if dynamic else "no"]
    return cells


def _range(one: Setting) -> str:
    if "|" in one.metavar:
        return one.metavar.replace("|", ", ")
    return _bounds(one.at_least, one.at_most) or one.metavar.lower()


def _bounds(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f"{least} to {most}"
    if least is not None:
        return f"at least {least}"
    return "" if most is None else f"at most {most}"


def _topic_settings() -> list[str]:
    keys = list(TOPIC_KEYS.values())
    defaults = {key.topic_key: name for name, key in DEFAULTS_OF_TOPICS.items()}
    head = ("name", "default", "range or choices", "default for all topics", "meaning")

    def table(chosen: Iterable[TopicKey]) -> list[str]:
        return [
            *rows(
                head,
                (
                    (
                        f"`{key.name}`", key.default or "none",
                        ", ".join(key.choices) or _bounds(key.at_least, key.at_most)
                        or key.kind.name.lower(),
                        f"`{defaults[key.name]}`" if key.name in defaults else "", key.doc,
                    )
                    for key in chosen
                ),
            ),
            "",
        ]  # fmt: skip

    return [
        *_page(
            "Topic settings",
            "A topic stores what was set for it, with `quire topic create --config`, `quire topic"
            " alter --config` or `kafka-configs`; everything else has the default below, or the"
            " one that was set for all topics by the broker's dynamic setting in the fourth"
            " column. `quire topic config NAME` shows what is in effect.",
        ),
        "## With an effect", "", *table(key for key in keys if key.effect),
        "## Stored only", "",
        "Kafka's tools read and write these; they are checked, stored and returned, and change"
        " nothing"
        " here.", "", *table(key for key in keys if not key.effect),
    ][:-1]  # fmt: skip


# --- commands and the HTTP API


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield every command below one, with what is typed for it."""
    context = command.make_context(path, [], resilient_parsing=True)
    yield path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from walk(below, f"{path} {name}")


def _commands() -> list[str]:
    lines = _page(
        "Commands",
        "`quire --help` and the help of each command say the same. Every command that asks a"
        " cluster finds it as [How commands find the"
        " cluster](../../HANDBOOK.md#how-commands-find-the-cluster) says.",
    )
    lines += [*rows(("command", "what it does"), ((f"[`quire {name}`](#quire-{name})", row.help)
              for name, row in COMMANDS.items())), ""]  # fmt: skip
    for path, command, context in walk(quire, "quire"):
        level = min(path.count(" ") + 1, 3)
        words = (command.help or "").split("\b")[0].split("\f")[0].split("\n\n")
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        lines += ["#" * (level + 1) + f" {path}" if path != "quire" else "## Options of all", ""]
        lines += [
            f"`{usage}`",
            "",
            *(f"{' '.join(word.split())}\n" for word in words if word.strip()),
        ]
        options = [one for one in (_option(each, context) for each in command.params) if one]
        if options:
            lines += [*rows(("option", "meaning"), options), ""]
    return lines[:-1]


def _option(parameter: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    if not isinstance(parameter, click.Option) or parameter.hidden:
        return None
    record = parameter.get_help_record(context)
    if record is None or "--help" in parameter.opts:
        return None
    text = record[1] if record[1].endswith((".", "]")) else f"{record[1]}."
    return f"`{record[0]}`", text


def _http_api() -> list[str]:
    lines = _page(
        "HTTP API of brokers",
        "`/openapi.json` of any broker describes each operation in full, with the schemas of what"
        " it takes and gives. The role is the one that a token or a certificate needs ([Admin"
        " ports](../SECURE.md#admin-ports)). Beside these there are `/healthz`, `/readyz`,"
        " `/metrics`, `/openapi.json` and the page `/`. The paths of bookies are those of Apache"
        " BookKeeper's (`bookie/admin/server.py` has their roles), those of schema registries"
        " Confluent's (`ops/schemas/rights.py`).",
    )
    return [
        *lines,
        *rows(
            ("method and path", "role", "what it does"),
            (
                (f"`{one.method} {PREFIX}{one.path}`", one.role.word, one.summary)
                for one in admin_table.OPERATIONS
            ),
        ),
    ]


# --- who talks to whom, and may do what


def _ports() -> list[str]:
    lines = _page(
        "Ports, and who talks to whom",
        "Numbers are those of the samples in [deploy](../../deploy/README.md); every one can be"
        " changed. All programs listen on loopback until a setting names another address. Nothing"
        " else listens, and no program connects to the internet, unless `security.oauth_jwks` is"
        " a URL.",
    )
    cells = ((f"{one.number}", one.of, one.setting, one.protocol, one.reached_by, one.closed_by)
             for one in ports())  # fmt: skip
    head = ("port", "of", "setting", "protocol", "who connects", "what closes it")
    picture = "![Who connects to whom, and what each shows](../../docs/pictures/ports.svg)"
    return [*lines, picture, "", *rows(head, cells)]


def _title(name: str) -> str:
    return "".join(word.title() for word in name.split("_"))


def _acls() -> list[str]:
    lines = _page(
        "ACL operations by API",
        "What each API asks for, if `security.authorization` is on; the part of a request that"
        " nobody may do is refused, the rest is served. Super users may do everything. `All`"
        " includes every operation; `Read`, `Write`, `Delete` and `Alter` include `Describe`, and"
        " `AlterConfigs` includes `DescribeConfigs`. Where an API has several rows of a kind, the"
        " request decides which of them are asked for.",
    )
    cells = []
    for key, needs in sorted(needs_by_api().items(), key=lambda item: ApiKey(item[0]).name):
        by_kind: dict[str, set[str]] = {}
        for need in needs:
            by_kind.setdefault(_title(need.kind.name), set()).add(_title(need.operation.name))
        shown = [f"{', '.join(sorted(ops))} on {kind}" for kind, ops in sorted(by_kind.items())]
        cells.append((_title(ApiKey(key).name), "; ".join(shown) or "nothing"))
    lines += [*rows(("API", "asks for"), cells), "", "## Roles", ""]
    lines += ["`quire acl grant` creates these entries, here for topic `orders`.", ""]
    made = []
    for name in ROLES:
        role = Role("User:anna", name, "orders", group="billing" if name == ROLES[0] else "")
        entries = ["{2} on {3} `{4}` ({5})".format(*one.words()) for one in entries_of(role)]
        made.append((name, "; ".join(entries)))
    return [*lines, *rows(("role", "entries"), made)]


def _errors() -> list[str]:
    lines = _page(
        "Errors, and what to do",
        "The codes that brokers answer with. Most clients repeat by themselves what is"
        " *repeated*: such an error is seen only if it lasts. Answers have a sentence beside the"
        " code, which says more; the sentences of commands say what to do, and Spark's errors are"
        " in [its page](../../../client/spark/README.md).",
    )
    by_code: dict[Any, list[type]] = {}
    for kind, code in CODES.items():
        by_code.setdefault(code, []).append(kind)
    cells = []
    for code, kinds in sorted(by_code.items(), key=lambda item: int(item[0])):
        meanings = dict.fromkeys(_first_sentence(kind) for kind in kinds)
        repeats = any(getattr(kind, "retriable", False) for kind in kinds)
        cells.append((str(int(code)), f"`{code.name.upper()}`", "repeated" if repeats else "",
                      " ".join(meanings), ADVICE[code]))  # fmt: skip
    return [*lines, *rows(("code", "name", "by clients", "meaning", "what to do"), cells)]


def _first_sentence(kind: type) -> str:
    text = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return text if text.endswith(".") else f"{text}."


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {(FOLDER / name).name}\n")


if __name__ == "__main__":
    main()
