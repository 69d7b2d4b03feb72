// Every method of the clusters, storage and remediations resources, and every field of what they answer.

import assert from 'node:assert/strict';
import { REGION, asked, clusters, gone, ready, together, until, type Cluster } from './client.mjs';
import { whole } from './types.mjs';

async function regions(): Promise<void> {
  const found = whole('ClusterListRegionsResponse', await clusters.listRegions()).regions;
  const here = found.find((region) => region.name === REGION)!;
  assert(here.supported_instance_types.includes('H100_SXM'));
  const pairs = here.driver_versions.map((image) => `${image.cuda_version} ${image.nvidia_driver_version}`);
  for (const pair of ['12.5 555', '12.6 560', '12.6 565', '12.8 570']) assert(pairs.includes(pair), pair);
  assert(here.driver_versions.every((image) => image.id && image.os));
}

async function volumes(): Promise<string> {
  const wish = { region: REGION, size_tib: 1, volume_name: 'data' };
  const made = whole('ClusterStorage', await clusters.storage.create(wish));
  assert.deepEqual([made.volume_name, made.size_tib], ['data', 1]);
  assert.equal((await clusters.storage.create(wish)).volume_id, made.volume_id);
  const grown = whole('ClusterStorage', await clusters.storage.update({ volume_id: made.volume_id, size_tib: 2 }));
  assert.equal(grown.size_tib, 2);
  const look = () => clusters.storage.retrieve(made.volume_id);
  whole('ClusterStorage', await until(look, (volume) => volume.status === 'available', 'available'));
  const listed = whole('StorageListResponse', await clusters.storage.list()).volumes;
  assert.deepEqual(listed.map((volume) => [volume.volume_id, volume.size_tib]), [[made.volume_id, 2]]);
  assert.deepEqual((await clusters.storage.list({ projectId: 'somebody-elses' })).volumes, []);
  return made.volume_id;
}

async function created(volume_id: string): Promise<Cluster> {
  const wish = asked('first', { num_gpus: 16, volume_id });
  const made = whole('Cluster', await clusters.create(wish));
  assert.equal(made.status, 'WaitingForControlPlaneNodes');
  assert.equal(made.kube_config, '');
  assert.equal((await clusters.create(wish)).cluster_id, made.cluster_id);
  const seen = whole('Cluster', await ready(made.cluster_id));
  const mine = whole('ClusterListResponse', await clusters.list({ projectId: seen.project_id })).clusters;
  assert.deepEqual(mine.map((cluster) => cluster.cluster_id), [made.cluster_id]);
  assert.deepEqual((await clusters.list({ projectId: 'somebody-elses' })).clusters, []);
  assert.equal((await clusters.storage.retrieve(volume_id)).status, 'bound');
  return seen;
}

function fieldByField(cluster: Cluster, volume_id: string): void {
  assert.deepEqual([cluster.cluster_name, cluster.region, cluster.num_gpus], ['first', REGION, 16]);
  assert.deepEqual([cluster.cluster_type, cluster.gpu_type], ['KUBERNETES', 'H100_SXM']);
  assert.deepEqual([cluster.billing_type, cluster.num_reserved_gpus], ['ON_DEMAND', 0]);
  assert.deepEqual([cluster.cuda_version, cluster.nvidia_driver_version], ['12.6', '560']);
  assert.deepEqual(cluster.volumes, [{ volume_id, volume_name: 'data', size_tib: 2, status: 'bound' }]);
  assert.deepEqual(cluster.control_plane_nodes.map((node) => node.host_name).sort(), ['controller', 'login']);
  assert.deepEqual(cluster.gpu_worker_nodes.map((node) => node.host_name), ['worker-0', 'worker-1']);
  for (const node of cluster.gpu_worker_nodes) {
    assert.deepEqual([node.status, node.num_gpus, node.networks.length], ['Running', 8, 1]);
    assert.deepEqual([node.nvswitch_count, node.ib_hca_count], [4, 8]);
    assert.equal(node.phase_transitions.at(-1)?.phase, 'NODE_PHASE_RUNNING');
    assert(node.instance_id && node.num_cpu_cores > 0 && node.memory_gib > 0);
  }
  const moved = cluster.phase_transitions;
  assert.equal(moved.at(-1)?.phase, 'CLUSTER_PHASE_READY');
  assert.equal(cluster.first_ready_at, moved.at(-1)?.transition_time);
  assert(moved.every((move) => Number.isFinite(Date.parse(move.transition_time))), 'times that JavaScript cannot read');
  assert(Number.isFinite(Date.parse(cluster.created_at ?? '')));
  const kubeConfig = Buffer.from(cluster.kube_config, 'base64').toString();
  assert(kubeConfig.includes('name: "first"'), kubeConfig);
}

