"""One frozen Settings. Every field has a unit, a default, a bound and a sentence, all in the one table below.

Leans on contracts for the names of durable steps only. *Laws.* A flag and its environment twin are derived from the
same row, so they cannot drift; a flag wins over the environment; a bad value is one clear sentence naming the flag;
secrets are never shown.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from muster.contracts.steps import Step


class BadSetting(ValueError):
    """A sentence for the person who typed it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table: what may be said of one field, and how."""

    name: str
    kind: str  # text | path | int | number | choice
    default: str | None
    sentence: str
    unit: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return "MUSTER_" + self.name.upper()

    def read(self, text: str) -> Any:
        """The typed value behind what somebody typed."""
        if self.kind == "choice":
            return self._chosen(text)
        if self.kind in ("int", "number"):
            return self._bounded(text)
        if self.kind == "path":
            return Path(text).expanduser().absolute()
        return text

    def _chosen(self, text: str) -> str:
        if text not in self.choices:
            raise BadSetting(f"{self.flag} must be one of {', '.join(self.choices)}, not {text!r}")
        return text

    def _bounded(self, text: str) -> float:
        number = self._number(text)
        low, high = self.least, self.most
        # Said so that what is no number at all (nan) is not within any bounds.
        if low is not None and high is not None and not low <= number <= high:
            raise BadSetting(f"{self.flag} must be between {low} and {high}{self._units()}, not {text}")
        return number

    def _number(self, text: str) -> float:
        try:
            return int(text) if self.kind == "int" else float(text)
        except ValueError:
            what = "a whole number" if self.kind == "int" else "a number"
            raise BadSetting(f"{self.flag} must be {what}{self._units(' of ')}, not {text!r}") from None

    def _units(self, join: str = " ") -> str:
        return f"{join}{self.unit}" if self.unit else ""


def default_home(*, root: bool) -> str:
    """Root's home is the system's: whoever answers there is an unprivileged user, who cannot see into /root."""
    return "/var/lib/muster" if root else "~/.muster"


DEFAULT_HOME: Final = default_home(root=os.geteuid() == 0)


def _number(name: str, default: str, unit: str, least: float, most: float, sentence: str) -> Setting:
    return Setting(name, "int", default, sentence, unit=unit, least=least, most=most)


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("home", "path", DEFAULT_HOME, "Where state, keys and the database live; 0700."),
    Setting("cache", "path", "~/.cache/muster", "Root file systems and built binaries, shared by all homes."),
    Setting("host", "text", "127.0.0.1", "The address to listen on."),
    _number("port", "8787", "", 0, 65535, "The port to listen on; 0 takes any free one and prints it."),
    Setting(
        "insecure_bind",
        "text",
        None,
        "Repeat the value of --host to listen beyond loopback without TLS: keys then travel in the clear.",
    ),
    Setting("tls_cert", "path", None, "A PEM certificate chain; with --tls-key the server speaks HTTPS."),
    Setting("tls_key", "path", None, "The PEM private key of --tls-cert."),
    Setting(
        "fleet",
        "choice",
        "auto",
        "Where hosts come from: local (real nodes on this machine), simulated or none; "
        "auto keeps what the home has, else takes local where it can run.",
        choices=("auto", "simulated", "local", "none"),
    ),
    Setting(
        "world",
        "path",
        None,
        "The file a simulated fleet lives in, one for all servers on one PostgreSQL; in the home when not given.",
    ),
    Setting("fleet_file", "path", None, "A YAML file with the catalogue and hosts to import at first start."),
    _number("hosts", "64", "hosts", 1, 1_000_000, "How many GPU hosts the demo fleet has."),
    Setting("database", "text", None, "sqlite:///PATH or postgresql://…; a SQLite file in the home when not given."),
    Setting("operator_key", "text", None, "The operator's API key; made at first start when not given.", secret=True),
    Setting("operator_key_file", "path", None, "A file that holds the operator's API key."),
    Setting(
        "tenant_key", "text", None, "The demo tenant's API key; made at first start when not given.", secret=True
    ),
    Setting("tenant_key_file", "path", None, "A file that holds the demo tenant's API key."),
    Setting(
        "role",
        "choice",
        "all",
        "What this process does: answer requests, move resources, or both.",
        choices=("all", "api", "engine"),
    ),
    Setting(
        "time_scale",
        "number",
        "1",
        "Divides the simulated drivers' durations; the clock stays real.",
        unit="times",
        least=0.01,
        most=100_000,
    ),
    _number("seed", "0", "", 0, 2**63 - 1, "Of the simulated world's dice."),
    Setting("log_format", "choice", "text", "How log lines look.", choices=("text", "json")),
    Setting(
        "log_level",
        "choice",
        "info",
        "The least serious line that is logged; debug logs every request.",
        choices=("debug", "info", "warning", "error"),
    ),
    Setting(
        "limits",
        "choice",
        "on",
        "Whether calls per key are limited; off is for benchmarks.",
        choices=("on", "off"),
    ),
    _number("rate_limit", "100", "requests a second", 1, 1_000_000, "Steady rate allowed to one key."),
    _number("rate_burst", "200", "requests", 1, 1_000_000, "How many requests one key may save up."),
    _number("calls_limit", "256", "calls", 1, 100_000, "Calls and streams one key may hold open at once."),
    _number("body_limit", "1048576", "bytes", 1_024, 1 << 30, "The longest request body that is read."),
    Setting(
        "oidc_issuers",
        "choice",
        "public",
        "Which OIDC issuers tenants may name: public ones, or any, also inside this network.",
        choices=("public", "any"),
    ),
    _number("engine_share", "5", "percent", 1, 100, "Of the process's time the engine may take while calls wait."),
    _number("unfunded_grace_hours", "72", "hours", 0, 87_600, "How long what cannot be paid for is kept, stopped."),
    _number("credit_warning_hours", "24", "hours", 0, 87_600, "An account is told when its credit lasts no longer."),
    _number(
        "autoscale_idle_seconds",
        "600",
        "seconds",
        1,
        604_800,
        "How long a grown worker may be idle.",
    ),
    _number("autoscale_cool_down_seconds", "60", "seconds", 1, 86_400, "Between two changes of size by the queue."),
    _number(
        "preemption_notice_seconds",
        "300",
        "seconds",
        1,
        86_400,
        "How long jobs on preemptible GPUs are told before their node is taken back.",
    ),
    _number("leaf_patience_minutes", "240", "minutes", 0, 2_880, "How long a gang that waits may wait for one leaf."),
    _number("event_retention_days", "90", "days", 1, 36_500, "How long the event log is kept."),
    Setting(
        "object_storage",
        "choice",
        "off",
        "Whether this server runs an S3 server (versitygw, in the cache's bin or on the PATH) for its accounts.",
        choices=("off", "on"),
    ),
    Setting(
        "failpoint",
        "text",
        None,
        "STEP:before or STEP:after, several by commas: the process kills itself there. For crash tests only.",
    ),
)
BY_NAME: Final = {row.name: row for row in SETTINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the server was told, checked. Made by `read`; the meaning of each field is its row's sentence."""

    home: Path
    cache: Path
    host: str
    port: int
    insecure_bind: str | None
    tls_cert: Path | None
    tls_key: Path | None
    fleet: str
    world: Path | None
    fleet_file: Path | None
    hosts: int
    database: str
    operator_key: str | None
    operator_key_file: Path | None
    tenant_key: str | None
    tenant_key_file: Path | None
    role: str
    time_scale: float
    seed: int
    log_format: str
    log_level: str
    limits: str
    rate_limit: int
    rate_burst: int
    calls_limit: int
    body_limit: int
    oidc_issuers: str
    engine_share: int
    unfunded_grace_hours: int
    credit_warning_hours: int
    autoscale_idle_seconds: int
    autoscale_cool_down_seconds: int
    preemption_notice_seconds: int
    leaf_patience_minutes: int
    event_retention_days: int
    object_storage: str
    failpoint: str | None

    @property
    def answers(self) -> bool:
        return self.role in ("all", "api")

    @property
    def moves(self) -> bool:
        return self.role in ("all", "engine")

    @property
    def scheme(self) -> str:
        return "https" if self.tls_cert else "http"

    def __repr__(self) -> str:
        shown = (f"{n}={'…' if BY_NAME[n].secret else getattr(self, n)!r}" for n in self.__slots__)
        return f"Settings({', '.join(shown)})"


