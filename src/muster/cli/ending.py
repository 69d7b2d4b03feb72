"""How a command ends: exit codes for scripts, and errors as a sentence with a way out."""

from __future__ import annotations

import os
from typing import Final

import click

from muster.sdk.errors import ApiError, SdkError, TimedOut, Unreachable, Untrusted

FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4
NOT_AUTHORISED: Final = 5
TIMED_OUT: Final = 6
UNREACHABLE: Final = 7

CODES: Final = """\b
Exit codes, for scripts:
  0  done                          4  refused: conflict, quota, stock, stale
  1  failed                        5  not authorised
  2  wrong usage or invalid value  6  timed out while waiting
  3  not found                     7  server unreachable
"""


def as_typed(command: str) -> str:
    """A command that begins with our name, as whoever reads it reaches us: perhaps ./muster."""
    if command.startswith("muster "):
        return os.environ.get("MUSTER_COMMAND", "muster") + command.removeprefix("muster")
    return command


class Ended(click.ClickException):
    """A command that ends early: a sentence, an exit code, and perhaps a hint."""

    def __init__(self, message: str, code: int = FAILED, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint

    def show(self, file: object = None) -> None:
        click.echo(click.style("error: ", fg="red") + self.message, err=True)
        if self.hint:
            click.echo(f"  try: {as_typed(self.hint)}", err=True)


def code_for(error: ApiError) -> int:
    """By code where it says more than the status: a quota is a 403 and yet no question of rights."""
    if error.code == "invalid" or error.status == 400:
        return USAGE
    if error.code in ("unauthenticated", "forbidden"):
        return NOT_AUTHORISED
    if error.status == 404:
        return NOT_FOUND
    return REFUSED if error.status < 500 else FAILED


def ended_by(error: SdkError) -> Ended:
    """Any end of an SDK call in the words of the command line."""
    if isinstance(error, ApiError):
        # What broke on the server's side can be found in its log by this.
        named = error.request_id if error.status >= 500 else error.field
        where = f" ({named})" if named else ""
        hint = "--as-operator" if error.hint == "use the operator's key" else error.hint
        return Ended(f"{error.detail}{where}", code_for(error), hint)
    if isinstance(error, TimedOut):
        return Ended(f"timed out: {error}", TIMED_OUT, "wait longer with --timeout; it goes on by itself meanwhile")
    if isinstance(error, Untrusted):
        return Ended(str(error), UNREACHABLE, "set MUSTER_CA_FILE to the certificate it shows, or to who signed that")
    if isinstance(error, Unreachable):
        return Ended(str(error), UNREACHABLE, "muster up, or set MUSTER_URL")
    return Ended(str(error))
