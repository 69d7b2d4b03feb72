"""What the kernel holds for a home, asked of the kernel and not of hostd, and which of it no record accounts for.

Leans on state's records, read only. Laws: a home is known by its id and its path, so other homes on the machine are
never mentioned; looking changes nothing; what is on its way up or down is not called an orphan: hostd writes a record
before the deed and forgets it after, so only what two looks agree on is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from muster.hostd.builder import GATEWAY_MAC
from muster.hostd.homes import SPARE
from muster.hostd.processes import start_time
from muster.hostd.state import FabricRecord

CGROUPS: Final = Path("/sys/fs/cgroup")
RUN: Final = Path("/run/muster")


class Trace(NamedTuple):
    """One thing the kernel holds, and the record it must have, as ("fabric", KEY); ("hostd", "") is hostd's own."""

    what: str
    needs: tuple[str, str]

    def __str__(self) -> str:
        return self.what


class Home(NamedTuple):
    path: Path
    id: str

    @staticmethod
    def at(path: Path) -> Home | None:
        """None where hostd never was."""
        found = path.resolve() / "hostd" / "home-id"
        return Home(path.resolve(), found.read_text().strip()) if found.exists() else None

    @property
    def marks(self) -> tuple[str, str]:
        """Where its things are seen by hostd, and by everybody else."""
        return f"{RUN}/{self.id}", f"{self.path}/hostd"


def unaccounted(home: Home) -> list[str]:
    """What is ours and belongs to nothing, in two looks; nothing, always."""
    looks = [{str(trace) for trace in traces(home) if not _accounted(trace, home)} for _ in range(2)]
    return sorted(looks[0] & looks[1])


def traces(home: Home) -> list[Trace]:
    """Everything the kernel holds for this home."""
    parts: tuple[Callable[[Home], Iterable[Trace]], ...] = (_cgroups, _view, _ranges, _loops, _links, _mounts)
    return [trace for part in (*parts, _processes) for trace in part(home)]


def owners(home: Home) -> dict[str, str]:
    """Who each record says it belongs to, by "kind KEY"."""
    found = {}
    for kind in ("fabric", "node", "volume"):
        for path in (home.path / "hostd" / f"{kind}s").glob("*/record.json"):
            record = _read(path)
            if record is not None:
                found[f"{kind} {path.parent.name}"] = record.owner
    return found


class _Owned(msgspec.Struct):
    owner: str


def _read(path: Path) -> _Owned | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Owned)
    except OSError:
        return None


def _accounted(trace: Trace, home: Home) -> bool:
    kind, key = trace.needs
    if kind == "hostd":
        return _has_records(home) or bool(hostds(home.path))
    return kind != "" and (home.path / "hostd" / f"{kind}s" / key / "record.json").exists()


def _has_records(home: Home) -> bool:
    return any((home.path / "hostd" / "fabrics").glob("*/record.json"))


def _cgroups(home: Home) -> Iterator[Trace]:
    for top in _named(CGROUPS, f"muster-{home.id}"):
        yield Trace(f"cgroup {top}", ("hostd", ""))
        for directory, _, _ in os.walk(top):
            inner = Path(directory).relative_to(top).parts
            if 1 <= len(inner) <= 2:
                yield Trace(f"cgroup {directory}", _needs(inner))


def _named(root: Path, name: str) -> Iterator[Path]:
    """Folders of this name anywhere below; what vanishes while we look is passed over."""
    for directory, inner, _ in os.walk(root):
        if name in inner:
            inner.remove(name)
            yield Path(directory) / name


def _needs(inner: tuple[str, ...]) -> tuple[str, str]:
    """The record behind a place in the tree FABRIC/NODE."""
    if len(inner) < 2 or inner[1] == "fabric":
        return "fabric", inner[0]
    return "node", inner[1]


def _view(home: Home) -> Iterator[Trace]:
    if (RUN / home.id).exists():
        yield Trace(f"directory {RUN / home.id}", ("hostd", ""))


