"""A PyTorch job by the SDK, from its submission to its removal. Prints what its pods printed, one line each."""

import sys
import time

from e2enetworks.cloud import tir

cluster_id, sfs_id, simulated = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "simulated"


def good(answer):
    success, data = answer
    assert success, data.text
    return data


def until(client, id, *wanted):
    for _ in range(600):
        job = good(client.describe_job(id))
        if job.status in wanted:
            return job
        assert job.status in ("Pending", "Running", "Terminating"), (job.status, job.status_reason)
        time.sleep(0.1)
    raise AssertionError(job.status)


tir.init()
client = tir.DistributedJobClient()
say = 'echo "$WHO $RANK of $WORLD_SIZE at $MASTER_ADDR"'
what = {
    "image": "pytorch/pytorch:latest",
    "job_cpu": 4,
    "job_gpu": 1,
    "job_memory": 8,
    "cluster_id": cluster_id,
    "master_replica": 1,
    "master_commands": ["bash", "-c", say],
    "worker_replica": 2,
    "worker_commands": ["bash", "-c", say],
}
made = good(client.submit_pytorch_job("train", sfs_id=sfs_id, env=[{"key": "WHO", "value": "it's"}], **what))
assert made.id in [job.id for job in good(client.list_jobs())]
done = until(client, made.id, "Succeeded")
assert (done.name, done.cluster_id, done.exit_code) == ("train", cluster_id, 0)
pods = [pod.pod_name for pod in good(client.get_job_pods(made.id))]
assert pods == ["train-master-0", "train-worker-0", "train-worker-1"]
for pod in pods:
    print("POD", pod, good(client.get_job_logs(made.id, pod)).logs.strip())
client.show_job_logs(made.id, pods[0])
client.show_job_collective_details(made.id)
assert "job.accepted" in [event.type for event in good(client.get_job_events(made.id))]
good(client.delete_job(made.id))
assert not client.describe_job(made.id)[0]

slow = good(client.submit_pytorch_job("slow", **{**what, "master_commands": ["sleep", "600"], "worker_replica": 0}))
if not simulated:
    until(client, slow.id, "Running")
good(client.terminate_job(slow.id))
until(client, slow.id, "Terminated")
assert not client.terminate_job(slow.id)[0]

failing = good(client.submit_pytorch_job("bad", **{**what, "master_commands": ["false"], "worker_replica": 0}))
if not simulated:
    assert until(client, failing.id, "Failed").exit_code == 1
