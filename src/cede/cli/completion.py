"""`cede completion SHELL`: the script by which a shell completes commands, options and names."""

from __future__ import annotations

import click

from cede.cli.values import OneOf

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=OneOf(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script: `cede completion bash > …/completions/cede`."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(ctx.find_root().command, {}, "cede", "_CEDE_COMPLETE").source())
