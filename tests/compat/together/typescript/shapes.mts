// The fields of this client's own types, as JSON: what our table of fields is held against.

import { fields } from './types.mjs';

const without = (names: string[], ...known: string[]) => names.filter((name) => !known.includes(name));

console.log(
  JSON.stringify({
    'Create a cluster': fields('ClusterCreateParams'),
    'Update a cluster': fields('ClusterUpdateParams'),
    'shared_volume, and create a volume': fields('StorageCreateParams'),
    'Update a volume': fields('StorageUpdateParams'),
    'cluster_config': fields('ClusterCreateParams', 'cluster_config'),
    'cluster_config.slurm_startup_scripts': fields('ClusterCreateParams', 'cluster_config', 'slurm_startup_scripts'),
    'oidc_config': fields('ClusterCreateParams', 'oidc_config'),
    'acceptance_tests_params': fields('ClusterCreateParams', 'acceptance_tests_params'),
    'add_ons[]': fields('ClusterCreateParams', 'add_ons'),
    'Create a remediation': without(fields('RemediationCreateParams'), 'cluster_id', 'remediation_id'),
    'Approve a remediation': without(fields('RemediationApproveParams'), 'cluster_id', 'instance_id'),
    'Reject a remediation': without(fields('RemediationRejectParams'), 'cluster_id', 'instance_id'),
    'Cluster': fields('Cluster'),
    'Cluster.control_plane_nodes[]': fields('Cluster', 'control_plane_nodes'),
    'Cluster.gpu_worker_nodes[] and deleted_gpu_worker_nodes[]': fields('Cluster', 'gpu_worker_nodes'),
    'Volume': fields('ClusterStorage'),
    'Remediation': fields('Remediation'),
    'Region': fields('ClusterListRegionsResponse', 'regions'),
  }),
);
