"""A Unix socket's path as the kernel takes it: at most 107 bytes, however deep the home lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 107


@contextmanager
def short(path: Path) -> Iterator[str]:
    """The path itself, or the same place by way of a descriptor of its folder."""
    if len(os.fsencode(path)) <= BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
