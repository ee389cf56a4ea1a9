"""`quire schemas`: a schema registry on a topic, in the foreground."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import click

from client.config import load
from client.errors import QuireError
from client.pubsub.brokers import Brokers
from ops.cli.addresses import bootstrap_option
from ops.cli.console import run, say
from ops.cli.options import settings_options
from ops.schemas.config import SchemasConfig

_ENV_PREFIX: Final = "QUIRE_SCHEMAS_"
_NEEDED: Final = ("avro", "jsonschema", "grpc_tools")


def _check_installed() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise QuireError(
            f"the registry needs {', '.join(missing)}: run `pip install avro jsonschema"
            " grpcio-tools googleapis-common-protos`"
        )


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="TOML file with settings; options take precedence.",
)
@settings_options(SchemasConfig)
@bootstrap_option
def schemas(bootstrap_servers: Brokers, config: Path | None, **flags: object) -> None:
    """Run a schema registry in the foreground until Ctrl-C.

    It speaks the REST API of Confluent's serializers and keeps everything in one compacted topic.
    Any number of registries may run on the same topic, and each takes writes. Secrets, such as
    admin_token, come from the file or the environment (QUIRE_SCHEMAS_ADMIN_TOKEN).

    \b
    Examples:
      quire schemas
      quire schemas --port 8082 --compatibility FULL
      curl http://127.0.0.1:8081/subjects
    """
    _check_installed()
    # The libraries of the three languages are loaded only here: `quire --help` stays fast.
    from ops.schemas.program import serve

    settings = load(SchemasConfig, toml_path=config, env_prefix=_ENV_PREFIX, flags=flags)
    run(serve(settings, bootstrap_servers, say))
