"""The fields of this SDK's own types, as JSON: what our table of fields is held against."""

from __future__ import annotations

import json
import typing
from typing import Any

from together.types import cluster, cluster_create_params, cluster_list_regions_response, cluster_update_params
from together.types.clusters import (
    cluster_storage,
    remediation,
    remediation_approve_params,
    remediation_create_params,
    remediation_reject_params,
    storage_create_params,
    storage_update_params,
)


def said(params: Any) -> list[str]:
    return sorted(typing.get_type_hints(params))


def created() -> list[str]:
    """create() takes a union of two shapes."""
    variants = typing.get_args(cluster_create_params.ClusterCreateParams)
    return sorted({name for variant in variants for name in said(variant)})


def part(module: Any, ending: str) -> list[str]:
    [found, *_] = [kind for name, kind in vars(module).items() if name.endswith(ending) and hasattr(kind, "__mro__")]
    return said(found)


print(
    json.dumps(
        {
            "Create a cluster": created(),
            "Update a cluster": said(cluster_update_params.ClusterUpdateParams),
            "shared_volume, and create a volume": said(storage_create_params.StorageCreateParams),
            "Update a volume": said(storage_update_params.StorageUpdateParams),
            "cluster_config": said(cluster_update_params.ClusterConfig),
            "cluster_config.slurm_startup_scripts": said(cluster_update_params.ClusterConfigSlurmStartupScripts),
            "oidc_config": part(cluster_create_params, "OidcConfig"),
            "acceptance_tests_params": part(cluster_create_params, "AcceptanceTestsParams"),
            "add_ons[]": part(cluster_create_params, "AddOn"),
            "Create a remediation": sorted(
                set(said(remediation_create_params.RemediationCreateParams)) - {"cluster_id"}
            ),
            "Approve a remediation": sorted(
                set(said(remediation_approve_params.RemediationApproveParams)) - {"cluster_id", "instance_id"}
            ),
            "Reject a remediation": sorted(
                set(said(remediation_reject_params.RemediationRejectParams)) - {"cluster_id", "instance_id"}
            ),
            "Cluster": sorted(cluster.Cluster.model_fields),
            "Cluster.control_plane_nodes[]": sorted(cluster.ControlPlaneNode.model_fields),
            "Cluster.gpu_worker_nodes[] and deleted_gpu_worker_nodes[]": sorted(cluster.GPUWorkerNode.model_fields),
            "Volume": sorted(cluster_storage.ClusterStorage.model_fields),
            "Remediation": sorted(remediation.Remediation.model_fields),
            "Region": sorted(cluster_list_regions_response.Region.model_fields),
        }
    )
)
