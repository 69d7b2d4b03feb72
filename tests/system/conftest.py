"""System tests run real daemons on real namespaces: they need root and a prepared machine, and say so when they skip.

Where CI is set and we are root, a missing piece is a failure: a suite that skips itself proves nothing.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.testing.local import residue, why_not
from muster.testing.local_server import LocalServer


@pytest.fixture
def machine() -> None:
    """Asked for by every test that needs real nodes."""
    because = why_not()
    if because and os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(f"this machine should run real nodes: {because}")
    if because:
        pytest.skip(because)


@pytest.fixture
def server(machine: None, tmp_path: Path) -> Iterator[LocalServer]:
    """Muster on a real local fleet of its own, which leaves nothing behind."""
    made = LocalServer(tmp_path)
    made.up()
    try:
        yield made
    finally:
        made.down()
        assert residue(made.home, made.home_id) == []
