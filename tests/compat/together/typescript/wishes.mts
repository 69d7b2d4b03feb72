// Every wish that this client's create() knows and the fleet can honour, told back as it was said.

import assert from 'node:assert/strict';
import { REGION, asked, clusters, gone, ready, type CreateParams } from './client.mjs';
import { whole } from './types.mjs';

const scripts = {
  worker_prolog: '#!/bin/sh\necho 1',
  worker_epilog: '#!/bin/sh\necho 2',
  controller_prolog: '#!/bin/sh\necho 3',
  controller_epilog: '#!/bin/sh\necho 4',
  login_init_script: '#!/bin/sh\necho 5',
  nodeset_init_script: '#!/bin/sh\necho 6',
  extra_slurm_conf: 'MaxJobCount=5000',
};

async function slurm(): Promise<void> {
  const wish = asked('slurm', {
    num_gpus: 16,
    cluster_type: 'SLURM',
    slurm_shm_size_gib: 64,
    shared_volume: { region: REGION, size_tib: 3, volume_name: 'home', is_lifecycle_independent: false },
    acceptance_tests_params: { enabled: true, dcgm_diag_level: 'DCGM_DIAG_LEVEL_SHORT' },
    add_ons: [{ add_on_type: 'slurm_web', name: 'web', config: { slurm_web: { enabled: true } } }],
    cluster_config: { load_balancer: 'NONE', slurm_startup_scripts: scripts, ssh_ca_enabled: true },
    auto_scaled: true,
    auto_scale: true,
    auto_scale_max_gpus: 32,
  });
  const made = whole('Cluster', await clusters.create(wish));
  assert.deepEqual([made.cluster_type, made.slurm_shm_size_gib], ['SLURM', 64]);
  assert.equal(made.cluster_config?.ssh_ca_enabled, true);
  assert.deepEqual(made.cluster_config.slurm_startup_scripts, scripts);
  const web = made.add_ons.map((one) => [one.add_on_type, one.name, one.config.slurm_web?.enabled]);
  assert.deepEqual(web, [['slurm_web', 'web', true]]);
  const seen = whole('Cluster', await ready(made.cluster_id));
  assert.equal(seen.gpu_worker_nodes[0]?.slurm_worker_hostname, 'worker-0.slurm-compute.slurm');
  const off = await clusters.update(made.cluster_id, {
    add_ons: [{ name: 'web', config: { slurm_web: { enabled: false } } }],
    cluster_config: { load_balancer: 'NONE', jumphost_enabled: true },
  });
  const config = whole('Cluster', off).cluster_config;
  assert.deepEqual([off.add_ons, config?.jumphost_enabled, config?.ssh_ca_enabled], [[], true, true]);
  const home = seen.volumes[0]?.volume_id ?? '';
  await clusters.delete(made.cluster_id);
  await gone(() => clusters.storage.retrieve(home));
}

async function kubernetes(): Promise<void> {
  const { regions } = await clusters.listRegions();
  const image = regions.find((region) => region.name === REGION)?.driver_versions[0];
  const { cuda_version: _, nvidia_driver_version: __, ...wish }: CreateParams = asked('kube', {
    nvidia_version_id: image?.id ?? '',
    install_traefik: true,
    duration_days: 2,
    cluster_config: { load_balancer: 'TRAEFIK', kubernetes_dashboard_enabled: true, observability: { enabled: true } },
    acceptance_tests_params: { enabled: false },
  });
  const made = whole('Cluster', await clusters.create(wish));
  assert.deepEqual([made.nvidia_driver_version_id, made.cuda_version], [image?.id, image?.cuda_version]);
  assert.deepEqual([made.install_traefik, made.duration_hours], [true, 48]);
  assert.deepEqual(made.add_ons.map((one) => one.add_on_type), ['dashboard']);
  assert(Number.isFinite(Date.parse(made.reservation_end_time ?? '')));
  await ready(made.cluster_id);
}

async function unknown(): Promise<void> {
  const wish = { ...asked('future'), a_field_from_the_future: 1, cluster_config: null } as unknown as CreateParams;
  const { response } = await clusters.create(wish).withResponse();
  assert.equal(response.headers.get('x-muster-ignored-fields'), 'a_field_from_the_future');
}

await slurm();
await kubernetes();
await unknown();
