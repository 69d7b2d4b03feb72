"""Log lines, for people (text) or machines (json), each with the id of the call it belongs to, none with a secret.

Leans on the standard library. *Laws.* What looks like a key never reaches a line, wherever it came from; the call's
id travels in a context variable, so no function has to hand it on.
"""

from __future__ import annotations

import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

CALL_ID: Final[ContextVar[str]] = ContextVar("call_id", default="")

_SECRET: Final = re.compile(r"(?i)\b(bearer\s+|mk-|api[_-]?key[=:]\s*)[A-Za-z0-9._~+/=-]{6,}|://([^:/@\s]+):[^@\s]+@")
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


def hide_secrets(text: str) -> str:
    """The same text with anything that looks like a credential blotted out."""
    return _SECRET.sub(lambda m: f"{m.group(1)}[hidden]" if m.group(1) else f"://{m.group(2)}:[hidden]@", text)


class _Lines(logging.Formatter):
    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        call_id = CALL_ID.get()
        extra = {k: v for k, v in vars(record).items() if k not in _STANDARD}
        return {**({"request_id": call_id} if call_id else {}), **extra}

    def trouble(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""

    def stamp(self, record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {k}={v}" for k, v in self.fields(record).items())
        line = f"{self.stamp(record)} {record.levelname.lower():7} {record.name}: {record.getMessage()}{fields}"
        trouble = self.trouble(record)
        return hide_secrets(f"{line}\n{trouble}" if trouble else line)


class JsonLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": self.stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.fields(record),
        }
        trouble = self.trouble(record)
        if trouble:
            line["exception"] = trouble
        return hide_secrets(msgspec.json.encode(line, enc_hook=str).decode())


def set_up_logs(log_format: str, level: str) -> None:
    """Every logger writes to standard error, in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[level])
    # The server library tells its life story at info; ours says the same once.
    logging.getLogger("uvicorn").setLevel(max(_LEVELS[level], logging.WARNING))
