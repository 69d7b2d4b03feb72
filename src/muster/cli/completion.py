"""`muster completion`: the shell's own completion script, printed or installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from muster.cli.ending import Ended

PLACES: Final = {
    "bash": "~/.local/share/bash-completion/completions/muster",
    "zsh": "~/.zfunc/_muster",
    "fish": "~/.config/fish/completions/muster.fish",
}


def script(shell: str) -> str:
    from muster.cli.main import root

    maker = get_completion_class(shell)
    if maker is None:
        raise Ended(f"no completion for {shell}")
    return maker(root, {}, "muster", "_MUSTER_COMPLETE").source()


@click.command("completion")
@click.argument("shell", type=click.Choice(list(PLACES)))
@click.option("--install", is_flag=True, help="Put it where the shell looks for it.")
def completion(shell: str, install: bool) -> None:
    """Print (or --install) completion: eval "$(muster completion bash)"."""
    if not install:
        click.echo(script(shell))
        return
    place = Path(PLACES[shell]).expanduser()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(script(shell) + "\n", encoding="utf-8")
    click.echo(f"written to {place}; it works in the next shell")
    if shell == "zsh":
        click.echo("(zsh looks there when ~/.zshrc says: fpath+=~/.zfunc; autoload -U compinit; compinit)")
