"""The SDK as its users have it: every call that a server of training clusters answers."""

import json
import os
import sys
import tempfile

from e2enetworks.cloud import tir
from e2enetworks.cloud.tir.ssh_keys import SSHKeys

cluster_id, key_text = int(sys.argv[1]), sys.argv[2]


def good(answer):
    success, data = answer
    assert success, data.text
    return data


tir.init()

# clusters, by the older paths
client = tir.DistributedJobClient()
assert [c.id for c in good(client.list_clusters())] == [cluster_id]
described = good(client.describe_cluster(cluster_id))
assert (described.id, described.status) == (cluster_id, "Running")
assert described.sku.gpu == 8
assert [n.role for n in described.nodes if n.role == "worker"] == ["worker"]
success, reply = client.describe_cluster(10**9)
assert not success
assert (reply.status_code, reply.json()["code"]) == (404, 404)

# shared file systems
[sfs] = good(client.list_sfs())
assert (sfs.name, sfs.disk_size) == ("from-the-wire", 500)

# keys
keys = SSHKeys()
added = good(keys.add("sdk", key_text))
assert added.id in [k.id for k in good(keys.list())]
assert added.label in [k.label for k in good(keys.sync())]
assert good(keys.delete(added.id)) == "SSH Key has been deleted successfully."
assert added.id not in [k.id for k in good(keys.list())]

# plans and images
plans, table = tir.Plans().get_plans_list("notebook")
assert plans["CPU"] == []
assert any(sku["name"] == "8xH100_SXM" for sku in plans["GPU"])
assert plans["GPU"][-1]["plans"][-1]["committed_days"] == 0
assert {plan["committed_days"] for plan in plans["GPU"][0]["plans"]} == {0, 30, 90, 365}
assert "8xH100_SXM" in table.get_string()
tir.Plans().get_plans_name("pipeline")
images = tir.Images().list(is_jupyterlab_enabled=False)
assert "Slurm" in images.get_string()

# teams, projects, tokens
team, project = int(os.environ["E2E_TIR_TEAM_ID"]), int(os.environ["E2E_TIR_PROJECT_ID"])
assert [t.team_id for t in good(tir.Teams().list())] == [team]
assert good(tir.Teams().get(team)).team_id == team
assert not tir.Teams().delete(team)[0]
projects = tir.Projects(location=os.environ["E2E_TIR_LOCATION"])
assert [p.project_id for p in good(projects.list())] == [project]
assert good(projects.get(project)).project_id == project
assert not projects.create("mine")[0]
assert not projects.delete(project)[0]
tokens = tir.APITokens()
made = good(tokens.create("ci"))
assert made.auth_token == made.api_key
assert made.id in [t.id for t in good(tokens.list())]

# the new token is a key like any other, here by a config file, as people download it
with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    said = {"api_key": made.api_key, "auth_token": made.auth_token, "team_id": team, "project_id": project}
    json.dump(said, file)
    file.flush()
    tir.load_config(file.name)
assert [c.id for c in good(tir.DistributedJobClient().list_clusters())] == [cluster_id]
tir.init()
good(tokens.delete(made.id))
assert made.id not in [t.id for t in good(tokens.list())]

# other products answer in the envelope, with a sentence
success, reply = tir.Notebooks().list()
assert not success
told = reply.json()
assert (reply.status_code, told["code"]) == (404, 404)
assert told["errors"]["detail"].startswith("This server makes training clusters"), told

# nobody gets in with another key
tir.init(api_key="mk-wrong", access_token="mk-wrong")
success, reply = client.list_clusters()
assert not success
assert reply.json() == {"code": 401, "message": "Unauthorized access."}
