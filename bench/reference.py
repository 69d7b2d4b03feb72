"""The floor: the least that a control plane must do, on bare ASGI and SQLite, with nothing of Muster in it.

    GET  /v1/clusters/{id}        one stored document, if it belongs to the caller's project
    GET  /v1/clusters?limit=100   the first hundred
    POST /v1/clusters             decode and validate, place whole hosts, insert cluster, allocations and event; the
                                  answer waits for a group commit at synchronous=FULL

It has no roles, quotas, phases or reconcilers. Run by bench/run with uvicorn; the database is $BENCH_DB.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
import uuid

import msgspec

HOSTS = 200_000
LEAF = 16
GROUP_MOST = 256
PROJECT_OF = {b"Bearer reference-key": "project-1"}


class Moment(msgspec.Struct):
    phase: str
    transition_time: str


class Node(msgspec.Struct):
    node_id: str
    host_name: str
    status: str
    num_cpu_cores: int
    num_gpus: int
    memory_gib: float
    networks: list[str]
    phase_transitions: list[Moment]


class Volume(msgspec.Struct):
    volume_id: str
    volume_name: str
    size_tib: int
    status: str


class Document(msgspec.Struct):
    cluster_id: str
    cluster_name: str
    cluster_type: str
    status: str
    region: str
    gpu_type: str
    num_gpus: int
    project_id: str
    cuda_version: str
    nvidia_driver_version: str
    created_at: str
    kube_config: str
    control_plane_nodes: list[Node]
    gpu_worker_nodes: list[Node]
    volumes: list[Volume]
    phase_transitions: list[Moment]


class Create(msgspec.Struct):
    cluster_name: str
    region: str
    gpu_type: str
    num_gpus: int
    cluster_type: str


def sample() -> Document:
    """A document of about 2.7 kB, as long as a real cloud's."""
    moments = [Moment("CLUSTER_PHASE_WAITING", "2026-01-01T00:00:00Z") for _ in range(6)]

    def node(kind: str) -> Node:
        return Node(
            str(uuid.uuid4()), f"{kind}.example.internal", "Running", 192, 8, 2048.0, ["10.0.0.1"] * 2, moments
        )

    return Document(
        "", "", "KUBERNETES", "Scheduled", "region-1", "H100_SXM", 8, "project-1", "12.8", "570",
        "2026-01-01T00:00:00Z", "", [node("control")], [node("worker")],
        [Volume(str(uuid.uuid4()), "shared", 1, "bound")], moments,
    )  # fmt: skip


class Free:
    """Free whole hosts: a bit mask per leaf, leaves bucketed by how many are free."""

    def __init__(self, hosts: int) -> None:
        self.masks = [(1 << LEAF) - 1] * (hosts // LEAF)
        self.buckets: list[set[int]] = [set() for _ in range(LEAF + 1)]
        self.buckets[LEAF].update(range(len(self.masks)))

    def take(self, count: int) -> list[int] | None:
        for free in range(count, LEAF + 1):
            if self.buckets[free]:
                return self._from(min(self.buckets[free]), count)
        return None

    def _from(self, leaf: int, count: int) -> list[int]:
        mask, taken = self.masks[leaf], []
        self.buckets[mask.bit_count()].discard(leaf)
        for _ in range(count):
            low = mask & -mask
            taken.append(leaf * LEAF + low.bit_length() - 1)
            mask ^= low
        self.masks[leaf] = mask
        self.buckets[mask.bit_count()].add(leaf)
        return taken


def connect() -> sqlite3.Connection:
    db = sqlite3.connect(os.environ["BENCH_DB"], isolation_level=None, check_same_thread=False)
    db.execute("pragma journal_mode=wal")
    db.execute("pragma synchronous=full")
    return db


class Writer(threading.Thread):
    """One thread that commits whatever has gathered, many creates to one fsync."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.db = connect()
        self.db.executescript(
            "create table if not exists cluster(id text primary key, project text, name text, status text,"
            " created real, doc text); create index if not exists by_project on cluster(project, created);"
            "create table if not exists allocation(host integer primary key, cluster text);"
            "create table if not exists event(id integer primary key, cluster text, kind text, at real);"
        )
        self.queue: queue.SimpleQueue = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            group = [self.queue.get()]
            while len(group) < GROUP_MOST:
                try:
                    group.append(self.queue.get_nowait())
                except queue.Empty:
                    break
            self.db.execute("begin immediate")
            for row, hosts, _, _ in group:
                self.db.execute("insert into cluster values(?,?,?,?,?,?)", row)
                self.db.executemany("insert into allocation values(?,?)", [(host, row[0]) for host in hosts])
                self.db.execute("insert into event(cluster,kind,at) values(?,?,?)", (row[0], "created", row[4]))
            self.db.execute("commit")
            group[0][3].call_soon_threadsafe(
                lambda done=[item[2] for item in group]: [f.set_result(None) for f in done]
            )


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Create).decode
template = sample()
free = Free(HOSTS)
writer = Writer()
reader = connect()
writer.start()


async def create(project: str, body: bytes) -> tuple[int, bytes]:
    try:
        asked = decode(body)
    except msgspec.ValidationError as error:
        return 400, encode({"error": str(error)})
    hosts = free.take(asked.num_gpus // 8)
    if hosts is None:
        return 409, b'{"error":"out of capacity"}'
    template.cluster_id, template.cluster_name, template.num_gpus = (
        str(uuid.uuid4()),
        asked.cluster_name,
        asked.num_gpus,
    )
    document = encode(template)
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    row = (template.cluster_id, project, asked.cluster_name, "Scheduled", time.time(), document.decode())
    writer.queue.put((row, hosts, done, loop))
    await done
    return 201, document


def get(project: str, id: str) -> tuple[int, bytes]:
    found = reader.execute("select doc from cluster where id=? and project=?", (id, project)).fetchone()
    return (200, found[0].encode()) if found else (404, b'{"error":"not found"}')


def listed(project: str) -> bytes:
    rows = reader.execute("select doc from cluster where project=? order by created limit 100", (project,))
    return ('{"clusters":[' + ",".join(row[0] for row in rows) + "]}").encode()


async def app(scope, receive, send):  # type: ignore[no-untyped-def]
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    project = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            project = PROJECT_OF.get(value)
    path = scope["path"]
    if project is None:
        status, body = 401, b'{"error":"unauthorized"}'
    elif scope["method"] == "POST":
        status, body = await create(project, (await receive())["body"])
    elif len(path) > len("/v1/clusters/"):
        status, body = get(project, path[len("/v1/clusters/") :])
    else:
        status, body = 200, listed(project)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
