"""A kubeconfig that real tools can read and that opens nothing. Written by hand: no YAML library at run time."""

from __future__ import annotations

import base64
import json

from muster.contracts.orchestrator import Target


def kubeconfig(target: Target, server: str, secret: bytes) -> str:
    """User names are unique per cluster, so that files of many clusters can be merged into one."""
    name, user = json.dumps(target.name), f"muster-{target.cluster_id[:8]}"
    authority = base64.b64encode(_authority(secret).encode()).decode()
    return f"""# Simulated by Muster: no API server answers at this address.
apiVersion: v1
kind: Config
preferences: {{}}
clusters:
- name: {name}
  cluster:
    server: {json.dumps(server)}
    certificate-authority-data: {authority}
users:
- name: {user}
  user:
    token: simulated-{secret.hex()}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {user}
current-context: {name}
"""


def _authority(secret: bytes) -> str:
    """A placeholder in the shape of a certificate: there is no one to present the real one."""
    body = base64.b64encode(b"simulated authority " + secret).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
