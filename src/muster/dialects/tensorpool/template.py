"""A job's configuration: the file that `tp job init` writes, with comments that teach, and how it is read back."""

from __future__ import annotations

import tomllib
from typing import Any, Final

import msgspec

from muster.errors import Invalid
from muster.model.jobs import JobSpec

TEMPLATE: Final = """\
# A job: what is run, and what is brought home. Push it with `tp job push THIS_FILE CLUSTER_ID`.

# Run one after the other by bash, in the directory you pushed from and a fresh Python environment of the job's own;
# the first that fails ends the job. They start on the first node; `srun` in a command reaches all nodes.
commands = [
  # "pip install -r requirements.txt",
  # "srun python train.py",
]

# Files to keep when the job is over, even after the cluster is gone: `tp job pull JOB_ID` fetches them.
# Patterns relative to this directory; ** goes any depth.
outputs = [
  # "checkpoints/**/*.pt",
  # "results.json",
]

# What the job is to do without, though it lies in this directory.
ignore = [
  ".git",
  ".venv",
  "**/__pycache__",
]
"""


def read_spec(text: str) -> JobSpec:
    try:
        told: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(f"the job's configuration is not TOML: {error}", field="tp_config") from None
    unknown = sorted(set(told) - {"commands", "outputs", "ignore"})
    if unknown:
        raise Invalid(
            f"a job's configuration knows no {unknown[0][:60]!r}",
            field="tp_config",
            hint="it has commands, outputs and ignore; the cluster is named on the command line",
        )
    try:
        return msgspec.convert({"commands": (), **told}, JobSpec)
    except msgspec.ValidationError as error:
        raise Invalid(f"the job's configuration is not understood: {error}", field="tp_config") from None
