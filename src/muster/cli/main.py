"""`muster`: the table of all commands. Each is imported only when it is called, so that help stays quick."""

from __future__ import annotations

import importlib
import sys
from typing import Final, NoReturn

import click

from muster import __version__
from muster.cli.ending import CODES, Ended, ended_by
from muster.sdk.errors import SdkError

COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "up": ("muster.cli.up", "up", "Start the server."),
    "down": ("muster.cli.down", "down", "End all clusters and stop the server."),
    "demo": ("muster.cli.demo", "demo", "The whole story in a minute, and nothing left behind."),
    "backup": ("muster.cli.backup", "backup", "What a home remembers, in one file."),
    "restore": ("muster.cli.backup", "restore", "A home as it was when a backup was taken."),
    "doctor": ("muster.cli.doctor", "doctor", "What is left over of real nodes: nothing, always."),
    "env": ("muster.cli.env", "env", "Print exports for the shell."),
    "cluster": ("muster.cli.clusters", "cluster", "Slurm and Kubernetes clusters."),
    "ssh": ("muster.cli.ssh", "ssh", "Log in to a cluster, or run a command there."),
    "volume": ("muster.cli.volumes", "volume", "Shared storage that outlives clusters."),
    "ssh-key": ("muster.cli.access", "ssh_key", "Keys that are let into clusters."),
    "security-group": ("muster.cli.access", "security_group", "Which packets are let in."),
    "reserved-ip": ("muster.cli.access", "reserved_ip", "Addresses that stay yours."),
    "request": ("muster.cli.records", "request", "Asynchronous operations and their outcome."),
    "event": ("muster.cli.records", "event", "What happened, when, by whom, because of what."),
    "availability": ("muster.cli.reservations", "availability", "When could I have it?"),
    "quote": ("muster.cli.reservations", "quote", "A start and a price, held for ten minutes."),
    "reservation": ("muster.cli.reservations", "reservation", "Capacity promised for a time."),
    "capacity": ("muster.cli.records", "capacity", "What is free, where."),
    "replay": ("muster.cli.replay", "replay", "What would this fleet have done with that trace?"),
    "catalog": ("muster.cli.catalog", "catalog", "Regions, GPU types, instance types, images, prices."),
    "billing": ("muster.cli.billing", "billing", "Balance, statements, prices, top-ups, budgets, and the proof."),
    "account": ("muster.cli.accounts", "account", "Who pays."),
    "project": ("muster.cli.accounts", "project", "What owns clusters and volumes."),
    "member": ("muster.cli.accounts", "member", "Who may act in a project."),
    "key": ("muster.cli.accounts", "key", "API keys."),
    "whoami": ("muster.cli.accounts", "whoami", "Whose key this is."),
    "host": ("muster.cli.hosts", "host", "The operator's machines."),
    "pool": ("muster.cli.pools", "pool", "Hosts set apart for an account or a project."),
    "fleet": ("muster.cli.hosts", "fleet", "What this server runs on."),
    "fault": ("muster.cli.faults", "fault", "Trouble on demand, on a simulated fleet."),
    "profile": ("muster.cli.profiles", "profile", "Servers and keys remembered by name."),
    "completion": ("muster.cli.completion", "completion", "Completion for bash, zsh or fish."),
    "version": ("muster.cli.main", "version", "Print the version."),
}


class Root(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, _, sentence) in COMMANDS.items()])


EPILOG = CODES + (
    "\n\nFinds its server by --url and --api-key, MUSTER_URL and MUSTER_API_KEY, a profile, or the local home.\n"
    "MUSTER_CA_FILE names a certificate to trust beyond those of the system."
)


@click.group(cls=Root, name="muster", epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="muster")
def root() -> None:
    """Run your own GPU cloud: Slurm and Kubernetes clusters for many tenants, on machines you own."""


@click.command(name="version")
def version() -> None:
    """Print the version."""
    click.echo(__version__)


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and ends the process with its code."""
    try:
        # Click hands the code of an Exit back, like a value that somebody returned.
        code = root.main(args=arguments, prog_name="muster", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)  # the reader had enough: `muster event list | head`
    except SdkError as error:
        tell(ended_by(error))
    except click.ClickException as error:
        tell(error)
    if code:
        sys.exit(code)


def tell(error: click.ClickException) -> NoReturn:
    error.show()
    sys.exit(error.code if isinstance(error, Ended) else error.exit_code)


if __name__ == "__main__":
    main()
