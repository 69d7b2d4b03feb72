"""Rules of security groups: what makes sense, in one canonical form. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

import msgspec.structs

from muster.errors import Invalid
from muster.model.access import Rule

RULES_MAX: Final = 100
DESCRIPTION_CHARS_MAX: Final = 255
PORT_MAX: Final = 65_535

_DIRECTIONS: Final = ("inbound", "outbound")
_PROTOCOLS: Final = ("tcp", "udp", "icmp", "any")
_WITH_PORTS: Final = ("tcp", "udp")


def checked_rules(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules as they are kept: networks canonical, repetitions dropped, order as given."""
    if len(rules) > RULES_MAX:
        raise Invalid(f"a security group has at most {RULES_MAX} rules", field="rules")
    return tuple(dict.fromkeys(_checked(rule, f"rules[{at}]") for at, rule in enumerate(rules)))


def _checked(rule: Rule, field: str) -> Rule:
    _one_of(rule.direction, _DIRECTIONS, f"{field}.direction")
    _one_of(rule.protocol, _PROTOCOLS, f"{field}.protocol")
    _check_ports(rule, field)
    if len(rule.description) > DESCRIPTION_CHARS_MAX or not rule.description.isprintable():
        raise Invalid(
            f"a description has at most {DESCRIPTION_CHARS_MAX} printable characters", field=f"{field}.description"
        )
    return msgspec.structs.replace(rule, cidr=_network(rule.cidr, f"{field}.cidr"))


def _one_of(value: str, known: Sequence[str], field: str) -> None:
    if value not in known:
        raise Invalid(f"{value!r} is not one of {', '.join(known)}", field=field)


def _check_ports(rule: Rule, field: str) -> None:
    if not 0 <= rule.port_min <= rule.port_max <= PORT_MAX:
        raise Invalid(
            f"ports go from 0 to {PORT_MAX}, the smaller one first", field=f"{field}.port_min", hint="e.g. 22 to 22"
        )
    everything = (rule.port_min, rule.port_max) == (0, PORT_MAX)
    if rule.protocol not in _WITH_PORTS and not everything:
        raise Invalid(
            f"{rule.protocol} has no ports", field=f"{field}.port_min", hint="leave the ports out, or use tcp or udp"
        )


def _network(cidr: str, field: str) -> str:
    try:
        return str(ipaddress.ip_network(cidr.strip(), strict=True))
    except ValueError as error:
        raise Invalid(
            f"{cidr!r} is not a network", field=field, hint="e.g. 10.0.0.0/8, 203.0.113.7/32, ::/0"
        ) from error
