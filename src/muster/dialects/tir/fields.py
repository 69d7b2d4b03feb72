"""What becomes of every field of TIR's wire: spoken, derived, constant or refused. docs/dialects/tir.md is made from
this table, and tests hold it against the structs here.

| spoken | carried both ways: what was said is kept and acted on, what is kept is told |
| derived | computed from what the house knows |
| constant | always the same here, or read and not acted on |
| refused | understood, and refused in a sentence |
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from muster.dialects.tir import answers, wire


class Kind(StrEnum):
    SPOKEN = "spoken"
    DERIVED = "derived"
    CONSTANT = "constant"
    REFUSED = "refused"


class Section(NamedTuple):
    """One body; `struct` is what we read or write it with."""

    title: str
    struct: type[msgspec.Struct]
    fields: tuple[tuple[str, Kind, str], ...]


def _section(title: str, struct: type[msgspec.Struct], text: str) -> Section:
    """Lines of `kind name: sentence`."""
    rows = (line.strip().partition(": ") for line in text.strip().splitlines())
    return Section(title, struct, tuple((head.split()[1], Kind(head.split()[0]), tail) for head, _, tail in rows))


REQUESTS: Final = (
    _section(
        "Create a training cluster",
        wire.NewCluster,
        """
        spoken name: 1 to 63 printable characters, unique among the project's living clusters
        spoken image_version_id: a Slurm or NeMo image of the location, from deployment_images
        spoken ssh_key_ids: at least one of the project's; on every node
        spoken security_group_id: inbound and outbound of every node
        spoken sku_id: from cluster/plans
        spoken sku_item_price_id: a price of that SKU and location: by the hour, or for 30, 90 or 365 days upfront
        spoken no_of_nodes: at least 1
        spoken script_added: true exactly when there is a lifecycle_script
        spoken lifecycle_script: run as root on every node after it started; Bash, unless it begins with #!
        spoken sfs_mount_list: volumes made as SFS here, or as shared storage through another door
        spoken pfs_mount_list: volumes made as PFS
        spoken dataset_mount_list: volumes of the flavour dataset, mounted read-only
        """,
    ),
    _section(
        "A mount",
        wire.MountItem,
        """
        spoken id: the volume's
        constant name: not looked at; the id decides
        spoken mount_path: absolute, and no other mount's
        """,
    ),
    _section(
        "update_ssh_keys", wire.UpdateSshKeys, "spoken ssh_key_ids: replace the keys of every node, while it runs"
    ),
    _section("update_image", wire.UpdateImage, "spoken image_version_id: every node is booted anew in place with it"),
    _section(
        "scale_cluster", wire.ScaleCluster, "spoken additional_nodes: at least 1; this wire has no way to shrink"
    ),
    _section("attach_ip", wire.AttachIp, "spoken reserved_ip_id: one of the cluster's location; a cluster has one"),
    _section(
        "detach_ip",
        wire.DetachIp,
        """
        spoken reserved_ip_id: the one that is attached
        constant ip_type: its values are not documented; not looked at
        """,
    ),
    _section("add_security_group", wire.AddSecurityGroup, "spoken security_groups_ids: added to those it has"),
    _section(
        "remove_security_group", wire.RemoveSecurityGroup, "spoken security_group_id: any but the cluster's last one"
    ),
    _section(
        "Add an SSH key",
        wire.NewSshKey,
        """
        spoken label: its name
        spoken ssh_key: a public key; the same one again is the one that is there
        """,
    ),
    _section(
        "Create a security group",
        wire.NewSecurityGroup,
        """
        spoken name: unique in the project
        constant description: not kept
        spoken rules: as below; PUT rules takes the array alone and replaces them all
        """,
    ),
    _section(
        "A rule",
        wire.RuleItem,
        """
        spoken rule_type: inbound or outbound
        spoken protocol: TCP, UDP, ICMP or All
        spoken protocol_type: AllTraffic means every protocol; else protocol decides
        spoken network_type: any, or manual with an address
        spoken ports: numbers, words of digits, ranges like 8000-8080, or All; told back as one rule per range
        spoken cidr_ip: a network's address, with or without its length
        spoken cidr_subnet: the length; 32 unless said
        spoken description: up to 255 printable characters
        """,
    ),
    _section(
        "Create SFS or PFS",
        wire.NewVolume,
        """
        spoken name: unique among the project's living volumes
        spoken disk_size: in GiB
        """,
    ),
    _section("Grow SFS or PFS", wire.VolumeSize, "spoken disk_size: in GiB, larger than it is"),
    _section(
        "Submit a PyTorch job",
        wire.NewJob,
        """
        spoken name: its name, and the beginning of its pods' names
        constant job_type: PytorchJob, whatever is said
        constant job_cpu: not looked at; a job has the cluster's nodes to itself
        constant job_gpu: not looked at; replicas on a node share its GPUs
        constant job_memory: not looked at
        spoken cluster_id: a running cluster of the project
        spoken sfs_id: one that the cluster mounts
        constant sfs_mount_path: not looked at; it is where the cluster mounts it
        spoken master_replica: tasks that run master_commands, the first of the job
        spoken master_commands: base64 of a list of words, written as Python does
        spoken worker_replica: tasks that run worker_commands
        spoken worker_commands: as master_commands
        constant image_url: not pulled; it runs in the cluster's own image
        constant image_type: not looked at
        constant image_pull_policy: not looked at
        spoken environment: variables of every replica, on the wire as environmentVariable; RANK and others are set
        """,
    ),
    _section(
        "A variable",
        wire.Variable,
        """
        spoken key: its name
        spoken value: its value
        """,
    ),
    _section(
        "Create a token", wire.NewToken, "spoken token_name: its name; the token may do what the caller's key may"
    ),
    _section("Create a team", wire.NewTeam, "spoken team_name: an account here; the operator's to make"),
    _section("Create a project", wire.NewProject, "spoken project_name: the operator's to make"),
)

ANSWERS: Final = (
    _section(
        "A training cluster",
        answers.Cluster,
        """
        derived id: the cluster's number
        derived uuid: its id through every other door
        spoken name: as created
        derived status: see the table of phases
        derived status_reason: why it is in that phase, in a sentence
        derived cluster_type: slurm; clusters made through other doors may be kubernetes
        spoken location: its region
        derived project_id: the project's number
        derived created_by: the key or member it was made by
        derived created_at: RFC 3339
        derived updated_at: RFC 3339
        spoken sku_id: as created
        derived sku: what such a node has
        spoken sku_item_price_id: as created; through other doors, the hourly price
        spoken committed_days: of that price
        derived ends_at: when its commitment is over and it goes; counted from its first being Running
        spoken no_of_nodes: workers wished for
        spoken image_version_id: as wished
        derived image_name: its title
        spoken ssh_key_ids: those of its keys that are saved in the project
        spoken security_group_ids: all of them
        spoken reserved_ip: the address that leads to its login node
        derived login: host, port and user for ssh, once it is Running
        derived nodes: controller, login and workers with their status
        spoken sfs_mount_list: with read_only
        spoken pfs_mount_list: with read_only
        spoken dataset_mount_list: with read_only
        spoken script_added: whether there is a script
        spoken lifecycle_script: with its first line
        """,
    ),
)
