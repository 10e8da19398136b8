"""Asks the engine what its state holds of this stack, before anything is registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulumi

from stack import labels, names
from stack.facts import HeldTopology, StateFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Object = dict[str, Any]
WORKLOAD_TYPE = "kubernetes:apps/v1:Deployment"
ANCHOR_TYPE = "kubernetes:core/v1:ConfigMap"
PROVIDER_TYPE = "pulumi:providers:kubernetes"


def read_state() -> StateFacts:
    """The stack's own resources as its last update left them; unknown when the engine does not tell."""
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    try:
        answer: Any = pulumi.runtime.invoke("pulumi:pulumi:readStackResourceOutputs", {"stackName": stack}).value
        return _state(answer["outputs"])
    except Exception as error:  # noqa: BLE001  # whatever an older or newer engine makes of it
        words = " ".join(str(error).split())
        return StateFacts(unknown=f"{type(error).__name__}: {words}" if words else type(error).__name__)


def _state(resources: Mapping[str, Any]) -> StateFacts:
    identifiers: list[str | None] = [
        resource["outputs"].get("clusterIdentifier")
        for resource in resources.values()
        if resource["type"] == PROVIDER_TYPE
    ]
    workloads = dict(_workloads(resources))
    return StateFacts(
        topologies=tuple(_topologies(resources)),
        workloads=frozenset(workloads),
        strategies={name: strategy for name, strategy in workloads.items() if strategy is not None},
        cluster_identifier=next((found for found in identifiers if found), None),
    )


def _topologies(resources: Mapping[str, Any]) -> Iterator[HeldTopology]:
    for meta, carried, outputs in _objects(resources, ANCHOR_TYPE):
        release = carried.get(labels.INSTANCE, "")
        if meta.get("name") == names.topology_anchor(release):
            data: Object = outputs.get("data") or {}
            yield HeldTopology(release=release, namespace=meta.get("namespace", ""), key=data.get("key", ""))


def _workloads(resources: Mapping[str, Any]) -> Iterator[tuple[str, Object | None]]:
    """Names of role workloads, with their strategies."""
    for meta, carried, outputs in _objects(resources, WORKLOAD_TYPE):
        if labels.ROLE in carried:
            spec: Object = outputs.get("spec") or {}
            yield meta.get("name", ""), spec.get("strategy")


def _objects(resources: Mapping[str, Any], kind: str) -> Iterator[tuple[Object, Object, Object]]:
    """Metadata, labels and outputs of every object of a type."""
    for resource in resources.values():
        if resource["type"] == kind:
            meta: Object = resource["outputs"].get("metadata") or {}
            yield meta, meta.get("labels") or {}, resource["outputs"]
