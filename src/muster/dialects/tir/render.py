"""The house's nouns as TIR tells them. Pure: what a document needs beside its noun is handed in.

Leans on model, answers and words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import NamedTuple

from muster.core.clusters.snapshot import ClusterView
from muster.dialects.tir import answers, words
from muster.dialects.tir.translate import FLAVOURS, SAID
from muster.model.access import ReservedIp, Rule, SecurityGroup, SshKey
from muster.model.accounts import Account, Project
from muster.model.base import SECOND, Instant
from muster.model.catalog import InstanceType, Price
from muster.model.clusters import NodeRole
from muster.model.phases import SERVING
from muster.model.volumes import Volume


class Beside(NamedTuple):
    """What belongs to a project and is told with its clusters."""

    project: Project
    keys: Mapping[str, SshKey]  # by public key
    groups: Mapping[str, SecurityGroup]  # by id
    ips: Mapping[str, ReservedIp]  # by the cluster they lead to
    makers: Mapping[str, str]  # names by created_by
    prices: Mapping[str, Price]  # hourly, by instance type and region


def moment(at: Instant) -> str:
    text = datetime.fromtimestamp(at / SECOND, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def cluster_of(view: ClusterView, beside: Beside) -> answers.Cluster:
    cluster, spec, shape = view.cluster, view.cluster.spec, view.instance_type
    said = spec.config.said.get(SAID, {})
    price = beside.prices.get(f"{spec.instance_type}@{spec.region}")
    ip = beside.ips.get(cluster.id)
    mounts = _mounts(view)
    script = spec.config.scripts.lifecycle
    return answers.Cluster(
        id=cluster.number,
        uuid=cluster.id,
        name=cluster.name,
        status=words.STATUS[cluster.phase],
        status_reason=cluster.because,
        cluster_type=spec.type,
        location=spec.region,
        project_id=beside.project.number,
        created_by=answers.Who(id=beside.project.number, name=beside.makers.get(cluster.created_by, "")),
        created_at=moment(cluster.created_at),
        updated_at=moment(cluster.updated_at),
        sku_id=shape.number if shape else 0,
        sku=None if shape is None else sku_of(shape),
        sku_item_price_id=said.get("sku_item_price_id", price.number if price else None),
        committed_days=said.get("committed_days", 0),
        ends_at=None if cluster.ends_at is None else moment(cluster.ends_at),
        no_of_nodes=spec.workers,
        image_version_id=view.image.number if view.image else 0,
        image_name=view.image.title if view.image else "",
        ssh_key_ids=[beside.keys[text].number for text in spec.ssh_keys if text in beside.keys],
        security_group_ids=[beside.groups[id].number for id in spec.security_group_ids if id in beside.groups],
        reserved_ip=None if ip is None else ip_of(ip, cluster.number),
        login=_login(view),
        nodes=_nodes(view),
        sfs_mount_list=mounts["sfs_mount_list"],
        pfs_mount_list=mounts["pfs_mount_list"],
        dataset_mount_list=mounts["dataset_mount_list"],
        script_added=bool(script),
        lifecycle_script=script,
    )


def sku_of(shape: InstanceType) -> answers.Sku:
    return answers.Sku(id=shape.number, name=shape.id, cpu=shape.cpus, gpu=shape.gpus, memory=shape.memory_gib)


def _login(view: ClusterView) -> answers.Login | None:
    access = view.cluster.status.access
    if view.cluster.phase not in SERVING or not access.ssh_host:
        return None
    return answers.Login(host=access.ssh_host, port=access.ssh_port, user=access.ssh_user)


def _nodes(view: ClusterView) -> list[answers.ClusterNode]:
    roles = {NodeRole.WORKER: "worker", NodeRole.CONTROLLER: "controller", NodeRole.LOGIN: "login"}
    return [
        answers.ClusterNode(
            id=node.id,
            name=node.name,
            role=roles[node.role],
            status=words.NODE_STATUS[node.phase],
            ip_address=node.address,
        )
        for node in view.nodes
    ]


def _mounts(view: ClusterView) -> dict[str, list[answers.Mount]]:
    lists: dict[str, list[answers.Mount]] = {field: [] for field in FLAVOURS}
    for attachment, volume in view.mounts:
        field = next(field for field, flavours in FLAVOURS.items() if volume.flavour in flavours)
        lists[field].append(
            answers.Mount(
                id=volume.number,
                name=volume.name,
                mount_path=attachment.mount_path,
                read_only=attachment.read_only,
            )
        )
    return lists


def key_of(key: SshKey) -> answers.SshKey:
    return answers.SshKey(
        id=key.number, pk=key.number, label=key.name, ssh_key=key.public_key, created_at=moment(key.created_at)
    )


def ip_of(ip: ReservedIp, cluster: int | None) -> answers.ReservedIp:
    return answers.ReservedIp(
        id=ip.number,
        ip_address=ip.address,
        status="Attached" if ip.cluster_id else "Available",
        location=ip.region,
        cluster_id=cluster,
        created_at=moment(ip.created_at),
    )


def group_of(group: SecurityGroup) -> answers.SecurityGroup:
    return answers.SecurityGroup(
        id=group.number, name=group.name, rules=rules_of(group.rules), created_at=moment(group.created_at)
    )


def rules_of(rules: Sequence[Rule]) -> list[answers.SecurityRule]:
    return [_rule(rule, number) for number, rule in enumerate(rules, 1)]


def _rule(rule: Rule, number: int) -> answers.SecurityRule:
    network = ip_network(rule.cidr)
    whole = (rule.port_min, rule.port_max) == (0, 65535)
    single = rule.port_min == rule.port_max
    ports = "All" if whole else str(rule.port_min) if single else f"{rule.port_min}-{rule.port_max}"
    return answers.SecurityRule(
        id=number,
        rule_type=rule.direction,
        protocol=words.PROTOCOL[rule.protocol],
        protocol_type=words.PROTOCOL_TYPE[rule.protocol],
        network_type="any" if network.prefixlen == 0 else "manual",
        ports=[ports],
        cidr_ip=str(network.network_address),
        cidr_subnet=network.prefixlen,
        description=rule.description,
    )


def volume_of(volume: Volume, project: Project) -> answers.Volume:
    return answers.Volume(
        id=volume.number,
        name=volume.name,
        disk_size=volume.size_gib,
        status=words.VOLUME_STATUS[volume.phase],
        location=volume.region,
        project_id=project.number,
        created_at=moment(volume.created_at),
    )


def team_of(account: Account) -> answers.Team:
    return answers.Team(team_id=account.number, team_name=account.name, id=account.number, name=account.name)


def project_of(project: Project, team: int) -> answers.Project:
    return answers.Project(
        project_id=project.number,
        project_name=project.name,
        id=project.number,
        name=project.name,
        team_id=team,
        created_at=moment(project.created_at),
    )
