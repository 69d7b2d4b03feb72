"""A server's life from outside: where it says it is, one per home, a clean stop, a kill that loses nothing."""

from __future__ import annotations

import json
import os
import signal
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from muster.testing.postgres import postgres_dsn, postgres_server
from muster.testing.server import FAST, MusterServer, running_server

__all__ = ["postgres_dsn", "postgres_server"]
WISH = {"name": "kept", "type": "slurm", "gpu_type": "H100_SXM", "gpus": 8}


def ask(server: MusterServer, method: str, path: str, **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {server.tenant_key}"}
    return httpx.request(method, f"{server.url}/muster/v1{path}", headers=headers, timeout=60, **more)


def start_another(home: Path, **flags: str) -> subprocess.CompletedProcess[str]:
    said = {"home": str(home), "port": "0", "fleet": "simulated", **flags}
    environ = {f"MUSTER_{name.upper()}": value for name, value in said.items()}
    command = [sys.executable, "-m", "muster.app"]
    return subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, timeout=60, check=False)


def test_a_home_is_its_owners_and_holds_one_server(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    with running_server(home) as server:
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        for name in ("operator.key", "tenant.key", "muster.db", "run/server.json"):
            assert stat.S_IMODE((home / name).stat().st_mode) == 0o600, name
        info = json.loads((home / "run" / "server.json").read_text())
        assert (info["pid"], info["url"], info["role"]) == (server.pid, server.url, "all")
        second = start_another(home)
        assert second.returncode == 0
        assert f"already running at {server.url} (pid {server.pid}" in second.stdout
        assert ask(server, "GET", "/whoami").json()["name"] == "demo"
    assert not (home / "run" / "server.json").exists()


def test_a_stop_is_clean_even_with_a_stream_open(tmp_path: Path) -> None:
    server = MusterServer(tmp_path / "home", dict(FAST)).start()
    headers = {"authorization": f"Bearer {server.tenant_key}"}
    with httpx.stream("GET", f"{server.url}/muster/v1/changes", headers=headers) as reply:
        lines = reply.iter_lines()
        assert next(lines).startswith("retry:")
        assert server.stop() == 0
        assert not [line for line in lines if line.startswith("data")]
    assert "rror" not in server.log.read_text()


def test_kill_9_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    server = MusterServer(tmp_path / "home", dict(FAST)).start()
    made = ask(server, "POST", "/clusters", json=WISH).json()
    assert server.kill() == -signal.SIGKILL
    server.start()
    try:
        ready = ask(server, "GET", f"/clusters/{made['id']}", params={"wait": 30}).json()
        assert (ready["name"], ready["phase"]) == ("kept", "ready")
        assert ready["nodes"][0]["id"] == made["nodes"][0]["id"]
    finally:
        assert server.stop() == 0


def test_a_failpoint_kills_and_the_next_start_goes_on(tmp_path: Path) -> None:
    server = MusterServer(tmp_path / "home", {**FAST, "failpoint": "cluster.accept:after"}).start()
    with pytest.raises(httpx.TransportError):
        ask(server, "POST", "/clusters", json=WISH)
    assert server.wait() == -signal.SIGKILL
    server.flags.pop("failpoint")
    server.start()
    try:
        again = ask(server, "POST", "/clusters", json=WISH)
        assert again.status_code == 201
        assert [c["name"] for c in ask(server, "GET", "/clusters").json()["items"]] == ["kept"]
        assert ask(server, "GET", f"/clusters/{again.json()['id']}", params={"wait": 30}).json()["phase"] == "ready"
    finally:
        server.stop()


def test_the_api_and_the_engine_may_be_two_processes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running_server(home, role="api") as api, running_server(home, role="engine"):
        made = ask(api, "POST", "/clusters", json=WISH).json()
        assert ask(api, "GET", f"/clusters/{made['id']}", params={"wait": 30}).json()["phase"] == "ready"


def test_two_processes_share_one_postgresql(tmp_path: Path, postgres_dsn: str) -> None:
    """Of the home they share only the simulated world; all that Muster knows is in the database."""
    home = tmp_path / "home"
    with (
        running_server(home, database=postgres_dsn, role="api") as api,
        running_server(home, database=postgres_dsn, role="engine"),
    ):
        made = ask(api, "POST", "/clusters", json=WISH).json()
        ready = ask(api, "GET", f"/clusters/{made['id']}", params={"wait": 30}).json()
        assert (ready["phase"], len(ready["nodes"])) == ("ready", 3)
        assert ask(api, "DELETE", f"/clusters/{made['id']}").status_code == 202
        ask(api, "GET", f"/clusters/{made['id']}", params={"wait": 30})
        assert ask(api, "GET", f"/clusters/{made['id']}").status_code == 404
    assert not (home / "muster.db").exists()


def test_two_homes_on_one_postgresql_live_in_one_world(tmp_path: Path, postgres_dsn: str) -> None:
    """Trouble made at the server's door is met by an engine of another home."""
    shared = {"database": postgres_dsn, "world": str(tmp_path / "world.db")}
    with (
        running_server(tmp_path / "a", role="api", **shared) as api,
        running_server(tmp_path / "b", role="engine", **shared),
    ):
        made = ask(api, "POST", "/clusters", json=WISH).json()
        ready = ask(api, "GET", f"/clusters/{made['id']}", params={"wait": 30}).json()
        host = next(node["host_name"] for node in ready["nodes"] if node["role"] == "worker")
        fault = {"kind": "host-death", "target": host}
        operator = {"authorization": f"Bearer {api.operator_key}"}
        assert httpx.post(f"{api.url}/muster/v1/faults", json=fault, headers=operator).status_code == 201
        known = {"if-none-match": f'"{ready["version"]}"'}
        path = f"{api.url}/muster/v1/clusters/{made['id']}"
        headers = {"authorization": f"Bearer {api.tenant_key}", **known}
        assert httpx.get(path, params={"wait": 30}, headers=headers, timeout=60).json()["version"] > ready["version"]
        again = start_another(tmp_path / "b", role="engine", **shared)
        assert "already running as an engine" in again.stdout


def test_a_fleet_that_forgot_everything_is_asked_for_all_of_it_again(tmp_path: Path) -> None:
    """While nodes boot their fabric is lost too: asking for the nodes alone would wait for ever."""
    slow = MusterServer(tmp_path / "home", {**FAST, "time_scale": "20"}).start()
    made = ask(slow, "POST", "/clusters", json=WISH).json()
    known: dict[str, str] = {}
    for _ in range(20):
        headers = {"authorization": f"Bearer {slow.tenant_key}", **known}
        path = f"{slow.url}/muster/v1/clusters/{made['id']}"
        reply = httpx.get(path, params={"wait": 10}, headers=headers, timeout=60)
        known = {"if-none-match": reply.headers["etag"]}
        if reply.json()["phase"] not in ("network", "storage"):
            break
    assert slow.stop() == 0
    for file in (tmp_path / "home").glob("world.db*"):
        file.unlink()
    with running_server(tmp_path / "home") as quick:
        found = ask(quick, "GET", f"/clusters/{made['id']}", params={"wait": 30}).json()
        assert found["phase"] == "ready"


def test_given_keys_are_the_keys(tmp_path: Path) -> None:
    with running_server(tmp_path / "home", operator_key="mk-the-operator", tenant_key="mk-the-tenant") as server:
        assert (server.operator_key, server.tenant_key) == ("mk-the-operator", "mk-the-tenant")
        assert ask(server, "GET", "/whoami").json()["role"] == "admin"


def test_a_revoked_key_does_not_come_back_by_a_restart(tmp_path: Path) -> None:
    server = MusterServer(tmp_path / "home", dict(FAST)).start()
    me = ask(server, "GET", "/whoami").json()
    assert ask(server, "DELETE", f"/keys/{me['key_id']}").status_code == 200
    assert server.stop() == 0
    server.start()
    try:
        assert ask(server, "GET", "/whoami").status_code == 401
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"host": "0.0.0.0"}, "refusing to listen on 0.0.0.0 without TLS"),
        ({"port": "1", "host": "192.0.2.1", "insecure_bind": "192.0.2.1"}, "cannot listen on 192.0.2.1 port 1"),
        ({"failpoint": "nowhere:after"}, "nowhere"),
    ],
)
def test_who_cannot_start_says_why_in_one_sentence(tmp_path: Path, flags: dict[str, str], words: str) -> None:
    ended = start_another(tmp_path / "home", **flags)
    assert ended.returncode == 1
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_it_speaks_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-keyout",
            key,
            "-out",
            cert,
            *subject,
        ],
        check=True,
        capture_output=True,
    )
    with running_server(tmp_path / "home", tls_cert=str(cert), tls_key=str(key)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(cert))
        assert httpx.get(f"{server.url}/healthz", verify=context).json() == {"status": "ok"}
        asked = [sys.executable, "-m", "muster.cli.main", "whoami"]
        ours = subprocess.run([*asked, "--home", server.home], capture_output=True, text=True, timeout=60)
        assert (ours.returncode, "admin" in ours.stdout) == (0, True), ours.stderr
        away = subprocess.run(
            [*asked, "--url", server.url.replace("127.0.0.1", "localhost"), "--api-key", server.tenant_key],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (away.returncode, "MUSTER_CA_FILE" in away.stderr) == (7, True)
