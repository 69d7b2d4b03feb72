"""What becomes of every field that TensorPool's clients send, and what we chose where the provider says nothing.

docs/dialects/tensorpool.md is made from this table, and a test holds it against the structs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from muster.dialects.tensorpool import wire


class Section(NamedTuple):
    """One request body, by the struct it is read with."""

    title: str
    struct: type[msgspec.Struct]
    fields: dict[str, str]


def _fields(text: str) -> dict[str, str]:
    """Lines of `name: sentence`."""
    rows = (line.strip().partition(": ") for line in text.strip().splitlines())
    return {name: sentence for name, _, sentence in rows}


REQUESTS: Final[tuple[Section, ...]] = (
    Section(
        "POST /health",
        wire.Health,
        _fields("""
            package_version: read and not kept; every version is let in
            uname: read and not kept
            python_version: read and not kept
            python_implementation: read and not kept
            python_compiler: read and not kept
            python_build: read and not kept
        """),
    ),
    Section(
        "POST /cluster/create",
        wire.NewCluster,
        _fields("""
            instance_type: NxGPU; a name of the catalogue, or the beginning of one: 8xH100 is 8xH100_SXM
            public_keys: put on the nodes, together with all keys saved in the project
            num_nodes: at least 1, default 1; one node is a cluster whose controller is the node itself
            tp_cluster_name: unique among the project's living clusters; without one a name is made up
            container: an image of the catalogue, by id or as OS-cudaVERSION; anything else is refused with the list
            deletion_protection: destroying is refused until it is lifted
            save_keys: default true: public_keys are saved for later clusters too
        """),
    ),
    Section(
        "PATCH /cluster/edit/{cluster_id}",
        wire.ClusterChange,
        _fields("""
            cluster_name: the new name
            deletion_protection: set or lift
        """),
    ),
    Section(
        "POST /storage/create",
        wire.NewStorage,
        _fields("""
            size: in GB; a GB of theirs is a GiB of ours
            name: unique among the project's living volumes; without one a name is made up
            deletion_protection: destroying is refused until it is lifted
        """),
    ),
    Section(
        "PATCH /storage/edit/{storage_id}",
        wire.StorageChange,
        _fields("""
            tp_storage_name: the new name
            deletion_protection: set or lift
            size_gb: never less than it is
        """),
    ),
    Section(
        "POST /storage/attach",
        wire.Attach,
        _fields("""
            storage_id: mounted at /mnt/ID on every node, while they run: nothing is restarted
            cluster_ids: 1 to 64, in the storage's region; nothing is attached while one of them is unknown
        """),
    ),
    Section(
        "POST /storage/detach",
        wire.Detach,
        _fields("""
            storage_id: its files stay
            cluster_id: one
        """),
    ),
    Section(
        "POST /user/ssh-key/add",
        wire.NewKey,
        _fields("""
            public_key: one line, as in a .pub file
            name: default: the member's e-mail address, else the key's own name
        """),
    ),
    Section(
        "PATCH /user/preferences",
        wire.PreferenceChange,
        _fields("""
            notify_email_cluster_create: true is refused: this server sends no mail
            notify_email_cluster_destroy: true is refused: this server sends no mail
            autopay_enabled: true is refused: accounts are topped up by the operator
            balance_warning_threshold: refused; credit that runs low is told in the events
            autopay_reload_threshold: refused
        """),
    ),
    Section(
        "WebSocket /job/push, second frame",
        wire.Push,
        _fields("""
            tp_config: TOML with commands, outputs and ignore; anything else is refused by name
            cluster_id: a cluster that runs
            system: Windows is refused: use WSL
            teardown_cluster: destroy the cluster when the job is over and its outputs are home
        """),
    ),
)
CHOSEN: Final = (
    ("Ids", "The house's own, the same on every wire: a cluster made by `tp` has this id in Together's SDK too."),
    (
        "Regions",
        "There are none here. A cluster goes where the project's storage is, if it fits; else where most is free.",
    ),
    ("Organization", "The account. `--org` lists the project's things; without it, what this member or key made."),
    ("Statuses", "Beyond RUNNING they are our choice: see the table."),
    ("RETRYING", "A create that goes on after one of its nodes had to be replaced."),
    ("Name conflicts", "400, as documented. The same create again within ten minutes gets the first answer again."),
    ("Stock", "409, with what is free and where. What could never fit: 400."),
    ("Protection", "409."),
    ("SSH", "Through the cluster's door; host keys are remembered under the cluster's id."),
    ("Job directory", "`~/jobs/ID/files`, in the home that all nodes share; its environment beside it."),
    (
        "Where jobs run",
        "On all workers, whole, under `sbatch`; commands start on the first, `srun` reaches the others.",
    ),
    ("`ignore`", "Taken away on the node after the upload: no pattern of anybody's is put into your shell."),
    ("Outputs", "Up to 1,000 files and 1 GiB are brought home before the job is called over."),
    ("Links", "To one file each, for 15 minutes, readable by whoever holds one."),
    (
        "Object storage",
        "One S3 user per account; rotating keeps the access key. Bucket names: small letters, digits, hyphens.",
    ),
    ("Closing /job/push", "1000 well; 4001 unknown key, 4002 balance, 4003 not allowed, 4000 anything else."),
    ("Simulated fleets", "`tp ssh` is refused; jobs upload nothing, print what they would have run and end."),
)
REFUSED: Final = (
    (
        "Object storage where there is none",
        "Unless the operator started it (`--object-storage on`), refused in a sentence.",
    ),
    ("WebSocket forms of tp 0.0.6 and older", "Not spoken: upgrade to 0.0.7 or newer."),
)