async function resized(id: string): Promise<Cluster> {
  const workers = (count: number) => (seen: Cluster) =>
    seen.gpu_worker_nodes.length === count && seen.gpu_worker_nodes.every((node) => node.status === 'Running');
  assert.equal(whole('Cluster', await clusters.update(id, { num_gpus: 24, cluster_type: 'KUBERNETES' })).num_gpus, 24);
  await until(() => clusters.retrieve(id), workers(3), 'three workers');
  assert.equal((await clusters.update(id, { num_gpus: 16 })).num_gpus, 16);
  const seen = whole('Cluster', await until(() => clusters.retrieve(id), workers(2), 'two workers'));
  const [left] = seen.deleted_gpu_worker_nodes ?? [];
  assert(left?.deleted_at);
  const told = seen.node_lifecycle_events?.filter((event) => event.node_id === left.node_id) ?? [];
  const reasons = told.map((event) => event.reason);
  assert(reasons.includes('TogetherScaledUp') && reasons.includes('TogetherScaledDown'), String(reasons));
  return seen;
}

async function repaired(cluster: Cluster): Promise<void> {
  const { cluster_id } = cluster;
  const instance_id = cluster.gpu_worker_nodes[0]?.instance_id ?? '';
  const wish = { cluster_id, mode: 'REMEDIATION_MODE_REBOOT_VM', reason: 'why' } as const;
  const own = { ...wish, remediation_id: '0f8fad5b-d9cb-4d9f-a165-70867728950f' };
  const made = whole('Remediation', await clusters.remediations.create(instance_id, own));
  assert.deepEqual([made.id, made.state, made.reason], [own.remediation_id, 'PENDING', 'why']);
  assert.equal(made.trigger, 'REMEDIATION_TRIGGER_MANUAL');
  assert.equal((await clusters.remediations.create(instance_id, own)).id, made.id);
  const look = () => clusters.remediations.retrieve(made.id, { cluster_id, instance_id });
  const done = whole('Remediation', await until(look, (seen) => seen.state === 'SUCCEEDED', 'repaired'));
  assert(Date.parse(done.start_time ?? '') <= Date.parse(done.end_time ?? ''));
  const filtered = await clusters.remediations.list('-', {
    cluster_id,
    mode: ['REMEDIATION_MODE_REBOOT_VM', 'REMEDIATION_MODE_VM_ONLY'],
    state: ['SUCCEEDED', 'QUARANTINED'],
    trigger: ['REMEDIATION_TRIGGER_MANUAL'],
    order_by: 'create_time desc',
    page_size: 1,
  });
  const listed = whole('RemediationListResponse', filtered);
  assert.deepEqual(listed.remediations.map((one) => one.id), [made.id]);
  assert.deepEqual([listed.has_next, listed.next_page_token], [false, '']);
  const none = await clusters.remediations.list(instance_id, { cluster_id, state: ['FAILED', 'CANCELLED'] });
  assert.deepEqual(none.remediations, []);
  const seen = whole('Cluster', await clusters.retrieve(cluster_id));
  assert.equal(seen.gpu_worker_nodes.find((node) => node.instance_id === instance_id)?.latest_remediation?.id, made.id);
}

async function theEnd(id: string, volume_id: string): Promise<void> {
  assert.equal(whole('ClusterDeleteResponse', await clusters.delete(id)).cluster_id, id);
  await gone(() => clusters.retrieve(id));
  assert.deepEqual((await clusters.list()).clusters, []);
  assert.equal(whole('StorageDeleteResponse', await clusters.storage.delete(volume_id)).success, true);
  await gone(() => clusters.storage.retrieve(volume_id));
}

assert.equal(whole('WhoamiResponse', await together.whoami()).project_id, process.env['PROJECT_ID']);
await regions();
const volume_id = await volumes();
const cluster = await created(volume_id);
fieldByField(cluster, volume_id);
await repaired(await resized(cluster.cluster_id));
await theEnd(cluster.cluster_id, volume_id);
