"""The Pods of a release that may still hold something."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.connect import Cluster, Object


def list_pods(cluster: Cluster, namespace: str, selector: str) -> list[Object]:
    """Pods that match, without those that are over.

    An evicted Pod stays behind in phase Failed, with the labels of the others, until somebody deletes it; it holds no
    device (the cluster gives the claims of a Pod that is over back).

    Raises:
        ClusterError: they can't be listed.
    """
    listed = cluster.list(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
    return [pod for pod in listed if pod.get("status", {}).get("phase") not in {"Failed", "Succeeded"}]
