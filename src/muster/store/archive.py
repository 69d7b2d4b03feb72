"""What jobs leave behind, as files beside the store: DIRECTORY/job id/part.

Laws: those of contracts/jobs.py. Job ids and parts are ours and checked all the same, so that no name is ever a path.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Final

_JOB: Final = re.compile(r"[0-9a-zA-Z-]{1,64}")
_PART: Final = re.compile(r"log|\d{1,6}")


class DirectoryArchive:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def write(self, job_id: str, part: str, offset: int, data: bytes) -> None:
        await asyncio.to_thread(self._write, self._file(job_id, part), offset, data)

    async def read(self, job_id: str, part: str, offset: int, limit: int) -> bytes:
        return await asyncio.to_thread(self._read, self._file(job_id, part), offset, limit)

    def _file(self, job_id: str, part: str) -> Path:
        if not _JOB.fullmatch(job_id) or not _PART.fullmatch(part):
            raise ValueError(f"nothing is kept under {job_id!r}, {part!r}")
        return self._directory / job_id / part

    def _write(self, file: Path, offset: int, data: bytes) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(opened, data[written:], offset + written)
            os.fsync(opened)
        finally:
            os.close(opened)

    def _read(self, file: Path, offset: int, limit: int) -> bytes:
        try:
            opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(opened, limit, offset)
        finally:
            os.close(opened)
