"""A person at a terminal: answers prompts of a program that runs on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import time

from .conftest import STORY_SECONDS_MAX


class Terminal:
    """`expect` waits until the program has printed something; `type` answers it."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self.shown = ""
        self._read = 0
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.execve(command[0], command, environ)

    def expect(self, text: str) -> None:
        ends = time.monotonic() + STORY_SECONDS_MAX
        while (found := self._plain().find(text, self._read)) < 0:
            assert time.monotonic() < ends, f"no {text!r} in:\n{self._plain()}"
            assert self._more(), f"it ended before {text!r}:\n{self._plain()}"
        self._read = found + len(text)

    def type(self, text: str) -> None:
        os.write(self._fd, f"{text}\r".encode())

    def answer(self, question: str, text: str) -> None:
        self.expect(question)
        self.type(text)

    def end(self) -> int:
        while self._more():
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.shown).replace("\r", "")

    def _more(self) -> bool:
        """Whether there is more to come; reads some of it."""
        ready, _, _ = select.select([self._fd], [], [], 1.0)
        if not ready:
            return True
        try:
            chunk = os.read(self._fd, 65536)
        except OSError:
            return False
        self.shown += chunk.decode("utf-8", "replace")
        return bool(chunk)
