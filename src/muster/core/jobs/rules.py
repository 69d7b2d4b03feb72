"""What a job may ask for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from muster.errors import Invalid
from muster.model.jobs import JobSpec, Output

COMMANDS_MAX: Final = 200
COMMAND_CHARS_MAX: Final = 16_384
GLOBS_MAX: Final = 100
GLOB_CHARS_MAX: Final = 512
OUTPUTS_MAX: Final = 1_000
OUTPUT_BYTES_MAX: Final = 1 << 30
"""Of all outputs of a job together; what is beyond stays on the cluster."""


def checked(spec: JobSpec) -> JobSpec:
    if not spec.commands:
        raise Invalid("a job needs at least one command", field="commands", hint='commands = ["python train.py"]')
    if len(spec.commands) > COMMANDS_MAX:
        raise Invalid(f"a job has at most {COMMANDS_MAX} commands", field="commands")
    for command in spec.commands:
        if not command.strip() or len(command) > COMMAND_CHARS_MAX or "\0" in command:
            raise Invalid(f"a command has 1 to {COMMAND_CHARS_MAX} characters", field="commands")
    _check_globs(spec.outputs, "outputs")
    _check_globs(spec.ignore, "ignore")
    return spec


def _check_globs(globs: Iterable[str], field: str) -> None:
    listed = list(globs)
    if len(listed) > GLOBS_MAX:
        raise Invalid(f"{field} has at most {GLOBS_MAX} patterns", field=field)
    for glob in listed:
        if not is_inside(glob) or len(glob) > GLOB_CHARS_MAX:
            raise Invalid(
                f"{field}: {glob[:80]!r} does not stay inside the job's directory",
                field=field,
                hint="checkpoints/*.pt",
            )


def is_inside(path: str) -> bool:
    """A relative path that leads nowhere else, whoever reads it."""
    parts = path.replace("\\", "/").split("/")
    return bool(path) and path.isprintable() and not path.startswith(("/", "~", "\\")) and ".." not in parts


def worth_keeping(found: Iterable[Output]) -> tuple[Output, ...]:
    """As many as fit, in their order."""
    kept: list[Output] = []
    room = OUTPUT_BYTES_MAX
    for output in found:
        if is_inside(output.path) and len(output.path) <= GLOB_CHARS_MAX and output.size <= room:
            kept.append(output)
            room -= output.size
        if len(kept) == OUTPUTS_MAX:
            break
    return tuple(kept)
