"""`quire completion`: what makes a shell complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_QUIRE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete commands, options and names.

    Topics, groups and brokers are asked of the admin API at QUIRE_ADMIN. Bash must be 4.4 or
    newer. A line for ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish:

    \b
    Examples:
      eval "$(quire completion bash)"
      eval "$(quire completion zsh)"
      quire completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    print(kind(ctx.find_root().command, {}, "quire", VARIABLE).source())