def read(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Flags (by field name; None = not given) over the environment over the defaults."""
    unknown = set(flags) - set(BY_NAME)
    if unknown:
        raise BadSetting(f"there is no setting {sorted(unknown)[0]!r}")
    values = {row.name: _value(row, flags.get(row.name), environ.get(row.env)) for row in SETTINGS}
    values["operator_key"] = _key(values, "operator_key")
    values["tenant_key"] = _key(values, "tenant_key")
    if values["database"] is None:
        values["database"] = f"sqlite:///{values['home']}/muster.db"
    settings = Settings(**values)
    _check(settings)
    return settings


def _value(row: Setting, flag: Any, env: str | None) -> Any:
    # An empty environment variable is how scripts say "not set".
    said = flag if flag is not None else (env or None)
    said = row.default if said is None else said
    return None if said is None else row.read(str(said))


def _key(values: Mapping[str, Any], name: str) -> str | None:
    """A key said outright, or the one in its file."""
    said: str | None = values[name]
    path: Path | None = values[f"{name}_file"]
    if said is not None and path is not None:
        raise BadSetting(f"give either {BY_NAME[name].flag} or {BY_NAME[f'{name}_file'].flag}, not both")
    if path is not None:
        try:
            said = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"{BY_NAME[f'{name}_file'].flag}: cannot read {path}: {error}") from None
    if said is not None and (len(said) < 8 or not said.isascii() or not said.isprintable() or " " in said):
        raise BadSetting(f"{BY_NAME[name].flag} must be at least 8 printable ASCII characters without spaces")
    return said


def _check(settings: Settings) -> None:
    """What no row can check alone."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise BadSetting("--tls-cert and --tls-key belong together: give both or neither")
    for path in (settings.tls_cert, settings.tls_key, settings.fleet_file):
        if path is not None and not path.is_file():
            raise BadSetting(f"there is no file {path}")
    if not settings.database.startswith(("sqlite:///", "postgresql://", "postgres://")):
        raise BadSetting("--database must be sqlite:///PATH or postgresql://USER@HOST/NAME")
    if settings.world is not None and settings.database.startswith("sqlite:"):
        raise BadSetting("--world is for several servers on one PostgreSQL; on SQLite a home has its own")
    if settings.operator_key is not None and settings.operator_key == settings.tenant_key:
        raise BadSetting("--operator-key and --tenant-key must differ: a tenant is not the operator")
    _check_failpoint(settings.failpoint)
    _check_bind(settings)


def _check_failpoint(doors: str | None) -> None:
    if doors is None:
        return
    known = {f"{step}:{side}" for step in Step for side in ("before", "after")}
    for door in sorted(set(doors.split(",")) - known):
        raise BadSetting(f"--failpoint must look like {Step.CLUSTER_ACCEPT}:before or :after, not {door!r}")


def _check_bind(settings: Settings) -> None:
    """Beyond loopback without TLS every key can be read on the way: it must be said twice."""
    if _is_loopback(settings.host) or settings.tls_cert is not None:
        return
    if settings.insecure_bind != settings.host:
        raise BadSetting(
            f"refusing to listen on {settings.host} without TLS, where API keys could be read on the way: "
            f"give --tls-cert and --tls-key, or say it twice with --host {settings.host} "
            f"--insecure-bind {settings.host}"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
