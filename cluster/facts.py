"""Reads what planning needs to know from the cluster, once per run. Changes nothing, reads no Secret.

What may not or can't be read becomes *unknown* with its reason; it is never taken for *none there*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cluster.connect import Cluster, ClusterError
from cluster.pods import list_pods
from stack import labels, names
from stack.facts import AnchorFacts, ClaimFacts, ClusterFacts, WorkloadFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.connect import Object

T = TypeVar("T")


def read_facts(context: str, *, namespace: str, release: str) -> ClusterFacts:
    """Facts about one release in one namespace, through one kubeconfig context."""
    try:
        cluster = Cluster(context)
    except ClusterError as error:
        return ClusterFacts(unknown=(str(error),))
    with cluster:
        return _read(cluster, namespace, release)


def _read(cluster: Cluster, namespace: str, release: str) -> ClusterFacts:
    unknown: list[str] = []
    is_reachable = True

    def ask(what: str, read: Callable[[], T]) -> T | None:
        nonlocal is_reachable
        if not is_reachable:  # the next question would only wait again
            return None
        try:
            return read()
        except ClusterError as error:
            is_reachable = error.status is not None
            unknown.append(f"{what}: {error}" if is_reachable else f"cluster of context {cluster.context}: {error}")
            return None

    claims = ask("PersistentVolumeClaims", lambda: _claims(cluster, namespace))
    anchors = ask("topology anchor", lambda: _anchor(cluster, namespace, release))
    deployments = ask("role workloads", lambda: _deployments(cluster, namespace, release))
    pods = ask("Pods", lambda: list_pods(cluster, namespace, f"{labels.INSTANCE}={release},{labels.TOPOLOGY}"))
    return ClusterFacts(
        claims=claims,
        anchor_is_known=anchors is not None,
        anchor=anchors[0] if anchors else None,
        workloads=None if deployments is None else _workloads(deployments, pods),
        live_topologies=None if pods is None else frozenset(_label(pod, labels.TOPOLOGY) for pod in pods),
        router_leaves=any(
            live["metadata"]["name"] == names.epp(release) and "deletionTimestamp" in live["metadata"]
            for live in deployments or ()
        ),
        unknown=tuple(unknown),
    )


def _claims(cluster: Cluster, namespace: str) -> dict[str, ClaimFacts]:
    listed = cluster.list(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
    return {live["metadata"]["name"]: _claim(live["metadata"]) for live in listed}


def _claim(meta: Object) -> ClaimFacts:
    return ClaimFacts(
        name=meta["name"],
        instance=meta.get("labels", {}).get(labels.INSTANCE),
        is_terminating="deletionTimestamp" in meta,
    )


def _anchor(cluster: Cluster, namespace: str, release: str) -> list[AnchorFacts]:
    """The anchor in a list, so that *none there* (empty) differs from *could not ask*."""
    live = cluster.find(f"/api/v1/namespaces/{namespace}/configmaps/{names.topology_anchor(release)}")
    if live is None:
        return []
    generation = live["metadata"].get("annotations", {}).get(labels.GENERATION, "1")
    return [
        AnchorFacts(
            key=live.get("data", {}).get("key", ""),
            generation=int(generation) if generation.isdecimal() else 1,
            uid=live["metadata"]["uid"],
            is_terminating="deletionTimestamp" in live["metadata"],
        )
    ]


def _deployments(cluster: Cluster, namespace: str, release: str) -> list[Object]:
    """The release's Deployments: role workloads and the endpoint picker."""
    return cluster.list(
        f"/apis/apps/v1/namespaces/{namespace}/deployments", labelSelector=f"{labels.INSTANCE}={release}"
    )


def _workloads(deployments: list[Object], pods: list[Object] | None) -> dict[str, WorkloadFacts]:
    """Role workloads by name."""
    return {
        live["metadata"]["name"]: _workload(live, pods)
        for live in deployments
        if labels.ROLE in live["metadata"].get("labels", {})
    }


def _workload(live: Object, pods: list[Object] | None) -> WorkloadFacts:
    meta = live["metadata"]
    entry = meta["labels"].get(labels.ENTRY)
    return WorkloadFacts(
        name=meta["name"],
        role=meta["labels"].get(labels.COMPONENT, ""),
        entry=int(entry) if entry is not None and entry.isdecimal() else None,
        node=meta.get("annotations", {}).get(labels.NODE),
        replicas=live["spec"]["replicas"],
        available=live.get("status", {}).get("availableReplicas", 0),
        is_placed=pods is None
        or any(
            _label(pod, labels.COMPONENT) == meta["labels"].get(labels.COMPONENT)
            and _label(pod, labels.ENTRY) == (entry or "")
            and pod["spec"].get("nodeName")
            for pod in pods
        ),
        owner_uid=next((owner["uid"] for owner in meta.get("ownerReferences", ())), None),
        is_terminating="deletionTimestamp" in meta,
    )


def _label(pod: Object, label: str) -> str:
    return pod["metadata"]["labels"].get(label, "")
