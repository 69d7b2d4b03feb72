"""What a host may be told to be, and what may be changed of one that is in use. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from muster.errors import Invalid, Protected
from muster.model.base import Part
from muster.model.hosts import Host, HostRole

SLOTS_MAX: Final = 62
"""A lease's slots are a bit mask in one signed 64-bit column."""

NAME_CHARS_MAX: Final = 63

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class HostSpec(Part, frozen=True, kw_only=True):
    """A machine as its owner describes it. `slots` is its GPUs, or the control slices it carries."""

    name: str
    region: str
    pod: str = "pod-0"
    leaf: str = "leaf-0"
    role: HostRole = HostRole.GPU
    gpu_type: str = ""
    slots: int
    cpus: int
    memory_gib: int


def check_spec(spec: HostSpec, regions: Collection[str], gpu_types: Collection[str]) -> None:
    if len(spec.name) > NAME_CHARS_MAX or not _NAME.fullmatch(spec.name):
        raise Invalid(
            f"{spec.name!r} is no host name: 1 to {NAME_CHARS_MAX} letters, digits, dots and dashes", field="name"
        )
    if spec.region not in regions:
        raise Invalid(
            f"host {spec.name}: there is no region {spec.region}", field="region", hint=_known("regions", regions)
        )
    if not spec.pod or not spec.leaf:
        raise Invalid(f"host {spec.name}: pod and leaf say where it is plugged in; leave them out or fill them in")
    if not 1 <= spec.slots <= SLOTS_MAX:
        raise Invalid(f"host {spec.name}: slots must be between 1 and {SLOTS_MAX}", field="slots")
    if spec.cpus < 1 or spec.memory_gib < 1:
        raise Invalid(f"host {spec.name}: cpus and memory_gib must be at least 1", field="cpus")
    if spec.role is HostRole.CONTROL and spec.gpu_type:
        raise Invalid(f"host {spec.name}: a control host has no GPUs", field="gpu_type", hint="leave gpu_type out")
    if spec.role is HostRole.GPU and spec.gpu_type not in gpu_types:
        raise Invalid(
            f"host {spec.name}: there is no GPU type {spec.gpu_type or '(none given)'}",
            field="gpu_type",
            hint=_known("GPU types", gpu_types),
        )


def _known(what: str, among: Collection[str]) -> str:
    return f"known {what}: {', '.join(sorted(among)) or 'none yet'}"


def differences(host: Host, spec: HostSpec) -> dict[str, Any]:
    """The fields that an import would change."""
    wanted = {
        "region": spec.region,
        "pod": spec.pod,
        "leaf": spec.leaf,
        "role": spec.role,
        "gpu_type": spec.gpu_type,
        "slots": spec.slots,
        "cpus": spec.cpus,
        "memory_gib": spec.memory_gib,
    }
    return {name: value for name, value in wanted.items() if getattr(host, name) != value}


def check_change(host: Host, fields: dict[str, Any], leased: int) -> None:
    """What is leased of a host must still be there afterwards, and be what was leased."""
    if not leased:
        return
    identity = {"region", "role", "gpu_type"} & set(fields)
    if identity:
        raise Protected(
            f"host {host.name} is leased: its {' and '.join(sorted(identity))} cannot change now",
            field=min(identity),
            hint=f"muster host cordon {host.name}, and import it again when it is empty",
        )
    if fields.get("slots", host.slots) < leased.bit_length():
        raise Protected(
            f"host {host.name}: slot {leased.bit_length() - 1} is leased, so it cannot shrink to {fields['slots']}",
            field="slots",
            hint=f"muster host cordon {host.name}, and import it again when it is empty",
        )


def described(host: Host) -> str:
    what = f"{host.slots} x {host.gpu_type}" if host.role is HostRole.GPU else f"{host.slots} control slices"
    return f"{host.name}: {what} in {host.region}, {host.pod}, {host.leaf}"
