"""Reading what people hand over in files: YAML or JSON, or `-` for what is piped in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from muster.cli.ending import USAGE, Ended


def read_text(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Ended(f"cannot read {path}: {error}", USAGE) from None


def read_data(path: str) -> Any:
    """YAML reads JSON too."""
    import yaml

    try:
        return yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise Ended(f"{path} is neither YAML nor JSON: {error}", USAGE) from None


def read_list(path: str, key: str) -> list[dict[str, Any]]:
    """A list of things: bare, or under `key`."""
    data = read_data(path)
    things = data.get(key) if isinstance(data, dict) else data
    if not isinstance(things, list) or not all(isinstance(thing, dict) for thing in things):
        raise Ended(f"{path} must hold a list of {key}, bare or under '{key}:'", USAGE)
    return things
