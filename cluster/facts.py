"""Reads what planning needs to know from the cluster, once per run. Changes nothing, reads no Secret.

What is read of the release is handed on as it is, to foresee what a change does to its Pods: see `stack.impact`.
What may not or can't be read becomes *unknown* with its reason; it is never taken for *none there*.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cluster.connect import ClusterError
from cluster.questions import questions_to
from stack import labels, names
from stack.facts import AnchorFacts, ClaimFacts, ClusterFacts, Surroundings, WorkloadFacts
from stack.rollout.pods import is_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.connect import Cluster, Object
    from cluster.questions import Questions


def read_facts(context: str, *, namespace: str, release: str) -> ClusterFacts:
    """Facts about one release in one namespace, through one kubeconfig context."""
    try:
        with questions_to(context) as questions:
            return _read(questions, namespace, release)
    except ClusterError as error:
        return ClusterFacts(unknown=(str(error),))


def _read(questions: Questions, namespace: str, release: str) -> ClusterFacts:
    core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
    ours = {"labelSelector": f"{labels.INSTANCE}={release}"}
    listed = partial(questions.list, is_always_there=True)
    asked_pods = listed("Pods", f"{core}/pods", ours)
    asked_claims = listed("PersistentVolumeClaims", f"{core}/persistentvolumeclaims")
    asked_deployments = listed("role workloads", f"{apps}/deployments", ours)
    asked_sets = listed("ReplicaSets", f"{apps}/replicasets", ours)
    asked_anchor = questions.ask("topology anchor", partial(_anchor, questions.cluster, namespace, release))

    found = asked_pods()
    pods = None if found is None else [pod for pod in found if not is_over(pod)]
    servers = None if pods is None else [pod for pod in pods if _label(pod, labels.TOPOLOGY)]
    claims, deployments, anchors = asked_claims(), asked_deployments(), asked_anchor()
    near = Surroundings(
        release_pods=pods,
        volume_claims=None if claims is None else {live["metadata"]["name"]: live for live in claims},
        replica_sets=asked_sets(),
        deployments=None if deployments is None else [live for live in deployments if _has_role(live)],
        calls=questions.cluster.calls,
        size=questions.cluster.size,
    )
    return ClusterFacts(
        claims=None if claims is None else {live["metadata"]["name"]: _claim(live["metadata"]) for live in claims},
        anchor_is_known=bool(anchors),
        anchor=next(iter(anchors), None),
        workloads=None if near.deployments is None else _workloads(near.deployments, servers),
        live_topologies=None if servers is None else frozenset(_label(pod, labels.TOPOLOGY) for pod in servers),
        router_leaves=any(
            live["metadata"]["name"] == names.epp(release) and "deletionTimestamp" in live["metadata"]
            for live in deployments or ()
        ),
        unknown=questions.unknown,
        near=near,
    )


def _claim(meta: Object) -> ClaimFacts:
    return ClaimFacts(
        name=meta["name"],
        instance=meta.get("labels", {}).get(labels.INSTANCE),
        is_terminating="deletionTimestamp" in meta,
    )


def _anchor(cluster: Cluster, namespace: str, release: str) -> AnchorFacts | None:
    live = cluster.find(f"/api/v1/namespaces/{namespace}/configmaps/{names.topology_anchor(release)}")
    if live is None:
        return None
    generation = live["metadata"].get("annotations", {}).get(labels.GENERATION, "1")
    return AnchorFacts(
        key=live.get("data", {}).get("key", ""),
        generation=int(generation) if generation.isdecimal() else 1,
        uid=live["metadata"]["uid"],
        is_terminating="deletionTimestamp" in live["metadata"],
    )


def _has_role(deployment: Object) -> bool:
    """Whether it is a role workload; the release has the endpoint picker's as well."""
    return labels.ROLE in deployment["metadata"].get("labels", {})


def _workloads(deployments: Sequence[Object], pods: list[Object] | None) -> dict[str, WorkloadFacts]:
    """Role workloads by name."""
    return {live["metadata"]["name"]: _workload(live, pods) for live in deployments}


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
