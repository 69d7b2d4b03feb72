"""Finding the server and the key: what was typed, the environment, a profile, or the local home, in that order.

*Laws.* A key is only ever sent to the address it belongs to: a profile's key to the profile's address, a home's key
to the home's own server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.cli.ending import NOT_AUTHORISED, UNREACHABLE, Ended
from muster.settings import DEFAULT_HOME


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    key: str
    source: str  # for people: where this came from
    certificate: str | None = None  # what a server on our own home shows


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says about where to go."""

    url: str | None = None
    key: str | None = None
    profile: str | None = None
    home: str | None = None
    operator: bool = False


def home_path(said: str | None, environ: Mapping[str, str]) -> Path:
    return Path(said or environ.get("MUSTER_HOME") or DEFAULT_HOME).expanduser().absolute()


def config_path(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "muster" / "config.yaml"


def server_info(home: Path) -> dict[str, Any] | None:
    """What a server on this home wrote about itself, when it is still alive."""
    try:
        info = json.loads((home / "run" / "server.json").read_text())
    except (OSError, ValueError):
        return None
    alive = isinstance(info, dict) and isinstance(info.get("pid"), int) and is_alive(info["pid"])
    return info if alive else None


def is_alive(pid: int) -> bool:
    """Whether it still runs: one that ended and was not buried by its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")


def key_in_home(home: Path, operator: bool) -> str | None:
    try:
        return (home / ("operator.key" if operator else "tenant.key")).read_text().strip() or None
    except OSError:
        return None


def find_target(asked: Asked, environ: Mapping[str, str]) -> Target:
    if asked.profile or environ.get("MUSTER_PROFILE"):
        return of_profile(asked, asked.profile or environ["MUSTER_PROFILE"], environ)
    url = asked.url or environ.get("MUSTER_URL")
    if url:
        return of_address(asked, url.rstrip("/"), environ)
    home = home_path(asked.home, environ)
    info = server_info(home)
    if info is None and not asked.home:
        profile = current_profile(environ)
        if profile:
            return of_profile(asked, profile, environ)
    if info is None:
        raise Ended(f"no server runs on {home}", UNREACHABLE, "muster up, or set MUSTER_URL and MUSTER_API_KEY")
    return of_address(asked, str(info["url"]), environ)


def of_address(asked: Asked, url: str, environ: Mapping[str, str]) -> Target:
    home = home_path(asked.home, environ)
    info = server_info(home)
    own = info is not None and str(info.get("url")) == url
    # Keys in the environment belong to the address in the environment, when there is one.
    said = environ if environ.get("MUSTER_URL", url).rstrip("/") == url else {}
    candidates = [(asked.key, "--api-key")]
    if asked.operator:
        candidates.append((said.get("MUSTER_OPERATOR_KEY"), "MUSTER_OPERATOR_KEY"))
        candidates.append((key_in_home(home, True) if own else None, f"{home}/operator.key"))
    candidates.append((said.get("MUSTER_API_KEY"), "MUSTER_API_KEY"))
    candidates.append((key_in_home(home, False) if own else None, f"{home}/tenant.key"))
    for key, source in candidates:
        if key:
            return Target(url, key, source, info.get("tls_cert") if own and info is not None else None)
    raise Ended(f"no API key for {url}", NOT_AUTHORISED, "set MUSTER_API_KEY, or: eval $(muster env)")


def of_profile(asked: Asked, name: str, environ: Mapping[str, str]) -> Target:
    profiles = read_profiles(config_path(environ)).get("profiles", {})
    profile = profiles.get(name)
    if not isinstance(profile, dict) or "url" not in profile:
        known = ", ".join(sorted(profiles)) or "none yet"
        raise Ended(f"there is no profile {name} (known: {known})", UNREACHABLE, "muster profile add NAME --url URL")
    key = asked.key or (profile.get("operator_key") if asked.operator else None) or profile.get("api_key")
    if not key:
        raise Ended(f"profile {name} has no key", NOT_AUTHORISED, f"muster profile add {name} --key-file FILE")
    return Target(str(profile["url"]).rstrip("/"), str(key), f"profile {name}")


def current_profile(environ: Mapping[str, str]) -> str | None:
    current = read_profiles(config_path(environ)).get("current")
    return str(current) if current else None


def read_profiles(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    import yaml  # only those who keep profiles pay for it

    try:
        said = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise Ended(f"cannot read {path}: {error}") from None
    return said if isinstance(said, dict) else {}
