"""ssh-key, security-group, reserved-ip: how people and packets get in."""

from __future__ import annotations

import re
from pathlib import Path

import click

from muster.cli.ending import USAGE, Ended
from muster.cli.files import read_list, read_text
from muster.cli.nouns import Shown, add_delete, add_list, add_show
from muster.cli.show import Thing
from muster.cli.verb import Session, Verb, group, project_id, project_option

SSH_KEY = Shown(
    "ssh key",
    lambda client: client.ssh_keys,
    [("NAME", "name"), ("FINGERPRINT", "fingerprint"), ("ID", "id"), ("CREATED", "created_at")],
)


def rule_words(rule: Thing) -> str:
    ports = (
        f"{rule['port_min']}-{rule['port_max']}" if rule.get("port_min") != rule.get("port_max") else rule["port_min"]
    )
    return f"{rule['direction']} {rule['protocol']} {ports} {rule['cidr']}"


SECURITY_GROUP = Shown(
    "security group",
    lambda client: client.security_groups,
    [("NAME", "name"), ("RULES", lambda group: [rule_words(rule) for rule in group["rules"]]), ("ID", "id")],
)
RESERVED_IP = Shown(
    "reserved ip",
    lambda client: client.reserved_ips,
    [("ADDRESS", "address"), ("REGION", "region"), ("CLUSTER", "cluster_id"), ("ID", "id")],
)
USUAL_KEYS = ("id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub")


@group("ssh-key", "SSH keys that are let into the project's clusters.")
def ssh_key() -> None: ...


@group("security-group", "Security groups: which packets are let in and out.")
def security_group() -> None: ...


@group("reserved-ip", "Reserved addresses: they stay yours across clusters.")
def reserved_ip() -> None: ...


for noun, shown in ((ssh_key, SSH_KEY), (security_group, SECURITY_GROUP), (reserved_ip, RESERVED_IP)):
    add_list(noun, shown)
    add_show(noun, shown)
add_delete(ssh_key, SSH_KEY, "remove", "removed")
add_delete(security_group, SECURITY_GROUP)
add_delete(reserved_ip, RESERVED_IP, "release", "released")


def usual_key_file() -> str:
    for name in USUAL_KEYS:
        path = Path("~/.ssh").expanduser() / name
        if path.exists():
            return str(path)
    raise Ended("no public key found in ~/.ssh", USAGE, "name a file, or make one: ssh-keygen -t ed25519")


@ssh_key.command("add", cls=Verb)
@click.argument("name")
@click.argument("file", required=False)
@project_option
@click.pass_obj
def add_ssh_key(session: Session, name: str, file: str | None, project: str | None) -> None:
    """Let the public key in FILE (yours in ~/.ssh when not given; '-' reads standard input) into clusters."""
    text = read_text(file or usual_key_file()).strip()
    if "PRIVATE KEY" in text:
        raise Ended("that is a private key; it stays where it is", USAGE, "name the .pub file")
    within = project_id(session, project)
    session.one(session.client.ssh_keys.create(name=name, public_key=text, project_id=within), SSH_KEY.columns)


ssh_key.add_command(add_ssh_key, "create")


def parse_rule(text: str) -> Thing:
    """inbound:tcp:22[:10.0.0.0/8], inbound:udp:60000-61000, outbound:any."""
    matched = re.fullmatch(
        r"(inbound|outbound):(tcp|udp|icmp|any)(?::(\d+)(?:-(\d+))?)?(?::([0-9a-fA-F.:]+/\d+))?", text
    )
    if not matched:
        raise Ended(f"{text!r} is no rule", USAGE, "like inbound:tcp:22:10.0.0.0/8 or outbound:any")
    direction, protocol, low, high, cidr = matched.groups()
    rule: Thing = {"direction": direction, "protocol": protocol}
    if low:
        rule |= {"port_min": int(low), "port_max": int(high or low)}
    return rule | ({"cidr": cidr} if cidr else {})


rules_option = click.option("--rule", "rules", multiple=True, help="inbound:tcp:22:10.0.0.0/8; may be repeated.")
file_option = click.option("--rules-file", help="A YAML or JSON list of rules.")


def told_rules(rules: tuple[str, ...], rules_file: str | None) -> list[Thing]:
    return [parse_rule(rule) for rule in rules] + (read_list(rules_file, "rules") if rules_file else [])


@security_group.command("create", cls=Verb)
@click.argument("name")
@rules_option
@file_option
@project_option
@click.pass_obj
def create_group(
    session: Session, name: str, rules: tuple[str, ...], rules_file: str | None, project: str | None
) -> None:
    """Make a security group. What no rule permits is refused."""
    told = told_rules(rules, rules_file)
    within = project_id(session, project)
    session.one(
        session.client.security_groups.create(name=name, rules=told, project_id=within), SECURITY_GROUP.columns
    )


@security_group.command("set-rules", cls=Verb)
@click.argument("name_or_id")
@rules_option
@file_option
@click.pass_obj
def set_rules(session: Session, name_or_id: str, rules: tuple[str, ...], rules_file: str | None) -> None:
    """Replace all rules of a security group."""
    found = session.client.security_groups.find(name_or_id)
    told = told_rules(rules, rules_file)
    changed = session.client.security_groups.set_rules(
        found["id"], name=found["name"], rules=told, if_version=found["version"]
    )
    session.one(changed, SECURITY_GROUP.columns)


@reserved_ip.command("reserve", cls=Verb)
@click.argument("region")
@project_option
@click.pass_obj
def reserve(session: Session, region: str, project: str | None) -> None:
    """Keep an address in a region."""
    within = project_id(session, project)
    session.one(session.client.reserved_ips.create(region=region, project_id=within), RESERVED_IP.columns)


reserved_ip.add_command(reserve, "create")
