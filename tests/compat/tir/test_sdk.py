"""E2E's own SDK, e2enetworks 1.4.9, unmodified. Its heavy dependencies are empty modules (standins/)."""

from __future__ import annotations

from pathlib import Path

from .conftest import KEYS, Tenant, drive


def test_every_call_of_the_sdk_that_we_answer(tenant: Tenant, tmp_path: Path) -> None:
    tenant.good("POST", "/distributed_jobs/sfs/", json={"name": "from-the-wire", "disk_size": 500})
    made = tenant.create()
    tenant.running(made["id"])
    drive(tenant, "every_call.py", tmp_path, str(made["id"]), KEYS[1])
