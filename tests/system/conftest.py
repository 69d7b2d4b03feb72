"""System tests run real daemons on real namespaces: they need root and a prepared machine, and say so when they skip.

Where CI is set and we are root, a missing piece is a failure: a suite that skips itself proves nothing.
"""

import os

import pytest

from muster.testing.local import why_not


@pytest.fixture
def machine() -> None:
    """Asked for by every test that needs real nodes."""
    because = why_not()
    if because and os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(f"this machine should run real nodes: {because}")
    if because:
        pytest.skip(because)
