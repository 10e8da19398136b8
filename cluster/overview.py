"""Reads what is running in a namespace, for people to look at. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.connect import Cluster, Object
from stack import labels

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class PodView:
    """One Pod of the stack."""

    name: str
    role: str
    node: str
    ready: str


@dataclass(frozen=True, kw_only=True)
class ClaimView:
    """One ResourceClaim with the devices it was given, as `driver: device`."""

    name: str
    state: str
    devices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class VolumeView:
    """One PersistentVolumeClaim."""

    name: str
    state: str
    size: str


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Everything that is shown."""

    pods: tuple[PodView, ...]
    claims: tuple[ClaimView, ...]
    volumes: tuple[VolumeView, ...]


def read_overview(kubeconfig: Path, *, context: str, namespace: str) -> Overview:
    """Pods, claims and volumes of a namespace, each sorted by name.

    Raises:
        ClusterError: they can't be read.
    """
    with Cluster(context, kubeconfig=kubeconfig) as cluster:
        pods = cluster.list(f"/api/v1/namespaces/{namespace}/pods", labelSelector=labels.INSTANCE)
        claims = cluster.list(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
        volumes = cluster.list(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
    return Overview(
        pods=tuple(sorted(map(_pod, pods), key=lambda p: p.name)),
        claims=tuple(sorted(map(_claim, claims), key=lambda c: c.name)),
        volumes=tuple(sorted(map(_volume, volumes), key=lambda v: v.name)),
    )


def _pod(pod: Object) -> PodView:
    meta, status = pod["metadata"], pod.get("status", {})
    is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
    state = "Terminating" if "deletionTimestamp" in meta else status.get("phase", "unknown")
    return PodView(
        name=meta["name"],
        role=meta["labels"].get(labels.COMPONENT, ""),
        node=pod["spec"].get("nodeName", ""),
        ready="Ready" if is_ready else f"not Ready ({state})",
    )


def _claim(claim: Object) -> ClaimView:
    status: Object = claim.get("status", {})
    allocation: Object | None = status.get("allocation")
    results: list[Object] = [] if allocation is None else allocation.get("devices", {}).get("results", [])
    state = "pending" if allocation is None else "allocated,reserved" if status.get("reservedFor") else "allocated"
    return ClaimView(
        name=claim["metadata"]["name"],
        state=state,
        devices=tuple(sorted(f"{result['driver']}: {result['device']}" for result in results)),
    )


def _volume(volume: Object) -> VolumeView:
    status = volume.get("status", {})
    return VolumeView(
        name=volume["metadata"]["name"],
        state=status.get("phase", ""),
        size=status.get("capacity", {}).get("storage", ""),
    )
