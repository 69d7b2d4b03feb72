"""Together's own Terraform provider, with Terraform or OpenTofu: what docs/terraform.md says, from apply to destroy.

`./check --thorough` builds the provider from the Go module proxy into the cache. It is handed to Terraform by an
override in a configuration file of the test's own, so that no registry is asked.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from muster.testing.local import cache

from .conftest import ROOT, Tenant
from .provider import CLUSTERS, VOLUMES
from .test_repairs import until

PROVIDER = "terraform-provider-together"
RUN_SECONDS_MAX = 120
CHANGES = 2
"""What `plan -detailed-exitcode` ends with when there is something to do."""

CLUSTER, VOLUME = "together_beta_cluster.train", "together_beta_cluster_storage.data"


def provider_folder() -> Path:
    kept = cache() / "bin" / PROVIDER
    found = kept if kept.exists() else Path(shutil.which(PROVIDER) or "")
    if found.name != PROVIDER:
        pytest.skip(f"needs {PROVIDER}: ./check --thorough compat builds it where there is Go and the proxy has it")
    return found.parent


def program() -> str:
    found = shutil.which("terraform") or shutil.which("tofu") or shutil.which("tofu", path=str(cache() / "bin"))
    if found is None:
        how = f"GOBIN={cache() / 'bin'} go install github.com/opentofu/opentofu/cmd/tofu@latest"
        pytest.skip(f"needs terraform or tofu: developer.hashicorp.com/terraform/install, or {how}")
    return found


@dataclass
class Workspace:
    """A folder with the page's configuration, and Terraform in it."""

    folder: Path
    tenant: Tenant
    program: str

    def run(self, *words: str, code: int = 0, **variables: object) -> str:
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
            "TF_INPUT": "0",
            "TF_CLI_CONFIG_FILE": str(self.folder / "terraform.rc"),
            "TOGETHER_BASE_URL": self.tenant.url,
            "TOGETHER_API_KEY": self.tenant.key,
            "TF_VAR_project": self.tenant.project_id,
            **{f"TF_VAR_{name}": str(value) for name, value in variables.items()},
        }
        done = subprocess.run(
            [self.program, *words],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == code, f"{' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def apply(self, **variables: object) -> None:
        self.run("apply", "-auto-approve", **variables)

    def plan(self, code: int = 0, **variables: object) -> dict[str, list[str]]:
        """What it would do to each resource that it would touch."""
        self.run("plan", "-detailed-exitcode", "-out=next", code=code, **variables)
        planned = json.loads(self.run("show", "-json", "next"))["resource_changes"]
        actions = {change["address"]: list(change["change"]["actions"]) for change in planned}
        return {address: done for address, done in actions.items() if done != ["no-op"]}

    def state(self, address: str) -> dict[str, Any]:
        resources = json.loads(self.run("show", "-json"))["values"]["root_module"]["resources"]
        return next(dict(one["values"]) for one in resources if one["address"] == address)


@pytest.fixture
def workspace(tenant: Tenant, tmp_path: Path) -> Workspace:
    folder = tmp_path / "workspace"
    folder.mkdir()
    page = (ROOT / "docs" / "terraform.md").read_text()
    found = re.search(r"```hcl\n(.*?)```", page, re.S)
    assert found is not None
    (folder / "main.tf").write_text(found[1])
    override = f'"togethercomputer/together" = "{provider_folder()}"'
    (folder / "terraform.rc").write_text(f"provider_installation {{\n  dev_overrides {{\n    {override}\n  }}\n}}\n")
    return Workspace(folder, tenant, program())


def ready(tenant: Tenant, id: str) -> dict[str, Any]:
    look = lambda: tenant.wire.good("GET", f"{CLUSTERS}/{id}")  # noqa: E731
    return dict(until(look, lambda seen: seen["status"] == "Ready", "ready"))


def test_the_page_from_apply_to_destroy(workspace: Workspace, tenant: Tenant) -> None:
    workspace.apply()
    id = json.loads(workspace.run("output", "-json"))["cluster_id"]["value"]
    told = ready(tenant, id)
    kept = workspace.state(CLUSTER)
    assert {name: kept[name] for name in ("cluster_name", "num_gpus", "region", "gpu_type", "cuda_version")} == {
        name: told[name] for name in ("cluster_name", "num_gpus", "region", "gpu_type", "cuda_version")
    }
    assert [volume["volume_id"] for volume in told["volumes"]] == [workspace.state(VOLUME)["volume_id"]]
    assert workspace.plan() == {}, "a second plan has nothing to do"

    assert workspace.plan(CHANGES, gpus=16) == {CLUSTER: ["update"]}
    workspace.apply(gpus=16)
    assert tenant.wire.good("GET", f"{CLUSTERS}/{id}")["num_gpus"] == 16
    assert workspace.plan(gpus=16) == {}
    ready(tenant, id)
    workspace.run("refresh", gpus=16)
    assert workspace.state(CLUSTER)["status"] == "Ready"

    workspace.run("destroy", "-auto-approve", gpus=16)
    for path in (f"{CLUSTERS}/{id}", f"{VOLUMES}/{told['volumes'][0]['volume_id']}"):
        until(lambda path=path: tenant.wire.ask("GET", path).status_code, lambda status: status == 404, path)
    assert tenant.wire.good("GET", CLUSTERS) == {"clusters": []}
    assert tenant.wire.good("GET", VOLUMES) == {"volumes": []}


def test_what_went_behind_its_back_is_made_again(workspace: Workspace, tenant: Tenant) -> None:
    workspace.apply()
    id = workspace.state(CLUSTER)["cluster_id"]
    tenant.wire.good("DELETE", f"{CLUSTERS}/{id}")
    until(lambda: tenant.wire.ask("GET", f"{CLUSTERS}/{id}").status_code, lambda status: status == 404, "gone")
    assert workspace.plan(CHANGES) == {CLUSTER: ["create"]}
    workspace.apply()
    assert workspace.state(CLUSTER)["cluster_id"] != id
    workspace.run("destroy", "-auto-approve")


def test_a_cluster_that_is_there_is_taken_in(workspace: Workspace, tenant: Tenant) -> None:
    """With its volume left as the page says: the provider never reads back what would mean another one."""
    workspace.apply()
    ids = {CLUSTER: workspace.state(CLUSTER)["cluster_id"], VOLUME: workspace.state(VOLUME)["volume_id"]}
    main = workspace.folder / "main.tf"
    keep = "  lifecycle {{\n    ignore_changes = [{}]\n  }}\n"
    text = main.read_text().replace("  size_tib    = 1\n", "  size_tib    = 1\n" + keep.format("region"))
    main.write_text(re.sub(r"(  volume_id .*\n)", r"\1" + keep.format("volume_id"), text))
    for address, id in ids.items():
        workspace.run("state", "rm", address)
        workspace.run("import", address, id)
    workspace.apply()
    assert {CLUSTER: workspace.state(CLUSTER)["cluster_id"], VOLUME: workspace.state(VOLUME)["volume_id"]} == ids
    assert workspace.plan() == {}
    workspace.run("destroy", "-auto-approve")
