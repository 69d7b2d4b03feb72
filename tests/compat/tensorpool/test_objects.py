"""`tp object-storage` before a real S3 server, and what people point at it: rclone and boto3, unmodified."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from muster.objectstores.versity import program
from muster.testing.local import cache
from muster.testing.server import MusterServer, running_server

from .conftest import Tenant

BOTO = Path(__file__).resolve().parents[3] / ".venv-compat-boto3" / "bin" / "python"
STORY = """
import sys, boto3, botocore
endpoint, region, access, secret, bucket = sys.argv[1:6]
keys = {"aws_access_key_id": access, "aws_secret_access_key": secret}
s3 = boto3.client("s3", endpoint_url=endpoint, region_name=region, **keys)
if len(sys.argv) > 6:
    try:
        s3.list_objects_v2(Bucket=bucket)
    except botocore.exceptions.ClientError as refused:
        print(refused.response["Error"]["Code"])
        sys.exit()
s3.put_object(Bucket=bucket, Key="a/b.txt", Body=b"kept")
print(s3.get_object(Bucket=bucket, Key="a/b.txt")["Body"].read().decode())
print([item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]])
s3.delete_object(Bucket=bucket, Key="a/b.txt")
"""


def _cache() -> Path:
    if program(cache()) is None:
        pytest.skip("capability: object storage (there is no versitygw on this machine)")
    return cache()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MusterServer]:
    """A server of its own, with an S3 server behind it."""
    home = tmp_path_factory.mktemp("objects") / "home"
    with running_server(home, hosts="16", object_storage="on", cache=str(_cache())) as running:
        yield running


@pytest.fixture(scope="module")
def operator(server: MusterServer) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {server.operator_key}"}
    with httpx.Client(base_url=f"{server.url}/muster/v1", headers=headers, timeout=30) as client:
        yield client


def keys(tenant: Tenant) -> list[str]:
    told = tenant.good("GET", "/object-storage/credentials")
    return [told[name] for name in ("endpoint", "region", "access_key_id", "secret_access_key")]


def boto(tenant: Tenant, *words: str) -> str:
    if not BOTO.exists():
        pytest.skip("needs boto3: ./check compat makes its environment")
    done = subprocess.run(
        [str(BOTO), "-c", STORY, *keys(tenant), *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rclone(tenant: Tenant, *words: str) -> str:
    program = shutil.which("rclone")
    if program is None:
        pytest.skip("needs rclone: apt-get install rclone")
    done = subprocess.run(
        [program, *words], env=tenant.environ(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_enable_to_disable(tenant: Tenant) -> None:
    assert "not enabled" in tenant.tp("object-storage", "credentials", code=1)
    told = tenant.tp("object-storage", "enable")
    endpoint, _, access, secret = keys(tenant)
    assert endpoint in told
    assert secret in told
    assert access in tenant.tp("object-storage", "credentials")
    assert "No buckets" in tenant.tp("object-storage", "bucket", "list")
    bucket = f"data-{access.lower()[2:12]}"
    tenant.tp("object-storage", "bucket", "create", bucket)
    assert bucket in tenant.tp("object-storage", "bucket", "list")
    assert "kept" in boto(tenant, bucket)
    tenant.tp("object-storage", "configure", "rclone")
    source = tenant.home / "up"
    source.mkdir()
    (source / "file").write_text("through rclone")
    rclone(tenant, "copy", str(source), f"tp:{bucket}/deep")
    assert "deep/file" in rclone(tenant, "lsf", "-R", f"tp:{bucket}")
    rclone(tenant, "copy", f"tp:{bucket}/deep", str(tenant.home / "down"))
    assert (tenant.home / "down" / "file").read_text() == "through rclone"
    assert "not empty" in tenant.tp("object-storage", "bucket", "delete", bucket, code=1)
    assert "buckets" in tenant.tp("object-storage", "disable", code=1)
    rclone(tenant, "purge", f"tp:{bucket}/deep")
    tenant.tp("object-storage", "bucket", "rm", bucket)
    assert "disabled" in tenant.tp("object-storage", "disable")


def test_a_rotated_secret_ends_the_old_one(tenant: Tenant) -> None:
    old = tenant.good("POST", "/object-storage/enable")
    tenant.good("PUT", f"/object-storage/bucket/create/turn-{old['access_key_id'].lower()}")
    new = tenant.good("POST", "/object-storage/rotate-keys")
    assert new["access_key_id"] == old["access_key_id"]
    assert new["secret_access_key"] != old["secret_access_key"]
    assert "kept" in boto(tenant, f"turn-{old['access_key_id'].lower()}")


def test_organizations_do_not_see_each_other(new_tenant: Callable[[], Tenant]) -> None:
    ann, bob = new_tenant(), new_tenant()
    access = ann.good("POST", "/object-storage/enable")["access_key_id"]
    bucket = f"ann-{access.lower()}"
    ann.good("PUT", f"/object-storage/bucket/create/{bucket}")
    bob.good("POST", "/object-storage/enable")
    assert bob.good("GET", "/object-storage/bucket/list")["buckets"] == []
    assert boto(bob, bucket, "refused").strip() == "AccessDenied"
    assert "somebody has a bucket" in bob.tp("object-storage", "bucket", "create", bucket, code=1).lower()
    assert "There is no bucket" in bob.tp("object-storage", "bucket", "delete", bucket, code=1)


def test_the_store_outlives_a_killed_server(tmp_path: Path) -> None:
    with running_server(tmp_path / "home", hosts="16", object_storage="on", cache=str(_cache())) as server:
        tenant = Tenant(server.url, server.tenant_key, "", tmp_path, httpx.Client())
        bucket = f"kept-{tenant.good('POST', '/object-storage/enable')['access_key_id'].lower()}"
        tenant.good("PUT", f"/object-storage/bucket/create/{bucket}")
        before = keys(tenant)
        server.kill()
        server.start()
        tenant.url = server.url
        for _ in range(50):
            if tenant.ask("GET", "/object-storage/bucket/list").status_code == 200:
                break
        assert keys(tenant) == before, "clients keep the endpoint in their configuration"
        assert tenant.good("GET", "/object-storage/bucket/list")["buckets"] == [bucket]