def _ranges(home: Home) -> Iterator[Trace]:
    for file in (RUN / "ids").glob("*"):
        words = _text(file).split()
        if words[:1] == [home.id]:
            yield Trace(f"uid range {file.name}", ("fabric", words[-1]))


def _loops(home: Home) -> Iterator[Trace]:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        file = _text(backing).strip()
        mark = next((mark for mark in home.marks if file.startswith(f"{mark}/")), None)
        if mark is not None:
            kind, key, *_ = (*file.removeprefix(f"{mark}/").split("/"), "")
            needs = ("hostd", "") if kind == SPARE else (kind.removesuffix("s"), key)
            yield Trace(f"loop device {backing.parts[3]} of {file}", needs)


def _links(home: Home) -> Iterator[Trace]:
    """A fabric's links live in its own namespace; one in the machine's is an orphan of whatever home."""
    for link in Path("/sys/class/net").glob("v-*"):
        if _text(link / "address").strip() == GATEWAY_MAC.hex(":"):
            yield Trace(f"link {link.name}", ("", ""))


def _mounts(home: Home) -> Iterator[Trace]:
    """hostd and the nodes mount in namespaces of their own: in the machine's there is nothing of ours."""
    for line in _text(Path("/proc/self/mountinfo")).splitlines():
        point = line.split()[4]
        if _below(point, home.marks):
            yield Trace(f"mount {point}", ("", ""))


def _below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _processes(home: Home) -> Iterator[Trace]:
    networks = _networks(home)
    for pid in _pids():
        directory = Path(f"/proc/{pid}")
        needs = _why_ours(directory, home, networks)
        if needs is not None and pid != os.getpid():
            words = _text(directory / "cmdline").replace("\0", " ").strip()[:80]
            yield Trace(f"process {pid}: {words}", needs)


def _why_ours(directory: Path, home: Home, networks: dict[str, str]) -> tuple[str, str] | None:
    """By its cgroup, which no tenant can forge; by a fabric's marker; by a mount or a network it holds."""
    inside = re.search(rf"/muster-{home.id}/(\S+)", _text(directory / "cgroup"))
    if inside is not None:
        return _needs(tuple(inside[1].split("/")))
    marker = re.search(rf"MUSTER_FABRIC={home.id}/([^\0]+)", _text(directory / "environ"))
    if marker is not None:
        return "fabric", marker[1]
    if _is_hostd(directory, home.path):
        return "hostd", ""
    points = (line.split()[4] for line in _text(directory / "mountinfo").splitlines())
    if any(_below(point, home.marks) for point in points):
        return "", ""
    network = _network(directory)
    return ("", "") if network in networks else None


def hostds(home: Path) -> list[int]:
    """The hostd of this home: one, or none; two for the moment in which the second learns of the first."""
    return [pid for pid in _pids() if _is_hostd(Path(f"/proc/{pid}"), home.resolve())]


def _is_hostd(directory: Path, home: Path) -> bool:
    words = _text(directory / "cmdline").split("\0")
    return "muster.hostd" in words and str(home) in words


def _networks(home: Home) -> dict[str, str]:
    """The network namespaces of this home's fabrics."""
    found = {}
    for path in (home.path / "hostd" / "fabrics").glob("*/record.json"):
        said = _text(path)  # empty when it has gone meanwhile
        holder = msgspec.json.decode(said, type=FabricRecord).holder if said else None
        network = _network(Path(f"/proc/{holder.pid}")) if holder is not None and holder.alive else ""
        if network:
            found[network] = path.parent.name
    return found


def _network(directory: Path) -> str:
    try:
        return os.readlink(directory / "ns" / "net")
    except OSError:
        return ""


def _pids() -> list[int]:
    """The living: one that ended and was not buried by its parent holds nothing."""
    found = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in found if start_time(pid) is not None]


def _text(path: Path) -> str:
    """What cannot be read has gone meanwhile."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
